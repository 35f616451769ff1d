/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cmaddr.c: addresses and ports of the connection manager.
 *
 * Device N has the IPv4 address 10.0.0.(N + 1) and a link-local IPv6 address: of its GIDs on RoCE, as
 * by IPoIB on InfiniBand. The loopback addresses and all other addresses of this machine lead to the
 * first device, or to the one that an id is bound to. There is nobody else on 10.0.0.0/24 and
 * fe80::/10: such an address is asked for until the caller's patience ends. No device leads
 * anywhere else.
 *
 * All processes of the fabric share the ports, as those of one kernel do. Each writes what it has
 * bound into one file in the fabric's directory, under a lock. A record counts as long as its
 * process lives.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cm.h"

#define SID_PS(ps) ((uint64_t)(ps) << 16)
#define PS_MASK 0xffffffffffff0000ull
#define FIRST_PORT 32768u        /* of those that nobody asked for by number */
#define PORTS 28232u

static const uint8_t mapped_v4[12] = { [10] = 0xff, 0xff };

size_t cm_addr_size(const union cm_addr *a)
{
	switch (a->sa.sa_family) {
	case AF_INET:
		return sizeof(a->in);
	case AF_INET6:
		return sizeof(a->in6);
	case AF_IB:
		return sizeof(a->ib);
	}
	return 0;
}

/* An address without its port, as 16 bytes */
static void bare(const union cm_addr *a, uint8_t gid[16])
{
	memset(gid, 0, 16);
	if (a->sa.sa_family == AF_INET) {
		memcpy(gid, mapped_v4, 12);
		memcpy(gid + 12, &a->in.sin_addr, 4);
	} else if (a->sa.sa_family == AF_INET6) {
		memcpy(gid, &a->in6.sin6_addr, 16);
	} else if (a->sa.sa_family == AF_IB) {
		memcpy(gid, &a->ib.sib_addr, 16);
	}
}

enum class { ZERO, LOOPBACK, GROUP, LINK_LOCAL, GLOBAL };

static enum class class_of(const union cm_addr *a)
{
	const bool v4 = a->sa.sa_family == AF_INET;
	struct in6_addr x;

	bare(a, x.s6_addr);
	if (v4 ? !a->in.sin_addr.s_addr : IN6_IS_ADDR_UNSPECIFIED(&x))
		return ZERO;
	if (v4 ? x.s6_addr[12] == 127 : IN6_IS_ADDR_LOOPBACK(&x))
		return LOOPBACK;
	if (v4 ? x.s6_addr[12] >> 4 == 0xe : IN6_IS_ADDR_MULTICAST(&x))
		return GROUP;
	return a->sa.sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&x) ? LINK_LOCAL : GLOBAL;
}

/* The kernel listens on all ports for either */
static bool any(const union cm_addr *a)
{
	return class_of(a) <= LOOPBACK;
}

static uint16_t port_of(const union cm_addr *a)
{
	switch (a->sa.sa_family) {
	case AF_INET:
		return ntohs(a->in.sin_port);
	case AF_INET6:
		return ntohs(a->in6.sin6_port);
	case AF_IB:
		return be64toh(a->ib.sib_sid) & be64toh(a->ib.sib_sid_mask);
	}
	return 0;
}

static void set_port(union cm_addr *a, uint16_t port)
{
	if (a->sa.sa_family == AF_INET) {
		a->in.sin_port = htons(port);
	} else if (a->sa.sa_family == AF_INET6) {
		a->in6.sin6_port = htons(port);
	} else {
		a->ib.sib_sid = htobe64((be64toh(a->ib.sib_sid) & be64toh(a->ib.sib_sid_mask)) | port);
		a->ib.sib_sid_mask = ~0ull;
	}
}

uint64_t cm_service(const struct cm_id *id, const union cm_addr *a)
{
	return a->sa.sa_family == AF_IB ? be64toh(a->ib.sib_sid) : SID_PS(id->ps) + port_of(a);
}

/* ---- devices ---- */

/* Is it an address of this machine that is no device's? */
static bool machines_own(const union cm_addr *a)
{
	struct ifaddrs *list, *i;
	bool own = false;

	if (a->sa.sa_family == AF_IB || getifaddrs(&list))
		return false;
	for (i = list; i && !own; i = i->ifa_next)
		if (i->ifa_addr && i->ifa_addr->sa_family == a->sa.sa_family) {
			union cm_addr b;
			uint8_t x[16], y[16];

			memcpy(&b, i->ifa_addr, cm_addr_size(a));
			bare(a, x);
			bare(&b, y);
			own = !memcmp(x, y, 16);
		}
	freeifaddrs(list);
	return own;
}

/* The device at an address that is not any, in whatever process; or SD_NO_DEV */
static unsigned device_at(const union cm_addr *a)
{
	uint8_t gid[16];
	unsigned dev;

	bare(a, gid);
	if (a->sa.sa_family == AF_IB && !sd_link_ib())
		return SD_NO_DEV;
	dev = sd_ip_dev(gid);
	return dev == SD_NO_DEV && machines_own(a) ? 0 : dev;
}

/* On InfiniBand the one GID, on RoCE that of version 2 and of the same kind of address */
unsigned cm_gid_index(const struct cm_id *id)
{
	return sd_link_ib() ? 0 : id->src.sa.sa_family == AF_INET6 && !any(&id->src) ? 1 : 3;
}

static void own_addr(unsigned dev, union cm_addr *a)
{
	union ibv_gid g;

	switch (a->sa.sa_family) {
	case AF_INET:
		a->in.sin_addr.s_addr = htonl(0x0a000001 + dev);
		break;
	case AF_INET6:
		if (!sd_gid(dev, 0, &g, NULL))
			memcpy(&a->in6.sin6_addr, g.raw, 16);
		break;
	default:
		if (!sd_gid(dev, 0, &g, NULL))
			memcpy(&a->ib.sib_addr, g.raw, 16);
	}
}

/* ---- ports ---- */

struct record {
	uint64_t inst;            /* 0: free */
	uint32_t slot, num;
	uint16_t ps, port, family;
	uint8_t reuse, afonly, listens, devices;
	uint8_t dev;              /* SD_NO_DEV: any */
	uint8_t any;
	uint8_t addr[16];
};

/* softdev/tests/rdmacm.t looks there for a server that listens */
_Static_assert(sizeof(struct record) == 48 && offsetof(struct record, listens) == 24, "records as in rdmacm.t");

static SD_OWN struct record *records;           /* as last read; those of processes that have ended are free */
static SD_OWN unsigned record_cnt;
static SD_OWN int ports_fd = -1;

static struct record record_of(const struct cm_id *id)
{
	struct record r = {
		.inst = sd_fabric_instance(sd_slot), .slot = sd_slot, .num = id->num, .ps = id->bound_ps,
		.port = id->port, .family = id->src.sa.sa_family, .reuse = id->reuse, .afonly = id->afonly,
		.listens = id->state == CM_LISTEN, .devices = sd_all_ports(), .dev = id->dev, .any = any(&id->src),
	};

	bare(&id->src, r.addr);
	return r;
}

/* A stepped device is alone, and so are its ports */
static int ports_open(void)
{
	char path[PATH_MAX + 16];
	const char *dir = sd_stepped() ? NULL : sd_fabric_dir();

	if (ports_fd < 0 && sd_stepped())
		ports_fd = memfd_create("cm.ports", MFD_CLOEXEC);
	if (ports_fd < 0 && dir) {
		snprintf(path, sizeof(path), "%s/cm.ports", dir);
		ports_fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	}
	return ports_fd < 0 ? errno : 0;
}

/* A lock on it is one of both processes */
void sd_cm_forked(void)
{
	if (ports_fd >= 0)
		close(ports_fd);
}

static int ports_lock(void)
{
	int err = ports_open();
	struct record *more;
	struct stat st;

	while (!err && flock(ports_fd, LOCK_EX))
		err = errno == EINTR ? 0 : errno;
	if (err)
		return err;
	record_cnt = fstat(ports_fd, &st) ? 0 : st.st_size / sizeof(*records);
	more = realloc(records, (record_cnt + 1) * sizeof(*records));
	if (!more || pread(ports_fd, more, record_cnt * sizeof(*more), 0) < 0) {
		flock(ports_fd, LOCK_UN);
		return ENOMEM;
	}
	records = more;
	for (unsigned i = 0; i < record_cnt; i++)
		if (records[i].inst && sd_fabric_instance(records[i].slot) != records[i].inst)
			records[i].inst = 0;
	return 0;
}

static void ports_unlock(void)
{
	flock(ports_fd, LOCK_UN);
}

static int publish(const struct cm_id *id)
{
	struct record r = record_of(id);

	return pwrite(ports_fd, &r, sizeof(r), (off_t)id->record * sizeof(r)) == sizeof(r) ? 0 : EIO;
}

static bool taken(uint16_t ps, uint16_t port)
{
	for (unsigned i = 0; i < record_cnt; i++)
		if (records[i].inst && records[i].ps == ps && records[i].port == port)
			return true;
	return false;
}

/* May id have that port beside those that have it already? */
static int check_port(const struct cm_id *id, uint16_t port, bool reuse)
{
	const struct record me = record_of(id);

	for (unsigned i = 0; i < record_cnt; i++) {
		const struct record *r = &records[i];

		if (!r->inst || r->ps != id->bound_ps || r->port != port || (r->num == id->num && r->slot == me.slot))
			continue;
		if ((!r->listens && reuse && r->reuse) || (me.afonly && r->afonly && me.family != r->family))
			continue;
		if (me.any || r->any)
			return EADDRNOTAVAIL;
		if (me.family == r->family && !memcmp(me.addr, r->addr, 16))
			return EADDRINUSE;
	}
	return 0;
}

/* Which port space does it belong to? An InfiniBand address names its own */
static uint16_t port_space(struct cm_id *id)
{
	static const uint16_t spaces[] = { RDMA_PS_IB, RDMA_PS_TCP, RDMA_PS_UDP };
	uint64_t mask = be64toh(id->src.ib.sib_sid_mask) & PS_MASK, sid = be64toh(id->src.ib.sib_sid) & mask;

	if (id->src.sa.sa_family != AF_IB)
		return id->ps;
	for (unsigned i = 0; i < 3; i++)
		if ((id->ps == RDMA_PS_IB || id->ps == spaces[i]) && sid == (SID_PS(spaces[i]) & mask)) {
			id->src.ib.sib_sid = htobe64(SID_PS(spaces[i]) | port_of(&id->src));
			id->src.ib.sib_sid_mask = htobe64(be64toh(id->src.ib.sib_sid_mask) | PS_MASK);
			return spaces[i];
		}
	return 0;
}

static int take_port(struct cm_id *id)
{
	uint16_t port = port_of(&id->src), start;
	unsigned i;
	int err;

	id->bound_ps = port_space(id);
	if (!id->bound_ps)
		return EPROTONOSUPPORT;
	if (port && port < 1024 && geteuid())
		return EACCES;
	err = ports_lock();
	if (err)
		return err;
	if (port) {
		err = check_port(id, port, id->reuse);
	} else {
		if (getrandom(&start, sizeof(start), GRND_NONBLOCK) != sizeof(start))
			start = id->num;
		for (i = 0; i < PORTS; i++) {
			port = FIRST_PORT + (start + i) % PORTS;
			if (!taken(id->bound_ps, port))
				break;
		}
		err = i < PORTS ? 0 : EADDRNOTAVAIL;
	}
	if (!err) {
		id->port = port;
		for (i = 0; i < record_cnt && records[i].inst; i++)
			;
		id->record = i;
		set_port(&id->src, port);
		err = publish(id);
	}
	if (err)
		id->port = 0;
	ports_unlock();
	return err;
}

void cm_unbind(struct cm_id *id)
{
	const struct record none = { .inst = 0 };

	if (id->port && pwrite(ports_fd, &none, sizeof(none), (off_t)id->record * sizeof(none)) < 0)
		sd_once(0xffff0020, "cm.ports: %s", strerror(errno));
	id->port = 0;
}

/* ---- bind, listen, resolve ---- */

int cm_bind(struct cm_id *id, const union cm_addr *a)
{
	int err;

	if (id->state != CM_IDLE || (class_of(a) == LINK_LOCAL && !a->in6.sin6_scope_id))
		return EINVAL;
	id->src = *a;
	id->dev = any(a) ? SD_NO_DEV : device_at(a);
	if (!any(a) && id->dev >= sd_all_ports()) {
		err = EADDRNOTAVAIL;
	} else {
		if (!id->afonly_set)
			id->afonly = a->sa.sa_family == AF_INET;
		id->state = CM_BOUND;
		err = take_port(id);
	}
	if (err) {
		id->state = CM_IDLE;
		id->dev = SD_NO_DEV;
		memset(&id->src, 0, sizeof(id->src));
	}
	return err;
}

int cm_listen(struct cm_id *id)
{
	static const union cm_addr nowhere = { .in = { .sin_family = AF_INET } };
	int err = id->state == CM_IDLE ? cm_bind(id, &nowhere) : 0;

	if (err)
		return err;
	if (id->state != CM_BOUND)
		return EINVAL;
	err = ports_lock();
	if (err)
		return err;
	if (id->reuse)
		err = check_port(id, id->port, false);
	if (!err) {
		id->state = CM_LISTEN;
		err = publish(id);
	}
	ports_unlock();
	return err;
}

int cm_resolve_addr(struct cm_id *id, const union cm_addr *src, const union cm_addr *dst, uint32_t ms)
{
	union cm_addr nowhere = { .sa = { .sa_family = dst->sa.sa_family } };
	const enum class class = class_of(dst);
	uint8_t ip[16];
	int err = 0;

	if (id->state == CM_IDLE) {
		nowhere.ib.sib_pkey = dst->sa.sa_family == AF_IB ? dst->ib.sib_pkey : 0;
		err = cm_bind(id, src->sa.sa_family ? src : &nowhere);
	}
	if (err)
		return err;
	if (id->state != CM_BOUND || id->src.sa.sa_family != dst->sa.sa_family)
		return EINVAL;
	id->dst = *dst;
	if (class <= GROUP)
		id->rdev = id->dev != SD_NO_DEV ? id->dev : 0;
	else
		id->rdev = device_at(dst);
	if (id->rdev == SD_NO_DEV) {
		if (dst->sa.sa_family == AF_IB)
			return ENODEV;
		bare(dst, ip);
		id->state = CM_ADDR_QUERY;
		if (class != LINK_LOCAL && memcmp(ip + 12, (const uint8_t[]){ 10, 0, 0 }, 3) != 0)
			cm_addr_failed(id, -ENODEV);
		else if (sd_stepped())
			cm_addr_failed(id, -ETIMEDOUT);
		else
			cm_timer(id, ms * 1000000ull + 1);
		return 0;
	}
	if (id->dev == SD_NO_DEV) {
		id->dev = id->rdev < sd_all_ports() ? id->rdev : 0;
		/* The way to an own address begins there */
		if (id->dev == id->rdev && class != GROUP && class != ZERO) {
			id->src = *dst;
			if (dst->sa.sa_family == AF_IB)
				id->src.ib.sib_sid = htobe64(SID_PS(id->bound_ps));
			set_port(&id->src, id->port);
		} else {
			own_addr(id->dev, &id->src);
		}
	}
	id->state = CM_HAS_ADDR;
	cm_event(id, CM_ADDR_RESOLVED, 0, NULL, 0);
	return 0;
}

void cm_addr_failed(struct cm_id *id, int status)
{
	id->state = CM_BOUND;
	cm_event(id, CM_ADDR_ERROR, status, NULL, 0);
}

int cm_resolve_route(struct cm_id *id)
{
	struct ibv_path_record *p = &id->path;
	const bool ib = sd_link_ib(), group = class_of(&id->dst) == GROUP;

	if (id->state != CM_HAS_ADDR)
		return EINVAL;
	/* The subnet's manager knows ways to ports alone */
	if (ib && group) {
		cm_event(id, CM_ROUTE_ERROR, -EINVAL, NULL, 0);
		return 0;
	}
	memset(p, 0, sizeof(*p));
	p->service_id = htobe64(cm_service(id, &id->dst));
	sd_gid(id->dev, cm_gid_index(id), &p->sgid, NULL);
	if (group)
		cm_group(id, &id->dst, p->dgid.raw, &p->dlid);
	else
		sd_gid(id->rdev, cm_gid_index(id), &p->dgid, NULL);
	p->slid = htobe16(sd_lid(id->dev));
	p->dlid = htobe16(sd_lid(id->rdev));
	p->flowlabel_hoplimit = htobe32(ib ? 0 : 64);
	p->tclass = ib ? 0 : id->tos;
	p->reversible_numpath = 0x81;
	p->pkey = htobe16(0xffff);
	p->mtu = 2 << 6 | IBV_MTU_4096;
	p->rate = 2 << 6 | IBV_RATE_100_GBPS;
	p->packetlifetime = 2 << 6 | CM_LIFETIME;
	id->has_path = true;
	id->state = CM_HAS_ROUTE;
	cm_event(id, CM_ROUTE_RESOLVED, 0, NULL, 0);
	return 0;
}

/*
 * The GID of an IP group: on RoCE its address, on InfiniBand as IPoIB maps it, but signed by the
 * connection manager
 */
int cm_group(const struct cm_id *id, const union cm_addr *a, uint8_t mgid[16], uint16_t *mlid)
{
	uint8_t ip[16];
	uint32_t hash = 0;

	*mlid = 0;
	memset(mgid, 0, 16);
	if (class_of(a) != GROUP)
		return EINVAL;
	bare(a, ip);
	if (!sd_link_ib() || a->sa.sa_family == AF_IB) {
		memcpy(mgid, ip, 16);
	} else {
		mgid[0] = 0xff;
		mgid[1] = 0x12;
		mgid[2] = a->sa.sa_family == AF_INET ? 0x40 : 0x60;
		mgid[3] = id->ps == RDMA_PS_UDP ? 0x01 : 0x1b;
		mgid[4] = mgid[5] = 0xff;
		if (a->sa.sa_family == AF_INET) {
			memcpy(mgid + 12, ip + 12, 4);
			mgid[12] &= 0xf;
		} else {
			memcpy(mgid + 6, ip + 6, 10);
		}
	}
	for (unsigned i = 0; sd_link_ib() && i < 16; i++)
		hash = hash * 31 + mgid[i];
	if (sd_link_ib())
		*mlid = 0xc000 + hash % 0x3fff;
	return 0;
}

/* ---- services ---- */

/* Does what is recorded answer to the service, and to that address of it? */
static bool serves(const struct record *r, const struct cm_msg *m, bool *here)
{
	uint8_t addr[16];

	if (!r->listens || r->ps != m->ps || r->port != m->port)
		return false;
	if (r->dev != SD_NO_DEV ? r->dev != m->to_dev : m->to_dev >= r->devices)
		return false;
	bare(&m->dst, addr);
	*here = r->any ? !r->afonly || r->family == m->dst.sa.sa_family :
			 r->family == m->dst.sa.sa_family && !memcmp(r->addr, addr, 16);
	return true;
}

bool cm_listens(const struct cm_id *id, const struct cm_msg *m)
{
	const struct record r = record_of(id);
	bool here;

	return id->port && serves(&r, m, &here) && here;
}

int cm_find_service(const struct cm_msg *m, unsigned *slot, uint64_t *inst)
{
	int why = CM_REJ_SERVICE;
	bool here;

	if (ports_lock())
		return why;
	ports_unlock();
	for (unsigned i = 0; i < record_cnt; i++) {
		if (!records[i].inst || !serves(&records[i], m, &here))
			continue;
		*slot = records[i].slot;
		*inst = records[i].inst;
		if (here)
			return 0;
		why = CM_REJ_CONSUMER;
	}
	return why;
}
