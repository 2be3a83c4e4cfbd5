//! Packet frames and the pools that own their memory; a frame has one owner.
