/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
//
// From a packet to the claim that it may fall under.

#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "maps.bpf.h"

#define VLAN_IDENTIFIER 0x0fff
#define IPV4_NO_OPTIONS 0x45
// More fragments, or an offset: RFC 791, 3.1.
#define IPV4_FRAGMENT 0x3fff
#define IPV4_FRAGMENT_OFFSET 0x1fff

// Types of ICMP errors: RFC 792, RFC 4443. The kernel's headers for them need those of a C library.
#define ICMP_UNREACHABLE 3
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETER_PROBLEM 12
#define ICMPV6_ERROR_FIRST 1
#define ICMPV6_ERROR_LAST 4

struct vlan_tag {
	__be16 control;
	__be16 next_ethertype;
};

// UDP and TCP both start with these.
struct transport_ports {
	__be16 source;
	__be16 destination;
};

// What ICMP errors of both versions have in front of the packet that they quote.
struct icmp_header {
	__u8 type;
	__u8 code;
	__be16 checksum;
	__be32 rest;
};

// The octet of a TCP header that says so, and what it says: RFC 9293, 3.1.
#define TCP_FLAGS_AT 13
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

// What was found in a packet, or in the one that it quotes: values, no pointers, so that the verifier need not follow each way through
// the headers to the end.
struct packet {
	struct claim_key key;
	// The peer's, as flows have it.
	__be32 remote[4];
	__be16 remote_port;
	__be16 ethertype;
	// An ICMP error: the rest is of what we sent.
	__u8 quoted;
	// A TCP segment that opens a connection.
	__u8 begins;
	// One that answers such a segment: who has the connection may be another than who had the last one with these ends.
	__u8 answers;
};

// How far the packet has been read.
struct cursor {
	void *next;
	void *end;
};

static __always_inline struct cursor begin(struct xdp_md *ctx)
{
	return (struct cursor){ .next = (void *)(long)ctx->data, .end = (void *)(long)ctx->data_end };
}

// Returns `size` octets and moves behind them, or NULL if the packet is shorter.
static __always_inline void *take(struct cursor *at, __u32 size)
{
	void *taken = at->next;

	if (taken + size > at->end)
		return NULL;
	at->next = taken + size;
	return taken;
}

static __always_inline int is_vlan(__be16 ethertype)
{
	return ethertype == bpf_htons(ETH_P_8021Q) || ethertype == bpf_htons(ETH_P_8021AD);
}

// Reads one tag if there is one; false if the packet ends within it.
static __always_inline int take_vlan(struct cursor *at, __be16 *ethertype, __be16 *identifier)
{
	struct vlan_tag *tag;

	if (!is_vlan(*ethertype))
		return 1;
	tag = take(at, sizeof(*tag));
	if (!tag)
		return 0;
	*identifier = tag->control & bpf_htons(VLAN_IDENTIFIER);
	*ethertype = tag->next_ethertype;
	return 1;
}

// Reads what is in front of the IP packet; false if there is less.
static __always_inline int take_link(struct cursor *at, struct packet *packet)
{
	struct ethhdr *ethernet = take(at, sizeof(*ethernet));

	if (!ethernet)
		return 0;
	packet->ethertype = ethernet->h_proto;
	return take_vlan(at, &packet->ethertype, &packet->key.vlan_outer) &&
	       take_vlan(at, &packet->ethertype, &packet->key.vlan_inner);
}

static __always_inline int is_ipv4(const struct packet *packet)
{
	return packet->ethertype == bpf_htons(ETH_P_IP);
}

static __always_inline void read_ipv4(struct packet *packet, const struct iphdr *ip)
{
	packet->key.address[2] = IPV4_MAPPED;
	packet->key.address[3] = ip->daddr;
	packet->key.protocol = ip->protocol;
	packet->remote[2] = IPV4_MAPPED;
	packet->remote[3] = ip->saddr;
}

static __always_inline enum outcome take_ipv4(struct cursor *at, struct packet *packet)
{
	struct iphdr *ip = take(at, sizeof(*ip));

	if (!ip)
		return PASSED_TRUNCATED;
	if (*(__u8 *)ip != IPV4_NO_OPTIONS || ip->frag_off & bpf_htons(IPV4_FRAGMENT))
		return PASSED_FRAGMENT_OR_OPTIONS;
	read_ipv4(packet, ip);
	return REDIRECTED;
}

static __always_inline enum outcome take_ipv6(struct cursor *at, struct packet *packet)
{
	struct ipv6hdr *ip = take(at, sizeof(*ip));

	if (!ip)
		return PASSED_TRUNCATED;
	__builtin_memcpy(packet->key.address, &ip->daddr, 16);
	packet->key.protocol = ip->nexthdr;
	__builtin_memcpy(packet->remote, &ip->saddr, 16);
	return REDIRECTED;
}

static __always_inline int differ(const __be32 *one, const __be32 *other)
{
	return one[0] != other[0] || one[1] != other[1] || one[2] != other[2] || one[3] != other[3];
}

// The packets that ICMP errors quote are ours if they came from where the error goes: RFC 5927, 4. Any other error, and one
// whose quote has options, is the kernel's.
static __always_inline enum outcome take_quoted_ipv4(struct cursor *at, struct packet *packet)
{
	struct icmp_header *icmp = take(at, sizeof(*icmp));
	struct iphdr *quoted = take(at, sizeof(*quoted));

	if (!icmp || !quoted)
		return PASSED_TRUNCATED;
	if (icmp->type != ICMP_UNREACHABLE && icmp->type != ICMP_TIME_EXCEEDED && icmp->type != ICMP_PARAMETER_PROBLEM)
		return PASSED_OTHER_PROTOCOL;
	if (*(__u8 *)quoted != IPV4_NO_OPTIONS || quoted->frag_off & bpf_htons(IPV4_FRAGMENT_OFFSET))
		return PASSED_FRAGMENT_OR_OPTIONS;
	if (packet->key.address[3] != quoted->saddr)
		return PASSED_OTHER_PROTOCOL;
	packet->key.protocol = quoted->protocol;
	packet->remote[3] = quoted->daddr;
	return REDIRECTED;
}

static __always_inline enum outcome take_quoted_ipv6(struct cursor *at, struct packet *packet)
{
	struct icmp_header *icmp = take(at, sizeof(*icmp));
	struct ipv6hdr *quoted = take(at, sizeof(*quoted));

	if (!icmp || !quoted)
		return PASSED_TRUNCATED;
	if (icmp->type < ICMPV6_ERROR_FIRST || icmp->type > ICMPV6_ERROR_LAST)
		return PASSED_OTHER_PROTOCOL;
	if (differ(packet->key.address, quoted->saddr.in6_u.u6_addr32))
		return PASSED_OTHER_PROTOCOL;
	packet->key.protocol = quoted->nexthdr;
	__builtin_memcpy(packet->remote, &quoted->daddr, 16);
	return REDIRECTED;
}

static __always_inline int is_icmp(const struct packet *packet)
{
	return packet->key.protocol == (is_ipv4(packet) ? IPPROTO_ICMP : IPPROTO_ICMPV6);
}

// Reads the ports, and of TCP whether it opens a connection, or answers that; false if the packet ends before.
static __always_inline int take_transport(struct cursor *at, struct packet *packet)
{
	const __u8 *flags = (const __u8 *)at->next + TCP_FLAGS_AT;
	struct transport_ports *transport = take(at, sizeof(*transport));

	if (!transport)
		return 0;
	packet->key.port = packet->quoted ? transport->source : transport->destination;
	packet->remote_port = packet->quoted ? transport->destination : transport->source;
	if (packet->key.protocol == IPPROTO_TCP && !packet->quoted && (void *)flags + 1 <= at->end) {
		packet->begins = (*flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
		packet->answers = !packet->begins && *flags & (TCP_SYN | TCP_RST);
	}
	return 1;
}

// Fills `packet` from the headers, or from those that an ICMP error quotes. REDIRECTED: go on; everything else is the reason not
// to.
static __always_inline enum outcome read_headers(struct cursor *at, struct packet *packet)
{
	enum outcome outcome;

	if (!take_link(at, packet))
		return PASSED_TRUNCATED;
	if (is_ipv4(packet))
		outcome = take_ipv4(at, packet);
	else if (packet->ethertype == bpf_htons(ETH_P_IPV6))
		outcome = take_ipv6(at, packet);
	else
		outcome = PASSED_NOT_IP;
	if (outcome != REDIRECTED)
		return outcome;

	packet->quoted = is_icmp(packet);
	if (packet->quoted) {
		outcome = is_ipv4(packet) ? take_quoted_ipv4(at, packet) : take_quoted_ipv6(at, packet);
		if (outcome != REDIRECTED)
			return outcome;
	}
	if (packet->key.protocol != IPPROTO_UDP && packet->key.protocol != IPPROTO_TCP)
		return PASSED_OTHER_PROTOCOL;
	return take_transport(at, packet) ? REDIRECTED : PASSED_TRUNCATED;
}

static __always_inline int is_tcp_segment(const struct packet *packet)
{
	return packet->key.protocol == IPPROTO_TCP && !packet->quoted;
}

static __always_inline struct flow_key flow_of(const struct packet *packet)
{
	struct flow_key flow = {};

	__builtin_memcpy(flow.local, packet->key.address, 16);
	__builtin_memcpy(flow.remote, packet->remote, 16);
	flow.local_port = packet->key.port;
	flow.remote_port = packet->remote_port;
	flow.protocol = packet->key.protocol;
	return flow;
}
