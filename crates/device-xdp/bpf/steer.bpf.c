// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only
//
// The steering program: which packets leave the kernel.
//
// Redirected to the AF_XDP socket of the packet's receive queue, or to one of those that share it, is a packet that
//   - is IPv4 without options and not a fragment, or IPv6 without extension headers,
//   - behind at most two VLAN tags that are still in the packet (a tag that the NIC stripped is not seen: such packets
//     look untagged, match no claim of the VLAN's addresses, and stay with the kernel),
//   - is UDP or TCP to a claimed (address, tags, port), or an ICMP error about a packet from there,
//   - arrived on a queue on which the claim holds,
//   - begins no connection that is a listener's of the kernel before it is the claim's,
//   - belongs to no flow that the kernel has kept, and to no connection of the kernel's where who has claimed it only connects,
//   - fits a frame, whatever the MTU; a TCP segment may come in several where the sockets take that.
// Everything else passes to the kernel, and so does a claimed packet on a queue that has no socket. But the kernel would reset
// a TCP connection of which it gets a segment and knows nothing: one that no socket can be given is dropped, and sent again. So is
// one of a connection that is on its way from one socket to the next, and one that comes by another queue than those of its claim, unless the kernel
// has the connection.
//
// User space keeps the maps: see maps.bpf.h.

#include "headers.bpf.h"
#include "maps.bpf.h"
#include "sharers.bpf.h"
#include "unreadable.bpf.h"

// Shared with user space (options.rs): octets of the longest packet that the largest frame holds behind its headroom.
#define PACKET_MAX 3840
#define SECOND 1000000000ULL
// Seconds for which segments are dropped that come by another queue than those of their claim, and from when on that is another occasion.
#define MISDIRECTED_MAX 60
#define MISDIRECTED_NEW 600

static __always_inline int is_port_claimed(const struct claim_key *key)
{
	__u32 port = bpf_ntohs(key->port);
	__u32 index = port / 64 + (key->protocol == IPPROTO_TCP ? PORT_WORDS : 0);
	__u64 *word = bpf_map_lookup_elem(&ports, &index);

	return word && (*word >> (port % 64)) & 1;
}

static __always_inline int has_queue(__u64 queues, __u32 queue)
{
	return queues == QUEUES_ALL || (queue < 64 && (queues >> queue) & 1);
}

// Whether a queue, or somebody who shares it, is of these.
static __always_inline int serves_one_of(__u64 queues, __u32 queue)
{
	struct sharers *sharing = bpf_map_lookup_elem(&sharers, &queue);

	return sharing && sharing->numbers ? !!(sharing->numbers & queues) : has_queue(queues, queue);
}

// The state of the kernel's socket that a segment is for; 0 if there is none. Apart from the rest, whose stack has no room for it.
static __noinline __u32 state_at_kernel(struct xdp_md *ctx, const struct packet *packet)
{
	struct bpf_sock_tuple ends = {};
	struct bpf_sock *found;
	__u32 state;

	if (is_ipv4(packet)) {
		ends.ipv4.saddr = packet->remote[3];
		ends.ipv4.daddr = packet->key.address[3];
		ends.ipv4.sport = packet->remote_port;
		ends.ipv4.dport = packet->key.port;
		found = bpf_skc_lookup_tcp(ctx, &ends, sizeof(ends.ipv4), BPF_F_CURRENT_NETNS, 0);
	} else {
		__builtin_memcpy(ends.ipv6.saddr, packet->remote, 16);
		__builtin_memcpy(ends.ipv6.daddr, packet->key.address, 16);
		ends.ipv6.sport = packet->remote_port;
		ends.ipv6.dport = packet->key.port;
		found = bpf_skc_lookup_tcp(ctx, &ends, sizeof(ends.ipv6), BPF_F_CURRENT_NETNS, 0);
	}
	if (!found)
		return 0;
	state = found->state;
	bpf_sk_release(found);
	return state;
}

// Whether the kernel has a listener for a segment that begins a connection, or the connection itself.
static __always_inline int has_listener(struct xdp_md *ctx, const struct packet *packet)
{
	__u32 state = state_at_kernel(ctx, packet);

	return state && state != BPF_TCP_TIME_WAIT;
}

// The queues, or numbers of those who share one, that a packet of `queue` may be for. Who only connects from a port is bound there, and
// the kernel gives what begins a connection to a listener of the same port.
static __always_inline __u64 takers(struct xdp_md *ctx, const struct packet *packet, const struct claim_terms *terms,
				    __u32 queue)
{
	if (!packet->begins || !(terms->queues & ~terms->listening))
		return terms->queues;
	if (serves_one_of(terms->listening, queue))
		return terms->listening;
	return has_listener(ctx, packet) ? 0 : terms->queues;
}

// The entry of `xsks` that a packet for one of these is for; NO_SOCKET if the queue is not among them.
static __always_inline __u32 socket_for(const struct packet *packet, __u64 queues, __u32 queue, int is_part)
{
	struct sharers *sharing = bpf_map_lookup_elem(&sharers, &queue);

	if (sharing && sharing->numbers)
		return choose_sharer(packet, queues, queue, sharing, is_part);
	return has_queue(queues, queue) ? queue : NO_SOCKET;
}

static __always_inline int has_socket(__u32 socket)
{
	return bpf_map_lookup_elem(&xsks, &socket) != NULL;
}

static __always_inline int is_reopening(void)
{
	__u32 zero = 0;
	__u64 *until = bpf_map_lookup_elem(&reopening, &zero);

	return until && *until && bpf_ktime_get_ns() < *until;
}

// Notes in a table of `kernel_flows` that a flow is the kernel's; false if the table has no room.
static __always_inline int note(void *table, const struct flow_key *flow, struct claim_terms *terms)
{
	__u32 epoch = terms->epoch;

	if (bpf_map_update_elem(table, flow, &epoch, BPF_ANY))
		return 0;
	if (!(terms->flags & KERNEL_SOME))
		terms->flags |= KERNEL_SOME;
	return 1;
}

// Whether the kernel has the connection of a segment, or of one that an ICMP error quotes. It is asked until it has not, and again when a connection
// may have begun that has the ends of an earlier one. Apart from the rest, whose stack has no room for it.
static __noinline int is_kernels(struct xdp_md *ctx, const struct packet *packet, struct claim_terms *terms)
{
	__u64 hash = hash_flow(packet, secret);
	__u32 place = hash % FINDINGS, index = terms->table, state;
	struct flow_key flow = flow_of(packet);
	__u64 *found = bpf_map_lookup_elem(&findings, &place);
	void *table;

	if (!found || (*found == hash && !packet->answers))
		return 0;
	state = state_at_kernel(ctx, packet);
	if (!state || state == BPF_TCP_LISTEN || state == BPF_TCP_TIME_WAIT) {
		*found = hash;
		return 0;
	}
	if (*found == hash)
		*found = 0;
	table = terms->listening ? bpf_map_lookup_elem(&kernel_flows, &index) : NULL;
	if (table)
		note(table, &flow, terms);
	return 1;
}

// Whether a packet is of a connection that the kernel has, though it is not noted: one that was there before a claim of somebody who only connects,
// or one that was made from a claimed port. A broker sees to it that there is none, but users may trick it, and it may be killed. Where somebody listens,
// connections that were there are noted, and the kernel is asked, and what it has is noted, when one may begin.
static __always_inline int is_kernels_own(struct xdp_md *ctx, const struct packet *packet, struct claim_terms *terms)
{
	return packet->key.protocol == IPPROTO_TCP && !packet->begins && (packet->answers || !terms->listening) &&
	       is_kernels(ctx, packet, terms);
}

// What becomes of a packet whose flow is noted under a claim that has flags; REDIRECTED if it is like others of the claim. A flow
// that begins is the kernel's from now on if it is wanted so, or if its queue is not `served` now and might be later. Where it is
// served, a SYN that no socket can be given is not believed: a forged one would take a connection from who has it.
static __always_inline enum outcome by_notes(const struct packet *packet, struct claim_terms *terms, int served, int takeable)
{
	struct flow_key flow = flow_of(packet);
	__u32 epoch = terms->epoch, index = terms->table;
	void *table = bpf_map_lookup_elem(&kernel_flows, &index);
	__u32 *noted;

	if (!table)
		return REDIRECTED;
	if ((terms->flags & KERNEL_NEW || !served) && packet->begins)
		return note(table, &flow, terms) ? PASSED_KERNEL_FLOW : REDIRECTED;
	if (!(terms->flags & KERNEL_SOME))
		return REDIRECTED;
	noted = bpf_map_lookup_elem(table, &flow);
	if (noted && *noted == epoch)
		return PASSED_KERNEL_FLOW;
	return noted && *noted == (epoch | AWAITED) && !takeable ? DROPPED_AWAITED : REDIRECTED;
}

// A segment that no socket can be given for its queue, though the claim holds on others, and that is of no connection of the kernel's, which would reset it. Behind
// a veth the peer's kernel chooses another queue when something was lost, again and again until it is one of the claim's: such a segment is dropped, for so long.
// Then, if there is no such connection at all, the peer is to learn that; but not where whoever has claimed it only connects, of which there are no more than there
// are. Of the handshakes that the kernel has begun without a socket (SYN cookies) it is noted that they are its own. Apart from the rest, whose stack has no room for it.
static __noinline enum outcome by_another_queue(struct xdp_md *ctx, const struct packet *packet, const struct claim_terms *terms)
{
	struct flow_key flow = flow_of(packet);
	__u32 now = bpf_ktime_get_ns() / SECOND, state;
	__u32 *noted;

	if (terms->listening) {
		state = state_at_kernel(ctx, packet);
		if (state && state != BPF_TCP_LISTEN)
			return PASSED_OTHER_QUEUE;
	}
	noted = bpf_map_lookup_elem(&misdirected, &flow);
	if (!noted || now - *noted > MISDIRECTED_NEW)
		bpf_map_update_elem(&misdirected, &flow, &now, BPF_ANY);
	else if (terms->listening && now - *noted > MISDIRECTED_MAX)
		return PASSED_OTHER_QUEUE;
	return DROPPED_CLAIMED_TCP;
}

// Octets of a packet, of which the program may see the first part only where it comes in several (`chains`).
static __always_inline __u64 length_of(struct xdp_md *ctx, int chains)
{
	return chains ? bpf_xdp_get_buff_len(ctx) : (__u64)ctx->data_end - (__u64)ctx->data;
}

// What becomes of a packet whose headers are read. `obstacle`: why no socket can be given it, if so.
static __always_inline enum outcome decide(struct xdp_md *ctx, const struct packet *packet, enum outcome obstacle, int chains)
{
	enum outcome noted = REDIRECTED;
	__u32 queue = ctx->rx_queue_index, socket;
	struct claim_terms *terms;
	__u64 queues;
	int served;

	if (!is_port_claimed(&packet->key))
		return obstacle ?: PASSED_UNCLAIMED_PORT;
	terms = bpf_map_lookup_elem(&claims, &packet->key);
	if (!terms)
		return obstacle ?: PASSED_UNCLAIMED_ADDRESS;
	if (length_of(ctx, chains) > PACKET_MAX && !(chains && is_tcp_segment(packet)))
		obstacle = PASSED_TOO_LONG;
	if (is_kernels_own(ctx, packet, terms))
		return PASSED_KERNEL_FLOW;
	queues = takers(ctx, packet, terms, queue);
	socket = socket_for(packet, queues, queue, queues != terms->queues);
	if (terms->flags & (KERNEL_NEW | KERNEL_SOME) || queues != terms->queues ||
	    (socket == NO_SOCKET && packet->begins && terms->queues)) {
		served = socket != NO_SOCKET && has_socket(socket);
		noted = by_notes(packet, terms, served, served && !obstacle);
	}
	if (noted != REDIRECTED)
		return noted;
	if (socket == NO_SOCKET)
		return is_tcp_segment(packet) && !packet->begins && terms->queues ? by_another_queue(ctx, packet, terms)
										  : PASSED_OTHER_QUEUE;
	if (obstacle)
		return is_tcp_segment(packet) && (has_socket(socket) || is_reopening()) ? DROPPED_CLAIMED_TCP : obstacle;
	// XDP_PASS is what the helper returns for a queue without a socket.
	if (bpf_redirect_map(&xsks, socket, XDP_PASS) == XDP_REDIRECT)
		return REDIRECTED;
	return is_tcp_segment(packet) && is_reopening() ? DROPPED_REOPENING : PASSED_NO_SOCKET;
}

// Apart from the rest, which is to stay short, and global: so the verifier looks at it once, and not again for each way to it.
__noinline enum outcome classify_unreadable(struct xdp_md *ctx, enum outcome obstacle)
{
	struct cursor at = begin(ctx);
	struct packet packet = {};

	return read_unreadable_tcp(&at, &packet) ? decide(ctx, &packet, obstacle, 0) : obstacle;
}

static __always_inline enum outcome classify(struct xdp_md *ctx, int chains)
{
	struct cursor at = begin(ctx);
	struct packet packet = {};
	enum outcome outcome = read_headers(&at, &packet);

	if (outcome == PASSED_FRAGMENT_OR_OPTIONS || outcome == PASSED_OTHER_PROTOCOL)
		return classify_unreadable(ctx, outcome);
	return outcome == REDIRECTED ? decide(ctx, &packet, REDIRECTED, chains) : outcome;
}

static __always_inline int steer(struct xdp_md *ctx, int chains)
{
	enum outcome outcome = classify(ctx, chains);
	__u32 zero = 0;
	struct outcome_counts *counts = bpf_map_lookup_elem(&outcomes, &zero);

	if (counts && outcome < OUTCOMES)
		counts->packets[outcome]++;
	if (outcome == REDIRECTED)
		return XDP_REDIRECT;
	return outcome >= DROPPED_CLAIMED_TCP ? XDP_DROP : XDP_PASS;
}

// A packet is in one piece.
SEC("xdp")
int sidestep_steer(struct xdp_md *ctx)
{
	return steer(ctx, 0);
}

// A packet may be in several, as the kernel's stack would get it.
SEC("xdp.frags")
int sidestep_steer2(struct xdp_md *ctx)
{
	return steer(ctx, 1);
}

char _license[] SEC("license") = "Dual MIT/GPL";
