//! A TCP connection as a value, and the kernel's socket made of it by `TCP_REPAIR`.
