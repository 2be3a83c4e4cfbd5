// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What device-dpdk needs of DPDK, as functions that can be linked: rte_eth_rx_burst and others are inline in DPDK's headers.
// src/ffi.rs repeats these declarations; change both.

#include <stddef.h>
#include <stdint.h>

struct rte_mempool;
struct rte_mbuf;

// Where a packet lies: slot of the pool's memory, octets from the slot's start, octets of the packet.
struct shim_packet {
	uint32_t slot;
	uint16_t offset;
	uint16_t len;
};

// Memory of a queue that is cut into slots; one mbuf stands for each of them, always the same.
struct shim_pool {
	struct rte_mempool *mempool;
	uint8_t *start;
	uint32_t slot_size;
	uint32_t slots;
	struct rte_mbuf **mbufs; // by slot
};

struct shim_port_info {
	uint8_t mac[6];
	uint16_t mtu;
	uint16_t rx_queues_max;
	uint16_t tx_queues_max;
	uint16_t reta_size;
	uint64_t tx_offloads;
	uint64_t rss_functions;
	char driver[32];
};

struct shim_port_counts {
	uint64_t missed;
	uint64_t errors;
	uint64_t no_mbuf;
};

// All return 0 or a negative errno where they return int.

int shim_eal_init(int argc, char **argv);
const char *shim_port_name(uint16_t nth);
int shim_port_by_name(const char *name, uint16_t *port);
int shim_port_info(uint16_t port, struct shim_port_info *info);
int shim_port_configure(uint16_t port, uint16_t queues, uint16_t mtu, uint64_t tx_offloads, uint64_t rss_functions);
int shim_port_queue(uint16_t port, uint16_t queue, uint16_t descriptors, const struct shim_pool *pool);
int shim_port_start(uint16_t port);
void shim_port_close(uint16_t port);
int shim_port_counts(uint16_t port, struct shim_port_counts *counts);

// Cuts [start, start + len) into slots. pool->mbufs must have room for all of them.
int shim_pool_create(const char *name, uint16_t port, uint8_t *start, size_t len, uint32_t slot_size,
		     struct rte_mbuf **mbufs, struct shim_pool *pool);
// Call it behind shim_port_close. Whether all mbufs were back: then the memory is not DPDK's any more.
int shim_pool_destroy(struct shim_pool *pool);

// Has this thread get a cache of its own in each mempool.
int shim_thread_register(void);

uint16_t shim_rx_burst(uint16_t port, uint16_t queue, const struct shim_pool *pool, struct shim_packet *packets, uint16_t count,
		       uint32_t *invalid);
// Sends from the front; returns how many are DPDK's from now on.
uint16_t shim_tx_burst(uint16_t port, uint16_t queue, const struct shim_pool *pool, const struct shim_packet *packets, uint16_t count,
		       int checksums);
int shim_alloc(const struct shim_pool *pool, uint32_t *slot);
void shim_free(const struct shim_pool *pool, uint32_t slot);
