/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * task_ucx.c: a command and its answer as UCX active messages, between two workers of this process on one stepped
 * device, which works only between what is measured: ucp_am_send_nbx of LAP commands, then ucp_worker_progress until
 * the answers are in. Rows are those of task.c. A command has no header, and its answer of 8 bytes is only counted:
 * what would find the request is not in the figures.
 */
#include <ucp/api/ucp.h>
#include <unistd.h>
#include "../bench.h"
#include "softdev.h"

#define LAP 32u

struct side {
	ucp_worker_h worker;
	ucp_ep_h ep;
	uint64_t came;
};

static struct side host, worker;
static ucp_context_h context;
static uint8_t payload[256];

static void finish(void *request)
{
	if (UCS_PTR_IS_ERR(request))
		die("ucp_am_send_nbx failed");
	if (request)
		ucp_request_free(request); /* it completes by itself */
}

COUNTED void count_send_(size_t len)
{
	static const ucp_request_param_t none;

	finish(ucp_am_send_nbx(host.ep, 1, NULL, 0, payload, len, &none));
}

COUNTED unsigned count_look_(void)
{
	return ucp_worker_progress(host.worker);
}

static ucs_status_t arrived(void *arg, const void *header, size_t header_len, void *data, size_t len,
			    const ucp_am_recv_param_t *param)
{
	static const ucp_request_param_t none;
	struct side *s = arg;
	uint64_t answer;

	s->came++;
	if (s == &worker) {
		memcpy(&answer, data, 8);
		finish(ucp_am_send_nbx(worker.ep, 1, NULL, 0, &answer, 8, &none));
	}
	return UCS_OK;
}

static void make(struct side *s)
{
	ucp_worker_params_t single = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
				      .thread_mode = UCS_THREAD_MODE_SINGLE};
	ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
					  UCP_AM_HANDLER_PARAM_FIELD_ARG, .id = 1, .cb = arrived, .arg = s};

	NEED(!ucp_worker_create(context, &single, &s->worker), "ucp_worker_create");
	NEED(!ucp_worker_set_am_recv_handler(s->worker, &handler), "ucp_worker_set_am_recv_handler");
}

static void join(struct side *s, struct side *to)
{
	ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
	ucp_address_t *address;
	size_t len;

	NEED(!ucp_worker_get_address(to->worker, &address, &len), "ucp_worker_get_address");
	params.address = address;
	NEED(!ucp_ep_create(s->worker, &params, &s->ep), "ucp_ep_create");
	ucp_worker_release_address(to->worker, address);
}

/* Until the worker has had that many, and its answers are on their way */
static void answer(uint64_t came)
{
	for (unsigned i = 0; worker.came < came; i++) {
		NEED(softdev_run() >= 0 && i < 100000, "answering");
		ucp_worker_progress(worker.worker);
	}
	NEED(softdev_run() >= 0, "softdev_run");
}

static double laps(void *arg, uint64_t n)
{
	size_t len = *(size_t *)arg;
	double seconds = 0, t;

	for (uint64_t done = 0; done < n; done += LAP) {
		uint64_t end = host.came + LAP;

		t = now();
		for (unsigned i = 0; i < LAP; i++)
			count_send_(len);
		seconds += now() - t;
		answer(end);
		t = now();
		while (host.came < end)
			count_look_();
		seconds += now() - t;
		/* Credits of the transport, which go to and fro */
		for (unsigned i = 0; i < 4; i++) {
			ucp_worker_progress(worker.worker);
			NEED(softdev_run() >= 0, "softdev_run");
			ucp_worker_progress(host.worker);
			NEED(softdev_run() >= 0, "softdev_run");
		}
	}
	return seconds;
}

int main(void)
{
	ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_AM};
	static size_t lens[] = {8, 64, 200};
	static const char *const rows[] = {"8 B inline", "64 B inline", "200 B gathered"};
	ucp_config_t *config;
	uint64_t i;

	setenv("UCX_NET_DEVICES", "mlx5_0:1", 1);
	setenv("UCX_TLS", "rc_mlx5,ud_mlx5:aux", 1);
	if (!softdev_present() || softdev_manual(1))
		die("needs the stepped software device: start it with tests/softdev/run --manual");
	NEED(!ucp_config_read(NULL, NULL, &config) && !ucp_init(&params, config, &context), "ucp_init");
	ucp_config_release(config);
	make(&host);
	make(&worker);
	join(&host, &worker);
	join(&worker, &host);
	for (i = 0; i < 64; i++) {
		count_send_(8);
		for (unsigned k = 0; host.came <= i; k++) {
			NEED(softdev_run() >= 0 && k < 10000, "connecting");
			ucp_worker_progress(worker.worker);
			ucp_worker_progress(host.worker);
			if (i == 0)
				usleep(1000);
		}
	}
	ucp_ep_print_info(host.ep, stderr);
	for (i = 0; i < 3; i++) {
		struct way way = {"UCX", laps, &lens[i], "an active message each way"};

		bench_row("task", rows[i], &way, 1, LAP);
	}
	fflush(stdout);
	_exit(0);
}
