/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cm.c: the connection manager, by librdmacm and by commands where it has no call. Both ends are in this process, except where one ends.
 * What rdma_client and its like do (data, groups, datagrams, blocking waits): rdmacm.t.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <signal.h>
#include <rdma/rdma_cma.h>
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
		fail_msg("%s, status %d, not %s, %d", rdma_event_str(e->event), e->status, rdma_event_str(type), status);
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

static struct rdma_cm_id *routed(enum rdma_port_space ps, const char *to, uint16_t tcp)
{
	struct rdma_cm_id *id = new_id(client, ps);

	must(rdma_resolve_addr(id, NULL, ip(to, tcp), 2000));
	assert_ptr_equal(GOT(client, ADDR_RESOLVED), id);
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

static void destroy(struct rdma_cm_id *id)
{
	must(rdma_destroy_id(id));
}

static void nothing_left(void)
{
	assert_false(readable(server->fd, 0));
	assert_false(readable(client->fd, 0));
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

/* ---- ids and commands ---- */

/* What each of these is answered with; `id` is one of fd, and `gone` was one */
static void refused_commands(int fd, uint32_t id, uint32_t gone)
{
	const struct sockaddr_in6 unix_ = { .sin6_family = AF_UNIX };
	const struct sockaddr_in6 no_link = { .sin6_family = AF_INET6, .sin6_addr = { { { 0xfe, 0x80 } } } };
	const size_t in = sizeof(struct sockaddr_in), all = sizeof(answer);
#define ROW(err, out, name, type, ...) \
	{ #name, RDMA_USER_CM_CMD_##name, &(struct rdma_ucm_##type){ __VA_ARGS__ }, sizeof(struct rdma_ucm_##type), out, err }
	const struct {
		const char *name;
		uint32_t cmd;
		const void *body;
		size_t in, out;
		int err;
	} rows[] = {
		ROW(ENOSPC, 3, CREATE_ID, create_id, RESPONSE, .ps = RDMA_PS_TCP),
		ROW(EFAULT, all, CREATE_ID, create_id, .ps = RDMA_PS_TCP),
		ROW(EINVAL, all, CREATE_ID, create_id, RESPONSE, .ps = 0), ROW(EINVAL, all, CREATE_ID, create_id, RESPONSE, .ps = 0x107),
		{ "a short CREATE_ID", RDMA_USER_CM_CMD_CREATE_ID, &(struct rdma_ucm_create_id){ RESPONSE }, 8, 4, EINVAL },
		{ "none", 23, &(struct rdma_ucm_create_id){ RESPONSE }, 24, 8, EINVAL }, ROW(ENOSYS, 8, GET_OPTION, create_id, RESPONSE),
		ROW(ENOSPC, 16, GET_EVENT, get_event, RESPONSE), ROW(ENOSYS, all, QUERY, query, RESPONSE, .id = id, .option = 9),
		ROW(ENOSPC, 4, QUERY, query, RESPONSE, .id = id, .option = RDMA_USER_CM_QUERY_ADDR),
		ROW(ENOSPC, 4, QUERY, query, RESPONSE, .id = id, .option = RDMA_USER_CM_QUERY_PATH),
		ROW(ENOSPC, 4, QUERY, query, RESPONSE, .id = id, .option = RDMA_USER_CM_QUERY_GID),
		ROW(ENOSPC, 100, QUERY_ROUTE, query, RESPONSE, .id = id), ROW(EINVAL, all, BIND_IP, bind_ip, .id = id, .addr = unix_),
		ROW(EINVAL, all, BIND_IP, bind_ip, .id = id, .addr = no_link),
		ROW(EINVAL, all, BIND, bind, .id = id, .addr_size = in - 1, .addr = storage_of("127.0.0.1", 0)),
		ROW(EINVAL, all, BIND, bind, .id = id, .addr_size = in, .reserved = 1, .addr = storage_of("127.0.0.1", 0)),
		ROW(EINVAL, all, RESOLVE_IP, resolve_ip, .id = id, .timeout_ms = 100), ROW(EINVAL, all, DISCONNECT, disconnect, .id = id),
		ROW(EINVAL, all, JOIN_MCAST, join_mcast, RESPONSE, .id = id, .addr_size = 1),
		ROW(ENOENT, all, DISCONNECT, disconnect, .id = gone), ROW(ENOENT, all, DESTROY_ID, destroy_id, RESPONSE, .id = gone),
		ROW(ENOENT, all, LEAVE_MCAST, destroy_id, RESPONSE, .id = 60000),
		/* Files to move to: another's, none, of other ids */
		ROW(EINVAL, all, MIGRATE_ID, migrate_id, RESPONSE, .id = id, .fd = 1),
		ROW(ENOENT, all, MIGRATE_ID, migrate_id, RESPONSE, .id = id, .fd = 60000),
		ROW(EINVAL, all, MIGRATE_ID, migrate_id, RESPONSE, .id = id, .fd = client->fd),
	};

	for (unsigned i = 0; i < ARRAY(rows); i++) {
		int err = command(fd, rows[i].cmd, rows[i].body, rows[i].in, rows[i].out);

		if (err != rows[i].err)
			fail_msg("row %u, %s: %d", i, rows[i].name, err);
	}
}

static void commands(UNUSED void **state)
{
	static const struct {
		uint16_t ps;
		uint8_t type;
	} kinds[] = { { RDMA_PS_TCP, 0 }, { RDMA_PS_UDP, 0 }, { RDMA_PS_IPOIB, 0 }, { RDMA_PS_IB, IBV_QPT_RC } };
	struct rdma_ucm_cmd_hdr h = { .cmd = RDMA_USER_CM_CMD_CREATE_ID, .in = 100 };
	const void *volatile nowhere = NULL;
	int fd = raw_fd(), other = raw_fd();
	struct rdma_ucm_event_resp e;
	uint32_t id, gone;

	REFUSED(write(fd, &h, 4), EINVAL);
	REFUSED(write(fd, &h, sizeof(h)), EINVAL);
	REFUSED(write(fd, nowhere, sizeof(h)), EFAULT);
	for (unsigned i = 0; i < ARRAY(kinds); i++) {
		must(DO(fd, CREATE_ID, create_id, RESPONSE, .ps = kinds[i].ps, .qp_type = kinds[i].type));
		gone = answer.id.id;
		must(raw_destroy(fd, gone));
	}
	id = raw_id(fd, RDMA_PS_TCP);
	refused_commands(fd, id, gone);
	assert_int_equal(DO(other, DISCONNECT, disconnect, .id = id), EINVAL);
	must(DO(fd, MIGRATE_ID, migrate_id, RESPONSE, .id = id, .fd = fd));
	/* What librdmacm uses with older kernels */
	must(DO(fd, RESOLVE_IP, resolve_ip, .id = id, .timeout_ms = 100, .dst_addr = *(struct sockaddr_in6 *)(void *)ip("127.0.0.1", 7)));
	e = raw_event(fd);
	assert_int_equal(e.event, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_true(e.uid == 0x77 && e.id == id && e.status == 0);
	must(DO(fd, RESOLVE_ROUTE, resolve_route, .id = id, .timeout_ms = 100));
	assert_int_equal(raw_event(fd).event, RDMA_CM_EVENT_ROUTE_RESOLVED);
	must(DO(fd, QUERY_ROUTE, query, RESPONSE, .id = id));
	assert_true(answer.route.num_paths == 1 && answer.route.port_num == 1);
	assert_memory_equal(answer.route.ib_route[0].sgid, &gid, 16);
	assert_memory_equal(answer.route.ib_route[0].dgid, &gid, 16);
	assert_int_equal(raw_destroy(fd, id), 2);
	close(fd);
	close(other);
	assert_int_equal(open("/dev/infiniband/rdma_cm", O_RDONLY), -1);
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
		{ "127.0.0.1", { 0, 0 }, false, "10.0.0.1", EADDRNOTAVAIL }, { "0.0.0.0", { 0, 0 }, false, "0.0.0.0", EADDRNOTAVAIL },
		{ "10.0.0.1", { 0, 0 }, false, "10.0.0.1", EADDRINUSE }, { "10.0.0.1", { 1, 0 }, false, "10.0.0.1", EADDRINUSE },
		{ "10.0.0.1", { 1, 1 }, false, "10.0.0.1", 0 }, { "0.0.0.0", { 1, 1 }, false, "10.0.0.1", 0 },
		{ "10.0.0.1", { 1, 1 }, true, "10.0.0.1", EADDRINUSE }, { "0.0.0.0", { 0, 0 }, true, "::", EADDRNOTAVAIL },
		{ "0.0.0.0", { 0, 0 }, false, "203.0.113.1", EADDRNOTAVAIL }, { "0.0.0.0", { 0, 0 }, false, "239.1.1.1", EADDRNOTAVAIL },
	};

	for (unsigned i = 0; i < ARRAY(rows); i++) {
		struct rdma_cm_id *id[2];
		int err, one = 1;

		for (int k = 0; k < 2; k++) {
			id[k] = new_id(server, RDMA_PS_TCP);
			if (rows[i].reuse[k])
				must(rdma_set_option(id[k], RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &one, sizeof(one)));
		}
		must(rdma_bind_addr(id[0], ip(rows[i].first, 0)));
		assert_true(!!id[0]->verbs == !strncmp(rows[i].first, "10.", 3) && number_of(id[0]) >= 1024);
		if (rows[i].listens)
			must(rdma_listen(id[0], 1));
		err = rdma_bind_addr(id[1], ip(rows[i].second, number_of(id[0]))) ? errno : 0;
		if (err != rows[i].err)
			fail_msg("%s, then %s: error %d", rows[i].first, rows[i].second, err);
		/* Two may have one port, and only one of them may listen there */
		if (!err)
			assert_int_equal(rdma_listen(id[1], 1), -1);
		REFUSED(rdma_bind_addr(id[0], ip("127.0.0.1", 0)), EINVAL);
		destroy(id[0]);
		destroy(id[1]);
	}
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

#define IS(word) (!strcmp(call, #word))
	if (IS(destroy)) {
		destroy(*id);
		*id = NULL;
	} else if (IS(towards)) {
		*id = towards(*id_of('l'));
	} else if (IS(bind)) {
		*id = new_id(server, RDMA_PS_TCP);
		must(rdma_bind_addr(*id, ip("10.0.0.1", 0)));
	} else {
		return IS(connect) ? rdma_connect(*id, &p) : IS(accept) ? rdma_accept(*id, &p) :
		       IS(reject) ? rdma_reject(*id, p.private_data, len) : IS(reject_ece) ? rdma_reject_ece(*id, NULL, 0) :
		       IS(establish) ? rdma_establish(*id) : IS(disconnect) ? rdma_disconnect(*id) :
		       IS(notify) ? rdma_notify(*id, IBV_EVENT_COMM_EST) : IS(migrated) ? rdma_notify(*id, IBV_EVENT_PATH_MIG) :
		       IS(listen) ? rdma_listen(*id, 1) : (errno = ENOSYS, -1);
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
		if (equal)
			want = strcmp(equal + 1, "EISCONN") ? EINVAL : EISCONN;
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
		/* Before it hears that the other has. Both at once: only of two processes, by chance */
		"c.connect s:CONNECT_REQUEST s.accept c:CONNECT_RESPONSE c.establish s:ESTABLISHED c.disconnect s.disconnect "
		"s:DISCONNECTED c:DISCONNECTED",
		/* The first message comes before the program hears that they are connected */
		"c.connect s:CONNECT_REQUEST s.accept s.migrated=EINVAL s.notify s:ESTABLISHED s.notify=EISCONN c:CONNECT_RESPONSE "
		"c.establish c.destroy s:DISCONNECTED",
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
	/* By the clock: both stay for a while */
	if (!getenv("SOFTDEV_MANUAL"))
		tell_story(RDMA_PS_TCP, "c.connect s:CONNECT_REQUEST s.accept c:CONNECT_RESPONSE c.establish s:ESTABLISHED c.disconnect "
			   "s.disconnect s:DISCONNECTED c:DISCONNECTED s:TIMEWAIT_EXIT c:TIMEWAIT_EXIT");
	for (unsigned i = 0; i < ARRAY(datagrams); i++)
		tell_story(RDMA_PS_UDP, datagrams[i]);
}

/* What one side offers is what the other may use */
static void negotiates(UNUSED void **state)
{
	struct rdma_cm_id *l = listener(RDMA_PS_TCP, 4), *c = towards(l), *s;
	struct rdma_conn_param p = param(NULL, 0), r = p, got_;
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR };
	struct rdma_cm_event *e;
	uint32_t psn;
	int mask;

	must(rdma_connect(c, &p));
	REFUSED(rdma_init_qp_attr(c, &a, &mask), EINVAL);
	e = take(server, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	s = e->id;
	got_ = e->param.conn;
	must(rdma_ack_cm_event(e));
	assert_true(got_.responder_resources == p.initiator_depth && got_.initiator_depth == p.responder_resources);
	assert_true(got_.retry_count == p.retry_count && got_.rnr_retry_count == p.rnr_retry_count && got_.flow_control == 1);
	assert_int_equal(got_.qp_num, p.qp_num);
	assert_int_equal(rdma_get_src_port(s), rdma_get_src_port(l));
	assert_int_equal(rdma_get_dst_port(s), rdma_get_src_port(c));
	must(rdma_init_qp_attr(s, &a, &mask));
	assert_int_equal(mask, RTR_MASK);
	assert_true(a.dest_qp_num == p.qp_num && a.max_dest_rd_atomic == p.initiator_depth && a.path_mtu == port.active_mtu);
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
	got_ = e->param.conn;
	must(rdma_ack_cm_event(e));
	assert_true(got_.responder_resources == 1 && got_.initiator_depth == 2 && got_.qp_num == 0x4321);
	a.qp_state = IBV_QPS_INIT;
	must(rdma_init_qp_attr(c, &a, &mask));
	assert_int_equal(mask, INIT_MASK);
	assert_int_equal(a.qp_access_flags, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	a.qp_state = IBV_QPS_RTS;
	must(rdma_init_qp_attr(c, &a, &mask));
	assert_int_equal(mask, RTS_MASK);
	assert_true(a.retry_cnt == p.retry_count && a.rnr_retry == r.rnr_retry_count && a.max_rd_atomic == 2);
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

/* ---- options ---- */

static void options(UNUSED void **state)
{
	enum { ID = RDMA_OPTION_ID };
	static uint8_t bytes[4] = { 9 };
	struct rdma_cm_id *tcp = new_id(client, RDMA_PS_TCP), *udp = new_id(client, RDMA_PS_UDP);
	const struct {
		struct rdma_cm_id *id;
		int level, name;
		void *value;
		size_t size;
		int err;
	} rows[] = {
		{ tcp, ID, RDMA_OPTION_ID_TOS, bytes, 4, EINVAL }, { tcp, ID, RDMA_OPTION_ID_REUSEADDR, bytes, 1, EINVAL },
		{ tcp, ID, RDMA_OPTION_ID_AFONLY, bytes, 1, EINVAL }, { tcp, ID, RDMA_OPTION_ID_AFONLY, bytes, 4, 0 },
		{ tcp, ID, RDMA_OPTION_ID_ACK_TIMEOUT, bytes, 4, EINVAL },
		{ tcp, ID, RDMA_OPTION_ID_ACK_TIMEOUT, bytes, 1, 0 },
		{ udp, ID, RDMA_OPTION_ID_ACK_TIMEOUT, bytes, 1, EINVAL }, { tcp, ID, 4, bytes, 1, ENOSYS },
		{ tcp, RDMA_OPTION_IB, 2, bytes, 1, ENOSYS }, { tcp, 2, 0, bytes, 1, ENOSYS },
		{ tcp, ID, RDMA_OPTION_ID_TOS, bytes, 1 << 20, EINVAL }, { tcp, ID, RDMA_OPTION_ID_TOS, NULL, 1, EFAULT },
	};

	for (unsigned i = 0; i < ARRAY(rows); i++) {
		int err = rdma_set_option(rows[i].id, rows[i].level, rows[i].name, rows[i].value, rows[i].size) ? errno : 0;

		if (err != rows[i].err)
			fail_msg("row %u: error %d", i, err);
	}
	destroy(tcp);
	destroy(udp);
}

/* ---- another process: it listens, and takes what it is told to take ---- */

static int peer_main(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_conn_param p = param(welcome, 30);
	struct rdma_cm_id *l[2];
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
		struct rdma_cm_id *s;

		/* The next event, and with 'a' the answer to a request */
		if (rdma_get_cm_event(ch, &e))
			return 3;
		s = e->id;
		if (rdma_ack_cm_event(e) || (what == 'a' && rdma_accept(s, &p)))
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

static struct rdma_cm_id *asking(enum rdma_port_space ps, uint16_t number)
{
	struct rdma_cm_id *c = routed(ps, "127.0.0.1", number);
	struct rdma_conn_param p = param(hello, 30);

	must(rdma_connect(c, &p));
	return c;
}

static struct rdma_cm_id *up(const struct peer *p, uint16_t tcp)
{
	struct rdma_cm_id *c = asking(RDMA_PS_TCP, tcp);

	order(p, 'a');
	GOT(client, CONNECT_RESPONSE);
	must(rdma_establish(c));
	order(p, 'n');
	return c;
}

static void killed(UNUSED void **state)
{
	static const int event[] = { RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_REJECTED,
				     RDMA_CM_EVENT_UNREACHABLE };
	static const int status[] = { 0, 28, 28, 2 };
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
	/* Each hears of it once, in any order */
	for (unsigned i = 0, k; i < 4; i++) {
		struct rdma_cm_event *e;

		assert_true(readable(client->fd, PATIENCE * 1000));
		must(rdma_get_cm_event(client, &e));
		for (k = 0; k < 3 && c[k] != e->id;)
			k++;
		assert_int_equal(e->event, event[k]);
		assert_int_equal(e->status, status[k]);
		seen |= 1u << k;
		must(rdma_ack_cm_event(e));
	}
	assert_int_equal(seen, 15);
	for (unsigned i = 0; i < 4; i++)
		destroy(c[i]);
	nothing_left();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(commands),   cmocka_unit_test(binds),   cmocka_unit_test(stories),
		cmocka_unit_test(negotiates), cmocka_unit_test(options), cmocka_unit_test(killed),
	};
	/* What another link changes; what a device without an engine and a clock does */
	const struct CMUnitTest link[] = { cmocka_unit_test(stories), cmocka_unit_test(negotiates) };
	const struct CMUnitTest alone[] = { cmocka_unit_test(binds), cmocka_unit_test(stories) };

	if (argc > 1 && !strcmp(argv[1], "serve"))
		return peer_main();
	skip_all_if(!softdev_present(), "the addresses are the software device's");
	if (getenv("SOFTDEV_MANUAL"))
		return cmocka_run_group_tests(alone, open_all, close_all);
	if (getenv("SOFTDEV_LINK"))
		return cmocka_run_group_tests(link, open_all, close_all);
	return cmocka_run_group_tests(tests, open_all, close_all) + again_with("SOFTDEV_LINK", "ib") + again_with("SOFTDEV_MANUAL", "1");
}
