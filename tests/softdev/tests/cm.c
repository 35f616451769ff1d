/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The connection manager, driven by librdmacm; and by its commands themselves where librdmacm has no
 * call, or none for this kernel. Both sides are in this process, but where a process is to end or
 * to stop.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <signal.h>
#include <sys/stat.h>
/* Both headers define these, and may not be included together */
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
#undef RDMA_MC_JOIN_FLAG_FULLMEMBER
#undef RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER
#undef RDMA_MC_JOIN_FLAG_RESERVED
#undef RDMA_OPTION_ID
#undef RDMA_OPTION_IB
#undef RDMA_OPTION_ID_TOS
#undef RDMA_OPTION_ID_REUSEADDR
#undef RDMA_OPTION_ID_AFONLY
#undef RDMA_OPTION_ID_ACK_TIMEOUT
#undef RDMA_OPTION_IB_PATH
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <infiniband/ib.h>
#include "rig.h"

#define UDP_QKEY 0x01234567u
#define NOBODY "10.0.0.77"
#define REFUSED(call, error)                                               \
	do {                                                               \
		errno = 0;                                                 \
		assert_int_equal(call, -1);                                \
		assert_int_equal(errno, error);                            \
	} while (0)

static struct rdma_event_channel *server, *client;

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

static bool stepped(void)
{
	const char *env = getenv("SOFTDEV_MANUAL");

	return env && *env == '1';
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

union addr {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
	struct sockaddr_ib ib;
	struct sockaddr_storage any;
};

static struct sockaddr *ip(const char *text, uint16_t tcp)
{
	static union addr a[4];
	static unsigned n;
	union addr *x = &a[n++ % 4];

	memset(x, 0, sizeof(*x));
	if (inet_pton(AF_INET, text, &x->in.sin_addr) == 1) {
		x->in.sin_family = AF_INET;
		x->in.sin_port = htons(tcp);
	} else {
		assert_int_equal(inet_pton(AF_INET6, text, &x->in6.sin6_addr), 1);
		x->in6.sin6_family = AF_INET6;
		x->in6.sin6_port = htons(tcp);
		x->in6.sin6_scope_id = 1;
	}
	return &x->sa;
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
	return routed(listener->ps, "127.0.0.1", ntohs(rdma_get_src_port(listener)));
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

/* The request that waits at the server */
static struct rdma_cm_id *requested(struct rdma_cm_id *listener)
{
	struct rdma_cm_event *e = take(server, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	struct rdma_cm_id *id = e->id;

	assert_ptr_equal(e->listen_id, listener);
	must(rdma_ack_cm_event(e));
	return id;
}

struct connection {
	struct rdma_cm_id *listener, *c, *s;
};

static struct connection connected(void)
{
	struct connection x = { .listener = listener(RDMA_PS_TCP, 4) };
	struct rdma_conn_param p = param(NULL, 0);

	x.c = towards(x.listener);
	add_qp(x.c);
	must(rdma_connect(x.c, &p));
	x.s = requested(x.listener);
	add_qp(x.s);
	must(rdma_accept(x.s, &p));
	GOT(client, ESTABLISHED);
	GOT(server, ESTABLISHED);
	return x;
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

/* ---- commands as they are ---- */

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
#define COMMAND(fd, name, body, out) command(fd, RDMA_USER_CM_CMD_##name, &(body), sizeof(body), out)

static uint32_t raw_id(int fd, uint16_t ps, uint8_t type)
{
	struct rdma_ucm_create_id_resp resp;
	struct rdma_ucm_create_id c = { .uid = 0x77, .response = (uintptr_t)&resp, .ps = ps, .qp_type = type };

	must(COMMAND(fd, CREATE_ID, c, sizeof(resp)));
	return resp.id;
}

static struct rdma_ucm_event_resp raw_event(int fd)
{
	struct rdma_ucm_event_resp e;
	struct rdma_ucm_get_event c = { .response = (uintptr_t)&e };

	memset(&e, 0, sizeof(e));
	assert_true(readable(fd, PATIENCE * 1000));
	must(COMMAND(fd, GET_EVENT, c, sizeof(e)));
	return e;
}

static uint32_t raw_destroy(int fd, uint32_t id)
{
	struct rdma_ucm_destroy_id_resp resp;
	struct rdma_ucm_destroy_id c = { .response = (uintptr_t)&resp, .id = id };

	must(COMMAND(fd, DESTROY_ID, c, sizeof(resp)));
	return resp.events_reported;
}

/* ---- tests ---- */

static void is_a_device(UNUSED void **state)
{
	struct ibv_context **devices;
	struct stat by_fd, by_path;
	char text[8] = "";
	FILE *f;
	int n;

	devices = rdma_get_devices(&n);
	assert_non_null(devices);
	assert_true(n >= 1);
	rdma_free_devices(devices);
	must(fstat(server->fd, &by_fd));
	must(stat("/dev/infiniband/rdma_cm", &by_path));
	assert_true(S_ISCHR(by_fd.st_mode) && S_ISCHR(by_path.st_mode));
	f = fopen("/sys/class/misc/rdma_cm/abi_version", "r");
	assert_non_null(f);
	assert_non_null(fgets(text, sizeof(text), f));
	assert_int_equal(atoi(text), RDMA_USER_CM_ABI_VERSION);
	fclose(f);
}

static void ids(UNUSED void **state)
{
	static const struct {
		uint16_t ps;
		uint8_t type;
		int err;
	} cases[] = {
		{ RDMA_PS_TCP, 0, 0 }, { RDMA_PS_UDP, 0, 0 }, { RDMA_PS_IPOIB, 0, 0 }, { RDMA_PS_IB, IBV_QPT_RC, 0 },
		{ RDMA_PS_IB, IBV_QPT_UD, 0 }, { 0, 0, EINVAL }, { 0x107, 0, EINVAL },
	};
	int fd = raw_fd(), other = raw_fd();
	struct rdma_ucm_create_id_resp resp;
	struct rdma_ucm_destroy_id d = { .response = (uintptr_t)&resp };
	struct rdma_ucm_create_id c = { .response = (uintptr_t)&resp };
	struct rdma_ucm_disconnect x;

	for (unsigned i = 0; i < ARRAY(cases); i++) {
		c.ps = cases[i].ps;
		c.qp_type = cases[i].type;
		assert_int_equal(COMMAND(fd, CREATE_ID, c, sizeof(resp)), cases[i].err);
		if (!cases[i].err)
			assert_int_equal(raw_destroy(fd, resp.id), 0);
	}
	x.id = d.id = raw_id(fd, RDMA_PS_TCP, 0);
	assert_int_equal(COMMAND(other, DISCONNECT, x, 0), EINVAL);
	assert_int_equal(COMMAND(fd, DISCONNECT, x, 0), EINVAL);
	must(COMMAND(fd, DESTROY_ID, d, sizeof(resp)));
	assert_int_equal(COMMAND(fd, DESTROY_ID, d, sizeof(resp)), ENOENT);
	assert_int_equal(COMMAND(fd, DISCONNECT, x, 0), ENOENT);
	close(fd);
	close(other);
}

static void commands(UNUSED void **state)
{
	struct rdma_ucm_create_id_resp resp;
	struct rdma_ucm_create_id c = { .response = (uintptr_t)&resp, .ps = RDMA_PS_TCP };
	struct rdma_ucm_event_resp e;
	struct rdma_ucm_get_event g = { .response = (uintptr_t)&e };
	struct rdma_ucm_query q = { .response = (uintptr_t)&e, .option = 9 };
	struct rdma_ucm_cmd_hdr h = { .cmd = RDMA_USER_CM_CMD_CREATE_ID, .in = 100 };
	struct rdma_ucm_query_route_resp route;
	const void *volatile nowhere = NULL;
	int fd = raw_fd();

	REFUSED(write(fd, &h, 4), EINVAL);
	REFUSED(write(fd, &h, sizeof(h)), EINVAL);
	REFUSED(write(fd, nowhere, sizeof(h)), EFAULT);
	assert_int_equal(command(fd, 23, &c, sizeof(c), 8), EINVAL);
	assert_int_equal(command(fd, RDMA_USER_CM_CMD_GET_OPTION, &c, sizeof(c), 8), ENOSYS);
	assert_int_equal(COMMAND(fd, CREATE_ID, c, 3), ENOSPC);
	assert_int_equal(command(fd, RDMA_USER_CM_CMD_CREATE_ID, &c, 8, sizeof(resp)), EINVAL);
	assert_int_equal(COMMAND(fd, GET_EVENT, g, 16), ENOSPC);
	c.response = 0;
	assert_int_equal(COMMAND(fd, CREATE_ID, c, sizeof(resp)), EFAULT);
	q.id = raw_id(fd, RDMA_PS_TCP, 0);
	assert_int_equal(COMMAND(fd, QUERY, q, sizeof(e)), ENOSYS);
	for (q.option = RDMA_USER_CM_QUERY_ADDR; q.option <= RDMA_USER_CM_QUERY_GID; q.option++)
		assert_int_equal(COMMAND(fd, QUERY, q, 4), ENOSPC);
	assert_int_equal(COMMAND(fd, QUERY_ROUTE, q, 100), ENOSPC);
	q.response = (uintptr_t)&route;
	must(COMMAND(fd, QUERY_ROUTE, q, sizeof(route)));
	assert_true(!route.node_guid && !route.num_paths);
	close(fd);
	assert_int_equal(open("/dev/infiniband/rdma_cm", O_RDONLY), -1);
}

static void no_event(UNUSED void **state)
{
	struct rdma_ucm_event_resp e;
	struct rdma_ucm_get_event g = { .response = (uintptr_t)&e };
	struct rdma_cm_event *none;
	struct rdma_cm_id *id;
	int fd = raw_fd();

	fcntl(fd, F_SETFL, O_NONBLOCK);
	assert_int_equal(COMMAND(fd, GET_EVENT, g, sizeof(e)), EAGAIN);
	close(fd);
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

static void *wait_for_event(void *arg)
{
	struct rdma_ucm_event_resp e;
	struct rdma_ucm_get_event g = { .response = (uintptr_t)&e };

	return COMMAND(*(int *)arg, GET_EVENT, g, sizeof(e)) ? NULL : arg;
}

static void nothing(UNUSED int sig)
{
}

/* Somebody waits already when the event comes; another is interrupted; a third is cancelled */
static void waits(UNUSED void **state)
{
	struct sigaction act = { .sa_handler = nothing };
	struct rdma_ucm_resolve_ip r;
	int fd = raw_fd();
	pthread_t t;
	void *ret;

	memset(&r, 0, sizeof(r));
	r.id = raw_id(fd, RDMA_PS_TCP, 0);
	memcpy(&r.dst_addr, ip("127.0.0.1", 7), sizeof(struct sockaddr_in));
	must(pthread_create(&t, NULL, wait_for_event, &fd));
	usleep(2000);
	must(COMMAND(fd, RESOLVE_IP, r, 0));
	must(pthread_join(t, &ret));
	assert_ptr_equal(ret, &fd);
	must(sigaction(SIGUSR1, &act, NULL));
	must(pthread_create(&t, NULL, wait_for_event, &fd));
	while (pthread_tryjoin_np(t, &ret) == EBUSY) {
		pthread_kill(t, SIGUSR1);
		usleep(500);
	}
	assert_null(ret);
	/* A sanitizer that knows no traps loses the stack of a thread that is cancelled */
	if (!NO_TRAPS) {
		must(pthread_create(&t, NULL, wait_for_event, &fd));
		usleep(2000);
		must(pthread_cancel(t));
		must(pthread_join(t, &ret));
		assert_ptr_equal(ret, PTHREAD_CANCELED);
	}
	close(fd);
}

static void binds(UNUSED void **state)
{
	static const struct {
		const char *first;
		bool reuse[2], listens;
		const char *second;
		int err;
	} cases[] = {
		{ "127.0.0.1", { 0, 0 }, false, "10.0.0.1", EADDRNOTAVAIL },
		{ "0.0.0.0", { 0, 0 }, false, "0.0.0.0", EADDRNOTAVAIL },
		{ "10.0.0.1", { 0, 0 }, false, "10.0.0.1", EADDRINUSE },
		{ "10.0.0.1", { 1, 0 }, false, "10.0.0.1", EADDRINUSE },
		{ "10.0.0.1", { 1, 1 }, false, "10.0.0.1", 0 },
		{ "0.0.0.0", { 1, 1 }, false, "10.0.0.1", 0 },
		{ "10.0.0.1", { 1, 1 }, true, "10.0.0.1", EADDRINUSE },
		{ "0.0.0.0", { 0, 0 }, true, "::", EADDRNOTAVAIL },
	};
	struct rdma_cm_id *a, *b;
	int one = 1;

	for (unsigned i = 0; i < ARRAY(cases); i++) {
		a = new_id(server, RDMA_PS_TCP);
		b = new_id(server, RDMA_PS_TCP);
		if (cases[i].reuse[0])
			must(rdma_set_option(a, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &one, sizeof(one)));
		if (cases[i].reuse[1])
			must(rdma_set_option(b, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &one, sizeof(one)));
		must(rdma_bind_addr(a, ip(cases[i].first, 0)));
		assert_true(!!a->verbs == !strncmp(cases[i].first, "10.", 3));
		assert_true(ntohs(rdma_get_src_port(a)) >= 1024);
		if (cases[i].listens)
			must(rdma_listen(a, 1));
		if (cases[i].err)
			REFUSED(rdma_bind_addr(b, ip(cases[i].second, ntohs(rdma_get_src_port(a)))), cases[i].err);
		else
			must(rdma_bind_addr(b, ip(cases[i].second, ntohs(rdma_get_src_port(a)))));
		/* Two may have one port, and only one of them may listen there */
		if (!cases[i].err && !cases[i].listens) {
			errno = 0;
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
	must(rdma_bind_addr(b, ip("0.0.0.0", ntohs(rdma_get_src_port(a)))));
	destroy(b);
	b = new_id(server, RDMA_PS_TCP);
	must(rdma_set_option(b, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &one, sizeof(one)));
	must(rdma_bind_addr(b, ip("::", ntohs(rdma_get_src_port(a)))));
	destroy(b);
	b = new_id(server, RDMA_PS_TCP);
	REFUSED(rdma_bind_addr(b, ip("203.0.113.1", 0)), EADDRNOTAVAIL);
	REFUSED(rdma_bind_addr(b, ip("10.0.0.9", 0)), EADDRNOTAVAIL);
	REFUSED(rdma_bind_addr(b, ip("239.1.1.1", 0)), EADDRNOTAVAIL);
	destroy(b);
	destroy(a);
	/* Whoever listens without an address gets one */
	a = new_id(server, RDMA_PS_TCP);
	must(rdma_listen(a, 0));
	assert_true(rdma_get_src_port(a));
	REFUSED(rdma_listen(a, 0), EINVAL);
	destroy(a);
}

static void raw_binds(UNUSED void **state)
{
	struct rdma_ucm_bind b = { .addr_size = sizeof(struct sockaddr_in) };
	struct rdma_ucm_bind_ip old;
	int fd = raw_fd();

	memset(&old, 0, sizeof(old));
	b.id = old.id = raw_id(fd, RDMA_PS_TCP, 0);
	old.addr.sin6_family = AF_UNIX;
	assert_int_equal(COMMAND(fd, BIND_IP, old, 0), EINVAL);
	memcpy(&b.addr, ip("127.0.0.1", 0), sizeof(struct sockaddr_in));
	b.addr_size--;
	assert_int_equal(COMMAND(fd, BIND, b, 0), EINVAL);
	b.addr_size++;
	b.reserved = 1;
	assert_int_equal(COMMAND(fd, BIND, b, 0), EINVAL);
	/* Link-local, and no link named */
	memcpy(&old.addr, ip("fe80::1", 0), sizeof(old.addr));
	old.addr.sin6_scope_id = 0;
	assert_int_equal(COMMAND(fd, BIND_IP, old, 0), EINVAL);
	memcpy(&old.addr, ip("127.0.0.1", 0), sizeof(struct sockaddr_in));
	must(COMMAND(fd, BIND_IP, old, 0));
	close(fd);
}

/* An address of this machine that is not loopback's, or NULL */
static const char *own_address(void)
{
	static char text[INET_ADDRSTRLEN];
	struct ifaddrs *l, *i;

	must(getifaddrs(&l));
	*text = 0;
	for (i = l; i && !*text; i = i->ifa_next)
		if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET && strcmp(i->ifa_name, "lo") != 0)
			inet_ntop(AF_INET, &((struct sockaddr_in *)(void *)i->ifa_addr)->sin_addr, text, sizeof(text));
	freeifaddrs(l);
	return *text ? text : NULL;
}

static void resolves(UNUSED void **state)
{
	char local[INET6_ADDRSTRLEN];
	const char *addresses[] = { "127.0.0.1", "10.0.0.1", "0.0.0.0", "::1", "::", local, own_address() };
	union ibv_gid first;
	struct rdma_cm_id *id;

	must(ibv_query_gid(ctx, 1, 0, &first));
	inet_ntop(AF_INET6, &first, local, sizeof(local));
	for (unsigned i = 0; i < ARRAY(addresses); i++) {
		const struct ibv_sa_path_rec *p;
		union ibv_gid known = { .raw = { 0 } };
		int index;

		if (!addresses[i])
			continue;
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
	struct rdma_cm_id *id = new_id(client, RDMA_PS_TCP);

		must(rdma_resolve_addr(id, NULL, ip(NOBODY, 7), 20));
	got(client, RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT);
	must(rdma_resolve_addr(id, NULL, ip("203.0.113.1", 7), 10000));
	got(client, RDMA_CM_EVENT_ADDR_ERROR, -ENODEV);
	REFUSED(rdma_resolve_addr(id, NULL, ip("::1", 7), 20), EINVAL);
	/* It is as before, and may try another */
	must(rdma_resolve_addr(id, NULL, ip("127.0.0.1", 7), 20));
	GOT(client, ADDR_RESOLVED);
	destroy(id);
	id = new_id(client, RDMA_PS_TCP);
	REFUSED(rdma_resolve_addr(id, ip("203.0.113.1", 0), ip("127.0.0.1", 7), 20), EADDRNOTAVAIL);
	must(rdma_resolve_addr(id, NULL, ip("fe80::77", 7), 20));
	got(client, RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT);
	destroy(id);
	/* One that goes away meanwhile is heard of no more */
	id = new_id(client, RDMA_PS_TCP);
	must(rdma_resolve_addr(id, NULL, ip(NOBODY, 7), 1));
	destroy(id);
	usleep(60000);
	nothing_left();
}

/* What librdmacm uses with older kernels */
static void old_commands(UNUSED void **state)
{
	struct rdma_ucm_query_route_resp route;
	struct rdma_ucm_query q = { .response = (uintptr_t)&route };
	struct rdma_ucm_resolve_ip r;
	struct rdma_ucm_resolve_route rr = { .timeout_ms = 100 };
	struct rdma_ucm_event_resp e;
	int fd = raw_fd();

	memset(&r, 0, sizeof(r));
	r.id = rr.id = q.id = raw_id(fd, RDMA_PS_TCP, 0);
	r.timeout_ms = 100;
	assert_int_equal(COMMAND(fd, RESOLVE_IP, r, 0), EINVAL);
	memcpy(&r.dst_addr, ip("127.0.0.1", 7), sizeof(struct sockaddr_in));
	must(COMMAND(fd, RESOLVE_IP, r, 0));
	e = raw_event(fd);
	assert_int_equal(e.event, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_true(e.uid == 0x77 && e.id == r.id && e.status == 0);
	must(COMMAND(fd, QUERY_ROUTE, q, sizeof(route)));
	assert_int_equal(route.num_paths, 0);
	assert_int_equal(route.port_num, 1);
	assert_memory_equal(route.ib_route[0].sgid, &gid, 16);
	must(COMMAND(fd, RESOLVE_ROUTE, rr, 0));
	assert_int_equal(raw_event(fd).event, RDMA_CM_EVENT_ROUTE_RESOLVED);
	must(COMMAND(fd, QUERY_ROUTE, q, sizeof(route)));
	assert_int_equal(route.num_paths, 1);
	assert_memory_equal(route.ib_route[0].dgid, &gid, 16);
	assert_int_equal(route.ib_route[0].mtu, port.active_mtu);
	assert_int_equal(raw_destroy(fd, r.id), 2);
	close(fd);
}

static const char hello[] = "this comes with the request", welcome[] = "and this with the answer";

/* One after the other, with all that is told along the way */
static void connects(UNUSED void **state)
{
	struct rdma_cm_id *l = listener(RDMA_PS_TCP, 4), *c = towards(l), *s;
	struct rdma_conn_param p = param(hello, sizeof(hello)), r = param(welcome, sizeof(welcome));
	struct rdma_cm_event *e;
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR };
	uint32_t psn;
	int mask;

	REFUSED(rdma_disconnect(c), EINVAL);
	REFUSED(rdma_accept(c, &p), EINVAL);
	REFUSED(rdma_reject(c, NULL, 0), EINVAL);
	must(rdma_init_qp_attr(c, &a, &mask));
	assert_int_equal(mask, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	must(rdma_connect(c, &p));
	REFUSED(rdma_connect(c, &p), EINVAL);
	REFUSED(rdma_init_qp_attr(c, &a, &mask), EINVAL);

	e = take(server, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	s = e->id;
	assert_ptr_equal(e->listen_id, l);
	/* What one side offers is what the other may use */
	assert_int_equal(e->param.conn.responder_resources, p.initiator_depth);
	assert_int_equal(e->param.conn.initiator_depth, p.responder_resources);
	assert_int_equal(e->param.conn.qp_num, p.qp_num);
	assert_int_equal(e->param.conn.retry_count, p.retry_count);
	assert_int_equal(e->param.conn.rnr_retry_count, p.rnr_retry_count);
	assert_int_equal(e->param.conn.flow_control, 1);
	assert_int_equal(e->param.conn.private_data_len, 56);
	assert_string_equal(e->param.conn.private_data, hello);
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
	REFUSED(rdma_accept(s, &r), EINVAL);
	destroy(s);
	e = take(client, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	must(rdma_ack_cm_event(e));
	/* That refused acceptance has refused the request; once more, without it */
	got(client, RDMA_CM_EVENT_REJECTED, 28);
	destroy(c);

	c = towards(l);
	must(rdma_connect(c, &p));
	s = requested(l);
	must(rdma_accept(s, &r));
	e = take(client, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	assert_int_equal(e->param.conn.responder_resources, 1);
	assert_int_equal(e->param.conn.initiator_depth, 2);
	assert_int_equal(e->param.conn.qp_num, 0x4321);
	assert_int_equal(e->param.conn.private_data_len, 196);
	assert_string_equal(e->param.conn.private_data, welcome);
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
	nothing_left();
	must(rdma_establish(c));
	GOT(server, ESTABLISHED);
	must(rdma_disconnect(c));
	GOT(server, DISCONNECTED);
	assert_false(readable(client->fd, 5));
	must(rdma_disconnect(s));
	GOT(client, DISCONNECTED);
	must(rdma_disconnect(s));
	REFUSED(rdma_connect(c, &p), EINVAL);
	destroy(s);
	destroy(c);
	destroy(l);
	nothing_left();
}

static void carries_data(UNUSED void **state)
{
	struct connection x = connected();
	static char from[4096], to[4096];
	struct ibv_mr *fm = rdma_reg_msgs(x.c, from, sizeof(from)), *tm = rdma_reg_msgs(x.s, to, sizeof(to));
	struct ibv_wc w;

	fill((uint8_t *)from, sizeof(from), 1);
	must(rdma_post_recv(x.s, NULL, to, sizeof(to), tm));
	must(rdma_post_send(x.c, NULL, from, sizeof(from), fm, 0));
	assert_int_equal(rdma_get_recv_comp(x.s, &w), 1);
	assert_int_equal(w.status, IBV_WC_SUCCESS);
	assert_memory_equal(from, to, sizeof(to));
	assert_int_equal(rdma_get_send_comp(x.c, &w), 1);
	must(rdma_dereg_mr(fm));
	must(rdma_dereg_mr(tm));
	/* Both at once, and what comes when the ports have forgotten it */
	must(rdma_disconnect(x.c));
	must(rdma_disconnect(x.s));
	GOT(server, DISCONNECTED);
	GOT(client, DISCONNECTED);
	assert_int_equal(state_of(x.c->qp), IBV_QPS_ERR);
	GOT(server, TIMEWAIT_EXIT);
	GOT(client, TIMEWAIT_EXIT);
	destroy(x.c);
	destroy(x.s);
	destroy(x.listener);
	nothing_left();
}

/* The end is not told before the program has had its turn to see what came before: here it takes none */
static void end_after_completions(UNUSED void **state)
{
	struct connection x = connected();
	char text[16] = "the last";
	struct ibv_mr *from = rdma_reg_msgs(x.c, text, 8), *to = rdma_reg_msgs(x.s, text + 8, 8);
	struct ibv_wc w;
	double asked;

	must(rdma_post_recv(x.s, NULL, text + 8, 8, to));
	must(rdma_post_send(x.c, NULL, text, 8, from, 0));
	assert_int_equal(rdma_get_send_comp(x.c, &w), 1);
	asked = now();
	must(rdma_disconnect(x.c));
	GOT(server, DISCONNECTED);
	assert_true(now() - asked > 0.025);
	must(rdma_dereg_mr(from));
	must(rdma_dereg_mr(to));
	destroy(x.c);
	destroy(x.s);
	destroy(x.listener);
	nothing_left();
}

static void established_early(UNUSED void **state)
{
	struct rdma_cm_id *l = listener(RDMA_PS_TCP, 4), *c = towards(l), *s;
	struct rdma_conn_param p = param(NULL, 0);

	REFUSED(rdma_notify(c, IBV_EVENT_COMM_EST), EINVAL);
	must(rdma_connect(c, &p));
	s = requested(l);
	must(rdma_accept(s, &p));
	REFUSED(rdma_notify(s, IBV_EVENT_PATH_MIG), EINVAL);
	must(rdma_notify(s, IBV_EVENT_COMM_EST));
	GOT(server, ESTABLISHED);
	REFUSED(rdma_notify(s, IBV_EVENT_COMM_EST), EISCONN);
	GOT(client, CONNECT_RESPONSE);
	must(rdma_establish(c));
	destroy(c);
	GOT(server, DISCONNECTED);
	destroy(s);
	destroy(l);
	nothing_left();
}

static void refusals(UNUSED void **state)
{
	struct rdma_cm_id *l = listener(RDMA_PS_TCP, 4), *c, *s;
	struct rdma_conn_param p = param(NULL, 0);
	uint16_t tcp = ntohs(rdma_get_src_port(l));
	struct rdma_cm_event *e;

	/* Refused with data */
	c = towards(l);
	must(rdma_connect(c, &p));
	s = requested(l);
	must(rdma_reject(s, welcome, sizeof(welcome)));
	REFUSED(rdma_reject(s, NULL, 0), EINVAL);
	e = take(client, RDMA_CM_EVENT_REJECTED, 28);
	assert_int_equal(e->param.conn.private_data_len, 148);
	assert_string_equal(e->param.conn.private_data, welcome);
	must(rdma_ack_cm_event(e));
	REFUSED(rdma_accept(s, &p), EINVAL);
	destroy(s);
	destroy(c);
	/* For what it offers */
	c = towards(l);
	must(rdma_connect(c, &p));
	s = requested(l);
	must(rdma_reject_ece(s, NULL, 0));
	got(client, RDMA_CM_EVENT_REJECTED, 35);
	destroy(s);
	destroy(c);
	/* Dropped instead of answered */
	c = towards(l);
	must(rdma_connect(c, &p));
	destroy(requested(l));
	got(client, RDMA_CM_EVENT_REJECTED, 28);
	destroy(c);
	/* The one who asked has gone */
	c = towards(l);
	must(rdma_connect(c, &p));
	s = requested(l);
	destroy(c);
	/* Another's request comes after that */
	c = towards(l);
	must(rdma_connect(c, &p));
	destroy(requested(l));
	got(client, RDMA_CM_EVENT_REJECTED, 28);
	destroy(c);
	REFUSED(rdma_accept(s, &p), EINVAL);
	destroy(s);
	/* The answer is refused */
	c = towards(l);
	must(rdma_connect(c, &p));
	s = requested(l);
	must(rdma_accept(s, &p));
	GOT(client, CONNECT_RESPONSE);
	must(rdma_reject(c, NULL, 0));
	got(server, RDMA_CM_EVENT_REJECTED, 28);
	destroy(s);
	destroy(c);
	/* The listener goes away with the request unread */
	c = towards(l);
	must(rdma_connect(c, &p));
	destroy(l);
	got(client, RDMA_CM_EVENT_REJECTED, 28);
	destroy(c);
	/* Nobody listens there, or only at another address, or is bound and does not listen */
	c = routed(RDMA_PS_TCP, "127.0.0.1", tcp);
	must(rdma_connect(c, &p));
	got(client, RDMA_CM_EVENT_REJECTED, 8);
	destroy(c);
	l = new_id(server, RDMA_PS_TCP);
	must(rdma_bind_addr(l, ip("10.0.0.1", 0)));
	c = towards(l);
	must(rdma_connect(c, &p));
	got(client, RDMA_CM_EVENT_REJECTED, 8);
	destroy(c);
	must(rdma_listen(l, 1));
	c = towards(l);
	must(rdma_connect(c, &p));
	got(client, RDMA_CM_EVENT_REJECTED, 28);
	destroy(c);
	destroy(l);
	nothing_left();
}

static void private_data(UNUSED void **state)
{
	static const uint8_t data[256];
	struct rdma_cm_id *l = listener(RDMA_PS_TCP, 4), *c = towards(l), *s;
	struct rdma_conn_param p = param(data, 57);

	REFUSED(rdma_connect(c, &p), EINVAL);
	p.private_data_len = 56;
	must(rdma_connect(c, &p));
	s = requested(l);
	REFUSED(rdma_reject(s, data, 149), EINVAL);
	p.private_data_len = 197;
	REFUSED(rdma_accept(s, &p), EINVAL);
	got(client, RDMA_CM_EVENT_REJECTED, 28);
	destroy(s);
	destroy(c);
	destroy(l);
	nothing_left();
}

/* The third must wait until the first is read; nobody is turned away */
static void backlog(UNUSED void **state)
{
	struct rdma_cm_id *l = listener(RDMA_PS_TCP, 2), *c[4], *s;
	struct rdma_conn_param p = param(NULL, 0);

	for (int i = 0; i < 4; i++) {
		c[i] = towards(l);
		must(rdma_connect(c[i], &p));
	}
	for (int i = 0; i < 4; i++) {
		s = requested(l);
		must(rdma_reject(s, NULL, 0));
		destroy(s);
		got(client, RDMA_CM_EVENT_REJECTED, 28);
	}
	for (int i = 0; i < 4; i++)
		destroy(c[i]);
	destroy(l);
	nothing_left();
}

static void datagrams(UNUSED void **state)
{
	struct rdma_cm_id *l = listener(RDMA_PS_UDP, 4), *c = towards(l), *s;
	struct rdma_conn_param p = param(hello, sizeof(hello)), r = param(welcome, sizeof(welcome));
	static char from[64], to[64 + GRH_BYTES];
	struct rdma_cm_event *e;
	struct ibv_mr *fm, *tm;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;
	struct ibv_ah *ah;
	struct ibv_wc w;
	uint16_t udp = ntohs(rdma_get_src_port(l));

	add_qp(c);
	must(rdma_connect(c, &p));
	e = take(server, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	s = e->id;
	assert_int_equal(e->param.ud.private_data_len, 180);
	assert_string_equal(e->param.ud.private_data, hello);
	must(rdma_ack_cm_event(e));
	add_qp(s);
	must(ibv_query_qp(s->qp, &a, IBV_QP_QKEY | IBV_QP_STATE, &init));
	assert_int_equal(a.qkey, UDP_QKEY);
	assert_int_equal(a.qp_state, IBV_QPS_RTS);
	must(rdma_accept(s, &r));
	e = take(client, RDMA_CM_EVENT_ESTABLISHED, 0);
	assert_int_equal(e->param.ud.private_data_len, 136);
	assert_string_equal(e->param.ud.private_data, welcome);
	assert_int_equal(e->param.ud.qp_num, s->qp->qp_num);
	assert_int_equal(e->param.ud.qkey, UDP_QKEY);
	assert_int_equal(e->param.ud.ah_attr.is_global, is_roce());
	ah = ibv_create_ah(c->pd, &e->param.ud.ah_attr);
	assert_non_null(ah);
	must(rdma_ack_cm_event(e));
	fm = rdma_reg_msgs(c, from, sizeof(from));
	tm = rdma_reg_msgs(s, to, sizeof(to));
	fill((uint8_t *)from, sizeof(from), 2);
	must(rdma_post_recv(s, NULL, to, sizeof(to), tm));
	/* It takes qkey from the QP, which has it from the id */
	must(rdma_post_ud_send(c, NULL, from, sizeof(from), fm, 0, ah, s->qp->qp_num));
	assert_int_equal(rdma_get_recv_comp(s, &w), 1);
	assert_int_equal(w.byte_len, sizeof(from) + GRH_BYTES);
	assert_memory_equal(from, to + GRH_BYTES, sizeof(from));
	must(rdma_dereg_mr(fm));
	must(rdma_dereg_mr(tm));
	must(ibv_destroy_ah(ah));
	REFUSED(rdma_reject(s, NULL, 0), EINVAL);
	destroy(s);
	destroy(c);

	/* Refusals have other numbers than those of connections */
	c = towards(l);
	must(rdma_connect(c, &p));
	s = requested(l);
	must(rdma_reject(s, welcome, sizeof(welcome)));
	e = take(client, RDMA_CM_EVENT_UNREACHABLE, 2);
	assert_string_equal(e->param.ud.private_data, welcome);
	must(rdma_ack_cm_event(e));
	destroy(s);
	destroy(c);
	c = towards(l);
	must(rdma_connect(c, &p));
	destroy(requested(l));
	got(client, RDMA_CM_EVENT_UNREACHABLE, 2);
	destroy(c);
	destroy(l);
	c = routed(RDMA_PS_UDP, "127.0.0.1", udp);
	p.private_data_len = 181;
	REFUSED(rdma_connect(c, &p), EINVAL);
	p.private_data_len = 0;
	must(rdma_connect(c, &p));
	got(client, RDMA_CM_EVENT_UNREACHABLE, 1);
	destroy(c);
	nothing_left();
}

struct member {
	struct rdma_cm_id *id;
	struct ibv_ah *ah;
	struct ibv_mr *mr;
	char buf[64 + GRH_BYTES];
};

static void joins(struct member *m, const char *group, bool send_only)
{
	struct rdma_cm_join_mc_attr_ex attr = { .comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
						.addr = ip(group, 0), .join_flags = RDMA_MC_JOIN_FLAG_FULLMEMBER };
	struct rdma_cm_event *e;

	m->id = resolved(RDMA_PS_UDP, group, 0);
	add_qp(m->id);
	m->mr = rdma_reg_msgs(m->id, m->buf, sizeof(m->buf));
	must(rdma_post_recv(m->id, NULL, m->buf, sizeof(m->buf), m->mr));
	if (send_only)
		attr.join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
	must(rdma_join_multicast_ex(m->id, &attr, m));
	e = take(client, RDMA_CM_EVENT_MULTICAST_JOIN, 0);
	assert_ptr_equal(e->param.ud.private_data, m);
	assert_int_equal(e->param.ud.qp_num, 0xffffff);
	assert_int_equal(e->param.ud.qkey, UDP_QKEY);
	assert_int_equal(e->param.ud.ah_attr.is_global, 1);
	if (!is_roce())
		assert_true(e->param.ud.ah_attr.dlid >= 0xc000);
	m->ah = ibv_create_ah(m->id->pd, &e->param.ud.ah_attr);
	assert_non_null(m->ah);
	must(rdma_ack_cm_event(e));
}

static void to_group(struct member *m, const char *text)
{
	static char out[64];
	struct ibv_mr *mr = rdma_reg_msgs(m->id, out, sizeof(out));
	struct ibv_wc w;

	strcpy(out, text);
	must(rdma_post_ud_send(m->id, NULL, out, sizeof(out), mr, 0, m->ah, 0xffffff));
	assert_int_equal(rdma_get_send_comp(m->id, &w), 1);
	must(rdma_dereg_mr(mr));
}

static void hears(struct member *m, const char *text)
{
	struct ibv_wc w;

	assert_int_equal(rdma_get_recv_comp(m->id, &w), 1);
	assert_int_equal(w.status, IBV_WC_SUCCESS);
	assert_string_equal(m->buf + GRH_BYTES, text);
	must(rdma_post_recv(m->id, NULL, m->buf, sizeof(m->buf), m->mr));
}

static void leaves(struct member *m, const char *group)
{
	if (group)
		must(rdma_leave_multicast(m->id, ip(group, 0)));
	must(ibv_destroy_ah(m->ah));
	must(rdma_dereg_mr(m->mr));
	destroy(m->id);
}

static void groups(UNUSED void **state)
{
	static const char *const addresses[] = { "239.1.2.3", "ff0e::1234" };
	static struct member m[3];
	struct ibv_wc w;

	for (unsigned i = 0; i < ARRAY(addresses); i++) {
		joins(&m[0], addresses[i], false);
		joins(&m[1], addresses[i], false);
		joins(&m[2], addresses[i], true);
		to_group(&m[0], "from a member");
		hears(&m[0], "from a member");
		hears(&m[1], "from a member");
		to_group(&m[2], "from one that only sends");
		hears(&m[0], "from one that only sends");
		hears(&m[1], "from one that only sends");
		must(rdma_leave_multicast(m[1].id, ip(addresses[i], 0)));
		REFUSED(rdma_leave_multicast(m[1].id, ip(addresses[i], 0)), EADDRNOTAVAIL);
		to_group(&m[0], "it has left");
		hears(&m[0], "it has left");
		assert_int_equal(ibv_poll_cq(m[1].id->recv_cq, 1, &w), 0);
		assert_int_equal(ibv_poll_cq(m[2].id->recv_cq, 1, &w), 0);
		leaves(&m[0], addresses[i]);
		leaves(&m[1], NULL);
		leaves(&m[2], addresses[i]);
	}
	nothing_left();
}

static void not_in_groups(UNUSED void **state)
{
	struct rdma_ucm_create_id_resp resp;
	struct rdma_ucm_join_ip_mcast j;
	struct rdma_ucm_join_mcast x = { .response = (uintptr_t)&resp, .addr_size = sizeof(struct sockaddr_in) };
	struct rdma_ucm_destroy_id_resp dresp;
	struct rdma_ucm_destroy_id d = { .response = (uintptr_t)&dresp };
	struct rdma_ucm_bind_ip b;
	struct rdma_cm_id *id;
	int fd = raw_fd(), other = raw_fd();

	/* Without a device, of a connected type, not a group */
	id = new_id(client, RDMA_PS_UDP);
	REFUSED(rdma_join_multicast(id, ip("239.1.2.3", 0), NULL), EINVAL);
	destroy(id);
	id = resolved(RDMA_PS_TCP, "127.0.0.1", 7);
	REFUSED(rdma_join_multicast(id, ip("239.1.2.3", 0), NULL), EINVAL);
	destroy(id);
	id = resolved(RDMA_PS_UDP, "127.0.0.1", 7);
	for (unsigned i = 0; i < 2; i++) {
		const char *none[] = { "0.0.0.0", "10.0.0.1" };

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

	memset(&j, 0, sizeof(j));
	memset(&b, 0, sizeof(b));
	j.response = (uintptr_t)&resp;
	j.uid = 0x99;
	j.id = b.id = x.id = raw_id(fd, RDMA_PS_UDP, 0);
	memcpy(&b.addr, ip("10.0.0.1", 0), sizeof(struct sockaddr_in));
	must(COMMAND(fd, BIND_IP, b, 0));
	memcpy(&j.addr, ip("239.1.2.3", 0), sizeof(struct sockaddr_in));
	memcpy(&x.addr, ip("239.1.2.3", 0), sizeof(struct sockaddr_in));
	x.join_flags = RDMA_MC_JOIN_FLAG_RESERVED;
	assert_int_equal(COMMAND(fd, JOIN_MCAST, x, sizeof(resp)), EINVAL);
	x.join_flags = 0;
	x.addr_size = 1;
	assert_int_equal(COMMAND(fd, JOIN_MCAST, x, sizeof(resp)), EINVAL);
	assert_int_equal(COMMAND(fd, JOIN_IP_MCAST, j, 3), ENOSPC);
	must(COMMAND(fd, JOIN_IP_MCAST, j, sizeof(resp)));
	assert_int_equal(raw_event(fd).uid, 0x99);
	d.id = resp.id;
	assert_int_equal(COMMAND(other, LEAVE_MCAST, d, sizeof(dresp)), EINVAL);
	must(COMMAND(fd, LEAVE_MCAST, d, sizeof(dresp)));
	assert_int_equal(dresp.events_reported, 1);
	assert_int_equal(COMMAND(fd, LEAVE_MCAST, d, sizeof(dresp)), ENOENT);
	/* Unread, its event goes with it */
	must(COMMAND(fd, JOIN_IP_MCAST, j, sizeof(resp)));
	d.id = resp.id;
	must(COMMAND(fd, LEAVE_MCAST, d, sizeof(dresp)));
	assert_int_equal(dresp.events_reported, 0);
	assert_false(readable(fd, 0));
	/* With its id as well */
	must(COMMAND(fd, JOIN_IP_MCAST, j, sizeof(resp)));
	assert_int_equal(raw_destroy(fd, j.id), 1);
	assert_false(readable(fd, 0));
	close(fd);
	close(other);
}

static void options(UNUSED void **state)
{
	struct rdma_cm_id *l = listener(RDMA_PS_TCP, 4), *c, *s, *u = new_id(client, RDMA_PS_UDP);
	struct rdma_conn_param p = param(NULL, 0);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR };
	uint8_t byte = 0x60, timeout = 9;
	int number = 1, zero = 0, mask;
	struct {
		uint32_t flags, reserved;
		struct ibv_path_record path;
	} path = { .flags = 0x2b };

	c = new_id(client, RDMA_PS_TCP);
	REFUSED(rdma_set_option(c, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &number, sizeof(number)), EINVAL);
	REFUSED(rdma_set_option(c, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &byte, 1), EINVAL);
	REFUSED(rdma_set_option(c, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &byte, 1), EINVAL);
	REFUSED(rdma_set_option(c, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &number, sizeof(number)), EINVAL);
	REFUSED(rdma_set_option(u, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1), EINVAL);
	REFUSED(rdma_set_option(c, RDMA_OPTION_ID, 4, &byte, 1), ENOSYS);
	REFUSED(rdma_set_option(c, RDMA_OPTION_IB, 2, &byte, 1), ENOSYS);
	REFUSED(rdma_set_option(c, 2, 0, &byte, 1), ENOSYS);
	REFUSED(rdma_set_option(c, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 1 << 20), EINVAL);
	REFUSED(rdma_set_option(c, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, NULL, 1), EFAULT);
	must(rdma_set_option(c, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 1));
	must(rdma_set_option(c, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1));
	must(rdma_set_option(c, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &zero, sizeof(zero)));
	must(rdma_resolve_addr(c, NULL, ip("127.0.0.1", ntohs(rdma_get_src_port(l))), 100));
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
	s = requested(l);
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

static void migrates(UNUSED void **state)
{
	struct rdma_cm_id *id = new_id(client, RDMA_PS_TCP);
	struct rdma_ucm_migrate_resp resp;
	struct rdma_ucm_migrate_id c = { .response = (uintptr_t)&resp, .fd = 1 };
	int fd = raw_fd();

	c.id = raw_id(fd, RDMA_PS_TCP, 0);
	assert_int_equal(COMMAND(fd, MIGRATE_ID, c, sizeof(resp)), EINVAL);
	c.fd = 60000;
	assert_int_equal(COMMAND(fd, MIGRATE_ID, c, sizeof(resp)), ENOENT);
	c.fd = client->fd;
	assert_int_equal(COMMAND(fd, MIGRATE_ID, c, sizeof(resp)), EINVAL);
	c.fd = fd;
	must(COMMAND(fd, MIGRATE_ID, c, sizeof(resp)));
	close(fd);
	/* Its unread events come along */
	must(rdma_resolve_addr(id, NULL, ip("127.0.0.1", 7), 100));
	must(rdma_migrate_id(id, server));
	assert_false(readable(client->fd, 0));
	GOT(server, ADDR_RESOLVED);
	must(rdma_resolve_route(id, 100));
	GOT(server, ROUTE_RESOLVED);
	must(rdma_migrate_id(id, client));
	destroy(id);
	nothing_left();
}

/* Who asks for nothing else waits in each call: librdmacm makes a channel for every id */
static void *sync_server(void *arg)
{
	struct rdma_cm_id *l = arg, *s;
	struct ibv_wc w;
	char in[16];
	struct ibv_mr *mr;

	if (rdma_get_request(l, &s))
		return "no request";
	mr = rdma_reg_msgs(s, in, sizeof(in));
	if (!mr || rdma_post_recv(s, NULL, in, sizeof(in), mr) || rdma_accept(s, NULL))
		return "no acceptance";
	if (rdma_get_recv_comp(s, &w) != 1 || w.status || strcmp(in, "synchronous") != 0)
		return "no data";
	rdma_disconnect(s);
	rdma_dereg_mr(mr);
	rdma_destroy_ep(s);
	return NULL;
}

static void synchronous(UNUSED void **state)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP }, *found;
	struct ibv_qp_init_attr init = { .cap = usual.cap, .sq_sig_all = 1 };
	struct rdma_cm_id *l, *c;
	char out[16] = "synchronous", tcp[8];
	struct ibv_mr *mr;
	struct ibv_wc w;
	pthread_t t;
	void *why;

	must(rdma_getaddrinfo("127.0.0.1", NULL, &hints, &found));
	must(rdma_create_ep(&l, found, NULL, &init));
	rdma_freeaddrinfo(found);
	must(rdma_listen(l, 0));
	must(pthread_create(&t, NULL, sync_server, l));
	snprintf(tcp, sizeof(tcp), "%u", ntohs(rdma_get_src_port(l)));
	hints.ai_flags = 0;
	must(rdma_getaddrinfo("127.0.0.1", tcp, &hints, &found));
	must(rdma_create_ep(&c, found, NULL, &init));
	rdma_freeaddrinfo(found);
	mr = rdma_reg_msgs(c, out, sizeof(out));
	must(rdma_connect(c, NULL));
	must(rdma_post_send(c, NULL, out, sizeof(out), mr, 0));
	assert_int_equal(rdma_get_send_comp(c, &w), 1);
	must(rdma_disconnect(c));
	must(pthread_join(t, &why));
	if (why)
		print_error("%s\n", (const char *)why);
	assert_null(why);
	must(rdma_dereg_mr(mr));
	rdma_destroy_ep(c);
	rdma_destroy_ep(l);
}

/* Addresses that are GIDs, which the kernel has for InfiniBand alone */
static void infiniband_addresses(UNUSED void **state)
{
	union addr a = { .ib = { .sib_family = AF_IB, .sib_pkey = 0xffff, .sib_sid = htobe64(RDMA_IB_IP_PS_TCP),
				 .sib_sid_mask = htobe64(RDMA_IB_IP_PS_MASK) } };
	struct rdma_conn_param p = param(hello, 92);
	struct rdma_cm_id *l = new_id(server, RDMA_PS_TCP), *c = new_id(client, RDMA_PS_TCP), *s;
	struct rdma_cm_event *e;
	uint16_t tcp;
	char data[92];

	memcpy(data, hello, sizeof(hello));
	p.private_data = data;
	must(rdma_bind_addr(l, &a.sa));
	tcp = ntohs(rdma_get_src_port(l));
	assert_true(tcp);
	must(rdma_listen(l, 1));
	memcpy(&a.ib.sib_addr, &gid, 16);
	a.ib.sib_sid = htobe64(RDMA_IB_IP_PS_TCP | tcp);
	a.ib.sib_sid_mask = ~0ull;
	if (is_roce()) {
		REFUSED(rdma_resolve_addr(c, NULL, &a.sa, 100), ENODEV);
	} else {
		must(rdma_resolve_addr(c, NULL, &a.sa, 100));
		GOT(client, ADDR_RESOLVED);
		must(rdma_resolve_route(c, 100));
		GOT(client, ROUTE_RESOLVED);
		must(rdma_connect(c, &p));
		e = take(server, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
		s = e->id;
		assert_int_equal(e->param.conn.private_data_len, 92);
		assert_string_equal(e->param.conn.private_data, hello);
		must(rdma_ack_cm_event(e));
		must(rdma_accept(s, &(struct rdma_conn_param){ .qp_num = 5 }));
		GOT(client, CONNECT_RESPONSE);
		destroy(s);
		got(client, RDMA_CM_EVENT_REJECTED, 28);
	}
	destroy(c);
	destroy(l);
	/* A service of another port space than the id's */
	l = new_id(server, RDMA_PS_UDP);
	memset(&a.ib.sib_addr, 0, 16);
	a.ib.sib_sid = htobe64(RDMA_IB_IP_PS_TCP);
	a.ib.sib_sid_mask = htobe64(RDMA_IB_IP_PS_MASK);
	REFUSED(rdma_bind_addr(l, &a.sa), EPROTONOSUPPORT);
	destroy(l);
	nothing_left();
}

static uint32_t raw_listener(int fd, uint16_t *tcp)
{
	struct rdma_ucm_query_addr_resp addr;
	struct rdma_ucm_query q = { .response = (uintptr_t)&addr, .option = RDMA_USER_CM_QUERY_ADDR };
	struct rdma_ucm_listen l = { .backlog = 4 };

	l.id = q.id = raw_id(fd, RDMA_PS_TCP, 0);
	must(COMMAND(fd, LISTEN, l, 0));
	must(COMMAND(fd, QUERY, q, sizeof(addr)));
	*tcp = ntohs(((struct sockaddr_in *)(void *)&addr.src_addr)->sin_port);
	return l.id;
}

/* The file goes, and all that was made by it: accepted, unanswered, unread */
static void closed(UNUSED void **state)
{
	struct rdma_conn_param p = param(NULL, 0);
	struct rdma_ucm_accept a;
	struct rdma_cm_event *e;
	struct rdma_cm_id *c[3];
	int fd = raw_fd();
	unsigned seen = 0;
	uint16_t tcp;

	raw_listener(fd, &tcp);
	for (int i = 0; i < 3; i++) {
		c[i] = routed(RDMA_PS_TCP, "127.0.0.1", tcp);
		must(rdma_connect(c[i], &p));
	}
	memset(&a, 0, sizeof(a));
	a.uid = 5;
	a.conn_param.valid = 1;
	a.id = raw_event(fd).id;
	must(COMMAND(fd, ACCEPT, a, 0));
	GOT(client, CONNECT_RESPONSE);
	must(rdma_establish(c[0]));
	assert_int_equal(raw_event(fd).event, RDMA_CM_EVENT_CONNECT_REQUEST);
	close(fd);
	for (int i = 0; i < 3; i++) {
		assert_true(readable(client->fd, PATIENCE * 1000));
		must(rdma_get_cm_event(client, &e));
		for (int j = 0; j < 3; j++)
			if (e->id == c[j]) {
				assert_int_equal(e->event, j ? RDMA_CM_EVENT_REJECTED : RDMA_CM_EVENT_DISCONNECTED);
				assert_int_equal(e->status, j ? 28 : 0);
				seen |= 1u << j;
			}
		must(rdma_ack_cm_event(e));
	}
	assert_int_equal(seen, 7);
	for (int i = 0; i < 3; i++)
		destroy(c[i]);
	nothing_left();
}

/*
 * Any command in any state, with fields that are right, nearly right or noise: each answers, none
 * writes where it may not, and in the end everything goes away
 */
static void any_command(UNUSED void **state)
{
#define AT(name, type, response) { RDMA_USER_CM_CMD_##name, sizeof(struct type), offsetof(struct type, id), response }
	static const struct {
		uint8_t cmd;
		uint16_t size, id;
		int16_t response;
	} all[] = {
		{ RDMA_USER_CM_CMD_CREATE_ID, sizeof(struct rdma_ucm_create_id), 0, offsetof(struct rdma_ucm_create_id, response) },
		{ RDMA_USER_CM_CMD_GET_EVENT, sizeof(struct rdma_ucm_get_event), 0, 0 },
		AT(DESTROY_ID, rdma_ucm_destroy_id, 0), AT(BIND_IP, rdma_ucm_bind_ip, 0), AT(BIND, rdma_ucm_bind, -1),
		AT(RESOLVE_IP, rdma_ucm_resolve_ip, -1), AT(RESOLVE_ADDR, rdma_ucm_resolve_addr, -1),
		AT(RESOLVE_ROUTE, rdma_ucm_resolve_route, -1), AT(QUERY_ROUTE, rdma_ucm_query, 0), AT(QUERY, rdma_ucm_query, 0),
		AT(CONNECT, rdma_ucm_connect, -1), AT(LISTEN, rdma_ucm_listen, -1), AT(ACCEPT, rdma_ucm_accept, -1),
		AT(REJECT, rdma_ucm_reject, -1), AT(DISCONNECT, rdma_ucm_disconnect, -1), AT(INIT_QP_ATTR, rdma_ucm_init_qp_attr, 0),
		AT(SET_OPTION, rdma_ucm_set_option, 0), AT(NOTIFY, rdma_ucm_notify, -1), AT(JOIN_IP_MCAST, rdma_ucm_join_ip_mcast, 0),
		AT(JOIN_MCAST, rdma_ucm_join_mcast, 0), AT(LEAVE_MCAST, rdma_ucm_destroy_id, 0), AT(MIGRATE_ID, rdma_ucm_migrate_id, 0),
	};
	static const char *const addresses[] = { "127.0.0.1", "127.0.0.1", "10.0.0.1", "0.0.0.0", "239.1.1.1", NOBODY };
	static const uint16_t spaces[] = { RDMA_PS_TCP, RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IB, 7 };
	static uint64_t answer[512];
	int fd[2] = { raw_fd(), raw_fd() };
	uint32_t known[8] = { 0 }, groups[4] = { 0 }, asked = 0;
	int asked_by = fd[0], to;
	unsigned of[ARRAY(all)] = { 0 };

	for (int i = 0; i < 2; i++)
		fcntl(fd[i], F_SETFL, O_NONBLOCK);
	for (unsigned n = 0; n < 150000; n++) {
		unsigned k = rnd() % ARRAY(all), noise = rnd() % 2 ? rnd() % 8 : 0;
		static _Alignas(8) uint8_t body[700];
		struct rdma_ucm_resolve_addr *ra = (void *)body;
		struct rdma_ucm_set_option *so = (void *)body;
		struct rdma_ucm_join_mcast *jm = (void *)body;
		uint64_t at = (uintptr_t)(rnd() % 50 ? answer : NULL);
		uint32_t id = rnd() % 50 ? known[rnd() % 8] : rnd();

		if ((all[k].cmd == RDMA_USER_CM_CMD_DESTROY_ID || all[k].cmd == RDMA_USER_CM_CMD_MIGRATE_ID) && rnd() % 16)
			continue;
		memset(body, 0, sizeof(body));
		for (unsigned i = 0; i < noise; i++)
			body[rnd() % all[k].size] = rnd();
		/* Addresses and sizes where they belong */
		switch (all[k].cmd) {
		case RDMA_USER_CM_CMD_CREATE_ID:
			((struct rdma_ucm_create_id *)(void *)body)->uid = rnd() % 8;
			((struct rdma_ucm_create_id *)(void *)body)->ps = spaces[rnd() % 5];
			((struct rdma_ucm_create_id *)(void *)body)->qp_type = 2 + rnd() % 3;
			break;
		case RDMA_USER_CM_CMD_BIND:
			((struct rdma_ucm_bind *)(void *)body)->addr_size = sizeof(struct sockaddr_in);
			/* fall through */
		case RDMA_USER_CM_CMD_BIND_IP:
			memcpy(body + 8, ip(addresses[rnd() % 6], rnd() % 4 ? 40000 + rnd() % 2 : 0), sizeof(struct sockaddr_in));
			break;
		case RDMA_USER_CM_CMD_RESOLVE_IP:
			memcpy(body + sizeof(struct sockaddr_in6), ip(addresses[rnd() % 6], 40000 + rnd() % 2), sizeof(struct sockaddr_in));
			break;
		case RDMA_USER_CM_CMD_RESOLVE_ADDR:
			ra->dst_size = sizeof(struct sockaddr_in);
			memcpy(&ra->dst_addr, ip(addresses[rnd() % 6], 40000 + rnd() % 2), sizeof(struct sockaddr_in));
			break;
		case RDMA_USER_CM_CMD_JOIN_IP_MCAST:
			memcpy(body + 16, ip(addresses[rnd() % 6], 0), sizeof(struct sockaddr_in));
			break;
		case RDMA_USER_CM_CMD_JOIN_MCAST:
			jm->addr_size = sizeof(struct sockaddr_in);
			memcpy(&jm->addr, ip(addresses[rnd() % 6], 0), sizeof(struct sockaddr_in));
			break;
		case RDMA_USER_CM_CMD_NOTIFY:
			((struct rdma_ucm_notify *)(void *)body)->event = IBV_EVENT_COMM_EST;
			break;
		case RDMA_USER_CM_CMD_SET_OPTION:
			so->optname = rnd() % 4;
			so->optlen = rnd() % 2 ? 1 : sizeof(int);
			break;
		}
		if (all[k].cmd != RDMA_USER_CM_CMD_GET_EVENT && all[k].cmd != RDMA_USER_CM_CMD_CREATE_ID)
			memcpy(body + all[k].id, &id, sizeof(id));
		if (all[k].cmd == RDMA_USER_CM_CMD_CONNECT || all[k].cmd == RDMA_USER_CM_CMD_ACCEPT)
			body[offsetof(struct rdma_ucm_conn_param, valid) + (all[k].cmd == RDMA_USER_CM_CMD_ACCEPT ? 8 : 0)] = rnd() % 4 > 0;
		if (all[k].cmd == RDMA_USER_CM_CMD_LEAVE_MCAST)
			memcpy(body + all[k].id, &groups[rnd() % 4], sizeof(id));
		if (all[k].response >= 0)
			memcpy(body + all[k].response, &at, sizeof(at));
		if (all[k].cmd == RDMA_USER_CM_CMD_MIGRATE_ID)
			memcpy(body + offsetof(struct rdma_ucm_migrate_id, fd), &fd[rnd() % 2], sizeof(int));
		memset(answer, 0, 16);
		/* What a request can be answered with goes to the last one more often than not */
		to = fd[rnd() % 2];
		if ((all[k].cmd == RDMA_USER_CM_CMD_ACCEPT || all[k].cmd == RDMA_USER_CM_CMD_REJECT || all[k].cmd == RDMA_USER_CM_CMD_NOTIFY) &&
		    rnd() % 4) {
			memcpy(body + all[k].id, &asked, sizeof(asked));
			to = asked_by;
		}
		if (command(to, all[k].cmd, body, all[k].size, sizeof(answer)))
			continue;
		of[k]++;
		/* The number of an id, of a membership; what an event tells of */
		if (all[k].cmd == RDMA_USER_CM_CMD_CREATE_ID)
			known[rnd() % 8] = answer[0];
		if (all[k].cmd == RDMA_USER_CM_CMD_JOIN_IP_MCAST || all[k].cmd == RDMA_USER_CM_CMD_JOIN_MCAST)
			groups[rnd() % 4] = answer[0];
		if (all[k].cmd == RDMA_USER_CM_CMD_GET_EVENT && answer[1] >> 32 == RDMA_CM_EVENT_CONNECT_REQUEST)
			known[rnd() % 8] = asked = answer[1], asked_by = to;
	}
	/* All but the one that is right only for a moment have been right */
	for (unsigned k = 0; k < ARRAY(all); k++)
		assert_true(of[k] || all[k].cmd == RDMA_USER_CM_CMD_NOTIFY);
	close(fd[0]);
	close(fd[1]);
	nothing_left();
}

/* ---- another process: it listens, and takes what it is told to take ---- */

static int peer_main(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_conn_param p = param(welcome, sizeof(welcome));
	struct rdma_cm_id *l[2], *s = NULL, *before = NULL;
	struct card ports;
	char what;

	if (!ch)
		return 1;
	for (int i = 0; i < 2; i++)
		if (rdma_create_id(ch, &l[i], NULL, i ? RDMA_PS_UDP : RDMA_PS_TCP) || rdma_bind_addr(l[i], ip("0.0.0.0", 0)) ||
		    rdma_listen(l[i], 8))
			return 2;
	ports = (struct card){ .qpn = ntohs(rdma_get_src_port(l[0])), .rkey = ntohs(rdma_get_src_port(l[1])) };
	exchange(&first_process, ports);
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
		if (rdma_ack_cm_event(e) || (what == 'a' && rdma_accept(s, &p)) || (what == 'r' && rdma_reject(s, hello, sizeof(hello))) ||
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

static struct rdma_cm_id *asking(enum rdma_port_space ps, uint16_t number)
{
	struct rdma_cm_id *c = routed(ps, "127.0.0.1", number);
	struct rdma_conn_param p = param(hello, sizeof(hello));

	must(rdma_connect(c, &p));
	return c;
}

static struct rdma_cm_id *up(const struct peer *p, uint16_t tcp)
{
	struct rdma_cm_id *c = asking(RDMA_PS_TCP, tcp);
	struct rdma_cm_event *e;

	order(p, 'a');
	e = take(client, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	assert_string_equal(e->param.conn.private_data, welcome);
	must(rdma_ack_cm_event(e));
	must(rdma_establish(c));
	order(p, 'n');
	return c;
}

static void other_process(UNUSED void **state)
{
	struct rdma_cm_event *e;
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
	e = take(client, RDMA_CM_EVENT_REJECTED, 28);
	assert_string_equal(e->param.conn.private_data, hello);
	must(rdma_ack_cm_event(e));
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
	struct rdma_cm_id *c[4];
	uint16_t tcp, udp;
	struct peer p = start(&tcp, &udp);
	unsigned seen = 0;

	c[0] = up(&p, tcp);
	c[1] = asking(RDMA_PS_TCP, tcp);
	c[2] = asking(RDMA_PS_TCP, tcp);
	c[3] = asking(RDMA_PS_UDP, udp);
	/* One of them read and not answered; those of one listener are not read */
	order(&p, 'n');
	kill(p.pid, SIGKILL);
	assert_int_equal(end_peer(&p), SIGKILL);
	for (int i = 0; i < 4; i++) {
		struct rdma_cm_event *e;

		assert_true(readable(client->fd, PATIENCE * 1000));
		must(rdma_get_cm_event(client, &e));
		for (int j = 0; j < 4; j++) {
			static const int event[] = { RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_REJECTED,
						     RDMA_CM_EVENT_UNREACHABLE };
			static const int status[] = { 0, 28, 28, 2 };

			if (e->id != c[j])
				continue;
			assert_int_equal(e->event, event[j]);
			assert_int_equal(e->status, status[j]);
			seen |= 1u << j;
		}
		must(rdma_ack_cm_event(e));
	}
	assert_int_equal(seen, 15);
	for (int j = 0; j < 4; j++)
		destroy(c[j]);
	nothing_left();
}

/* What it has had no turn to read it cannot answer: on a busy machine that may last */
static void stopped(UNUSED void **state)
{
	struct rdma_cm_id *c[2];
	uint16_t tcp, udp;
	struct peer p = start(&tcp, &udp);

	stop(&p);
	c[0] = asking(RDMA_PS_TCP, tcp);
	c[1] = asking(RDMA_PS_UDP, udp);
	assert_false(readable(client->fd, 5000));
	kill(p.pid, SIGCONT);
	order(&p, 'a');
	GOT(client, CONNECT_RESPONSE);
	order(&p, 'a');
	GOT(client, ESTABLISHED);
	destroy(c[0]);
	destroy(c[1]);
	kill(p.pid, SIGKILL);
	end_peer(&p);
	nothing_left();
}

/* It lives and reads, and nothing that it says arrives */
static void silent(UNUSED void **state)
{
	struct rdma_cm_id *c[3];
	uint16_t tcp, udp;
	struct peer p = start(&tcp, &udp);
	unsigned seen = 0;

	c[0] = up(&p, tcp);
	open_request(&usual, IBV_WR_RDMA_WRITE, 1, 8, 0);
	must(softdev_fault("silent@1"));
	post(&s[0], &wr);
	expect(s[0].scq, 1, IBV_WC_RETRY_EXC_ERR);
	must(rdma_disconnect(c[0]));
	c[1] = asking(RDMA_PS_TCP, tcp);
	c[2] = asking(RDMA_PS_UDP, udp);
	for (int i = 0; i < 3; i++) {
		struct rdma_cm_event *e;

		assert_true(readable(client->fd, PATIENCE * 1000));
		must(rdma_get_cm_event(client, &e));
		for (int j = 0; j < 3; j++)
			if (e->id == c[j]) {
				assert_int_equal(e->event, j ? RDMA_CM_EVENT_UNREACHABLE : RDMA_CM_EVENT_DISCONNECTED);
				assert_int_equal(e->status, -ETIMEDOUT);
				seen |= 1u << j;
			}
		must(rdma_ack_cm_event(e));
	}
	assert_int_equal(seen, 7);
	must(softdev_fault(NULL));
	close_pair(s);
	for (int j = 0; j < 3; j++)
		destroy(c[j]);
	kill(p.pid, SIGKILL);
	end_peer(&p);
	nothing_left();
}

/* A child has no device, and its parent keeps it */
static void forks(UNUSED void **state)
{
	struct rdma_ucm_create_id_resp resp;
	struct rdma_ucm_create_id c = { .response = (uintptr_t)&resp, .ps = RDMA_PS_TCP };
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(COMMAND(client->fd, CREATE_ID, c, sizeof(resp)) != EIO || open("/dev/infiniband/rdma_cm", O_RDWR) >= 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	must(rdma_destroy_id(new_id(client, RDMA_PS_TCP)));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(is_a_device), TEST(ids), TEST(commands), TEST(no_event), TEST(waits), TEST(binds), TEST(raw_binds), TEST(resolves),
		TEST(does_not_resolve), TEST(old_commands), TEST(connects), TEST(carries_data), TEST(end_after_completions), TEST(established_early), TEST(refusals),
		TEST(private_data), TEST(backlog), TEST(datagrams), TEST(groups), TEST(not_in_groups), TEST(options), TEST(migrates),
		TEST(synchronous), TEST(infiniband_addresses), TEST(closed), TEST(any_command), TEST(other_process), TEST(killed), TEST(stopped), TEST(silent), TEST(forks),
	};
	/* What needs no engine and no clock */
	const struct CMUnitTest alone[] = {
		TEST(is_a_device), TEST(ids), TEST(commands), TEST(binds), TEST(resolves), TEST(connects), TEST(established_early),
		TEST(refusals), TEST(private_data), TEST(not_in_groups), TEST(options), TEST(closed),
		TEST(any_command),
	};

	if (argc > 1 && !strcmp(argv[1], "serve"))
		return peer_main();
	if (!softdev_present()) {
		print_message("# skipped: the addresses are the software device's\n1..0\n");
		return 0;
	}
	if (stepped())
		return cmocka_run_group_tests(alone, open_all, close_all);
	return cmocka_run_group_tests(tests, open_all, close_all) +
	       (getenv("SOFTDEV_LINK") ? 0 : again_with("SOFTDEV_LINK", "ib") + again_with("SOFTDEV_MANUAL", "1"));
}
