/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * info.c: what the provider is and offers: fi_prov_ini, the settings, fi_getinfo.
 */
#include "fabric.h"
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <unistd.h>

#define DEFAULT(type, name, value, ...) value,
struct settings settings = {SETTINGS(DEFAULT) false};

/* What an endpoint can do, and which of that a caller must ask for because it costs something. */
#define ONE_SIDED (FI_RMA | FI_ATOMIC | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)
#define TX_CAPS (FI_MSG | FI_TAGGED | FI_SEND | FI_RMA | FI_ATOMIC | FI_READ | FI_WRITE | FI_FENCE)
#define RX_CAPS (FI_MSG | FI_TAGGED | FI_RECV | FI_RMA | FI_ATOMIC | FI_REMOTE_READ | FI_REMOTE_WRITE | \
		 FI_MULTI_RECV | FI_SOURCE | FI_DIRECTED_RECV)
#define DOMAIN_CAPS (FI_LOCAL_COMM | FI_REMOTE_COMM)
#define PRICED_CAPS FI_DIRECTED_RECV
#define ALL_CAPS (TX_CAPS | RX_CAPS | DOMAIN_CAPS)

#define TX_FLAGS (FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | \
		  FI_MATCH_COMPLETE)
#define RX_FLAGS (FI_COMPLETION | FI_MULTI_RECV)
#define ORDERS FI_ORDER_SAS
#define TAG_FORMAT 0xaaaaaaaaaaaaaaaaull /* 64 fields of one bit: any bits, any mask */

/* ---- The device, as fi_info describes it. Copies of an fi_info share it ---- */

struct nic {
	struct fid_nic fid;
	uint32_t users;
	struct fi_device_attr device;
	struct fi_bus_attr bus;
	struct fi_link_attr link;
	struct ibv_device_attr attr;
	char name[64], address[64], id[8], version[12], vendor[8];
};

static int nic_control(struct fid *fid, int command, void *copy)
{
	struct nic *n = container_of(fid, struct nic, fid.fid);

	if (command != FI_DUP)
		return -FI_ENOSYS;
	__atomic_add_fetch(&n->users, 1, __ATOMIC_RELAXED);
	*(struct fid_nic **)copy = &n->fid;
	return 0;
}

static int nic_close(struct fid *fid)
{
	struct nic *n = container_of(fid, struct nic, fid.fid);

	if (!__atomic_sub_fetch(&n->users, 1, __ATOMIC_ACQ_REL))
		free(n);
	return 0;
}

static struct fi_ops nic_ops = FID_OPS(nic_close, no_bind, nic_control);

/* Of an active port. NULL: no memory, or the device does not answer. */
static struct fid_nic *nic_of(struct ibv_context *context, const uint8_t *gid)
{
	static const uint16_t rates[] = {25, 50, 100, 100, 140, 250, 500, 1000}; /* in 100 Mb/s */
	static const uint8_t lanes[] = {1, 4, 8, 12, 2};
	struct nic *n = (struct nic *)calloc(1, sizeof(*n));
	struct ibv_port_attr port = {0};
	struct fi_pci_attr *pci;
	char path[512], *real;

	if (!n || ibv_query_device(context, &n->attr) || ibv_query_port(context, (uint8_t)settings.port, &port)) {
		free(n);
		return NULL;
	}
	n->fid = (struct fid_nic){{FI_CLASS_NIC, NULL, &nic_ops}, &n->device, &n->bus, &n->link, NULL};
	n->users = 1;
	n->device = (struct fi_device_attr){
		n->name, n->id, n->version, n->vendor, (char *)(uintptr_t)"mlx5_core", n->attr.fw_ver};
	strcpy(n->name, ibv_get_device_name(context->device));
	sprintf(n->id, "0x%04x", n->attr.vendor_part_id & 0xffff);
	sprintf(n->version, "%u", n->attr.hw_ver);
	sprintf(n->vendor, "0x%04x", n->attr.vendor_id & 0xffff);
	snprintf(path, sizeof(path), "%s/device", context->device->ibdev_path);
	real = realpath(path, NULL);
	pci = &n->bus.attr.pci;
	if (real && sscanf(strrchr(real, '/'), "/%hx:%hhx:%hhx.%hhx", &pci->domain_id, &pci->bus_id, &pci->device_id,
			   &pci->function_id) == 4)
		n->bus.bus_type = FI_BUS_PCI;
	free(real);
	n->link.address = (char *)(uintptr_t)inet_ntop(AF_INET6, gid, n->address, sizeof(n->address));
	n->link.mtu = (size_t)128 << port.active_mtu;
	n->link.speed = (size_t)100000000 * rates[__builtin_ctz(port.active_speed | 128u)] *
			lanes[__builtin_ctz(port.active_width | 16u)];
	n->link.state = FI_LINK_UP;
	n->link.network_type = (char *)(uintptr_t)(port.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand");
	return &n->fid;
}

/* ---- What is offered ---- */

/* Everything, as offered without hints, but for what is copied from these. NULL: no memory. */
static struct fi_info *offer(struct ibv_context *context, const struct inlay_connect_record *port, const struct fi_info *hints)
{
	const bool directed = !hints->caps || hints->caps & FI_DIRECTED_RECV;
	const struct fi_domain_attr *d = hints->domain_attr;
	struct name name = {0}; /* the port's */
	struct fi_tx_attr tx = {
		.caps = TX_CAPS, .msg_order = ORDERS, .inject_size = settings.eager, .iov_limit = IOV_LIMIT, .rma_iov_limit = 1,
		.size = PEER_RING / 2, /* messages of up to 32 bytes to one peer, always */
		.op_flags = hints->tx_attr ? hints->tx_attr->op_flags : 0,
	};
	struct fi_rx_attr rx = {
		.caps = RX_CAPS, .msg_order = ORDERS, .total_buffered_recv = SIZE_MAX, .size = 65536, .iov_limit = IOV_LIMIT,
		.op_flags = hints->rx_attr ? hints->rx_attr->op_flags : 0,
	};
	struct fi_ep_attr ep = {
		.type = FI_EP_RDM, .protocol_version = 2, .max_msg_size = MAX_MESSAGE, .tx_ctx_cnt = 1, .rx_ctx_cnt = 1,
		.mem_tag_format = directed ? TAG_FORMAT >> SOURCE_BITS : TAG_FORMAT,
	};
	struct fi_domain_attr domain = {
		.name = (char *)(uintptr_t)ibv_get_device_name(context->device), .caps = DOMAIN_CAPS,
		.threading = d && d->threading != FI_THREAD_UNSPEC ? d->threading : FI_THREAD_SAFE,
		.av_type = d ? d->av_type : FI_AV_UNSPEC,
		.control_progress = FI_PROGRESS_MANUAL, .data_progress = FI_PROGRESS_MANUAL,
		.resource_mgmt = FI_RM_ENABLED, .mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY,
		.mr_key_size = (size_t)settings.rails * sizeof(uint32_t), .mr_iov_limit = 1, .cq_data_size = sizeof(uint64_t),
		.ep_cnt = 1024, .cq_cnt = 65536, .cntr_cnt = 65536, .mr_cnt = 65536,
		.tx_ctx_cnt = 1, .rx_ctx_cnt = 1, .max_ep_tx_ctx = 1, .max_ep_rx_ctx = 1,
	};
	struct fi_fabric_attr fabric = {.name = (char *)(uintptr_t)"inlay"};
	const struct fi_info all = {
		.caps = ALL_CAPS, .src_addr = &name, .src_addrlen = sizeof(name), .handle = hints->handle,
		.dest_addr = hints->dest_addr, .dest_addrlen = hints->dest_addrlen,
		.tx_attr = &tx, .rx_attr = &rx, .ep_attr = &ep, .domain_attr = &domain, .fabric_attr = &fabric,
	};
	struct fi_info *info;

	inlay_connect_pack(port, name.record);
	info = fi_dupinfo(&all);
	if (info)
		info->nic = nic_of(context, port->gid);
	return info;
}

/* Whether a program asks for all modes of registration, in the words of versions before 1.5. */
static bool is_basic(const struct fi_domain_attr *d, uint32_t version)
{
	return d->mr_mode == FI_MR_BASIC || (d->mr_mode == FI_MR_UNSPEC && FI_VERSION_LT(version, FI_VERSION(1, 5)));
}

/* Names what the hints ask for and this device does not offer, or NULL. have: from offer(). */
static const char *misfit(const struct fi_info *hints, const struct fi_info *have, uint32_t version)
{
	static const struct fi_tx_attr no_tx; /* hints that are left out count as 0 */
	static const struct fi_rx_attr no_rx;
	static const struct fi_ep_attr no_ep;
	static const struct fi_domain_attr no_domain;
	const struct fi_tx_attr *tx = hints->tx_attr ? hints->tx_attr : &no_tx;
	const struct fi_rx_attr *rx = hints->rx_attr ? hints->rx_attr : &no_rx;
	const struct fi_ep_attr *ep = hints->ep_attr ? hints->ep_attr : &no_ep;
	const struct fi_domain_attr *d = hints->domain_attr ? hints->domain_attr : &no_domain;
	const struct fi_domain_attr *mine = have->domain_attr;
	const struct fi_fabric_attr *f = hints->fabric_attr;

	return (hints->caps | tx->caps | rx->caps) & ~(ALL_CAPS) || d->caps & ~mine->caps ? "capabilities" :
	       hints->addr_format != FI_FORMAT_UNSPEC || (hints->dest_addr && hints->dest_addrlen != have->src_addrlen) ?
	       "address format" :
	       hints->src_addr && (hints->src_addrlen != have->src_addrlen ||
				   memcmp(hints->src_addr, have->src_addr, have->src_addrlen)) ? "source address" :
	       (tx->op_flags & ~(TX_FLAGS)) | (rx->op_flags & ~(RX_FLAGS)) ? "operation flags" :
	       (tx->msg_order | rx->msg_order) & ~ORDERS ? "message order" :
	       tx->comp_order | rx->comp_order ? "order of completions" :
	       tx->inject_size > have->tx_attr->inject_size ? "inject size" :
	       tx->size > have->tx_attr->size || rx->size > have->rx_attr->size ? "operations at a time" :
	       tx->iov_limit > IOV_LIMIT || rx->iov_limit > IOV_LIMIT || tx->rma_iov_limit > 1 ? "iov limit" :
	       ep->type != FI_EP_UNSPEC && ep->type != FI_EP_RDM ? "endpoint type" :
	       ep->protocol != FI_PROTO_UNSPEC ? "protocol" :
	       ep->max_msg_size > MAX_MESSAGE ? "message size" :
	       ep->max_order_raw_size | ep->max_order_war_size | ep->max_order_waw_size ? "ordered data" :
	       ep->tx_ctx_cnt > 1 || ep->rx_ctx_cnt > 1 || d->max_ep_tx_ctx > 1 || d->max_ep_rx_ctx > 1 ?
	       "several contexts" :
	       d->max_ep_stx_ctx || d->max_ep_srx_ctx ? "shared contexts" :
	       ep->auth_key_size || d->auth_key_size ? "authorization key" :
	       ep->mem_tag_format &&
	       (uint32_t)__builtin_clzll(ep->mem_tag_format) < (have->ep_attr->mem_tag_format == TAG_FORMAT ? 0 : LEAST_SOURCE_BITS) ?
	       "more tag bits than directed receives leave" :
	       d->name && strcasecmp(d->name, mine->name) ? "domain name" :
	       d->control_progress == FI_PROGRESS_AUTO || d->data_progress == FI_PROGRESS_AUTO ? "automatic progress" :
	       d != &no_domain && hints->caps & (FI_RMA | FI_ATOMIC) && !is_basic(d, version) && mine->mr_mode & ~d->mr_mode ?
	       "memory registration mode" :
	       d->cq_data_size > mine->cq_data_size ? "size of CQ data" :
	       d->cq_cnt > mine->cq_cnt || d->ep_cnt > mine->ep_cnt || d->cntr_cnt > mine->cntr_cnt ||
	       d->mr_cnt > mine->mr_cnt || d->mr_iov_limit > 1 ? "number of objects" :
	       f && f->name && strcasecmp(f->name, have->fabric_attr->name) ? "fabric name" : NULL;
}

/* The capabilities granted to a caller that asks for some of those offered. */
static uint64_t granted(uint64_t asked, uint64_t have)
{
	if (!(asked & (FI_RMA | FI_ATOMIC)))
		have &= ~(uint64_t)ONE_SIDED;
	return have & (asked | ~(uint64_t)(FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | PRICED_CAPS));
}

/* Narrows the offer to what was asked for. */
static void answer(const struct fi_info *hints, struct fi_info *info, uint32_t version)
{
	const struct fi_domain_attr *d = hints->domain_attr;
	const bool basic = d && is_basic(d, version);
	uint64_t asked = hints->caps;
	bool rma;

	if (!asked && d && !basic && info->domain_attr->mr_mode & ~d->mr_mode)
		asked = ALL_CAPS & ~(uint64_t)ONE_SIDED; /* d lacks their mr_mode */
	if (asked) {
		info->caps = granted(asked, info->caps);
		info->tx_attr->caps = granted(asked, info->tx_attr->caps);
		info->rx_attr->caps = granted(asked, info->rx_attr->caps);
	}
	rma = (info->caps & (FI_RMA | FI_ATOMIC)) != 0;
	if (hints->ep_attr && hints->ep_attr->mem_tag_format > info->ep_attr->mem_tag_format)
		info->ep_attr->mem_tag_format = TAG_FORMAT >> __builtin_clzll(hints->ep_attr->mem_tag_format);
	if (basic || (d && d->mr_mode == FI_MR_SCALABLE && !rma))
		info->domain_attr->mr_mode = basic ? FI_MR_BASIC : FI_MR_SCALABLE;
	else if (d && !rma)
		info->domain_attr->mr_mode &= d->mr_mode;
}

/* The offer of one device, if it fits; NULL if it does not. */
static struct fi_info *info_of(struct ibv_device *device, uint32_t version, const struct fi_info *hints)
{
	struct ibv_context *context = ibv_open_device(device);
	struct inlay_connect_record port = {0};
	struct fi_info *info = NULL;
	const char *why = "it cannot be opened";

	if (context && !inlay_connect_port(&port, context, (uint8_t)settings.port, settings.gid_index, &why)) {
		info = offer(context, &port, hints);
		why = info ? misfit(hints, info, version) : "no memory";
	}
	if (context)
		ibv_close_device(context);
	if (!why) {
		answer(hints, info, version);
		return info;
	}
	FI_INFO(&provider, FI_LOG_CORE, "%s is passed over: %s%s\n", ibv_get_device_name(device),
		info ? "it does not fit the hints: " : "", why);
	fi_freeinfo(info);
	return NULL;
}

/* Whether a node is this host. */
static bool local(const char *node, uint64_t flags)
{
	const struct addrinfo how = {.ai_flags = flags & FI_NUMERICHOST ? AI_NUMERICHOST : 0, .ai_socktype = SOCK_DGRAM};
	struct addrinfo *a;
	bool is;
	int fd;

	if (getaddrinfo(node, NULL, &how, &a))
		return false;
	fd = socket(a->ai_family, SOCK_DGRAM, 0);
	is = !bind(fd, a->ai_addr, a->ai_addrlen);
	close(fd);
	freeaddrinfo(a);
	return is;
}

static int info_get(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints,
		    struct fi_info **info)
{
	struct fi_info **last = info, asked = {0};
	struct ibv_device **list;
	int i, n = 0;

	*info = NULL;
	if (flags & FI_SOURCE ? !node && !service : node || service) {
		FI_INFO(&provider, FI_LOG_CORE, "addresses are exchanged by the application, not looked up by name\n");
		return -FI_ENODATA;
	}
	if (node && !local(node, flags)) /* any service will do */
		return -FI_ENODATA;
	if (hints)
		asked = *hints;
	if (flags & FI_SOURCE)
		asked.src_addr = NULL;
	list = ibv_get_device_list(&n);
	for (i = 0; list && i < n; i++) {
		if (mlx5dv_is_supported(list[i]))
			*last = info_of(list[i], version, &asked);
		if (*last)
			last = &(*last)->next;
	}
	if (list)
		ibv_free_device_list(list);
	if (!n)
		FI_INFO(&provider, FI_LOG_CORE, "there is no RDMA device\n");
	return *info ? 0 : -FI_ENODATA;
}

/* ---- Settings ---- */

static int setting(const char *name, int normal, int least, int most, const char *help)
{
	int given = normal;

	fi_param_define(&provider, name, FI_PARAM_INT, "%s [%d]", help, normal);
	fi_param_get_int(&provider, name, &given);
	if (given >= least && given <= most)
		return given;
	WARN(FI_LOG_CORE, "%s is from %d to %d: %d is not taken\n", name, least, most, given);
	return normal;
}

struct fi_provider provider = {FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(FI_MAJOR_VERSION,
	FI_MINOR_VERSION), {{NULL, NULL, NULL, NULL}}, "inlay", info_get, fabric_open, NULL};

#define SET(type, name, ...) settings.name = (type)setting(#name, __VA_ARGS__);

FI_EXT_INI
{
	char *transport = NULL;

	SETTINGS(SET)
	fi_param_define(&provider, "transport", FI_PARAM_STRING,
			"rc: a queue pair for each peer; dc: a few for all of them [rc]");
	fi_param_get_str(&provider, "transport", &transport);
	settings.dc = transport && !strcmp(transport, "dc");
	if (transport && !settings.dc && strcmp(transport, "rc"))
		WARN(FI_LOG_CORE, "transport is rc or dc: rc is taken\n");
	if (settings.rails > 1 && (settings.dc || settings.tag_offload)) {
		WARN(FI_LOG_CORE, "rails is 1 with transport dc, and with tag_offload\n");
		settings.rails = 1;
	}
	settings.eager &= ~(size_t)15;
	return &provider;
}
