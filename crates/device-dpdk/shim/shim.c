// SPDX-License-Identifier: MIT OR Apache-2.0

// Pools over memory of our own, and mapping it for a NIC, are outside the part of DPDK that keeps its ABI: build and run with the same version.
#define ALLOW_EXPERIMENTAL_API

#include "shim.h"

#include <errno.h>
#include <string.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mbuf_pool_ops.h>
#include <rte_memory.h>
#include <rte_mempool.h>
#include <rte_net.h>

#define MEMPOOL_CACHE 256
#define PAGE 4096
#define BURST 64

int shim_eal_init(int argc, char **argv)
{
	return rte_eal_init(argc, argv) < 0 ? -rte_errno : 0;
}

// The name of the nth port there is; NULL behind the last one.
const char *shim_port_name(uint16_t nth)
{
	static __thread char name[RTE_ETH_NAME_MAX_LEN];
	uint16_t port;

	RTE_ETH_FOREACH_DEV(port)
	{
		if (nth-- == 0)
			return rte_eth_dev_get_name_by_port(port, name) ? NULL : name;
	}
	return NULL;
}

int shim_port_by_name(const char *name, uint16_t *port)
{
	return rte_eth_dev_get_port_by_name(name, port);
}

int shim_port_info(uint16_t port, struct shim_port_info *info)
{
	struct rte_eth_dev_info device;
	struct rte_ether_addr mac;
	int error = rte_eth_dev_info_get(port, &device);

	if (error)
		return error;
	error = rte_eth_macaddr_get(port, &mac);
	if (error)
		return error;
	error = rte_eth_dev_get_mtu(port, &info->mtu);
	if (error)
		return error;
	memcpy(info->mac, mac.addr_bytes, sizeof(info->mac));
	info->rx_queues_max = device.max_rx_queues;
	info->tx_queues_max = device.max_tx_queues;
	info->reta_size = device.reta_size;
	info->tx_offloads = device.tx_offload_capa;
	info->rss_functions = device.flow_type_rss_offloads;
	strncpy(info->driver, device.driver_name, sizeof(info->driver) - 1);
	return 0;
}

int shim_port_configure(uint16_t port, uint16_t queues, uint16_t mtu, uint64_t tx_offloads, uint64_t rss_functions)
{
	struct rte_eth_conf conf = {};

	conf.rxmode.mtu = mtu;
	conf.txmode.offloads = tx_offloads;
	if (queues > 1 && rss_functions) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf = rss_functions;
	}
	return rte_eth_dev_configure(port, queues, queues, &conf);
}

int shim_port_queue(uint16_t port, uint16_t queue, uint16_t descriptors, const struct shim_pool *pool)
{
	int socket = rte_eth_dev_socket_id(port);
	uint16_t rx = descriptors, tx = descriptors;
	int error = rte_eth_dev_adjust_nb_rx_tx_desc(port, &rx, &tx);

	if (error)
		return error;
	error = rte_eth_rx_queue_setup(port, queue, rx, socket, NULL, pool->mempool);
	return error ? error : rte_eth_tx_queue_setup(port, queue, tx, socket, NULL);
}

int shim_port_start(uint16_t port)
{
	int error = rte_eth_dev_start(port);

	// Frames to multicast addresses are the kernel's to choose from. Some virtual ports have no such mode: they take all frames.
	if (!error && rte_eth_allmulticast_enable(port) == -ENOTSUP)
		return 0;
	return error;
}

void shim_port_close(uint16_t port)
{
	rte_eth_dev_stop(port);
	rte_eth_dev_close(port);
}

int shim_port_counts(uint16_t port, struct shim_port_counts *counts)
{
	struct rte_eth_stats stats;
	int error = rte_eth_stats_get(port, &stats);

	if (error)
		return error;
	counts->missed = stats.imissed;
	counts->errors = stats.ierrors;
	counts->no_mbuf = stats.rx_nombuf;
	return 0;
}

static uint32_t slot_of(const struct shim_pool *pool, const struct rte_mbuf *mbuf)
{
	return (uint32_t)((uint8_t *)mbuf->buf_addr - pool->start) / pool->slot_size;
}

static void note_mbuf(struct rte_mempool *mempool, void *context, void *object, unsigned int index)
{
	struct shim_pool *pool = context;
	struct rte_mbuf *mbuf = object;

	(void)mempool;
	(void)index;
	pool->mbufs[slot_of(pool, mbuf)] = mbuf;
}

// Lets a NIC reach the memory. Ports that are not on a bus with addresses of its own have no such function, and need none.
static int map_for_device(uint16_t port, uint8_t *start, size_t len)
{
	struct rte_eth_dev_info device;
	int error = rte_eth_dev_info_get(port, &device);

	if (error)
		return error;
	if (rte_extmem_register(start, len, NULL, 0, PAGE))
		return -rte_errno;
	if (rte_dev_dma_map(device.device, start, (uint64_t)(uintptr_t)start, len) && rte_errno != ENOTSUP)
		return -rte_errno;
	return 0;
}

int shim_pool_create(const char *name, uint16_t port, uint8_t *start, size_t len, uint32_t slot_size,
		     struct rte_mbuf **mbufs, struct shim_pool *pool)
{
	struct rte_pktmbuf_extmem memory = {
		.buf_ptr = start,
		.buf_iova = (rte_iova_t)(uintptr_t)start,
		.buf_len = len,
		.elt_size = slot_size,
	};
	uint32_t slots = len / slot_size;
	int error = map_for_device(port, start, len);

	if (error)
		return error;
	pool->mempool = rte_pktmbuf_pool_create_extbuf(name, slots, MEMPOOL_CACHE, 0, slot_size,
						       rte_eth_dev_socket_id(port), &memory, 1);
	if (!pool->mempool)
		return -rte_errno;
	pool->start = start;
	pool->slot_size = slot_size;
	pool->slots = slots;
	pool->mbufs = mbufs;
	rte_mempool_obj_iter(pool->mempool, note_mbuf, pool);
	return 0;
}

int shim_pool_destroy(struct shim_pool *pool)
{
	if (!rte_mempool_full(pool->mempool))
		return 0;
	rte_mempool_free(pool->mempool);
	rte_extmem_unregister(pool->start, (size_t)pool->slots * pool->slot_size);
	return 1;
}

int shim_thread_register(void)
{
	return rte_lcore_id() == LCORE_ID_ANY && rte_thread_register() ? -rte_errno : 0;
}

uint16_t shim_rx_burst(uint16_t port, uint16_t queue, const struct shim_pool *pool, struct shim_packet *packets, uint16_t count,
		       uint32_t *invalid)
{
	struct rte_mbuf *mbufs[BURST];
	uint16_t received = rte_eth_rx_burst(port, queue, mbufs, RTE_MIN(count, BURST));
	uint16_t kept = 0;

	for (uint16_t i = 0; i < received; i++) {
		const struct rte_mbuf *mbuf = mbufs[i];

		// Some drivers hand on mbufs of whoever sent them (net_ring), and chain those that are longer than a slot.
		if (unlikely(mbuf->pool != pool->mempool || mbuf->nb_segs != 1 ||
			     mbuf->data_off + mbuf->data_len > pool->slot_size)) {
			rte_pktmbuf_free(mbufs[i]);
			++*invalid;
			continue;
		}
		packets[kept].slot = slot_of(pool, mbuf);
		packets[kept].offset = mbuf->data_off;
		packets[kept].len = mbuf->data_len;
		kept++;
	}
	return kept;
}

// Says which headers a packet has, and writes into its checksum fields what the NIC starts from.
static void prepare_checksums(struct rte_mbuf *mbuf)
{
	struct rte_net_hdr_lens lens;
	uint32_t kind = rte_net_get_ptype(mbuf, &lens, RTE_PTYPE_L2_MASK | RTE_PTYPE_L3_MASK | RTE_PTYPE_L4_MASK);
	uint64_t flags = 0;

	mbuf->l2_len = lens.l2_len;
	mbuf->l3_len = lens.l3_len;
	mbuf->l4_len = lens.l4_len;
	if (RTE_ETH_IS_IPV4_HDR(kind))
		flags = RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM;
	else if (RTE_ETH_IS_IPV6_HDR(kind))
		flags = RTE_MBUF_F_TX_IPV6;
	else
		return;
	if ((kind & RTE_PTYPE_L4_MASK) == RTE_PTYPE_L4_UDP)
		flags |= RTE_MBUF_F_TX_UDP_CKSUM;
	else if ((kind & RTE_PTYPE_L4_MASK) == RTE_PTYPE_L4_TCP)
		flags |= RTE_MBUF_F_TX_TCP_CKSUM;
	mbuf->ol_flags |= flags;
	rte_net_intel_cksum_prepare(mbuf);
}

static struct rte_mbuf *mbuf_of(const struct shim_pool *pool, const struct shim_packet *packet)
{
	struct rte_mbuf *mbuf = pool->mbufs[packet->slot];

	mbuf->data_off = packet->offset;
	mbuf->data_len = packet->len;
	mbuf->pkt_len = packet->len;
	// What a driver said of the packet that was received in it is over. That the memory is ours stays.
	mbuf->ol_flags &= RTE_MBUF_F_EXTERNAL;
	return mbuf;
}

uint16_t shim_tx_burst(uint16_t port, uint16_t queue, const struct shim_pool *pool, const struct shim_packet *packets, uint16_t count,
		       int checksums)
{
	struct rte_mbuf *mbufs[BURST];

	count = RTE_MIN(count, BURST);
	for (uint16_t i = 0; i < count; i++) {
		mbufs[i] = mbuf_of(pool, &packets[i]);
		if (checksums)
			prepare_checksums(mbufs[i]);
	}
	// Some drivers look at the first one without looking at the count.
	return count ? rte_eth_tx_burst(port, queue, mbufs, count) : 0;
}

int shim_alloc(const struct shim_pool *pool, uint32_t *slot)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool->mempool);

	if (!mbuf)
		return -ENOBUFS;
	*slot = slot_of(pool, mbuf);
	return 0;
}

void shim_free(const struct shim_pool *pool, uint32_t slot)
{
	struct rte_mbuf *mbuf = pool->mbufs[slot];

	mbuf->ol_flags &= RTE_MBUF_F_EXTERNAL;
	rte_pktmbuf_free(mbuf);
}
