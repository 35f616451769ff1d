/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * connect.c: connections on demand. Two endpoints exchange the records of their queue pairs in datagrams,
 * which may be lost, duplicated or late:
 *
 *   A: HELLO(record)  -->                            B: queue pair, to RTS with A's record
 *   A: to RTS, ready  <--  HELLO(record, SEEN)
 *      HELLO(record, SEEN, DONE)  -->                B: ready
 *
 * SEEN: I am in RTS with your record. DONE: I know that you are too, and need no answer. A side that is not
 * ready repeats its hello. So both may begin at the same time, and neither has to remember what it sent.
 * Each peer has one queue pair for a connection, so simultaneous hellos mean the same connection.
 *
 * An address contains the incarnation of its endpoint. A hello to another incarnation is REFUSED, and a hello
 * from a newer one means that the older one is gone. `attempt` counts the connections of one incarnation: a
 * hello with an older attempt is late, one with a newer attempt starts a new connection. A closing endpoint
 * sends BYE.
 *
 * Over DC (dc.c) the same hellos describe a target instead of a queue pair, and no queue pair changes state.
 */
#include "fabric.h"

#define MAGIC 0x796c6e69u
#define HELLO_MS 20u      /* between two hellos: once, twice, ... this */
#define HELLO_TRIES 50u   /* at most so many times */
#define BYE_MS 10000u     /* for what was sent to be acknowledged */
#define AT_A_TIME 16u     /* peers whose time is looked at, */
#define CALLS 16u         /* and that get a first hello: so many have room in the ring */

#define EAGER ((uint16_t)(settings.eager / 16 | (settings.rails - 1u) << 15))

enum hello_kind { HELLO = 1, REFUSED, BYE };
enum hello_flags { SEEN = 1, DONE = 2, OVER_DC = 4, BY_NIC = 8 };

struct hello {
	uint32_t magic;
	uint8_t kind;
	uint8_t flags;            /* and enum able << 4 */
	uint16_t eager;           /* EAGER: how long the receives are */
	uint32_t attempt;         /* that record belongs to */
	uint32_t your_attempt;    /* that SEEN is about */
	struct name from;
	uint64_t to;              /* incarnation */
	uint64_t source;          /* BY_NIC: bits for the tags of messages to me, | how many; of a second endpoint rail_tie() */
	uint8_t record[INLAY_CONNECT_SIZE]; /* OVER_DC: dc.c's */
	struct name beyond;       /* the sender on the other device, if it has two */
};

INLAY_STATIC_ASSERT(sizeof(struct hello) == HELLO_SIZE, "on the wire");

uint64_t nanoseconds(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* ---- Datagrams out ---- */

static int reach(struct endpoint *ep, const struct inlay_connect_record *there, struct inlay_av *av)
{
	const char *why;
	int err = inlay_connect_av(av, ep->domain->pd, &ep->here, there, &ep->attr, &why);

	if (err)
		WARN(FI_LOG_EP_CTRL, "%s: %s\n", why, fi_strerror(-err));
	return err;
}

/* A datagram that finds no room is dropped, as if lost on the way. */
static void say(struct endpoint *ep, const struct inlay_av *av, struct hello *h, uint8_t kind, uint64_t to)
{
	struct inlay_wr wr = {.to = av, .data = h, .len = sizeof(*h)};

	h->magic = MAGIC;
	h->kind = kind;
	h->eager = EAGER;
	h->from = ep->name;
	if (ep != ep->first)
		h->beyond = ep->first->name;
	else if (ep->second)
		h->beyond = ep->second->name;
	h->to = to;
	(void)!inlay_post(&ep->ud, MLX5_OPCODE_SEND, &wr, INLAY_SIGNALED | INLAY_INLINE | INLAY_RING);
}

static void say_hello(struct peer *p, uint8_t kind)
{
	struct hello h = {
		.flags = (uint8_t)((p->seen ? SEEN : 0) | (p->state == PEER_READY ? DONE : 0) | (settings.dc ? OVER_DC : 0) |
				   (p->ep->offload ? BY_NIC : 0) | p->ep->domain->able << 4),
		.source = p->ep == p->ep->first ? p->source | p->ep->source_bits : rail_tie(p),
		.attempt = p->attempt, .your_attempt = p->their_attempt,
	};

	if (settings.dc)
		dc_tell(p, h.record);
	else
		inlay_connect_pack(&p->here, h.record);
	say(p->ep, &p->av, &h, kind, p->name.incarnation);
}

/* ---- Beginning ---- */

static int begin(struct peer *p)
{
	const struct peer *first = p->other ? p->other : p->claimed_by;
	const bool stranger = !p->listed && !(first && first->listed);
	const bool flushing = p->other && p->other->state == PEER_FAILING; /* messages of the old numbers are coming in */
	int err = flushing || (stranger && p->ep->guests >= (uint32_t)settings.peers) ? -FI_EAGAIN :
		  reach(p->ep, &p->place, &p->av);

	if (!err)
		err = peer_open(p);
	if (err)
		return err;
	p->state = PEER_CONNECTING;
	p->guest = stranger;
	p->ep->guests += p->guest;
	p->err = 0;
	p->ep->unsettled++;
	p->since = p->ep->now = milliseconds();
	p->tries = 1;
	p->hello_at = p->since + HELLO_MS;
	return 0;
}

int connect_start(struct peer *p)
{
	int err = p->ep->calls < CALLS ? begin(p) : -FI_EAGAIN;

	if (err)
		return err;
	p->calling = true;
	p->ep->calls++;
	say_hello(p, HELLO);
	return 0;
}

void connect_called(struct peer *p)
{
	p->ep->calls -= p->calling;
	p->calling = false;
}

/* ---- Datagrams in ---- */

/*
 * A hello's sender replaces its older incarnations. A newer one, which a stranger may claim to be, keeps nobody out: if
 * the sender is gone, whoever is in its place refuses our answer.
 */
static void replace_older(struct endpoint *ep, uint64_t incarnation, const struct inlay_connect_record *place)
{
	struct peer *p;

	for (p = *peer_bucket(ep, place); p; p = p->beside)
		if (p->name.incarnation < incarnation && p->place.qpn == place->qpn && p->place.lid == place->lid &&
		    !memcmp(p->place.gid, place->gid, sizeof(place->gid)))
			peer_fail(p, FI_ECONNRESET, 0);
}

static void hello_arrived(struct peer *p, const struct hello *in)
{
	const char *why = "FI_INLAY_EAGER, FI_INLAY_RAILS or FI_INLAY_TRANSPORT is not the same everywhere";
	const bool dc = (in->flags & OVER_DC) != 0;
	int late = (int32_t)(in->attempt - p->their_attempt), err;
	struct inlay_connect_record there;

	if (late < 0 || (!dc && (inlay_connect_unpack(&there, in->record, sizeof(in->record), NULL) ||
				 there.type != IBV_QPT_RC)))
		return;
	if (p->state == PEER_FAILED && !late) {
		if (p->attempt) /* else there was no connection, nor a way to it */
			say_hello(p, BYE); /* it has not noticed yet */
		return;
	}
	if (p->ep != p->ep->first && !rail_link(p, &in->beyond, in->source))
		return;
	if (late && p->seen && p->state != PEER_IDLE) {
		peer_fail(p, p->ep == p->ep->first ? FI_ECONNRESET : FI_EHOSTUNREACH, 0);
		if (p->other && p->ep == p->ep->first) /* if p had failed before: the numbers are its connection's */
			peer_fail(p->other, FI_ECONNRESET, 0);
	}
	if (p->state == PEER_FAILING) /* its last completions are still to come: the next hello will do */
		return;
	if (p->state == PEER_FAILED)
		p->state = PEER_IDLE;
	if (p->state == PEER_IDLE && begin(p))
		return;
	if (!dc && !p->seen && in->flags & SEEN && in->your_attempt != p->attempt) {
		say_hello(p, HELLO); /* its queue pair is bound to an earlier one of ours, and is of no use to this one */
		return;
	}
	p->their_attempt = in->attempt;
	p->able = in->flags >> 4;
	p->by_nic = !settings.dc && in->flags & BY_NIC; /* initiators have no such sends */
	p->tag_bits = UINT64_MAX >> (in->source & 31);
	p->tag_source = in->source & ~p->tag_bits;
	err = in->eager == EAGER && dc == settings.dc ? 0 : -EINVAL;
	if (err)
		say_hello(p, HELLO); /* so that the other side sees it, too */
	else if (dc && !p->seen)
		dc_told(p, in->record);
	else if (!p->seen)
		err = inlay_connect_rts(p->qp, &p->here, &there, &p->ep->attr, &why);
	if (err) {
		WARN(FI_LOG_EP_CTRL, "%s: %s\n", why, fi_strerror(-err));
		peer_fail(p, FI_ECONNREFUSED, 0);
		return;
	}
	p->seen = true;
	if (p->ep->second)
		rail_claim(p, &in->beyond);
	if (p->state == PEER_CONNECTING && in->flags & SEEN && in->your_attempt == p->attempt)
		peer_ready(p);
	if (!(in->flags & DONE) || in->your_attempt != p->attempt)
		say_hello(p, HELLO);
}

/* Whether the device says the same of where a datagram came from as the datagram does. */
static bool is_from(const struct inlay_connect_record *from, const uint8_t *grh, struct inlay_sender sender)
{
	static const uint8_t mapped[12] = {[10] = 0xff, 0xff}; /* IPv4 */

	return sender.qpn == from->qpn &&
	       (!sender.has_grh ? sender.slid == from->lid :
		memcmp(from->gid, mapped, sizeof(mapped)) ? !memcmp(grh + 8, from->gid, sizeof(from->gid)) :
							    !memcmp(grh + 32, from->gid + sizeof(mapped), 4));
}

void connect_arrived(struct endpoint *ep, const uint8_t *datagram, struct inlay_sender sender)
{
	struct inlay_connect_record from;
	struct hello in, out = {.kind = REFUSED};
	struct inlay_av av;
	struct peer *p;

	memcpy(&in, datagram + INLAY_GRH, sizeof(in));
	if (in.magic != MAGIC || inlay_connect_unpack(&from, in.from.record, sizeof(in.from.record), NULL) ||
	    from.type != IBV_QPT_UD || !in.from.incarnation || !is_from(&from, datagram, sender))
		return;
	if (in.to != ep->name.incarnation) { /* an earlier endpoint on this QP number: say which one there is now */
		if (in.kind == HELLO && !reach(ep, &from, &av))
			say(ep, &av, &out, REFUSED, in.from.incarnation);
		return;
	}
	replace_older(ep, in.from.incarnation, &from);
	p = in.kind == REFUSED ? NULL : peer_of_name(ep, &in.from, av_find(ep->av, &in.from));
	if (!p)
		return;
	if (in.kind == HELLO)
		hello_arrived(p, &in);
	else if (in.kind == BYE && (int32_t)(in.attempt - p->their_attempt) >= 0 && p->state != PEER_IDLE)
		peer_fail(p, p->other && p->other->state == PEER_READY ? FI_EHOSTUNREACH : FI_ECONNRESET, 0);
}

/* ---- Time ---- */

/* A probe: an RDMA write of no bytes, which only the peer's device can acknowledge. It completes all before it. */
void connect_probe(struct peer *p)
{
	if (peer_begin(p))
		return;
	peer_slot(p)->kind = SLOT_NONE;
	peer_post(p, MLX5_OPCODE_RDMA_WRITE, 0, 0, NULL, 0, INLAY_SIGNALED | INLAY_RING);
}

void connect_step(struct endpoint *ep)
{
	const uint64_t now = ep->now = milliseconds();
	struct peer *p = ep->looking ? ep->looking : ep->peers;

	if (ep->unsettled)
		peer_events(ep);
	for (uint32_t n = 0; p && n < AT_A_TIME; n++, p = p->next) {
		if (p->state == PEER_CONNECTING && now - p->since >= (uint64_t)settings.connect_ms) {
			peer_fail(p, FI_ETIMEDOUT, 0);
		} else if (p->state == PEER_CONNECTING && now >= p->hello_at) {
			say_hello(p, HELLO);
			connect_called(p);
			p->tries += p->tries < HELLO_TRIES;
			p->hello_at = now + p->tries * HELLO_MS;
		} else if (p->state == PEER_READY && settings.keepalive_ms && now >= p->probe_at) {
			connect_probe(p);
			p->probe_at = now + (uint64_t)settings.keepalive_ms;
		} else if (p->claimed_by && (p->state == PEER_IDLE || p->state == PEER_FAILED) && peer_in_rts(p->claimed_by) &&
			   !memcmp(&p->claimed_by->beyond, &p->name, sizeof(p->name))) { /* it still names p */
			p->state = PEER_IDLE;
			connect_start(p);
		} else if (p->state == PEER_FAILING) {
			peer_flushed(p);
		}
	}
	ep->looking = p;
}

/* ---- The end ---- */

void connect_bye(struct endpoint *ep)
{
	const uint64_t end = milliseconds() + BYE_MS;
	struct peer *p;
	bool owed;

	for (p = ep->peers; p; p = p->next)
		if (p->state == PEER_READY && inlay_sq_pending(&p->sq))
			connect_probe(p);
	do {
		progress(ep);
		for (p = ep->peers, owed = false; p; p = p->next)
			owed |= (p->state >= PEER_READY && p->qp && inlay_sq_pending(&p->sq)) || p->resend != p->sent;
	} while (owed && milliseconds() < end);
	for (p = ep->peers; p; p = p->next)
		if (p->state == PEER_READY || p->state == PEER_CONNECTING)
			say_hello(p, BYE);
	while (inlay_sq_pending(&ep->ud) && milliseconds() < end)
		progress(ep);
}
