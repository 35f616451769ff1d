/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * av.c: address vector. An fi_addr_t is the place of a name in an array, for maps as for tables.
 */
#include "fabric.h"

static struct av *av_from(struct fid_av *fid)
{
	return container_of(fid, struct av, fid);
}

fi_addr_t av_find(const struct av *av, const struct name *name)
{
	size_t i;

	for (i = 0; i < av->count; i++)
		if (!memcmp(&av->names[i], name, sizeof(*name)))
			return i;
	return FI_ADDR_NOTAVAIL;
}

/* A place at the end; a table keeps the places of what was removed, a map uses them again. */
static int av_place(struct av *av, size_t *place)
{
	struct name *names;
	size_t i, room;

	for (i = av->type == FI_AV_MAP ? 0 : av->count; i < av->count; i++)
		if (!av->names[i].incarnation)
			break;
	if (i == av->room) {
		room = av->room ? 2 * av->room : 64;
		names = (struct name *)realloc(av->names, room * sizeof(*names));
		if (!names)
			return -FI_ENOMEM;
		av->names = names;
		av->room = room;
	}
	*place = i;
	av->count += i == av->count;
	return 0;
}

static int av_insert_one(struct av *av, const struct name *name, fi_addr_t *addr)
{
	struct inlay_connect_record record;
	struct endpoint *ep;
	const char *why;
	size_t place;
	int err;

	err = inlay_connect_unpack(&record, name->record, sizeof(name->record), &why);
	if (err || record.type != IBV_QPT_UD || !name->incarnation) {
		WARN(FI_LOG_AV, "not an address of this provider: %s\n", err ? why : "no UD queue pair");
		return -FI_EINVAL;
	}
	err = av_place(av, &place);
	if (err)
		return err;
	av->names[place] = *name;
	*addr = place;
	for (ep = av->endpoints; ep; ep = ep->next_of_av)
		peer_named(ep, place);
	return 0;
}

static int av_insert(struct fid_av *fid, const void *addr, size_t count, fi_addr_t *out, uint64_t flags, void *context)
{
	struct av *av = av_from(fid);
	int *errors = flags & FI_SYNC_ERR ? (int *)context : NULL, good = 0, err;
	fi_addr_t place;
	struct name name;
	size_t i;

	domain_enter(av->domain);
	for (i = 0; i < count; i++) {
		memcpy(&name, (const uint8_t *)addr + i * sizeof(name), sizeof(name)); /* of any alignment */
		place = FI_ADDR_NOTAVAIL;
		err = av_insert_one(av, &name, &place);
		if (out)
			out[i] = place;
		if (errors)
			errors[i] = -err;
		good += !err;
	}
	domain_leave(av->domain);
	return good;
}

static int av_remove(struct fid_av *fid, fi_addr_t *addr, size_t count, uint64_t flags)
{
	struct av *av = av_from(fid);
	struct endpoint *ep;
	size_t i;
	int err = 0;

	(void)flags;
	domain_enter(av->domain);
	for (i = 0; i < count; i++) {
		if (addr[i] >= av->count || !av->names[addr[i]].incarnation) {
			err = -FI_EINVAL;
			continue;
		}
		for (ep = av->endpoints; ep; ep = ep->next_of_av)
			peer_forget(ep, addr[i]);
		memset(&av->names[addr[i]], 0, sizeof(av->names[0]));
	}
	domain_leave(av->domain);
	return err;
}

static int av_lookup(struct fid_av *fid, fi_addr_t addr, void *out, size_t *len)
{
	struct av *av = av_from(fid);
	int err = 0;

	domain_enter(av->domain);
	if (addr < av->count && av->names[addr].incarnation)
		memcpy(out, &av->names[addr], *len < sizeof(struct name) ? *len : sizeof(struct name));
	else
		err = -FI_EINVAL;
	domain_leave(av->domain);
	*len = sizeof(struct name);
	return err;
}

static const char *av_straddr(struct fid_av *fid, const void *addr, char *buf, size_t *len)
{
	struct inlay_connect_record r;
	struct name name;
	char gid[48], text[128];
	int n, i;

	(void)fid;
	memcpy(&name, addr, sizeof(name));
	if (inlay_connect_unpack(&r, name.record, sizeof(name.record), NULL)) {
		n = snprintf(text, sizeof(text), "inlay://?");
	} else {
		for (i = n = 0; i < 16; i += 2)
			n += snprintf(gid + n, sizeof(gid) - (size_t)n, "%s%02x%02x", i ? ":" : "", r.gid[i],
				      r.gid[i + 1]);
		n = snprintf(text, sizeof(text), "inlay://[%s]:0x%06x/%u/%016llx", gid, r.qpn, r.lid,
			     (unsigned long long)name.incarnation);
	}
	if (*len)
		strncpy(buf, text, *len - 1)[*len - 1] = 0;
	*len = (size_t)n + 1;
	return buf;
}

static int av_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	(void)fid, (void)flags;
	return other->fclass == FI_CLASS_EQ ? 0 : -FI_EINVAL; /* of which nothing ever comes: see eq.c */
}

static int av_close(struct fid *fid)
{
	struct av *av = container_of(fid, struct av, fid.fid);

	if (av->users)
		return -FI_EBUSY;
	av->domain->users--;
	free(av->names);
	free(av);
	return 0;
}

static struct fi_ops fid_ops = {
	sizeof(struct fi_ops), av_close, av_bind, no_control, no_ops_open, no_tostr, no_ops_set,
};
static struct fi_ops_av av_ops = {
	sizeof(struct fi_ops_av), av_insert, no_insertsvc, no_insertsym, av_remove, av_lookup, av_straddr, no_av_set,
};

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
	av->type = attr->type == FI_AV_UNSPEC ? FI_AV_TABLE : attr->type;
	attr->type = av->type;
	av->fid.fid.fclass = FI_CLASS_AV;
	av->fid.fid.context = context;
	av->fid.fid.ops = &fid_ops;
	av->fid.ops = &av_ops;
	*out = &av->fid;
	return 0;
}
