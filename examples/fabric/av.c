/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * av.c: address vector. An fi_addr_t is an index into an array of addresses, for maps and tables
 * alike. A removed address keeps its index.
 */
#include "fabric.h"
#include <arpa/inet.h>

static bool taken(const struct av *av, fi_addr_t addr)
{
	return addr < av->count && av->entries[addr].name.incarnation;
}

static uint32_t bucket(const struct name *name)
{
	return (uint32_t)(name->incarnation * 0x9e3779b97f4a7c15u >> 32) % BUCKETS;
}

fi_addr_t av_find(const struct av *av, const struct name *name)
{
	uint32_t n = av->buckets[bucket(name)];

	while (n && memcmp(&av->entries[n - 1].name, name, sizeof(*name)))
		n = av->entries[n - 1].next;
	return n ? n - 1 : FI_ADDR_NOTAVAIL;
}

static int insert_one(struct av *av, const struct name *name, fi_addr_t *addr)
{
	const size_t room = av->room ? 2 * av->room : 64;
	const char *why = "no UD queue pair";
	struct inlay_connect_record record;
	struct entry *entries;

	if (inlay_connect_unpack(&record, name->record, sizeof(name->record), &why) || record.type != IBV_QPT_UD ||
	    !name->incarnation) {
		WARN(FI_LOG_AV, "not an address of this provider: %s\n", why);
		return FI_EINVAL;
	}
	if (av->count == av->room) {
		entries = (struct entry *)realloc(av->entries, room * sizeof(*entries));
		if (!entries)
			return FI_ENOMEM;
		av->entries = entries;
		av->room = room;
	}
	*addr = av->count++;
	av->entries[*addr].name = *name;
	av->entries[*addr].next = av->buckets[bucket(name)];
	av->buckets[bucket(name)] = (uint32_t)av->count;
	for (uint32_t i = 0; i < av->endpoints.count; i++)
		peer_named(av->endpoints.list[i], *addr, &record);
	return 0;
}

static int av_insert(struct fid_av *fid, const void *addr, size_t count, fi_addr_t *out, uint64_t flags, void *context)
{
	struct av *av = container_of(fid, struct av, fid);
	int good = 0, err;
	struct name name;
	size_t i;

	enter(av->domain);
	for (i = 0; i < count; i++) {
		fi_addr_t place = FI_ADDR_NOTAVAIL;

		memcpy(&name, (const uint8_t *)addr + i * sizeof(name), sizeof(name));
		err = insert_one(av, &name, &place);
		if (out)
			out[i] = place;
		if (flags & FI_SYNC_ERR)
			((int *)context)[i] = err;
		good += !err;
	}
	return (int)leave(av->domain, good);
}

static int av_remove(struct fid_av *fid, fi_addr_t *addr, size_t count, uint64_t flags)
{
	struct av *av = container_of(fid, struct av, fid);
	uint32_t k;
	int err = 0;

	enter(av->domain);
	for (size_t i = 0; i < count; i++) {
		if (!taken(av, addr[i])) {
			err = -FI_EINVAL;
			continue;
		}
		for (k = 0; k < av->endpoints.count; k++)
			peer_forget(av->endpoints.list[k], addr[i]);
		memset(&av->entries[addr[i]].name, 0, sizeof(struct name)); /* it stays listed */
	}
	return (int)leave(av->domain, err);
}

static int av_lookup(struct fid_av *fid, fi_addr_t addr, void *out, size_t *len)
{
	struct av *av = container_of(fid, struct av, fid);
	bool there;

	enter(av->domain);
	there = taken(av, addr);
	if (there)
		memcpy(out, &av->entries[addr].name, *len < sizeof(struct name) ? *len : sizeof(struct name));
	*len = sizeof(struct name);
	return (int)leave(av->domain, there ? 0 : -FI_EINVAL);
}

static const char *av_straddr(struct fid_av *fid, const void *addr, char *buf, size_t *len)
{
	struct inlay_connect_record r;
	struct name name;
	char gid[INET6_ADDRSTRLEN], text[128] = "inlay://?";

	memcpy(&name, addr, sizeof(name));
	if (!inlay_connect_unpack(&r, name.record, sizeof(name.record), NULL))
		sprintf(text, "inlay://[%s]:0x%06x/%u/%016lx", inet_ntop(AF_INET6, r.gid, gid, sizeof(gid)), r.qpn, r.lid,
			(unsigned long)name.incarnation);
	if (*len)
		strncpy(buf, text, *len - 1)[*len - 1] = 0;
	*len = strlen(text) + 1;
	return buf;
}

static int av_close(struct fid *fid)
{
	struct av *av = container_of(fid, struct av, fid.fid);

	if (av->endpoints.count)
		return -FI_EBUSY;
	av->domain->users--;
	free(av->endpoints.list);
	free(av->entries);
	free(av);
	return 0;
}

static struct fi_ops fid_ops = FID_OPS(av_close, eq_bind, no_control);
static struct fi_ops_av av_ops = {sizeof(struct fi_ops_av), av_insert, no_insertsvc, no_insertsym, av_remove,
	av_lookup, av_straddr, NULL};

int av_open(struct fid_domain *fid, struct fi_av_attr *attr, struct fid_av **out, void *context)
{
	struct av *av;

	if (attr->name || attr->rx_ctx_bits || attr->flags & ~(uint64_t)FI_SYMMETRIC)
		return -FI_ENOSYS;
	av = (struct av *)calloc(1, sizeof(*av));
	if (!av)
		return -FI_ENOMEM;
	av->domain = container_of(fid, struct domain, fid);
	av->domain->users++;
	if (attr->type == FI_AV_UNSPEC)
		attr->type = FI_AV_TABLE;
	av->fid = (struct fid_av){{FI_CLASS_AV, context, &fid_ops}, &av_ops};
	*out = &av->fid;
	return 0;
}
