//! Ethernet, VLAN, IPv4, IPv6, ICMP, UDP and checksums, parsed and written in place.
