/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cm.c: the connection manager, driven by librdmacm, and by its commands where librdmacm has no call or none for this kernel.
 * Both ends are in this process, except where a process ends or stops. What rdma_client and its like do: rdmacm.t.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <signal.h>
#include <sys/syscall.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <infiniband/ib.h>
/* Both headers define these */
#define RDMA_PS_IPOIB kernel_RDMA_PS_IPOIB
#define RDMA_PS_IB kernel_RDMA_PS_IB
#define RDMA_PS_TCP kernel_RDMA_PS_TCP
#define RDMA_PS_UDP kernel_RDMA_PS_UDP
#define RDMA_MC_JOIN_FLAG_FULLMEMBER kernel_RDMA_MC_JOIN_FLAG_FULLMEMBER
#define RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER kernel_RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER
#define RDMA_MC_JOIN_FLAG_RESERVED kernel_RDMA_MC_JOIN_FLAG_RESERVED
#define RDMA_OPTION_ID kernel_RDMA_OPTION_ID
#define RDMA_OPTION_IB kernel_RDMA_OPTION_IB
#define RDMA_OPTION_ID_TOS kernel_RDMA_OPTION_ID_TOS
#define RDMA_OPTION_ID_REUSEADDR kernel_RDMA_OPTION_ID_REUSEADDR
#define RDMA_OPTION_ID_AFONLY kernel_RDMA_OPTION_ID_AFONLY
#define RDMA_OPTION_ID_ACK_TIMEOUT kernel_RDMA_OPTION_ID_ACK_TIMEOUT
#define RDMA_OPTION_IB_PATH kernel_RDMA_OPTION_IB_PATH
#include <rdma/rdma_user_cm.h>
#undef RDMA_PS_IPOIB
#undef RDMA_PS_IB
#undef RDMA_PS_TCP
#undef RDMA_PS_UDP
#include "rig.h"

#define NOBODY "10.0.0.77"
#define REFUSED(call, error)                                               \
	do {                                                               \
		errno = 0;                                                 \
		assert_int_equal(call, -1);                                \
		assert_int_equal(errno, error);                            \
	} while (0)

static struct rdma_event_channel *server, *client;
static const char hello[256] = "this comes with the request", welcome[256] = "and this with the answer";

/* ---- tools ---- */

static int open_all(void **state)
{
	server = rdma_create_event_channel();
	client = rdma_create_event_channel();
	return !server || !client || setup(state);
}

static int close_all(void **state)
{
	rdma_destroy_event_channel(server);
	rdma_destroy_event_channel(client);
	return teardown(state);
}

static struct rdma_cm_event *take(struct rdma_event_channel *ch, enum rdma_cm_event_type type, int status)
{
	struct rdma_cm_event *e;

	assert_true(readable(ch->fd, PATIENCE * 1000));
	must(rdma_get_cm_event(ch, &e));
	if (e->event != type || e->status != status)
		print_error("%s, status %d, not %s, %d\n", rdma_event_str(e->event), e->status, rdma_event_str(type), status);
	assert_int_equal(e->event, type);
	assert_int_equal(e->status, status);
	return e;
}

static struct rdma_cm_id *got(struct rdma_event_channel *ch, enum rdma_cm_event_type type, int status)
{
	struct rdma_cm_event *e = take(ch, type, status);
	struct rdma_cm_id *id = e->id;

	must(rdma_ack_cm_event(e));
	return id;
}

#define GOT(ch, type) got(ch, RDMA_CM_EVENT_##type, 0)

static struct rdma_cm_id *new_id(struct rdma_event_channel *ch, enum rdma_port_space ps)
{
	struct rdma_cm_id *id;

	must(rdma_create_id(ch, &id, NULL, ps));
	return id;
}

static struct __kernel_sockaddr_storage storage_of(const char *text, uint16_t tcp)
{
	struct __kernel_sockaddr_storage any;
	struct sockaddr_in *in = (void *)&any;
	struct sockaddr_in6 *in6 = (void *)&any;

	memset(&any, 0, sizeof(any));
	if (inet_pton(AF_INET, text, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		in->sin_port = htons(tcp);
	} else {
		assert_int_equal(inet_pton(AF_INET6, text, &in6->sin6_addr), 1);
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(tcp);
		in6->sin6_scope_id = 1;
	}
	return any;
}

static struct sockaddr_in6 address6(const char *text, uint16_t tcp)
{
	struct __kernel_sockaddr_storage any = storage_of(text, tcp);

	return *(struct sockaddr_in6 *)(void *)&any;
}

/* For one call; the fourth next takes its place */
static struct sockaddr *ip(const char *text, uint16_t tcp)
{
	static struct __kernel_sockaddr_storage a[4];
	static unsigned n;
	struct __kernel_sockaddr_storage *x = &a[n++ % 4];

	*x = storage_of(text, tcp);
	return (struct sockaddr *)(void *)x;
}

static uint16_t number_of(struct rdma_cm_id *id)
{
	return ntohs(rdma_get_src_port(id));
}

static struct rdma_cm_id *listener(enum rdma_port_space ps, int backlog)
{
	struct rdma_cm_id *id = new_id(server, ps);

	must(rdma_bind_addr(id, ip("0.0.0.0", 0)));
	must(rdma_listen(id, backlog));
	return id;
}

static struct rdma_cm_id *resolved(enum rdma_port_space ps, const char *to, uint16_t tcp)
{
	struct rdma_cm_id *id = new_id(client, ps);

	must(rdma_resolve_addr(id, NULL, ip(to, tcp), 2000));
	assert_ptr_equal(GOT(client, ADDR_RESOLVED), id);
	return id;
}

static struct rdma_cm_id *routed(enum rdma_port_space ps, const char *to, uint16_t tcp)
{
	struct rdma_cm_id *id = resolved(ps, to, tcp);

	must(rdma_resolve_route(id, 2000));
	assert_ptr_equal(GOT(client, ROUTE_RESOLVED), id);
	return id;
}

static struct rdma_cm_id *towards(struct rdma_cm_id *listener)
{
	return routed(listener->ps, "127.0.0.1", number_of(listener));
}

static struct rdma_conn_param param(const void *data, uint8_t len)
{
	return (struct rdma_conn_param){ .private_data = data, .private_data_len = len, .responder_resources = 3, .initiator_depth = 5,
					 .flow_control = 1, .retry_count = 6, .rnr_retry_count = 7, .qp_num = 0x1234 };
}

static void add_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = { .qp_type = id->qp_type, .cap = usual.cap, .sq_sig_all = 1 };

	must(rdma_create_qp(id, NULL, &init));
}

static void destroy(struct rdma_cm_id *id)
{
	if (id->qp)
		rdma_destroy_qp(id);
	must(rdma_destroy_id(id));
}

static void nothing_left(void)
{
	assert_false(readable(server->fd, 0));
	assert_false(readable(client->fd, 0));
}

/* Each of these ids at the client gets one event, in any order, and goes away */
static void each_ends(unsigned n, struct rdma_cm_id *const *id, const int *event, const int *status)
{
	unsigned seen = 0;

	for (unsigned i = 0; i < n; i++) {
		struct rdma_cm_event *e;

		assert_true(readable(client->fd, PATIENCE * 1000));
		must(rdma_get_cm_event(client, &e));
		for (unsigned j = 0; j < n; j++)
			if (e->id == id[j]) {
				assert_int_equal(e->event, event[j]);
				assert_int_equal(e->status, status[j]);
				seen |= 1u << j;
			}
		must(rdma_ack_cm_event(e));
	}
	assert_int_equal(seen, (1u << n) - 1);
	for (unsigned i = 0; i < n; i++)
		destroy(id[i]);
	nothing_left();
}

/* ---- commands as they are ---- */

static union {
	struct rdma_ucm_create_id_resp id;
	struct rdma_ucm_destroy_id_resp destroyed;
	struct rdma_ucm_event_resp event;
	struct rdma_ucm_query_addr_resp addr;
	struct rdma_ucm_query_route_resp route;
	uint64_t words[512];
} answer;

static int raw_fd(void)
{
	int fd = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static int command(int fd, uint32_t cmd, const void *body, uint16_t in, uint16_t out)
{
	struct {
		struct rdma_ucm_cmd_hdr h;
		uint8_t body[700];
	} c = { .h = { cmd, in, out } };

	memcpy(c.body, body, in);
	return write(fd, &c, sizeof(c.h) + in) == (ssize_t)(sizeof(c.h) + in) ? 0 : errno;
}

/* A command, its structure's name and fields; it answers 0 or an error */
#define DO(fd, name, type, ...) \
	command(fd, RDMA_USER_CM_CMD_##name, &(struct rdma_ucm_##type){ __VA_ARGS__ }, sizeof(struct rdma_ucm_##type), sizeof(answer))
/* And room for so many bytes, or none for them */
#define DO_OUT(fd, name, type, out, ...) \
	command(fd, RDMA_USER_CM_CMD_##name, &(struct rdma_ucm_##type){ __VA_ARGS__ }, sizeof(struct rdma_ucm_##type), out)
#define RESPONSE .response = (uintptr_t)&answer

static uint32_t raw_id(int fd, uint16_t ps)
{
	must(DO(fd, CREATE_ID, create_id, RESPONSE, .uid = 0x77, .ps = ps));
	return answer.id.id;
}

static struct rdma_ucm_event_resp raw_event(int fd)
{
	assert_true(readable(fd, PATIENCE * 1000));
	must(DO(fd, GET_EVENT, get_event, RESPONSE));
	return answer.event;
}

/* The number of events that it had */
static uint32_t raw_destroy(int fd, uint32_t id)
{
	must(DO(fd, DESTROY_ID, destroy_id, RESPONSE, .id = id));
	return answer.destroyed.events_reported;
}

/* ---- files, ids and events ---- */

static void ids(UNUSED void **state)
{
	static const struct {
		uint16_t ps;
		uint8_t type;
		int err;
	} rows[] = {
		{ RDMA_PS_TCP, 0, 0 }, { RDMA_PS_UDP, 0, 0 }, { RDMA_PS_IPOIB, 0, 0 }, { RDMA_PS_IB, IBV_QPT_RC, 0 },
		{ RDMA_PS_IB, IBV_QPT_UD, 0 }, { 0, 0, EINVAL }, { 0x107, 0, EINVAL },
	};
	int fd = raw_fd(), other = raw_fd();
	uint32_t id;

	for (unsigned i = 0; i < ARRAY(rows); i++) {
		assert_int_equal(DO(fd, CREATE_ID, create_id, RESPONSE, .ps = rows[i].ps, .qp_type = rows[i].type), rows[i].err);
		if (!rows[i].err)
			must(raw_destroy(fd, answer.id.id));
	}
	id = raw_id(fd, RDMA_PS_TCP);
	assert_int_equal(DO(other, DISCONNECT, disconnect, .id = id), EINVAL);
	assert_int_equal(DO(fd, DISCONNECT, disconnect, .id = id), EINVAL);
	must(raw_destroy(fd, id));
	assert_int_equal(DO(fd, DESTROY_ID, destroy_id, RESPONSE, .id = id), ENOENT);
	assert_int_equal(DO(fd, DISCONNECT, disconnect, .id = id), ENOENT);
	close(fd);
	close(other);
}

static void commands(UNUSED void **state)
{
	struct rdma_ucm_cmd_hdr h = { .cmd = RDMA_USER_CM_CMD_CREATE_ID, .in = 100 };
	struct rdma_ucm_create_id c = { RESPONSE, .ps = RDMA_PS_TCP };
	const void *volatile nowhere = NULL;
	int fd = raw_fd();
	const struct {
		int fd, err;
	} files[] = { { 1, EINVAL }, { 60000, ENOENT }, { client->fd, EINVAL }, { fd, 0 } };
	const size_t in = sizeof(struct sockaddr_in);
	struct sockaddr_in6 a = address6("fe80::1", 0);
	struct rdma_ucm_event_resp e;
	uint32_t id;

	REFUSED(write(fd, &h, 4), EINVAL);
	REFUSED(write(fd, &h, sizeof(h)), EINVAL);
	REFUSED(write(fd, nowhere, sizeof(h)), EFAULT);
	assert_int_equal(command(fd, 23, &c, sizeof(c), 8), EINVAL);
	assert_int_equal(command(fd, RDMA_USER_CM_CMD_GET_OPTION, &c, sizeof(c), 8), ENOSYS);
	assert_int_equal(command(fd, RDMA_USER_CM_CMD_CREATE_ID, &c, 8, 4), EINVAL);
	assert_int_equal(DO_OUT(fd, CREATE_ID, create_id, 3, RESPONSE, .ps = RDMA_PS_TCP), ENOSPC);
	assert_int_equal(DO_OUT(fd, GET_EVENT, get_event, 16, RESPONSE), ENOSPC);
	assert_int_equal(DO(fd, CREATE_ID, create_id, .ps = RDMA_PS_TCP), EFAULT);
	id = raw_id(fd, RDMA_PS_TCP);
	assert_int_equal(DO(fd, QUERY, query, RESPONSE, .id = id, .option = 9), ENOSYS);
	for (uint32_t option = RDMA_USER_CM_QUERY_ADDR; option <= RDMA_USER_CM_QUERY_GID; option++)
		assert_int_equal(DO_OUT(fd, QUERY, query, 4, RESPONSE, .id = id, .option = option), ENOSPC);
	assert_int_equal(DO_OUT(fd, QUERY_ROUTE, query, 100, RESPONSE, .id = id), ENOSPC);
	must(DO(fd, QUERY_ROUTE, query, RESPONSE, .id = id));
	assert_true(!answer.route.node_guid && !answer.route.num_paths);
	/* Addresses: of no family, link-local with no link, of another size */
	a.sin6_family = AF_UNIX;
	assert_int_equal(DO(fd, BIND_IP, bind_ip, .id = id, .addr = a), EINVAL);
	a = address6("fe80::1", 0);
	a.sin6_scope_id = 0;
	assert_int_equal(DO(fd, BIND_IP, bind_ip, .id = id, .addr = a), EINVAL);
	assert_int_equal(DO(fd, BIND, bind, .id = id, .addr_size = in - 1, .addr = storage_of("127.0.0.1", 0)), EINVAL);
	assert_int_equal(DO(fd, BIND, bind, .id = id, .addr_size = in, .reserved = 1, .addr = storage_of("127.0.0.1", 0)), EINVAL);
	assert_int_equal(DO(fd, RESOLVE_IP, resolve_ip, .id = id, .timeout_ms = 100), EINVAL);
	/* Files to move to: another's, none, of other ids, its own */
	for (unsigned i = 0; i < ARRAY(files); i++)
		assert_int_equal(DO(fd, MIGRATE_ID, migrate_id, RESPONSE, .id = id, .fd = files[i].fd), files[i].err);
	/* What librdmacm uses with older kernels */
	must(DO(fd, RESOLVE_IP, resolve_ip, .id = id, .timeout_ms = 100, .dst_addr = address6("127.0.0.1", 7)));
	e = raw_event(fd);
	assert_int_equal(e.event, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_true(e.uid == 0x77 && e.id == id && e.status == 0);
	must(DO(fd, RESOLVE_ROUTE, resolve_route, .id = id, .timeout_ms = 100));
	assert_int_equal(raw_event(fd).event, RDMA_CM_EVENT_ROUTE_RESOLVED);
	must(DO(fd, QUERY_ROUTE, query, RESPONSE, .id = id));
	assert_int_equal(answer.route.num_paths, 1);
	assert_int_equal(answer.route.port_num, 1);
	assert_memory_equal(answer.route.ib_route[0].sgid, &gid, 16);
	assert_memory_equal(answer.route.ib_route[0].dgid, &gid, 16);
	assert_int_equal(raw_destroy(fd, id), 2);
	close(fd);
	assert_int_equal(open("/dev/infiniband/rdma_cm", O_RDONLY), -1);
}

static void no_event(UNUSED void **state)
{
	struct rdma_cm_event *none;
	struct rdma_cm_id *id;

	/* The events of an id that goes away go with it */
	id = new_id(client, RDMA_PS_TCP);
	must(rdma_resolve_addr(id, NULL, ip("127.0.0.1", 7), 100));
	assert_true(readable(client->fd, 0));
	must(rdma_destroy_id(id));
	nothing_left();
	fcntl(client->fd, F_SETFL, O_NONBLOCK);
	REFUSED(rdma_get_cm_event(client, &none), EAGAIN);
	fcntl(client->fd, F_SETFL, 0);
}

static pid_t waiter;

static void *wait_for_event(void *arg)
{
	struct rdma_ucm_event_resp e;

	__atomic_store_n(&waiter, syscall(SYS_gettid), __ATOMIC_RELEASE);
	return DO(*(int *)arg, GET_EVENT, get_event, .response = (uintptr_t)&e) ? NULL : arg;
}

static void nothing(UNUSED int sig)
{
}

/* A thread in GET_EVENT, asleep */
static pthread_t waiting(int *fd)
{
	char name[64], sleeps = 0;
	pthread_t t;

	__atomic_store_n(&waiter, 0, __ATOMIC_RELEASE);
	must(pthread_create(&t, NULL, wait_for_event, fd));
	while (!__atomic_load_n(&waiter, __ATOMIC_ACQUIRE))
		sched_yield();
	snprintf(name, sizeof(name), "/proc/self/task/%d/stat", (int)waiter);
	while (sleeps != 'S') {
		FILE *f = fopen(name, "r");

		assert_non_null(f);
		assert_int_equal(fscanf(f, "%*d %*s %c", &sleeps), 1);
		fclose(f);
	}
	return t;
}

/* Somebody waits already when the event comes; another is interrupted; a third is cancelled */
static void waits(UNUSED void **state)
{
	struct sigaction act = { .sa_handler = nothing };
	int fd = raw_fd();
	pthread_t t = waiting(&fd);
	void *ret;

	must(DO(fd, RESOLVE_IP, resolve_ip, .id = raw_id(fd, RDMA_PS_TCP), .dst_addr = address6("127.0.0.1", 7)));
	must(pthread_join(t, &ret));
	assert_ptr_equal(ret, &fd);
	must(sigaction(SIGUSR1, &act, NULL));
	t = waiting(&fd);
	pthread_kill(t, SIGUSR1);
	must(pthread_join(t, &ret));
	assert_null(ret);
	/* A sanitizer that knows no traps loses the stack of a thread that is cancelled */
	if (!NO_TRAPS) {
		t = waiting(&fd);
		must(pthread_cancel(t));
		must(pthread_join(t, &ret));
		assert_ptr_equal(ret, PTHREAD_CANCELED);
	}
	close(fd);
}

/* ---- addresses ---- */

static void binds(UNUSED void **state)
{
	static const struct {
		const char *first;
		bool reuse[2], listens;
		const char *second;
		int err;
	} rows[] = {
		{ "127.0.0.1", { 0, 0 }, false, "10.0.0.1", EADDRNOTAVAIL },
		{ "0.0.0.0", { 0, 0 }, false, "0.0.0.0", EADDRNOTAVAIL },
		{ "10.0.0.1", { 0, 0 }, false, "10.0.0.1", EADDRINUSE },
		{ "10.0.0.1", { 1, 0 }, false, "10.0.0.1", EADDRINUSE },
		{ "10.0.0.1", { 1, 1 }, false, "10.0.0.1", 0 },
		{ "0.0.0.0", { 1, 1 }, false, "10.0.0.1", 0 },
		{ "10.0.0.1", { 1, 1 }, true, "10.0.0.1", EADDRINUSE },
		{ "0.0.0.0", { 0, 0 }, true, "::", EADDRNOTAVAIL },
	};
	static const char *const not_ours[] = { "203.0.113.1", "10.0.0.9", "239.1.1.1" };
	struct rdma_cm_id *a, *b;
	int one = 1;

	for (unsigned i = 0; i < ARRAY(rows); i++) {
		int err;

		a = new_id(server, RDMA_PS_TCP);
		b = new_id(server, RDMA_PS_TCP);
		if (rows[i].reuse[0])
			must(rdma_set_option(a, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &one, sizeof(one)));
		if (rows[i].reuse[1])
			must(rdma_set_option(b, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &one, sizeof(one)));
		must(rdma_bind_addr(a, ip(rows[i].first, 0)));
		assert_true(!!a->verbs == !strncmp(rows[i].first, "10.", 3));
		assert_true(number_of(a) >= 1024);
		if (rows[i].listens)
			must(rdma_listen(a, 1));
		err = rdma_bind_addr(b, ip(rows[i].second, number_of(a))) ? errno : 0;
		if (err != rows[i].err)
			print_error("%s, then %s: error %d\n", rows[i].first, rows[i].second, err);
		assert_int_equal(err, rows[i].err);
		/* Two may have one port, and only one of them may listen there */
		if (!err && !rows[i].listens) {
			assert_int_equal(rdma_listen(b, 1), -1);
			assert_true(errno == EADDRINUSE || errno == EADDRNOTAVAIL);
		}
		REFUSED(rdma_bind_addr(a, ip("127.0.0.1", 0)), EINVAL);
		destroy(a);
		destroy(b);
	}
	/* Other port spaces have other ports; another family shares one only if it says so */
	a = listener(RDMA_PS_TCP, 1);
	b = new_id(server, RDMA_PS_UDP);
	must(rdma_bind_addr(b, ip("0.0.0.0", number_of(a))));
	destroy(b);
	b = new_id(server, RDMA_PS_TCP);
	must(rdma_set_option(b, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &one, sizeof(one)));
	must(rdma_bind_addr(b, ip("::", number_of(a))));
	destroy(b);
	destroy(a);
	/* Whoever listens without an address gets one */
	a = new_id(server, RDMA_PS_TCP);
	for (unsigned i = 0; i < ARRAY(not_ours); i++)
		REFUSED(rdma_bind_addr(a, ip(not_ours[i], 0)), EADDRNOTAVAIL);
	must(rdma_listen(a, 0));
	assert_true(rdma_get_src_port(a));
	REFUSED(rdma_listen(a, 0), EINVAL);
	destroy(a);
}

static void resolves(UNUSED void **state)
{
	char local[INET6_ADDRSTRLEN];
	const char *addresses[] = { "127.0.0.1", "10.0.0.1", "0.0.0.0", "::1", "::", local };
	union ibv_gid first;
	struct rdma_cm_id *id;

	must(ibv_query_gid(ctx, 1, 0, &first));
	inet_ntop(AF_INET6, &first, local, sizeof(local));
	for (unsigned i = 0; i < ARRAY(addresses); i++) {
		const struct ibv_sa_path_rec *p;
		union ibv_gid known = { .raw = { 0 } };
		int index;

		id = resolved(RDMA_PS_TCP, addresses[i], 7);
		assert_non_null(id->verbs);
		assert_int_equal(id->port_num, 1);
		assert_true(rdma_get_src_port(id));
		assert_int_equal(ntohs(rdma_get_dst_port(id)), 7);
		assert_int_equal(id->route.addr.src_addr.sa_family, id->route.addr.dst_addr.sa_family);
		REFUSED(rdma_resolve_addr(id, NULL, ip(addresses[i], 7), 10), EINVAL);
		must(rdma_resolve_route(id, 100));
		GOT(client, ROUTE_RESOLVED);
		assert_int_equal(id->route.num_paths, 1);
		p = id->route.path_rec;
		for (index = 0; index < 16 && memcmp(&known, &p->sgid, 16); index++)
			must(ibv_query_gid(id->verbs, 1, index, &known));
		assert_memory_equal(&p->sgid, &known, 16);
		assert_memory_equal(&p->dgid, &known, 16);
		assert_memory_equal(&id->route.addr.addr.ibaddr.sgid, &known, 16);
		assert_int_equal(p->pkey, 0xffff);
		assert_int_equal(be16toh(p->dlid), port.lid);
		assert_int_equal(p->mtu, port.active_mtu);
		REFUSED(rdma_resolve_route(id, 100), EINVAL);
		destroy(id);
	}
	/* From one of its addresses to another */
	id = new_id(client, RDMA_PS_TCP);
	must(rdma_resolve_addr(id, ip("10.0.0.1", 0), ip("127.0.0.1", 7), 100));
	GOT(client, ADDR_RESOLVED);
	destroy(id);
}

static void does_not_resolve(UNUSED void **state)
{
	static const struct {
		const char *to;
		int timeout, status;
	} rows[] = { { NOBODY, 20, -ETIMEDOUT }, { "203.0.113.1", 10000, -ENODEV }, { "127.0.0.1", 20, 0 } };
	struct rdma_cm_id *id = new_id(client, RDMA_PS_TCP), *late = new_id(client, RDMA_PS_TCP);

	/* After a failure it is as before, and may try another */
	for (unsigned i = 0; i < ARRAY(rows); i++) {
		must(rdma_resolve_addr(id, NULL, ip(rows[i].to, 7), rows[i].timeout));
		got(client, rows[i].status ? RDMA_CM_EVENT_ADDR_ERROR : RDMA_CM_EVENT_ADDR_RESOLVED, rows[i].status);
		REFUSED(rdma_resolve_addr(id, NULL, ip("::1", 7), 20), EINVAL);
	}
	destroy(id);
	id = new_id(client, RDMA_PS_TCP);
	REFUSED(rdma_resolve_addr(id, ip("203.0.113.1", 0), ip("127.0.0.1", 7), 20), EADDRNOTAVAIL);
	/* One that goes away meanwhile is heard of no more: another's event, which is due later, is the next */
	must(rdma_resolve_addr(late, NULL, ip(NOBODY, 7), 1));
	must(rdma_resolve_addr(id, NULL, ip("fe80::77", 7), 20));
	destroy(late);
	assert_ptr_equal(got(client, RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT), id);
	destroy(id);
	nothing_left();
}

/* ---- connections ---- */

/*
 * A story is of words: ids are c, the client's; l, the listener; s and t, made by the requests that it gets.
 *   c.connect(57)=EINVAL   a call, the size of its private data, and how it fails
 *   c:REJECTED/28+148      the next event at that end, its status, and how much of the other's private data comes with it
 *   c:                     no event
 */
static struct rdma_cm_id **id_of(char who)
{
	static struct rdma_cm_id *ids[4];

	return &ids[strchr("lcst", who) - "lcst"];
}

static int do_word(char who, const char *call, unsigned len)
{
	struct rdma_cm_id **id = id_of(who);
	struct rdma_conn_param p = param(who == 'c' ? hello : welcome, len);

	if (!strcmp(call, "connect"))
		return rdma_connect(*id, &p);
	if (!strcmp(call, "accept"))
		return rdma_accept(*id, &p);
	if (!strcmp(call, "reject"))
		return rdma_reject(*id, p.private_data, len);
	if (!strcmp(call, "reject_ece"))
		return rdma_reject_ece(*id, NULL, 0);
	if (!strcmp(call, "establish"))
		return rdma_establish(*id);
	if (!strcmp(call, "disconnect"))
		return rdma_disconnect(*id);
	if (!strcmp(call, "notify"))
		return rdma_notify(*id, IBV_EVENT_COMM_EST);
	if (!strcmp(call, "migrated"))
		return rdma_notify(*id, IBV_EVENT_PATH_MIG);
	if (!strcmp(call, "listen"))
		return rdma_listen(*id, 1);
	if (!strcmp(call, "destroy")) {
		destroy(*id);
		*id = NULL;
	} else if (!strcmp(call, "towards")) {
		*id = towards(*id_of('l'));
	} else if (!strcmp(call, "bind")) {
		*id = new_id(server, RDMA_PS_TCP);
		must(rdma_bind_addr(*id, ip("10.0.0.1", 0)));
	} else {
		fail_msg("%s?", call);
	}
	return 0;
}

static void await_word(char who, const char *type, int status, int len)
{
	struct rdma_event_channel *ch = who == 'c' ? client : server;
	struct rdma_cm_event *e;
	int n = 0;

	while (strcmp(rdma_event_str(n) + strlen("RDMA_CM_EVENT_"), type) != 0)
		n++;
	e = take(ch, n, status);
	if (n == RDMA_CM_EVENT_CONNECT_REQUEST) {
		*id_of(who) = e->id;
		assert_ptr_equal(e->listen_id, *id_of('l'));
	}
	assert_ptr_equal(e->id, *id_of(who));
	if (len) {
		assert_int_equal(e->param.conn.private_data_len, len);
		assert_string_equal(e->param.conn.private_data, who == 'c' ? welcome : hello);
	}
	must(rdma_ack_cm_event(e));
}

static void tell_story(enum rdma_port_space ps, const char *story)
{
	static const struct {
		const char *name;
		int err;
	} errors[] = { { "EINVAL", EINVAL }, { "EISCONN", EISCONN } };
	char text[500], *word, *rest = text;

	*id_of('l') = listener(ps, 4);
	*id_of('c') = towards(*id_of('l'));
	*id_of('s') = *id_of('t') = NULL;
	snprintf(text, sizeof(text), "%s", story);
	while ((word = strsep(&rest, " "))) {
		char *plus = strchr(word, '+'), *slash = strchr(word, '/'), *len = strchr(word, '('), *equal = strchr(word, '=');
		char type[40] = "", *after = word + 2;
		int err, want = 0;

		snprintf(type, strcspn(after, "+/(=") + 1, "%s", after);
		if (word[1] == ':' && !*after) {
			assert_false(readable(client->fd, 5));
			continue;
		}
		if (word[1] == ':') {
			await_word(*word, type, slash ? atoi(slash + 1) : 0, plus ? atoi(plus + 1) : 0);
			continue;
		}
		for (unsigned i = 0; equal && i < ARRAY(errors); i++)
			want = strcmp(equal + 1, errors[i].name) ? want : errors[i].err;
		assert_int_equal(!!want, !!equal);
		err = do_word(*word, type, len ? atoi(len + 1) : 30) ? errno : 0;
		if (err != want)
			print_error("%s in \"%s\": error %d\n", word, story, err);
		assert_int_equal(err, want);
	}
	for (const char *who = "cstl"; *who; who++)
		if (*id_of(*who))
			destroy(*id_of(*who));
	nothing_left();
}

static void stories(UNUSED void **state)
{
	static const char *const connected[] = {
		/* A second acceptance is refused, and refuses the request */
		"c.disconnect=EINVAL c.accept=EINVAL c.reject=EINVAL c.notify=EINVAL c.connect c.connect=EINVAL s:CONNECT_REQUEST+56 "
		"s.accept s.accept=EINVAL s.destroy c:CONNECT_RESPONSE+196 c:REJECTED/28",
		"c.connect s:CONNECT_REQUEST s.accept c:CONNECT_RESPONSE c.establish s:ESTABLISHED c.disconnect s:DISCONNECTED c: "
		"s.disconnect c:DISCONNECTED s.disconnect c.connect=EINVAL",
		/* Both at once */
		"c.connect s:CONNECT_REQUEST s.accept c:CONNECT_RESPONSE c.establish s:ESTABLISHED c.disconnect s.disconnect "
		"s:DISCONNECTED c:DISCONNECTED",
		/* The first message comes before the program hears that they are connected */
		"c.connect s:CONNECT_REQUEST s.accept s.migrated=EINVAL s.notify s:ESTABLISHED s.notify=EISCONN c:CONNECT_RESPONSE c.establish "
		"c.destroy s:DISCONNECTED",
		"c.connect s:CONNECT_REQUEST s.reject s.reject=EINVAL c:REJECTED/28+148 s.accept=EINVAL",
		/* For what it offers */
		"c.connect s:CONNECT_REQUEST s.reject_ece c:REJECTED/35",
		"c.connect s:CONNECT_REQUEST s.destroy c:REJECTED/28",
		/* The one who asked has gone; another asks */
		"c.connect s:CONNECT_REQUEST c.destroy c.towards c.connect t:CONNECT_REQUEST t.destroy c:REJECTED/28 s.accept=EINVAL",
		"c.connect s:CONNECT_REQUEST s.accept c:CONNECT_RESPONSE c.reject s:REJECTED/28",
		/* Nobody has read the request, or listens there, or at this address */
		"c.connect l.destroy c:REJECTED/28",
		"l.destroy c.connect c:REJECTED/8",
		"l.destroy l.bind c.destroy c.towards c.connect c:REJECTED/8 l.listen c.destroy c.towards c.connect c:REJECTED/28",
		/* Too much private data */
		"c.connect(57)=EINVAL c.connect(56) s:CONNECT_REQUEST+56 s.reject(149)=EINVAL s.accept(197)=EINVAL c:REJECTED/28",
	};
	/* The same refusals have other numbers here */
	static const char *const datagrams[] = {
		"c.connect(181)=EINVAL c.connect s:CONNECT_REQUEST+180 s.accept c:ESTABLISHED+136 s.reject=EINVAL",
		"c.connect s:CONNECT_REQUEST s.reject c:UNREACHABLE/2+136",
		"c.connect s:CONNECT_REQUEST s.destroy c:UNREACHABLE/2",
		"l.destroy c.connect c:UNREACHABLE/1",
	};

	for (unsigned i = 0; i < ARRAY(connected); i++)
		tell_story(RDMA_PS_TCP, connected[i]);
	for (unsigned i = 0; i < ARRAY(datagrams); i++)
		tell_story(RDMA_PS_UDP, datagrams[i]);
}

/* The request that waits at the server */
static struct rdma_cm_id *requested(void)
{
	return GOT(server, CONNECT_REQUEST);
}

/* What one side offers is what the other may use */
static void negotiates(UNUSED void **state)
{
	struct rdma_cm_id *l = listener(RDMA_PS_TCP, 4), *c = towards(l), *s;
	struct rdma_conn_param p = param(NULL, 0), r = p;
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR };
	struct rdma_cm_event *e;
	uint32_t psn;
	int mask;

	must(rdma_init_qp_attr(c, &a, &mask));
	assert_int_equal(mask, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	must(rdma_connect(c, &p));
	REFUSED(rdma_init_qp_attr(c, &a, &mask), EINVAL);
	e = take(server, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	s = e->id;
	assert_int_equal(e->param.conn.responder_resources, p.initiator_depth);
	assert_int_equal(e->param.conn.initiator_depth, p.responder_resources);
	assert_int_equal(e->param.conn.qp_num, p.qp_num);
	assert_int_equal(e->param.conn.retry_count, p.retry_count);
	assert_int_equal(e->param.conn.rnr_retry_count, p.rnr_retry_count);
	assert_int_equal(e->param.conn.flow_control, 1);
	must(rdma_ack_cm_event(e));
	assert_non_null(s->verbs);
	assert_int_equal(rdma_get_src_port(s), rdma_get_src_port(l));
	assert_int_equal(rdma_get_dst_port(s), rdma_get_src_port(c));
	must(rdma_init_qp_attr(s, &a, &mask));
	assert_int_equal(mask, RTR_MASK);
	assert_int_equal(a.dest_qp_num, p.qp_num);
	assert_int_equal(a.max_dest_rd_atomic, p.initiator_depth);
	assert_int_equal(a.path_mtu, port.active_mtu);
	assert_int_equal(a.ah_attr.is_global, is_roce());
	if (is_roce())
		assert_memory_equal(&a.ah_attr.grh.dgid, &gid, 16);
	else
		assert_int_equal(a.ah_attr.dlid, port.lid);

	r.responder_resources = 2;
	r.initiator_depth = 1;
	r.qp_num = 0x4321;
	must(rdma_accept(s, &r));
	e = take(client, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	assert_int_equal(e->param.conn.responder_resources, 1);
	assert_int_equal(e->param.conn.initiator_depth, 2);
	assert_int_equal(e->param.conn.qp_num, 0x4321);
	must(rdma_ack_cm_event(e));
	a.qp_state = IBV_QPS_INIT;
	must(rdma_init_qp_attr(c, &a, &mask));
	assert_int_equal(mask, INIT_MASK);
	assert_int_equal(a.qp_access_flags, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	a.qp_state = IBV_QPS_RTS;
	must(rdma_init_qp_attr(c, &a, &mask));
	assert_int_equal(mask, RTS_MASK);
	assert_int_equal(a.retry_cnt, p.retry_count);
	assert_int_equal(a.rnr_retry, r.rnr_retry_count);
	assert_int_equal(a.max_rd_atomic, 2);
	psn = a.sq_psn;
	a.qp_state = IBV_QPS_RTR;
	must(rdma_init_qp_attr(s, &a, &mask));
	assert_int_equal(a.rq_psn, psn);
	destroy(s);
	got(client, RDMA_CM_EVENT_REJECTED, 28);
	destroy(c);
	destroy(l);
	nothing_left();
}

/* The end is not told before the program has had its turn to see what came before: here it takes none */
static void carries_data(UNUSED void **state)
{
	struct rdma_cm_id *l = listener(RDMA_PS_TCP, 4), *c = towards(l), *s;
	struct rdma_conn_param p = param(NULL, 0);
	static char from[4096], to[4096];
	struct ibv_mr *fm, *tm;
	struct ibv_wc w;
	double asked;

	add_qp(c);
	must(rdma_connect(c, &p));
	s = requested();
	add_qp(s);
	must(rdma_accept(s, &p));
	GOT(client, ESTABLISHED);
	GOT(server, ESTABLISHED);
	fm = rdma_reg_msgs(c, from, sizeof(from));
	tm = rdma_reg_msgs(s, to, sizeof(to));
	fill((uint8_t *)from, sizeof(from), 1);
	must(rdma_post_recv(s, NULL, to, sizeof(to), tm));
	must(rdma_post_send(c, NULL, from, sizeof(from), fm, 0));
	assert_int_equal(rdma_get_send_comp(c, &w), 1);
	asked = now();
	must(rdma_disconnect(c));
	GOT(server, DISCONNECTED);
	assert_true(now() - asked > 0.025);
	assert_int_equal(rdma_get_recv_comp(s, &w), 1);
	assert_int_equal(w.status, IBV_WC_SUCCESS);
	assert_memory_equal(from, to, sizeof(to));
	must(rdma_disconnect(s));
	GOT(client, DISCONNECTED);
	assert_int_equal(state_of(c->qp), IBV_QPS_ERR);
	/* The ports have forgotten it */
	GOT(server, TIMEWAIT_EXIT);
	GOT(client, TIMEWAIT_EXIT);
	must(rdma_dereg_mr(fm));
	must(rdma_dereg_mr(tm));
	destroy(c);
	destroy(s);
	destroy(l);
	nothing_left();
}

/* The third must wait until the first is read; nobody is turned away */
static void backlog(UNUSED void **state)
{
	static const int event[] = { RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_REJECTED };
	static const int status[] = { 28, 28, 28, 28 };
	struct rdma_cm_id *l = listener(RDMA_PS_TCP, 2), *c[4];
	struct rdma_conn_param p = param(NULL, 0);

	for (int i = 0; i < 4; i++) {
		c[i] = towards(l);
		must(rdma_connect(c[i], &p));
	}
	for (int i = 0; i < 4; i++)
		destroy(requested());
	each_ends(4, c, event, status);
	destroy(l);
}

/* ---- multicast ---- */

struct member {
	struct rdma_cm_id *id;
	struct ibv_ah *ah;
	struct ibv_mr *mr;
	char in[64 + GRH_BYTES], out[64];
};

static void joins(struct member *m, const char *group, int flags)
{
	struct rdma_cm_join_mc_attr_ex attr = { .comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
						.addr = ip(group, 0), .join_flags = flags };
	struct rdma_cm_event *e;

	m->id = resolved(RDMA_PS_UDP, group, 0);
	add_qp(m->id);
	m->mr = rdma_reg_msgs(m->id, m->in, sizeof(m->in) + sizeof(m->out));
	must(rdma_post_recv(m->id, NULL, m->in, sizeof(m->in), m->mr));
	must(rdma_join_multicast_ex(m->id, &attr, m));
	e = take(client, RDMA_CM_EVENT_MULTICAST_JOIN, 0);
	assert_ptr_equal(e->param.ud.private_data, m);
	assert_int_equal(e->param.ud.qp_num, 0xffffff);
	assert_int_equal(e->param.ud.qkey, 0x01234567);
	assert_int_equal(e->param.ud.ah_attr.is_global, 1);
	if (!is_roce())
		assert_true(e->param.ud.ah_attr.dlid >= 0xc000);
	m->ah = ibv_create_ah(m->id->pd, &e->param.ud.ah_attr);
	assert_non_null(m->ah);
	must(rdma_ack_cm_event(e));
}

/* From m[from] to exactly those of three whose bits are set */
static void to_group(struct member *m, int from, unsigned to)
{
	static char text = 'a';
	struct ibv_wc w;

	memset(m[from].out, ++text, sizeof(m->out));
	must(rdma_post_ud_send(m[from].id, NULL, m[from].out, sizeof(m->out), m[from].mr, 0, m[from].ah, 0xffffff));
	assert_int_equal(rdma_get_send_comp(m[from].id, &w), 1);
	for (int i = 0; i < 3; i++)
		if (to >> i & 1) {
			assert_int_equal(rdma_get_recv_comp(m[i].id, &w), 1);
			assert_int_equal(w.status, IBV_WC_SUCCESS);
			assert_memory_equal(m[i].in + GRH_BYTES, m[from].out, sizeof(m->out));
			must(rdma_post_recv(m[i].id, NULL, m[i].in, sizeof(m->in), m[i].mr));
		}
	for (int i = 0; i < 3; i++)
		assert_int_equal(ibv_poll_cq(m[i].id->recv_cq, 1, &w), 0);
}

static void groups(UNUSED void **state)
{
	static const char *const addresses[] = { "239.1.2.3", "ff0e::1234" };
	static struct member m[3];

	for (unsigned i = 0; i < ARRAY(addresses); i++) {
		for (int k = 0; k < 3; k++)
			joins(&m[k], addresses[i], k < 2 ? RDMA_MC_JOIN_FLAG_FULLMEMBER : RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER);
		to_group(m, 0, 3);
		to_group(m, 2, 3);
		must(rdma_leave_multicast(m[1].id, ip(addresses[i], 0)));
		REFUSED(rdma_leave_multicast(m[1].id, ip(addresses[i], 0)), EADDRNOTAVAIL);
		to_group(m, 0, 1);
		for (int k = 0; k < 3; k++) {
			if (k != 1)
				must(rdma_leave_multicast(m[k].id, ip(addresses[i], 0)));
			must(ibv_destroy_ah(m[k].ah));
			must(rdma_dereg_mr(m[k].mr));
			destroy(m[k].id);
		}
	}
	nothing_left();
}

static void not_in_groups(UNUSED void **state)
{
	static const char *const none[] = { "0.0.0.0", "10.0.0.1" };
	const struct sockaddr_in6 group = address6("239.1.2.3", 0);
	int fd = raw_fd(), other = raw_fd();
	struct rdma_cm_id *id;
	uint32_t raw;

	/* Without a device, of a connected type, not a group */
	id = new_id(client, RDMA_PS_UDP);
	REFUSED(rdma_join_multicast(id, ip("239.1.2.3", 0), NULL), EINVAL);
	destroy(id);
	id = resolved(RDMA_PS_TCP, "127.0.0.1", 7);
	REFUSED(rdma_join_multicast(id, ip("239.1.2.3", 0), NULL), EINVAL);
	destroy(id);
	id = resolved(RDMA_PS_UDP, "127.0.0.1", 7);
	for (unsigned i = 0; i < 2; i++) {
		if (is_roce()) {
			REFUSED(rdma_join_multicast(id, ip(none[i], 0), NULL), EINVAL);
			continue;
		}
		must(rdma_join_multicast(id, ip(none[i], 0), NULL));
		got(client, RDMA_CM_EVENT_MULTICAST_ERROR, -EINVAL);
		must(rdma_leave_multicast(id, ip(none[i], 0)));
	}
	destroy(id);
	/* InfiniBand has no path to a group */
	id = resolved(RDMA_PS_UDP, "239.1.2.3", 7);
	must(rdma_resolve_route(id, 100));
	got(client, is_roce() ? RDMA_CM_EVENT_ROUTE_RESOLVED : RDMA_CM_EVENT_ROUTE_ERROR, is_roce() ? 0 : -EINVAL);
	destroy(id);
	nothing_left();

	raw = raw_id(fd, RDMA_PS_UDP);
	must(DO(fd, BIND_IP, bind_ip, .id = raw, .addr = address6("10.0.0.1", 0)));
	assert_int_equal(DO(fd, JOIN_MCAST, join_mcast, RESPONSE, .id = raw, .addr_size = 1), EINVAL);
	assert_int_equal(DO(fd, JOIN_MCAST, join_mcast, RESPONSE, .id = raw, .addr_size = sizeof(struct sockaddr_in),
			    .join_flags = RDMA_MC_JOIN_FLAG_RESERVED, .addr = storage_of("239.1.2.3", 0)), EINVAL);
#define JOIN_IP(out) DO_OUT(fd, JOIN_IP_MCAST, join_ip_mcast, out, RESPONSE, .id = raw, .uid = 0x99, .addr = group)
	assert_int_equal(JOIN_IP(3), ENOSPC);
	/* Its event is read, then not; then it goes with its id */
	for (uint32_t read = 2; read--;) {
		uint32_t member;

		must(JOIN_IP(sizeof(answer)));
		member = answer.id.id;
		if (read)
			assert_int_equal(raw_event(fd).uid, 0x99);
		assert_int_equal(DO(other, LEAVE_MCAST, destroy_id, RESPONSE, .id = member), EINVAL);
		must(DO(fd, LEAVE_MCAST, destroy_id, RESPONSE, .id = member));
		assert_int_equal(answer.destroyed.events_reported, read);
		assert_int_equal(DO(fd, LEAVE_MCAST, destroy_id, RESPONSE, .id = member), ENOENT);
		assert_false(readable(fd, 0));
	}
	must(JOIN_IP(sizeof(answer)));
	assert_int_equal(raw_destroy(fd, raw), 1);
	assert_false(readable(fd, 0));
	close(fd);
	close(other);
}

/* ---- options ---- */

static void refused_options(struct rdma_cm_id *tcp, struct rdma_cm_id *udp)
{
	static int number = 1;
	static uint8_t byte = 9;
	const struct {
		struct rdma_cm_id *id;
		int level, name;
		void *value;
		size_t size;
		int err;
	} rows[] = {
		{ tcp, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &number, sizeof(number), EINVAL },
		{ tcp, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &byte, 1, EINVAL },
		{ tcp, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &byte, 1, EINVAL },
		{ tcp, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &number, sizeof(number), EINVAL },
		{ udp, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, 1, EINVAL },
		{ tcp, RDMA_OPTION_ID, 4, &byte, 1, ENOSYS },
		{ tcp, RDMA_OPTION_IB, 2, &byte, 1, ENOSYS },
		{ tcp, 2, 0, &byte, 1, ENOSYS },
		{ tcp, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 1 << 20, EINVAL },
		{ tcp, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, NULL, 1, EFAULT },
	};

	for (unsigned i = 0; i < ARRAY(rows); i++) {
		int err = rdma_set_option(rows[i].id, rows[i].level, rows[i].name, rows[i].value, rows[i].size) ? errno : 0;

		if (err != rows[i].err)
			print_error("level %d, option %d, %zu bytes: error %d\n", rows[i].level, rows[i].name, rows[i].size, err);
		assert_int_equal(err, rows[i].err);
	}
}

static void options(UNUSED void **state)
{
	struct rdma_cm_id *l = listener(RDMA_PS_TCP, 4), *c = new_id(client, RDMA_PS_TCP), *s, *u = new_id(client, RDMA_PS_UDP);
	struct rdma_conn_param p = param(NULL, 0);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR };
	uint8_t byte = 0x60, timeout = 9;
	int number = 1, zero = 0, mask;
	struct {
		uint32_t flags, reserved;
		struct ibv_path_record path;
	} path = { .flags = 0x2b };

	refused_options(c, u);
	must(rdma_set_option(c, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 1));
	must(rdma_set_option(c, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1));
	must(rdma_set_option(c, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &zero, sizeof(zero)));
	must(rdma_resolve_addr(c, NULL, ip("127.0.0.1", number_of(l)), 100));
	GOT(client, ADDR_RESOLVED);
	REFUSED(rdma_set_option(c, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &zero, sizeof(zero)), EINVAL);
	must(rdma_set_option(c, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &number, sizeof(number)));
	REFUSED(rdma_set_option(c, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &number, sizeof(number)), EINVAL);
	/* A path that the program knows by itself */
	REFUSED(rdma_set_option(c, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &path, sizeof(path) - 4), EINVAL);
	path.flags = 1;
	REFUSED(rdma_set_option(c, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &path, sizeof(path)), EINVAL);
	path.flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
	path.path = (struct ibv_path_record){ .dgid = gid, .sgid = gid, .dlid = htobe16(port.lid), .slid = htobe16(port.lid), .tclass = byte,
					      .flowlabel_hoplimit = htobe32(is_roce() ? 9 : 0), .reversible_numpath = 0x81, .pkey = 0xffff,
					      .mtu = 2 << 6 | IBV_MTU_512, .packetlifetime = 2 << 6 | 14 };
	must(rdma_set_option(c, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &path, sizeof(path)));
	GOT(client, ROUTE_RESOLVED);
	assert_int_equal(c->route.path_rec->mtu, IBV_MTU_512);
	REFUSED(rdma_set_option(c, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &path, sizeof(path)), EINVAL);
	must(rdma_connect(c, &p));
	s = requested();
	must(rdma_accept(s, &p));
	GOT(client, CONNECT_RESPONSE);
	must(rdma_init_qp_attr(c, &a, &mask));
	assert_int_equal(a.path_mtu, IBV_MTU_512);
	if (is_roce())
		assert_true(a.ah_attr.grh.hop_limit == 9 && a.ah_attr.grh.traffic_class == byte);
	a.qp_state = IBV_QPS_RTS;
	must(rdma_init_qp_attr(c, &a, &mask));
	assert_int_equal(a.timeout, timeout);
	must(rdma_init_qp_attr(s, &a, &mask));
	assert_int_equal(a.timeout, 15);
	destroy(s);
	got(client, RDMA_CM_EVENT_REJECTED, 28);
	destroy(c);
	destroy(l);
	destroy(u);
	nothing_left();
}

/* The file goes, and all that was made by it: accepted, unanswered, unread */
static void closed(UNUSED void **state)
{
	static const int event[] = { RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_REJECTED }, status[] = { 0, 28, 28 };
	struct rdma_conn_param p = param(NULL, 0);
	struct rdma_cm_id *c[3];
	int fd = raw_fd();
	uint32_t l = raw_id(fd, RDMA_PS_TCP);
	uint16_t tcp;

	must(DO(fd, LISTEN, listen, .id = l, .backlog = 4));
	must(DO(fd, QUERY, query, RESPONSE, .id = l, .option = RDMA_USER_CM_QUERY_ADDR));
	tcp = ntohs(((struct sockaddr_in *)(void *)&answer.addr.src_addr)->sin_port);
	for (int i = 0; i < 3; i++) {
		c[i] = routed(RDMA_PS_TCP, "127.0.0.1", tcp);
		must(rdma_connect(c[i], &p));
	}
	must(DO(fd, ACCEPT, accept, .id = raw_event(fd).id, .uid = 5, .conn_param.valid = 1));
	GOT(client, CONNECT_RESPONSE);
	must(rdma_establish(c[0]));
	assert_int_equal(raw_event(fd).event, RDMA_CM_EVENT_CONNECT_REQUEST);
	close(fd);
	each_ends(3, c, event, status);
}

/*
 * Any command in any state, with fields that are right, nearly right or noise: each answers, none writes where it may not, and in the
 * end everything goes away
 */
enum kind { PLAIN, NEW, EVENT, BIND, RESOLVE, JOIN, OPTION, TELL, ASKED, MIGRATE, LEAVE };

static const struct any {
	uint8_t cmd;
	uint16_t size, id;
	int16_t response;
	enum kind kind;
	uint16_t addr, addr_size; /* where an address is, and its size; 0: neither */
} all[] = {
#define AT(name, type, response, ...) \
	{ RDMA_USER_CM_CMD_##name, sizeof(struct rdma_ucm_##type), offsetof(struct rdma_ucm_##type, id), response, __VA_ARGS__ }
#define OF(type, field) offsetof(struct rdma_ucm_##type, field)
	{ RDMA_USER_CM_CMD_CREATE_ID, sizeof(struct rdma_ucm_create_id), 0, OF(create_id, response), NEW, 0, 0 },
	{ RDMA_USER_CM_CMD_GET_EVENT, sizeof(struct rdma_ucm_get_event), 0, 0, EVENT, 0, 0 },
	AT(DESTROY_ID, destroy_id, 0, PLAIN, 0, 0),
	AT(BIND_IP, bind_ip, 0, BIND, OF(bind_ip, addr), 0),
	AT(BIND, bind, -1, BIND, OF(bind, addr), OF(bind, addr_size)),
	AT(RESOLVE_IP, resolve_ip, -1, RESOLVE, OF(resolve_ip, dst_addr), 0),
	AT(RESOLVE_ADDR, resolve_addr, -1, RESOLVE, OF(resolve_addr, dst_addr), OF(resolve_addr, dst_size)),
	AT(RESOLVE_ROUTE, resolve_route, -1, PLAIN, 0, 0),
	AT(QUERY_ROUTE, query, 0, PLAIN, 0, 0),
	AT(QUERY, query, 0, PLAIN, 0, 0),
	AT(CONNECT, connect, -1, PLAIN, 0, 0),
	AT(LISTEN, listen, -1, PLAIN, 0, 0),
	AT(ACCEPT, accept, -1, ASKED, 0, 0),
	AT(REJECT, reject, -1, ASKED, 0, 0),
	AT(DISCONNECT, disconnect, -1, PLAIN, 0, 0),
	AT(INIT_QP_ATTR, init_qp_attr, 0, PLAIN, 0, 0),
	AT(SET_OPTION, set_option, 0, OPTION, 0, 0),
	AT(NOTIFY, notify, -1, TELL, 0, 0),
	AT(JOIN_IP_MCAST, join_ip_mcast, 0, JOIN, OF(join_ip_mcast, addr), 0),
	AT(JOIN_MCAST, join_mcast, 0, JOIN, OF(join_mcast, addr), OF(join_mcast, addr_size)),
	AT(LEAVE_MCAST, destroy_id, 0, LEAVE, 0, 0),
	AT(MIGRATE_ID, migrate_id, 0, MIGRATE, 0, 0),
};

static void put(uint8_t *body, size_t at, uint64_t value, size_t size)
{
	memcpy(body + at, &value, size);
}

/* What belongs where for this command to be possible, over noise */
static void any_body(const struct any *a, uint8_t body[700], uint32_t id)
{
	static const char *const addresses[] = { "127.0.0.1", "127.0.0.1", "10.0.0.1", "0.0.0.0", "239.1.1.1", NOBODY };
	static const uint16_t spaces[] = { RDMA_PS_TCP, RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IB, 7 };
	const uint16_t tcp = a->kind == JOIN || (a->kind == BIND && rnd() % 4 == 0) ? 0 : 40000 + rnd() % 2;

	memset(body, 0, 700);
	for (unsigned noise = rnd() % 2 ? rnd() % 8 : 0; noise; noise--)
		body[rnd() % a->size] = rnd();
	if (a->kind != EVENT && a->kind != NEW)
		put(body, a->id, id, 4);
	if (a->response >= 0)
		put(body, a->response, rnd() % 50 ? (uintptr_t)&answer : 0, 8);
	if (a->addr)
		memcpy(body + a->addr, ip(addresses[rnd() % 6], tcp), sizeof(struct sockaddr_in));
	if (a->addr_size)
		put(body, a->addr_size, sizeof(struct sockaddr_in), 2);
	if (a->kind == NEW) {
		put(body, OF(create_id, uid), rnd() % 8, 8);
		put(body, OF(create_id, ps), spaces[rnd() % 5], 2);
		put(body, OF(create_id, qp_type), 2 + rnd() % 3, 1);
	}
	if (a->kind == OPTION) {
		put(body, OF(set_option, optname), rnd() % 4, 4);
		put(body, OF(set_option, optlen), rnd() % 2 ? 1 : sizeof(int), 4);
	}
	if (a->kind == TELL)
		put(body, OF(notify, event), IBV_EVENT_COMM_EST, 4);
	if (a->cmd == RDMA_USER_CM_CMD_CONNECT)
		put(body, OF(connect, conn_param.valid), rnd() % 4 > 0, 1);
	if (a->cmd == RDMA_USER_CM_CMD_ACCEPT)
		put(body, OF(accept, conn_param.valid), rnd() % 4 > 0, 1);
}

static void any_command(UNUSED void **state)
{
	static _Alignas(8) uint8_t body[700];
	int fd[2] = { raw_fd(), raw_fd() };
	uint32_t known[8] = { 0 }, groups[4] = { 0 }, asked = 0;
	int asked_by = fd[0], to;
	unsigned of[ARRAY(all)] = { 0 };

	for (int i = 0; i < 2; i++)
		fcntl(fd[i], F_SETFL, O_NONBLOCK);
	for (unsigned n = 0; n < 100000; n++) {
		unsigned k = rnd() % ARRAY(all);
		const struct any *a = &all[k];

		if ((a->cmd == RDMA_USER_CM_CMD_DESTROY_ID || a->kind == MIGRATE) && rnd() % 16)
			continue;
		any_body(a, body, a->kind == LEAVE ? groups[rnd() % 4] : rnd() % 50 ? known[rnd() % 8] : rnd());
		if (a->kind == MIGRATE)
			put(body, OF(migrate_id, fd), fd[rnd() % 2], 4);
		to = fd[rnd() % 2];
		/* What a request can be answered with goes to the last one more often than not */
		if ((a->kind == ASKED || a->kind == TELL) && rnd() % 4) {
			put(body, a->id, asked, 4);
			to = asked_by;
		}
		memset(&answer, 0, 16);
		if (command(to, a->cmd, body, a->size, sizeof(answer)))
			continue;
		of[k]++;
		if (a->kind == NEW)
			known[rnd() % 8] = answer.id.id;
		if (a->kind == JOIN)
			groups[rnd() % 4] = answer.id.id;
		if (a->kind == EVENT && answer.event.event == RDMA_CM_EVENT_CONNECT_REQUEST) {
			known[rnd() % 8] = asked = answer.event.id;
			asked_by = to;
		}
	}
	/* All but the one that is right only for a moment have been right */
	for (unsigned k = 0; k < ARRAY(all); k++)
		assert_true(of[k] || all[k].kind == TELL);
	close(fd[0]);
	close(fd[1]);
	nothing_left();
}

/* ---- another process: it listens, and takes what it is told to take ---- */

static int peer_main(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_conn_param p = param(welcome, 30);
	struct rdma_cm_id *l[2], *s = NULL, *before = NULL;
	char what;

	if (!ch)
		return 1;
	for (int i = 0; i < 2; i++)
		if (rdma_create_id(ch, &l[i], NULL, i ? RDMA_PS_UDP : RDMA_PS_TCP) || rdma_bind_addr(l[i], ip("0.0.0.0", 0)) ||
		    rdma_listen(l[i], 8))
			return 2;
	exchange(&first_process, (struct card){ .qpn = number_of(l[0]), .rkey = number_of(l[1]) });
	while (read(0, &what, 1) == 1) {
		struct rdma_cm_event *e;

		if (what == 'q')
			return 0;
		/* The one before is not there to be accepted */
		if (what == 'x') {
			if (rdma_accept(before, &p) != -1 || errno != EINVAL)
				return 5;
			tell(&first_process);
			continue;
		}
		/* The next event, and the answer to a request */
		if (rdma_get_cm_event(ch, &e))
			return 3;
		before = s;
		s = e->id;
		if (rdma_ack_cm_event(e) || (what == 'a' && rdma_accept(s, &p)) || (what == 'r' && rdma_reject(s, welcome, 30)) ||
		    (what == 'd' && rdma_disconnect(s)))
			return 4;
		tell(&first_process);
	}
	return 0;
}

static struct peer start(uint16_t *tcp, uint16_t *udp)
{
	struct peer p = start_peer("serve", "");
	struct card ports = exchange(&p, (struct card){ .qpn = 0 });

	*tcp = ports.qpn;
	*udp = ports.rkey;
	return p;
}

static void order(const struct peer *p, char what)
{
	assert_int_equal(write(p->out, &what, 1), 1);
	hear(p);
}

/* From here on it says nothing */
static void stop(const struct peer *p)
{
	int status;

	kill(p->pid, SIGSTOP);
	assert_int_equal(waitpid(p->pid, &status, WUNTRACED), p->pid);
	assert_true(WIFSTOPPED(status));
}

static void kill_peer(struct peer *p)
{
	kill(p->pid, SIGKILL);
	assert_int_equal(end_peer(p), SIGKILL);
}

static struct rdma_cm_id *asking(enum rdma_port_space ps, uint16_t number)
{
	struct rdma_cm_id *c = routed(ps, "127.0.0.1", number);
	struct rdma_conn_param p = param(hello, 30);

	must(rdma_connect(c, &p));
	return c;
}

/* Both of these come with the other's private data */
static void answered(enum rdma_cm_event_type type, int status)
{
	struct rdma_cm_event *e = take(client, type, status);

	assert_string_equal(e->param.conn.private_data, welcome);
	must(rdma_ack_cm_event(e));
}

static struct rdma_cm_id *up(const struct peer *p, uint16_t tcp)
{
	struct rdma_cm_id *c = asking(RDMA_PS_TCP, tcp);

	order(p, 'a');
	answered(RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	must(rdma_establish(c));
	order(p, 'n');
	return c;
}

static void other_process(UNUSED void **state)
{
	struct rdma_cm_id *c, *b;
	uint16_t tcp, udp;
	struct peer p = start(&tcp, &udp);

	/* Its ports are taken here too */
	b = new_id(server, RDMA_PS_TCP);
	REFUSED(rdma_bind_addr(b, ip("0.0.0.0", tcp)), EADDRNOTAVAIL);
	c = up(&p, tcp);
	must(rdma_disconnect(c));
	order(&p, 'd');
	GOT(client, DISCONNECTED);
	destroy(c);
	c = asking(RDMA_PS_TCP, tcp);
	order(&p, 'r');
	answered(RDMA_CM_EVENT_REJECTED, 28);
	destroy(c);
	/* Taken back before it is seen */
	stop(&p);
	destroy(asking(RDMA_PS_TCP, tcp));
	kill(p.pid, SIGCONT);
	order(&p, 'n');
	c = asking(RDMA_PS_UDP, udp);
	order(&p, 'a');
	GOT(client, ESTABLISHED);
	destroy(c);
	order(&p, 'x');
	/* It ends in good order, as far as it knows; its connection ends with it, and its port is free */
	c = up(&p, tcp);
	assert_int_equal(write(p.out, "q", 1), 1);
	assert_int_equal(end_peer(&p), 0);
	GOT(client, DISCONNECTED);
	destroy(c);
	must(rdma_bind_addr(b, ip("0.0.0.0", tcp)));
	destroy(b);
	c = asking(RDMA_PS_TCP, tcp);
	got(client, RDMA_CM_EVENT_REJECTED, 8);
	destroy(c);
	nothing_left();
}

static void killed(UNUSED void **state)
{
	static const int event[] = { RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_UNREACHABLE };
	static const int status[] = { 0, 28, 28, 2 };
	struct rdma_cm_id *c[4];
	uint16_t tcp, udp;
	struct peer p = start(&tcp, &udp);

	c[0] = up(&p, tcp);
	c[1] = asking(RDMA_PS_TCP, tcp);
	c[2] = asking(RDMA_PS_TCP, tcp);
	c[3] = asking(RDMA_PS_UDP, udp);
	/* One of them read and not answered; those of one listener are not read */
	order(&p, 'n');
	kill_peer(&p);
	each_ends(4, c, event, status);
}

/*
 * Two others: one is stopped, and cannot answer what it has had no turn to read: on a busy machine that may last. The second lives and
 * reads, and nothing that it says arrives: it is given up, though it was asked later
 */
static void stopped_and_silent(UNUSED void **state)
{
	static const int event[] = { RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_UNREACHABLE, RDMA_CM_EVENT_UNREACHABLE };
	static const int status[] = { -ETIMEDOUT, -ETIMEDOUT, -ETIMEDOUT };
	struct rdma_cm_id *a[2], *b[3];
	uint16_t tcp, udp, tcp2, udp2;
	struct peer p = start(&tcp, &udp), p2 = start(&tcp2, &udp2);

	b[0] = up(&p2, tcp2);
	open_request(&usual, IBV_WR_RDMA_WRITE, 1, 8, 0);
	stop(&p);
	a[0] = asking(RDMA_PS_TCP, tcp);
	a[1] = asking(RDMA_PS_UDP, udp);
	must(softdev_fault("silent@1"));
	post(&s[0], &wr);
	expect(s[0].scq, 1, IBV_WC_RETRY_EXC_ERR);
	must(rdma_disconnect(b[0]));
	b[1] = asking(RDMA_PS_TCP, tcp2);
	b[2] = asking(RDMA_PS_UDP, udp2);
	each_ends(3, b, event, status);
	must(softdev_fault(NULL));
	close_pair(s);
	kill_peer(&p2);
	kill(p.pid, SIGCONT);
	order(&p, 'a');
	GOT(client, CONNECT_RESPONSE);
	order(&p, 'a');
	GOT(client, ESTABLISHED);
	destroy(a[0]);
	destroy(a[1]);
	kill_peer(&p);
	nothing_left();
}

/* A child has no device, and its parent keeps it */
static void forks(UNUSED void **state)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(DO(client->fd, CREATE_ID, create_id, RESPONSE, .ps = RDMA_PS_TCP) != EIO || open("/dev/infiniband/rdma_cm", O_RDWR) >= 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	must(rdma_destroy_id(new_id(client, RDMA_PS_TCP)));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(ids), TEST(commands), TEST(no_event), TEST(waits), TEST(binds), TEST(resolves), TEST(does_not_resolve),
		TEST(stories), TEST(negotiates), TEST(carries_data), TEST(backlog), TEST(groups),
		TEST(not_in_groups), TEST(options), TEST(closed), TEST(any_command),
		TEST(other_process), TEST(killed), TEST(stopped_and_silent), TEST(forks),
	};
	/* What another link changes; what a device without an engine and a clock does */
	const struct CMUnitTest link[] = {
		TEST(resolves), TEST(stories), TEST(negotiates), TEST(carries_data), TEST(groups),
		TEST(not_in_groups), TEST(options), TEST(any_command), TEST(other_process),
	};
	const struct CMUnitTest alone[] = {
		TEST(binds), TEST(resolves), TEST(stories), TEST(not_in_groups), TEST(options), TEST(closed), TEST(any_command),
	};

	if (argc > 1 && !strcmp(argv[1], "serve"))
		return peer_main();
	if (!softdev_present()) {
		print_message("# skipped: the addresses are the software device's\n1..0\n");
		return 0;
	}
	if (getenv("SOFTDEV_MANUAL"))
		return cmocka_run_group_tests(alone, open_all, close_all);
	if (getenv("SOFTDEV_LINK"))
		return cmocka_run_group_tests(link, open_all, close_all);
	return cmocka_run_group_tests(tests, open_all, close_all) + again_with("SOFTDEV_LINK", "ib") + again_with("SOFTDEV_MANUAL", "1");
}
