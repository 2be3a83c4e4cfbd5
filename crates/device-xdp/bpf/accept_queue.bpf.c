// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only
//
// A connection that another stack has established gets into the accept queue of a listener of the kernel's.
//
// User space sends an acknowledgement in the peer's name over loopback, with a mark that nobody else knows. Here it gets what SYN cookies
// would have told the kernel of the connection. The kernel makes the connection of it, as it does at the end of each handshake with a cookie.
// It takes Linux 6.8.

#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

// Later programs decide. linux/bpf.h has it from Linux 6.6 on.
#define NEXT -1
// Shared with user space (accept_queue.rs): the acknowledgement has not come yet. No error is positive.
#define WAITING 1
// So many connections may be on their way at a time, each in a slot. The last bits of its mark say which. Shared with user space, too.
#define SLOTS 64

// What both ends have agreed on: the kernel's struct bpf_tcp_req_attrs.
struct agreements {
	__u32 peer_clock;
	__u32 our_clock;
	__u16 peer_mss;
	__u8 our_scale;
	__u8 peer_scale;
	__u8 has_ecn;
	__u8 has_scales;
	__u8 has_sack;
	__u8 has_clocks;
	__u8 has_microseconds;
	__u8 reserved[3];
};

// A connection that is on its way.
struct placement {
	__u32 mark;
	__s32 outcome;
	struct agreements agreements;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, struct placement);
} placements SEC(".maps");

// Its listener. The map does not keep it open.
struct {
	__uint(type, BPF_MAP_TYPE_SOCKMAP);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, __u32);
} listeners SEC(".maps");

// Whoever loads the program writes the kernel's number for its function bpf_sk_assign_tcp_reqsk into the call, and its kind.
static int (*assign)(struct __sk_buff *packet, struct bpf_sock *listener, struct agreements *agreements,
		     int agreements_len) = (void *)9999;

SEC("classifier")
int sidestep_accept(struct __sk_buff *packet)
{
	__u32 slot = packet->mark % SLOTS;
	struct placement *wanted = bpf_map_lookup_elem(&placements, &slot);
	struct agreements agreements;
	struct bpf_sock *found;

	// A slot that nobody has used yet has no mark, as most packets.
	if (!wanted || !packet->mark || packet->mark != wanted->mark)
		return NEXT;
	// One that comes too late would be reset.
	if (wanted->outcome != WAITING)
		return TC_ACT_SHOT;
	found = bpf_map_lookup_elem(&listeners, &slot);
	if (!found)
		return TC_ACT_SHOT;
	agreements = wanted->agreements;
	wanted->outcome = assign(packet, found, &agreements, sizeof(agreements));
	bpf_sk_release(found);
	packet->mark = 0;
	return wanted->outcome ? TC_ACT_SHOT : TC_ACT_OK;
}

char _license[] SEC("license") = "Dual MIT/GPL";
