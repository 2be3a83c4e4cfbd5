//! The laboratory: network namespaces, a veth pair, real peers.
