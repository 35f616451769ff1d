/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * info.c: what the provider is and offers: fi_prov_ini, the settings, fi_getinfo.
 */
#include "fabric.h"

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

/* Everything, as offered without hints. NULL: no memory. */
static struct fi_info *offer(struct ibv_context *context)
{
	struct fi_info *info = fi_allocinfo();

	if (!info)
		return NULL;
	info->caps = ALL_CAPS;
	info->tx_attr->caps = TX_CAPS;
	info->tx_attr->msg_order = ORDERS;
	info->tx_attr->inject_size = settings.eager;
	info->tx_attr->size = PEER_RING; /* to one peer; more wait: -FI_EAGAIN */
	info->tx_attr->iov_limit = IOV_LIMIT;
	info->tx_attr->rma_iov_limit = 1;
	info->rx_attr->caps = RX_CAPS;
	info->rx_attr->msg_order = ORDERS;
	info->rx_attr->total_buffered_recv = SIZE_MAX;
	info->rx_attr->size = 65536;
	info->rx_attr->iov_limit = IOV_LIMIT;
	info->ep_attr->type = FI_EP_RDM;
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

/* Whether a hint names something else. */
static bool other(const char *hint, const char *have)
{
	return hint && strcasecmp(hint, have);
}

/*
 * Names what the hints ask for and this device does not offer; NULL: nothing. have was made by offer(); hints
 * that were left out are 0.
 */
static const char *misfit(const struct fi_info *hints, const struct fi_info *have, uint32_t version)
{
	static const struct fi_tx_attr no_tx;
	static const struct fi_rx_attr no_rx;
	static const struct fi_ep_attr no_ep;
	static const struct fi_domain_attr no_domain;
	const struct fi_tx_attr *tx = hints->tx_attr ? hints->tx_attr : &no_tx;
	const struct fi_rx_attr *rx = hints->rx_attr ? hints->rx_attr : &no_rx;
	const struct fi_ep_attr *ep = hints->ep_attr ? hints->ep_attr : &no_ep;
	const struct fi_domain_attr *d = hints->domain_attr ? hints->domain_attr : &no_domain;
	const struct fi_domain_attr *mine = have->domain_attr;
	const bool basic = d->mr_mode == FI_MR_BASIC || /* all of them, in old programs' words */
			   (d->mr_mode == FI_MR_UNSPEC && FI_VERSION_LT(version, FI_VERSION(1, 5)));

	return (hints->caps | tx->caps | rx->caps) & ~(ALL_CAPS) || d->caps & ~mine->caps ? "capabilities" :
	       hints->addr_format != FI_FORMAT_UNSPEC ? "address format" :
	       (tx->op_flags & ~(TX_FLAGS)) | (rx->op_flags & ~(RX_FLAGS)) ? "operation flags" :
	       (tx->msg_order | rx->msg_order) & ~ORDERS ? "message order" :
	       tx->comp_order | rx->comp_order ? "order of completions" :
	       tx->inject_size > have->tx_attr->inject_size ? "inject size" :
	       tx->size > have->tx_attr->size || rx->size > have->rx_attr->size ? "operations at a time" :
	       tx->iov_limit > IOV_LIMIT || rx->iov_limit > IOV_LIMIT || tx->rma_iov_limit > 1 ? "iov limit" :
	       ep->type != FI_EP_UNSPEC && ep->type != FI_EP_RDM ? "endpoint type" :
	       ep->protocol != FI_PROTO_UNSPEC ? "protocol" :
	       ep->max_msg_size > MAX_MESSAGE ? "message size" :
	       ep->tx_ctx_cnt > 1 || ep->rx_ctx_cnt > 1 || d->max_ep_tx_ctx > 1 || d->max_ep_rx_ctx > 1 ?
	       "several contexts" :
	       d->max_ep_stx_ctx || d->max_ep_srx_ctx ? "shared contexts" :
	       ep->auth_key_size || d->auth_key_size ? "authorization key" :
	       ep->mem_tag_format &&
	       (uint32_t)__builtin_clzll(ep->mem_tag_format) < (have->ep_attr->mem_tag_format == TAG_FORMAT ? 0 : LEAST_SOURCE_BITS) ?
	       "more tag bits than directed receives leave" :
	       other(d->name, mine->name) ? "domain name" :
	       d->control_progress == FI_PROGRESS_AUTO || d->data_progress == FI_PROGRESS_AUTO ? "automatic progress" :
	       d != &no_domain && hints->caps & (FI_RMA | FI_ATOMIC) && !basic && mine->mr_mode & ~d->mr_mode ?
	       "memory registration mode" :
	       d->cq_data_size > mine->cq_data_size ? "size of CQ data" :
	       d->cq_cnt > mine->cq_cnt || d->ep_cnt > mine->ep_cnt ? "number of CQs or endpoints" :
	       hints->fabric_attr && other(hints->fabric_attr->name, have->fabric_attr->name) ? "fabric name" : NULL;
}

/* The capabilities granted to a caller that asks for some of those offered. */
static uint64_t granted(uint64_t asked, uint64_t have)
{
	if (!(asked & (FI_RMA | FI_ATOMIC)))
		have &= ~(uint64_t)ONE_SIDED;
	return have & (asked | ~(uint64_t)(FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | PRICED_CAPS));
}

/* Narrows the offer to what was asked for. */
static void answer(const struct fi_info *hints, struct fi_info *info)
{
	const struct fi_domain_attr *d = hints->domain_attr;
	bool rma;

	if (hints->caps) {
		info->caps = granted(hints->caps, info->caps);
		info->tx_attr->caps = granted(hints->caps, info->tx_attr->caps);
		info->rx_attr->caps = granted(hints->caps, info->rx_attr->caps);
	}
	rma = (info->caps & (FI_RMA | FI_ATOMIC)) != 0;
	if (hints->tx_attr)
		info->tx_attr->op_flags = hints->tx_attr->op_flags;
	if (hints->rx_attr)
		info->rx_attr->op_flags = hints->rx_attr->op_flags;
	if (hints->ep_attr && hints->ep_attr->mem_tag_format > info->ep_attr->mem_tag_format)
		info->ep_attr->mem_tag_format = TAG_FORMAT >> __builtin_clzll(hints->ep_attr->mem_tag_format);
	if (d && d->threading != FI_THREAD_UNSPEC)
		info->domain_attr->threading = d->threading;
	if (d && d->av_type != FI_AV_UNSPEC)
		info->domain_attr->av_type = d->av_type;
	if (d && (d->mr_mode == FI_MR_BASIC || (d->mr_mode == FI_MR_SCALABLE && !rma)))
		info->domain_attr->mr_mode = d->mr_mode;
	else if (d && !rma)
		info->domain_attr->mr_mode &= d->mr_mode;
	info->handle = hints->handle;
}

/* The offer of one device, if it fits; NULL if it does not. */
static struct fi_info *info_of(struct ibv_device *device, uint32_t version, const struct fi_info *hints)
{
	struct ibv_context *context = ibv_open_device(device);
	struct inlay_connect_record port;
	struct fi_info *info = NULL;
	const char *why = "it cannot be opened";

	memset(&port, 0, sizeof(port));
	if (context && !inlay_connect_port(&port, context, (uint8_t)settings.port, settings.gid_index, &why)) {
		info = offer(context);
		if (info && hints->caps && !(hints->caps & FI_DIRECTED_RECV))
			info->ep_attr->mem_tag_format = TAG_FORMAT;
		why = info ? misfit(hints, info, version) : "no memory";
	}
	if (context)
		ibv_close_device(context);
	if (!why) {
		answer(hints, info);
		return info;
	}
	FI_INFO(&provider, FI_LOG_CORE, "%s is passed over: %s%s\n", ibv_get_device_name(device),
		info ? "it does not fit the hints: " : "", why);
	fi_freeinfo(info);
	return NULL;
}

int info_get(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints,
	     struct fi_info **info)
{
	static const struct fi_info anything;
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
			*last = info_of(list[i], version, hints ? hints : &anything);
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

static void cleanup(void)
{
}

struct fi_provider provider = {
	FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION),
	{{NULL, NULL, NULL, NULL}}, "inlay", info_get, fabric_open, cleanup,
};

#define SET(type, name, ...) settings.name = (type)setting(#name, __VA_ARGS__);

/* FI_INLAY_TRANSPORT, the only setting that is not a number. False: it is neither rc nor dc. */
static bool set_transport(void)
{
	char *given = NULL;

	fi_param_define(&provider, "transport", FI_PARAM_STRING,
			"rc: a queue pair for each peer; dc: a few for all of them [rc]");
	fi_param_get_str(&provider, "transport", &given);
	settings.dc = given && !strcmp(given, "dc");
	return !given || settings.dc || !strcmp(given, "rc");
}

FI_EXT_INI
{
	SETTINGS(SET)
	if (!set_transport())
		WARN(FI_LOG_CORE, "transport is rc or dc: rc is taken\n");
	settings.eager &= ~(size_t)15;
	return &provider;
}
