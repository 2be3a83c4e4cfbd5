/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
//
// What the steering program and user space share: see claim_key.rs, kernel_flows.rs and counters.rs for the other side.

#pragma once

#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define QUEUES_MAX 1024
// Those that can be lent to other processes.
#define QUEUES_LENT_MAX 64
#define CLAIMS_MAX 65536
#define PORT_WORDS (65536 / 64)
// Shared with user space: `Marks::TABLES`.
#define FLOW_TABLES 16

// Shared with user space: 24 octets without holes. Numbers are in network byte order; an IPv4 address a.b.c.d is
// written ::ffff:a.b.c.d.
struct claim_key {
	__be32 address[4];
	__be16 vlan_outer;
	__be16 vlan_inner;
	__be16 port;
	__u8 protocol;
	__u8 zero;
};

_Static_assert(sizeof(struct claim_key) == 24, "the layout is shared with user space");

// What stands in front of an IPv4 address, with two words of zeroes in front of itself.
#define IPV4_MAPPED bpf_htonl(0xffff)

// On which terms a claim holds.
struct claim_terms {
	// Bit q: on receive queue q. All ones: on every queue, also those that have no bit.
	__u64 queues;
	// The same of connections that begin. On the other queues a listener of the kernel's goes first.
	__u64 listening;
	__u16 flags;
	// Where flows are noted, and what notes must say to count: see `kernel_flows`.
	__u16 table;
	__u32 epoch;
};

#define QUEUES_ALL (~0ULL)

// Flags of claims. What begins now is the kernel's: its flow is noted.
#define KERNEL_NEW 1
// Some flows are the kernel's: those that are noted. The program sets this itself where a listener of the kernel's goes first.
#define KERNEL_SOME 2

// Beside the epoch in the note of a flow that a socket will get as soon as there is one: until then nobody knows the connection,
// and the kernel would reset it.
#define AWAITED (1u << 31)

// A flow that is not like others of its claim: 40 octets without holes, like `claim_key`.
struct flow_key {
	__be32 local[4];
	__be32 remote[4];
	__be16 local_port;
	__be16 remote_port;
	__u8 protocol;
	__u8 zero[3];
};

_Static_assert(sizeof(struct flow_key) == 40, "the layout is shared with user space");

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
	PASSED_OTHER_QUEUE,
	PASSED_KERNEL_FLOW,
	// From here on neither the kernel nor a socket gets the packet.
	DROPPED_CLAIMED_TCP,
	DROPPED_REOPENING,
	DROPPED_AWAITED,
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
	__type(value, struct claim_terms);
} claims SEC(".maps");

// A table of flows. User space makes each when there is something to note in it, as large as it likes.
struct flow_table {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	// Sizes: the compiler only declares types that nothing else in the maps names.
	__uint(key_size, sizeof(struct flow_key));
	__uint(value_size, sizeof(__u32));
};

// Flows that are the kernel's though they are claimed, and awaited ones.
// The value in a table is the epoch of the claim when the flow was noted: notes of earlier ones are as good as none, so that all of a claim's
// can be forgotten at once. So is a flow that is forgotten as others came after it.
// Users have tables of their own, so that nobody's flows are forgotten because others have many.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, FLOW_TABLES);
	__type(key, __u32);
	__array(values, struct flow_table);
} kernel_flows SEC(".maps");

// Connections of which a segment came by a queue where their claim does not hold, and the second of the kernel's clock in which that began: who relies on
// their coming by others learns of it.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct flow_key);
	__type(value, __u32);
} misdirected SEC(".maps");

// Shared with nobody. Connections that the kernel did not have when it was asked, by the hash of their ends with `secret`. One that has lost its place
// to another is asked for again. Those that the kernel has are not kept: a connection of ours may have the same ends later.
#define FINDINGS 16384
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FINDINGS);
	__type(key, __u32);
	__type(value, __u64);
} findings SEC(".maps");

// Set by user space (loading.rs) when the program is loaded, so that nobody can choose ends with the same hash.
const volatile __u64 secret;

// Sockets: that of a queue by the queue's number, and those that share one by `SHARER` and their own numbers.
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, QUEUES_MAX + QUEUES_LENT_MAX);
	__type(key, __u32);
	__type(value, __u32);
} xsks SEC(".maps");

#define SHARER(number) (QUEUES_MAX + (number))
// No socket.
#define NO_SOCKET (QUEUES_MAX + QUEUES_LENT_MAX)

// Who shares a queue: see sharing.rs. Where somebody does, claims are for the numbers of sharers, and not for queues.
struct sharers {
	// Bit n: the socket of number n.
	__u64 numbers;
	// Those of them that are no newcomers: connections of which nothing is noted are theirs.
	__u64 settled;
	// Makes the choice between them one that peers cannot foresee.
	__u64 secret;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, QUEUES_LENT_MAX);
	__type(key, __u32);
	__type(value, struct sharers);
} sharers SEC(".maps");

// By queue: connections whose sharer is not the one that their hash chooses among the settled. Those of newcomers are noted as they begin. One that
// is forgotten, or of which nothing was noted, is looked for among the settled. User space makes a table when somebody comes to share a queue.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, QUEUES_LENT_MAX);
	__type(key, __u32);
	__array(values, struct flow_table);
} shared_flows SEC(".maps");

// Who has which queue: see owners.rs. The program does not look at it.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, QUEUES_LENT_MAX);
	__type(key, __u32);
	__type(value, __u64[3]);
} owners SEC(".maps");

// Sockets are being opened anew, and claimed TCP waits for them until this time of bpf_ktime_get_ns at the latest: whoever opens them
// may be killed meanwhile.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} reopening SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct outcome_counts);
} outcomes SEC(".maps");
