// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only
//
// The steering program: which packets leave the kernel.
//
// Redirected to the AF_XDP socket of the packet's receive queue is a packet that
//   - is IPv4 without options and not a fragment, or IPv6 without extension headers,
//   - behind at most two VLAN tags that are still in the packet (a tag that the NIC stripped is not seen: such packets
//     look untagged, match no claim of the VLAN's addresses, and stay with the kernel),
//   - is UDP or TCP to a claimed (address, tags, port), or an ICMP error about a packet from there,
//   - fits a frame, whatever the MTU.
// Everything else passes to the kernel, and so does a claimed packet on a queue that has no socket.
//
// User space keeps the maps; see claim_key.rs for the layouts shared with it.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define QUEUES_MAX 1024
#define CLAIMS_MAX 65536
#define PORT_WORDS (65536 / 64)

// Shared with user space (options.rs): octets of the longest packet that the largest frame holds behind its headroom.
#define PACKET_MAX 3840

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

// Shared with user space: 24 octets without holes. Numbers are in network byte order; an IPv4 address a.b.c.d is
// written ::ffff:a.b.c.d.
struct claim_key {
	__u8 address[16];
	__be16 vlan_outer;
	__be16 vlan_inner;
	__be16 port;
	__u8 protocol;
	__u8 zero;
};

_Static_assert(sizeof(struct claim_key) == 24, "the layout is shared with user space");

// What became of a packet: indices of `outcomes`, shared with user space.
enum outcome {
	REDIRECTED,
	PASSED_NOT_IP,
	PASSED_FRAGMENT_OR_OPTIONS,
	PASSED_OTHER_PROTOCOL,
	PASSED_UNCLAIMED_PORT,
	PASSED_UNCLAIMED_ADDRESS,
	PASSED_NO_SOCKET,
	PASSED_TRUNCATED,
	PASSED_TOO_LONG,
	OUTCOMES,
};

struct outcome_counts {
	__u64 packets[OUTCOMES];
};

// One bit per port that some claim names: 1024 words for UDP, then 1024 for TCP.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * PORT_WORDS);
	__type(key, __u32);
	__type(value, __u64);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, CLAIMS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct claim_key);
	__type(value, __u8);
} claims SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, QUEUES_MAX);
	__type(key, __u32);
	__type(value, __u32);
} xsks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct outcome_counts);
} outcomes SEC(".maps");

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

// How far the packet has been read.
struct cursor {
	void *next;
	void *end;
};

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

static __always_inline enum outcome take_ipv4(struct cursor *at, struct claim_key *key)
{
	struct iphdr *ip = take(at, sizeof(*ip));

	if (!ip)
		return PASSED_TRUNCATED;
	if (*(__u8 *)ip != IPV4_NO_OPTIONS || ip->frag_off & bpf_htons(IPV4_FRAGMENT))
		return PASSED_FRAGMENT_OR_OPTIONS;
	key->address[10] = 0xff;
	key->address[11] = 0xff;
	__builtin_memcpy(&key->address[12], &ip->daddr, 4);
	key->protocol = ip->protocol;
	return REDIRECTED;
}

static __always_inline enum outcome take_ipv6(struct cursor *at, struct claim_key *key)
{
	struct ipv6hdr *ip = take(at, sizeof(*ip));

	if (!ip)
		return PASSED_TRUNCATED;
	__builtin_memcpy(key->address, &ip->daddr, 16);
	key->protocol = ip->nexthdr;
	return REDIRECTED;
}

// Compares `words` times four octets, at any alignment; memcmp would be a call.
static __always_inline int differ(const void *one, const void *other, int words)
{
	__u32 left, right;

#pragma unroll
	for (int word = 0; word < words; word++) {
		__builtin_memcpy(&left, one + 4 * word, 4);
		__builtin_memcpy(&right, other + 4 * word, 4);
		if (left != right)
			return 1;
	}
	return 0;
}

// The packets that ICMP errors quote are ours if they came from where the error goes: RFC 5927, 4. Any other error, and one
// whose quote has options, is the kernel's.
static __always_inline enum outcome take_quoted_ipv4(struct cursor *at, struct claim_key *key)
{
	struct icmp_header *icmp = take(at, sizeof(*icmp));
	struct iphdr *quoted = take(at, sizeof(*quoted));

	if (!icmp || !quoted)
		return PASSED_TRUNCATED;
	if (icmp->type != ICMP_UNREACHABLE && icmp->type != ICMP_TIME_EXCEEDED && icmp->type != ICMP_PARAMETER_PROBLEM)
		return PASSED_OTHER_PROTOCOL;
	if (*(__u8 *)quoted != IPV4_NO_OPTIONS || quoted->frag_off & bpf_htons(IPV4_FRAGMENT_OFFSET))
		return PASSED_FRAGMENT_OR_OPTIONS;
	if (differ(&key->address[12], &quoted->saddr, 1))
		return PASSED_OTHER_PROTOCOL;
	key->protocol = quoted->protocol;
	return REDIRECTED;
}

static __always_inline enum outcome take_quoted_ipv6(struct cursor *at, struct claim_key *key)
{
	struct icmp_header *icmp = take(at, sizeof(*icmp));
	struct ipv6hdr *quoted = take(at, sizeof(*quoted));

	if (!icmp || !quoted)
		return PASSED_TRUNCATED;
	if (icmp->type < ICMPV6_ERROR_FIRST || icmp->type > ICMPV6_ERROR_LAST)
		return PASSED_OTHER_PROTOCOL;
	if (differ(key->address, &quoted->saddr, 4))
		return PASSED_OTHER_PROTOCOL;
	key->protocol = quoted->nexthdr;
	return REDIRECTED;
}

static __always_inline int is_icmp(__be16 ethertype, const struct claim_key *key)
{
	return key->protocol == (ethertype == bpf_htons(ETH_P_IP) ? IPPROTO_ICMP : IPPROTO_ICMPV6);
}

// Fills `key` from the packet's headers, or from those that an ICMP error quotes. REDIRECTED: go on; everything else is the
// reason not to.
static __always_inline enum outcome read_headers(struct cursor *at, struct claim_key *key)
{
	struct ethhdr *ethernet = take(at, sizeof(*ethernet));
	struct transport_ports *transport;
	int quoted;
	enum outcome outcome;
	__be16 ethertype;

	if (!ethernet)
		return PASSED_TRUNCATED;
	ethertype = ethernet->h_proto;
	if (!take_vlan(at, &ethertype, &key->vlan_outer) || !take_vlan(at, &ethertype, &key->vlan_inner))
		return PASSED_TRUNCATED;

	if (ethertype == bpf_htons(ETH_P_IP))
		outcome = take_ipv4(at, key);
	else if (ethertype == bpf_htons(ETH_P_IPV6))
		outcome = take_ipv6(at, key);
	else
		outcome = PASSED_NOT_IP;
	if (outcome != REDIRECTED)
		return outcome;

	quoted = is_icmp(ethertype, key);
	if (quoted) {
		outcome = ethertype == bpf_htons(ETH_P_IP) ? take_quoted_ipv4(at, key) : take_quoted_ipv6(at, key);
		if (outcome != REDIRECTED)
			return outcome;
	}
	if (key->protocol != IPPROTO_UDP && key->protocol != IPPROTO_TCP)
		return PASSED_OTHER_PROTOCOL;
	transport = take(at, sizeof(*transport));
	if (!transport)
		return PASSED_TRUNCATED;
	key->port = quoted ? transport->source : transport->destination;
	return REDIRECTED;
}

static __always_inline int is_port_claimed(const struct claim_key *key)
{
	__u32 port = bpf_ntohs(key->port);
	__u32 index = port / 64 + (key->protocol == IPPROTO_TCP ? PORT_WORDS : 0);
	__u64 *word = bpf_map_lookup_elem(&ports, &index);

	return word && (*word >> (port % 64)) & 1;
}

static __always_inline enum outcome classify(struct xdp_md *ctx)
{
	struct cursor at = { .next = (void *)(long)ctx->data, .end = (void *)(long)ctx->data_end };
	struct claim_key key = {};
	enum outcome outcome = read_headers(&at, &key);

	if (outcome != REDIRECTED)
		return outcome;
	if ((__u64)ctx->data_end - (__u64)ctx->data > PACKET_MAX)
		return PASSED_TOO_LONG;
	if (!is_port_claimed(&key))
		return PASSED_UNCLAIMED_PORT;
	if (!bpf_map_lookup_elem(&claims, &key))
		return PASSED_UNCLAIMED_ADDRESS;
	// XDP_PASS is what the helper returns for a queue without a socket.
	return bpf_redirect_map(&xsks, ctx->rx_queue_index, XDP_PASS) == XDP_REDIRECT ? REDIRECTED : PASSED_NO_SOCKET;
}

SEC("xdp")
int sidestep_steer(struct xdp_md *ctx)
{
	enum outcome outcome = classify(ctx);
	__u32 zero = 0;
	struct outcome_counts *counts = bpf_map_lookup_elem(&outcomes, &zero);

	if (counts && outcome < OUTCOMES)
		counts->packets[outcome]++;
	return outcome == REDIRECTED ? XDP_REDIRECT : XDP_PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";
