/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
//
// Which of several sockets on one queue gets a packet.

#pragma once

#include "headers.bpf.h"
#include "maps.bpf.h"

// Shared with user space: `PLACES_MAX`.
#define SHARERS_MAX 16

static __always_inline __u64 mix(__u64 value)
{
	value *= 0x9e3779b97f4a7c15;
	value ^= value >> 32;
	value *= 0xd6e8feb86659fd93;
	return value ^ value >> 32;
}

// The same for every packet of a connection, and for errors about it.
static __always_inline __u64 hash_flow(const struct packet *packet, __u64 seed)
{
	__u64 hash = seed;

	for (int word = 0; word < 4; word++) {
		hash = mix(hash ^ ((__u64)packet->key.address[word] << 32 | packet->remote[word]));
	}
	return mix(hash ^ ((__u64)packet->key.port << 16 | packet->remote_port));
}

// The number of the lowest bit: the sum of all bits below it. Without branches, as the verifier follows each.
static __always_inline __u32 lowest(__u64 numbers)
{
	__u64 below = ~numbers & (numbers - 1);

	below -= (below >> 1) & 0x5555555555555555;
	below = (below & 0x3333333333333333) + ((below >> 2) & 0x3333333333333333);
	below = (below + (below >> 4)) & 0x0f0f0f0f0f0f0f0f;
	return below * 0x0101010101010101 >> 56;
}

// The number that has most to do with the flow: when one comes or goes, only its own flows change hands (rendezvous hashing). Apart from the
// rest, and global, as `classify_unreadable`.
__noinline __u32 choose_by_hash(__u64 numbers, __u64 hash)
{
	__u32 chosen = 0;
	__u64 best = 0;

	for (int looked_at = 0; looked_at < SHARERS_MAX; looked_at++) {
		__u32 number;
		__u64 weight;

		if (!numbers)
			break;
		number = lowest(numbers);
		numbers &= numbers - 1;
		weight = mix(hash ^ (number + 1)) | 1;
		if (weight > best) {
			best = weight;
			chosen = number;
		}
	}
	return chosen;
}

static __always_inline int is_among(__u64 numbers, __u32 number)
{
	return number < QUEUES_LENT_MAX && (numbers >> number) & 1;
}

// The sharer that has or gets a packet, of those who have claimed it. A connection that begins goes to any of them, and one of which nothing is
// noted is that of a sharer who was there before the newcomers. While there are newcomers, it is noted what the settled alone would choose otherwise,
// or will when the newcomers are of them. Where there are none, nothing is noted: so a flood of SYNs has nothing forgotten. What is chosen of a
// part of them (`is_part`) is noted always, as what follows is chosen of all.
static __always_inline __u32 choose_of_several(const struct packet *packet, __u64 numbers, const struct sharers *sharers,
					       void *table, int is_part)
{
	int is_tcp = packet->key.protocol == IPPROTO_TCP;
	__u64 settled = numbers & sharers->settled ?: numbers;
	struct flow_key flow = flow_of(packet);
	__u64 hash = hash_flow(packet, sharers->secret);
	__u32 *noted = table && is_tcp ? bpf_map_lookup_elem(table, &flow) : NULL;
	__u32 number;

	if (noted && is_among(numbers, *noted))
		return *noted;
	number = choose_by_hash(numbers, hash);
	if (!is_tcp || (is_among(settled, number) && !is_part))
		return number;
	if (!packet->begins)
		number = choose_by_hash(settled, hash);
	if (table && !packet->quoted)
		bpf_map_update_elem(table, &flow, &number, BPF_ANY);
	return number;
}

// The entry of `xsks` that a packet of a shared queue is for; NO_SOCKET if the claim is nobody's who shares it. A newcomer who is alone with
// its claim keeps the connections that begin then when others claim the same. Apart from the rest, whose stack has no room for it, and global, as
// `classify_unreadable`: the verifier then takes it that a pointer may be NULL.
__noinline __u32 choose_sharer(const struct packet *packet, __u64 queues, __u32 queue, const struct sharers *sharers,
			       int is_part)
{
	struct flow_key flow;
	__u64 numbers;
	void *table;
	__u32 number;

	if (!packet || !sharers)
		return NO_SOCKET;
	numbers = sharers->numbers & queues;
	if (!numbers)
		return NO_SOCKET;
	table = bpf_map_lookup_elem(&shared_flows, &queue);
	if (numbers & (numbers - 1))
		return SHARER(choose_of_several(packet, numbers, sharers, table, is_part));
	number = lowest(numbers);
	if (packet->begins && table && (is_part || !is_among(sharers->settled, number))) {
		flow = flow_of(packet);
		bpf_map_update_elem(table, &flow, &number, BPF_ANY);
	}
	return SHARER(number);
}
