/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * info.c: what the provider is and offers: fi_prov_ini, the settings, fi_getinfo.
 */
#include "fabric.h"

struct settings settings = {8192, 1 << 20, 4, 1024, 1000, 1, -1, 0, 0, 18, 600000, 10000, 4096};

/* What an endpoint can do, and what of that a caller gets only if it asks: it has a price. */
#define ONE_SIDED (FI_RMA | FI_ATOMIC | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)
#define TX_CAPS (FI_MSG | FI_TAGGED | FI_SEND | FI_RMA | FI_ATOMIC | FI_READ | FI_WRITE)
#define RX_CAPS                                                                                                       \
	(FI_MSG | FI_TAGGED | FI_RECV | FI_RMA | FI_ATOMIC | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_MULTI_RECV |       \
	 FI_SOURCE | FI_DIRECTED_RECV)
#define DOMAIN_CAPS (FI_LOCAL_COMM | FI_REMOTE_COMM)
#define PRICED_CAPS FI_DIRECTED_RECV
#define ALL_CAPS (TX_CAPS | RX_CAPS | DOMAIN_CAPS)

#define TX_FLAGS                                                                                                      \
	(FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE |              \
	 FI_MATCH_COMPLETE)
#define RX_FLAGS (FI_COMPLETION | FI_MULTI_RECV)
#define ORDERS FI_ORDER_SAS

#define NO_MODE_NEEDED 0
#define TAG_FORMAT 0xaaaaaaaaaaaaaaaaull /* 64 fields of one bit: any bits, any mask */

/* Everything, as offered without hints. NULL: no memory. */
static struct fi_info *offer(struct ibv_context *context)
{
	struct fi_info *info = fi_allocinfo();

	if (!info)
		return NULL;
	info->caps = ALL_CAPS;
	info->mode = NO_MODE_NEEDED;
	info->addr_format = FI_FORMAT_UNSPEC;
	info->tx_attr->caps = TX_CAPS;
	info->tx_attr->msg_order = ORDERS;
	info->tx_attr->inject_size = settings.eager;
	info->tx_attr->size = 1024;
	info->tx_attr->iov_limit = IOV_LIMIT;
	info->tx_attr->rma_iov_limit = 1;
	info->rx_attr->caps = RX_CAPS;
	info->rx_attr->msg_order = ORDERS;
	info->rx_attr->total_buffered_recv = SIZE_MAX;
	info->rx_attr->size = 65536;
	info->rx_attr->iov_limit = IOV_LIMIT;
	info->ep_attr->type = FI_EP_RDM;
	info->ep_attr->protocol = FI_PROTO_UNSPEC;
	info->ep_attr->protocol_version = 1;
	info->ep_attr->max_msg_size = MAX_MESSAGE;
	info->ep_attr->mem_tag_format = TAG_FORMAT >> SOURCE_BITS;
	info->ep_attr->tx_ctx_cnt = 1;
	info->ep_attr->rx_ctx_cnt = 1;
	info->domain_attr->name = strdup(ibv_get_device_name(context->device));
	info->domain_attr->threading = FI_THREAD_SAFE;
	info->domain_attr->control_progress = FI_PROGRESS_MANUAL;
	info->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	info->domain_attr->resource_mgmt = FI_RM_ENABLED;
	info->domain_attr->av_type = FI_AV_UNSPEC;
	info->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	info->domain_attr->mr_key_size = sizeof(uint32_t);
	info->domain_attr->cq_data_size = sizeof(uint64_t);
	info->domain_attr->cq_cnt = 65536;
	info->domain_attr->ep_cnt = 1024;
	info->domain_attr->tx_ctx_cnt = 1;
	info->domain_attr->rx_ctx_cnt = 1;
	info->domain_attr->max_ep_tx_ctx = 1;
	info->domain_attr->max_ep_rx_ctx = 1;
	info->domain_attr->mr_iov_limit = 1;
	info->domain_attr->mr_cnt = 65536;
	info->domain_attr->caps = DOMAIN_CAPS;
	info->fabric_attr->name = strdup("inlay");
	if (info->domain_attr->name && info->fabric_attr->name)
		return info;
	fi_freeinfo(info);
	return NULL;
}

/* A hint that names something, and another name. */
static bool other(const char *hint, const char *have)
{
	return hint && strcasecmp(hint, have);
}

static const char *misfit_tx(const struct fi_tx_attr *hint, const struct fi_tx_attr *have)
{
	return hint->caps & ~(ALL_CAPS) ? "transmit capabilities" :
	       hint->op_flags & ~(TX_FLAGS) ? "transmit flags" :
	       hint->msg_order & ~have->msg_order ? "transmit order" :
	       hint->comp_order & ~have->comp_order ? "order of transmit completions" :
	       hint->inject_size > have->inject_size ? "inject size" :
	       hint->size > have->size ? "transmit size" :
	       hint->iov_limit > have->iov_limit || hint->rma_iov_limit > have->rma_iov_limit ? "transmit iov limit" :
	       NULL;
}

static const char *misfit_rx(const struct fi_rx_attr *hint, const struct fi_rx_attr *have)
{
	return hint->caps & ~(ALL_CAPS) ? "receive capabilities" :
	       hint->op_flags & ~(RX_FLAGS) ? "receive flags" :
	       hint->msg_order & ~have->msg_order ? "receive order" :
	       hint->comp_order & ~have->comp_order ? "order of receive completions" :
	       hint->size > have->size ? "receive size" :
	       hint->iov_limit > have->iov_limit ? "receive iov limit" : NULL;
}

static const char *misfit_ep(const struct fi_ep_attr *hint, const struct fi_ep_attr *have)
{
	return hint->type != FI_EP_UNSPEC && hint->type != have->type ? "endpoint type" :
	       hint->protocol != FI_PROTO_UNSPEC ? "protocol" :
	       hint->max_msg_size > have->max_msg_size ? "message size" :
	       hint->tx_ctx_cnt > 1 || hint->rx_ctx_cnt > 1 ? "several contexts" :
	       hint->auth_key_size ? "authorization key" :
	       hint->mem_tag_format && __builtin_clzll(hint->mem_tag_format) < __builtin_clzll(have->mem_tag_format) ?
	       "more tag bits than directed receives leave" : NULL;
}

static const char *misfit_domain(const struct fi_domain_attr *hint, const struct fi_domain_attr *have, uint32_t version,
				 bool rma)
{
	const bool basic = hint->mr_mode == FI_MR_BASIC || /* all of them, in old programs' words */
			   (hint->mr_mode == FI_MR_UNSPEC && FI_VERSION_LT(version, FI_VERSION(1, 5)));

	return other(hint->name, have->name) ? "domain name" :
	       hint->control_progress == FI_PROGRESS_AUTO ? "automatic progress" :
	       hint->data_progress == FI_PROGRESS_AUTO ? "automatic progress" :
	       rma && !basic && have->mr_mode & ~hint->mr_mode ? "memory registration mode" :
	       hint->cq_data_size > have->cq_data_size ? "size of CQ data" :
	       hint->cq_cnt > have->cq_cnt || hint->ep_cnt > have->ep_cnt ? "number of CQs or endpoints" :
	       hint->max_ep_tx_ctx > 1 || hint->max_ep_rx_ctx > 1 ? "several contexts" :
	       hint->max_ep_stx_ctx || hint->max_ep_srx_ctx ? "shared contexts" :
	       hint->auth_key_size ? "authorization key" :
	       hint->caps & ~have->caps ? "domain capabilities" : NULL;
}

/* What the hints ask for that this device's offer has not; NULL: nothing. */
static const char *misfit(const struct fi_info *hints, const struct fi_info *have, uint32_t version)
{
	const char *what = hints->caps & ~(ALL_CAPS) ? "capabilities" :
			   hints->addr_format != FI_FORMAT_UNSPEC ? "address format" : NULL;

	if (!what && hints->tx_attr)
		what = misfit_tx(hints->tx_attr, have->tx_attr);
	if (!what && hints->rx_attr)
		what = misfit_rx(hints->rx_attr, have->rx_attr);
	if (!what && hints->ep_attr)
		what = misfit_ep(hints->ep_attr, have->ep_attr);
	if (!what && hints->domain_attr)
		what = misfit_domain(hints->domain_attr, have->domain_attr, version,
				     (hints->caps & (FI_RMA | FI_ATOMIC)) != 0);
	if (!what && hints->fabric_attr && other(hints->fabric_attr->name, have->fabric_attr->name))
		what = "fabric name";
	return what;
}

/* The capabilities that a caller gets who asks for some of those that there are. */
static uint64_t granted(uint64_t asked, uint64_t have)
{
	if (!(asked & (FI_RMA | FI_ATOMIC)))
		have &= ~(uint64_t)ONE_SIDED;
	return have & (asked | ~(uint64_t)(FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | PRICED_CAPS));
}

/* The mode that memory is registered in, in the words of the hint. */
static int mr_mode(int hint, int have, bool rma)
{
	return hint == FI_MR_BASIC || (hint == FI_MR_SCALABLE && !rma) ? hint : rma ? have : have & hint;
}

/* Narrows the offer to what was asked for. */
static void answer(const struct fi_info *hints, struct fi_info *info)
{
	if (hints->caps) {
		info->caps = granted(hints->caps, info->caps);
		info->tx_attr->caps = granted(hints->caps, info->tx_attr->caps);
		info->rx_attr->caps = granted(hints->caps, info->rx_attr->caps);
	}
	if (hints->tx_attr)
		info->tx_attr->op_flags = hints->tx_attr->op_flags;
	if (hints->rx_attr)
		info->rx_attr->op_flags = hints->rx_attr->op_flags;
	if (hints->domain_attr && hints->domain_attr->threading != FI_THREAD_UNSPEC)
		info->domain_attr->threading = hints->domain_attr->threading;
	if (hints->domain_attr && hints->domain_attr->av_type != FI_AV_UNSPEC)
		info->domain_attr->av_type = hints->domain_attr->av_type;
	if (hints->domain_attr)
		info->domain_attr->mr_mode = mr_mode(hints->domain_attr->mr_mode, info->domain_attr->mr_mode,
						     (info->caps & (FI_RMA | FI_ATOMIC)) != 0);
	info->handle = hints->handle;
}

/* The offer of one device, if it fits; NULL if it does not. */
static struct fi_info *info_of(struct ibv_device *device, uint32_t version, const struct fi_info *hints)
{
	struct inlay_connect_record port;
	struct ibv_context *context;
	struct fi_info *info;
	const char *why;
	int err;

	context = ibv_open_device(device);
	if (!context)
		return NULL;
	memset(&port, 0, sizeof(port));
	err = inlay_connect_port(&port, context, (uint8_t)settings.port, settings.gid_index, &why);
	if (err)
		FI_INFO(&provider, FI_LOG_CORE, "%s is passed over: %s\n", ibv_get_device_name(device), why);
	info = err ? NULL : offer(context);
	ibv_close_device(context);
	if (!info || !hints)
		return info;
	if (hints->caps && !(hints->caps & FI_DIRECTED_RECV))
		info->ep_attr->mem_tag_format = TAG_FORMAT;
	why = misfit(hints, info, version);
	if (!why) {
		answer(hints, info);
		return info;
	}
	FI_INFO(&provider, FI_LOG_CORE, "%s does not fit the hints: %s\n", ibv_get_device_name(device), why);
	fi_freeinfo(info);
	return NULL;
}

int info_get(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints,
	     struct fi_info **info)
{
	struct fi_info **last = info;
	struct ibv_device **list;
	int i, n = 0;

	*info = NULL;
	if ((node || service) && !(flags & FI_SOURCE)) {
		FI_INFO(&provider, FI_LOG_CORE, "addresses are exchanged by the application, not looked up by name\n");
		return -FI_ENODATA;
	}
	list = ibv_get_device_list(&n);
	for (i = 0; list && i < n; i++) {
		if (mlx5dv_is_supported(list[i]))
			*last = info_of(list[i], version, hints);
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

static void setting(const char *name, int *value, int least, int most, const char *help)
{
	int given;

	fi_param_define(&provider, name, FI_PARAM_INT, "%s [%d]", help, *value);
	if (fi_param_get_int(&provider, name, &given))
		return;
	if (given < least || given > most)
		WARN(FI_LOG_CORE, "%s is from %d to %d: %d is not taken\n", name, least, most, given);
	else
		*value = given;
}

static void setting_size(const char *name, size_t *value, int least, int most, const char *help)
{
	int given = (int)*value;

	setting(name, &given, least, most, help);
	*value = (size_t)given;
}

static void cleanup(void)
{
}

struct fi_provider provider = {
	FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION),
	{{NULL, NULL, NULL, NULL}}, "inlay", info_get, fabric_open, cleanup,
};

FI_EXT_INI
{
	setting_size("eager", &settings.eager, 256, 1 << 16, "bytes: longer messages are read by the receiver");
	settings.eager &= ~(size_t)15;
	setting_size("piece", &settings.piece, 4096, 1 << 30, "bytes of a long message that are read at a time");
	setting("window", &settings.window, 1, 16, "pieces of a long message under way at a time");
	setting("receives", &settings.receives, 16, 32767, "entries of the shared receive queue");
	setting("peers", &settings.peers, 1, 16384, "connections of an endpoint");
	setting("port", &settings.port, 1, 255, "port of the device");
	setting("gid_index", &settings.gid_index, -1, 255, "GID of the port; -1: the best");
	setting("sl", &settings.sl, 0, 15, "service level, on RoCE the priority");
	setting("traffic_class", &settings.traffic_class, 0, 255, "traffic class");
	setting("timeout", &settings.timeout, 1, 31, "4.096 us << timeout for an acknowledgement, eight times");
	setting("connect_ms", &settings.connect_ms, 10, 1 << 30, "milliseconds for a peer to answer hellos");
	setting("keepalive_ms", &settings.keepalive_ms, 0, 1 << 30, "milliseconds between probes of a peer; 0: none");
	setting("cache_regions", &settings.cache_regions, 8, 1 << 20, "registrations that are kept");
	return &provider;
}
