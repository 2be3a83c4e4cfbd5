/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
//
// TCP that only the kernel can read: behind IPv4 options, IPv6 extension headers, or in the first of several fragments. All
// that is wanted of it is the flow that it belongs to.

#pragma once

#include "headers.bpf.h"

#define IPV6_FRAGMENT_OFFSET 0xfff8
// Headers in front of TCP that are looked behind, each at most 2048 octets long.
#define EXTENSIONS_MAX 4

struct extension_header {
	__u8 next;
	// In units of 8 octets, the first not counted: RFC 8200, 4.3.
	__u8 len;
};

struct fragment_header {
	__u8 next;
	__u8 zero;
	__be16 offset;
	__be32 identification;
};

static __always_inline int take_tcp_in_ipv4(struct cursor *at, struct packet *packet)
{
	struct iphdr *ip = take(at, sizeof(*ip));

	if (!ip || ip->version != 4 || ip->ihl < 5 || ip->frag_off & bpf_htons(IPV4_FRAGMENT_OFFSET))
		return 0;
	read_ipv4(packet, ip);
	at->next = ip; // Again, with options: so the verifier sees that the length is no negative one.
	return take(at, 4 * ip->ihl) && packet->key.protocol == IPPROTO_TCP;
}

// Moves behind one header; false if it is not one to look behind, or a later fragment's.
static __always_inline int take_extension(struct cursor *at, __u8 *protocol)
{
	struct extension_header *extension;
	struct fragment_header *fragment;

	if (*protocol == IPPROTO_FRAGMENT) {
		fragment = take(at, sizeof(*fragment));
		if (!fragment || fragment->offset & bpf_htons(IPV6_FRAGMENT_OFFSET))
			return 0;
		*protocol = fragment->next;
		return 1;
	}
	if (*protocol != IPPROTO_HOPOPTS && *protocol != IPPROTO_DSTOPTS)
		return 0;
	extension = take(at, sizeof(*extension));
	if (!extension)
		return 0;
	*protocol = extension->next;
	return take(at, 8 * extension->len + 6) != NULL;
}

static __always_inline int take_tcp_in_ipv6(struct cursor *at, struct packet *packet)
{
	__u8 protocol;

	if (take_ipv6(at, packet) != REDIRECTED)
		return 0;
	protocol = packet->key.protocol;
	for (int extension = 0; extension < EXTENSIONS_MAX; extension++) {
		if (protocol == IPPROTO_TCP)
			break;
		if (!take_extension(at, &protocol))
			return 0;
	}
	packet->key.protocol = protocol;
	return protocol == IPPROTO_TCP;
}

// Fills `packet` as `read_headers` does; false if there is no TCP to be found.
static __always_inline int read_unreadable_tcp(struct cursor *at, struct packet *packet)
{
	int found;

	if (!take_link(at, packet))
		return 0;
	if (is_ipv4(packet))
		found = take_tcp_in_ipv4(at, packet);
	else
		found = packet->ethertype == bpf_htons(ETH_P_IPV6) && take_tcp_in_ipv6(at, packet);
	return found && take_transport(at, packet);
}
