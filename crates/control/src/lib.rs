//! The kernel's view mirrored by netlink, and the claims that follow it.
