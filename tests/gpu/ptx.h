/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs the integer subset of PTX that nvcc and clang write for inlay's kernels: one instruction at a time of one thread, so that a
 * test decides who runs. Addresses are those of this process. Stops the test at any instruction that it does not know.
 *
 *   struct ptx ptx;
 *   ptx_read(&ptx, "kernels.ptx");
 *   thread.memory = &ptx_plain;
 *   ptx_start(&thread, &ptx, "write", (uint64_t[]){...});
 *   while (ptx_step(&thread))
 *           ;
 *
 * Where loads, stores, atomics and fences go is the business of struct ptx_memory: ptx_plain acts on this process's memory at once.
 */
#ifndef PTX_H
#define PTX_H

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PTX_NAME = 128, PTX_ARGS = 12, PTX_CALLS = 4, PTX_LOCAL = 1024 };

enum ptx_order { PTX_WEAK, PTX_RELAXED, PTX_ACQUIRE, PTX_RELEASE, PTX_MMIO, PTX_ATOMIC };

struct ptx_thread;
struct ptx_memory {
	uint64_t (*load)(struct ptx_thread *, uint64_t at, uint32_t bytes, enum ptx_order);
	void (*store)(struct ptx_thread *, uint64_t at, uint32_t bytes, uint64_t value, enum ptx_order);
	void (*fence)(struct ptx_thread *);
	void (*meet)(struct ptx_thread *, struct ptx_thread *); /* at a barrier, after a fence of both: either knows what the other knows */
};

struct ptx_arg { /* a register, an immediate, or a list of registers */
	uint8_t is_reg, of;  /* of: how many, if a list in braces */
	uint32_t reg[4];
	uint64_t value;      /* or the offset in an address */
};

struct ptx_op {
	char name[48];       /* with its suffixes, for messages */
	uint8_t what, bytes, from, is_signed, negated, compare, combine, wide, high, space, order, atomic;
	int32_t guard;       /* predicate register, or -1 */
	uint32_t num, target;
	struct ptx_arg arg[PTX_ARGS];
	char text[PTX_NAME]; /* a label or a function */
};

struct ptx_function {
	char name[PTX_NAME];
	struct ptx_op *code;
	uint32_t ops, regs, params, returns;
	char (*reg)[PTX_NAME];
	uint32_t param_reg[PTX_ARGS], return_reg;
};

struct ptx {
	struct ptx_function function[48];
	uint32_t functions;
};

struct ptx_thread {
	const struct ptx *ptx;
	struct {
		const struct ptx_function *f;
		uint32_t at;
		uint64_t *reg;
	} frame[PTX_CALLS];
	uint32_t depth, lane, waits; /* waits: mask of a barrier that the thread has come to */
	uint64_t exchange;           /* what it gave to a shuffle */
	uint64_t executed, net;      /* net: without moves, conversions and parameters */
	uint32_t atomics, fences, doorbells;
	const struct ptx_memory *memory;
	uint8_t local[PTX_LOCAL] __attribute__((aligned(16)));
	void *own;                   /* the memory's */
};

#define PTX_WHATS(X) X(ld) X(st) X(atom) X(fence) X(mov) X(cvta) X(cvt) X(add) X(sub) X(mul) X(mad) X(and) X(or) X(xor) X(not) X(neg) \
	X(shl) X(shr) X(bfe) X(bfi) X(prmt) X(shf) X(lop3) X(selp) X(setp) X(min) X(max) X(popc) X(clz) X(bfind) X(bra) X(ret) X(call) \
	X(shfl) X(vote) X(bar) X(trap) X(nop)
#define PTX_ENUM(name) PTX_##name,
#define PTX_STRING(name) #name,
enum ptx_what { PTX_WHATS(PTX_ENUM) PTX_END };

#define ptx_fail(...) (fprintf(stderr, "ptx: " __VA_ARGS__), fputc('\n', stderr), abort())

/* ---- Reading ---- */

enum { PTX_LANE = 2, PTX_ARRAY }; /* a register that is the thread's number; a function's only array */

static uint32_t ptx_reg(struct ptx_function *f, const char *name, size_t len)
{
	for (uint32_t i = 0; i < f->regs; i++)
		if (strlen(f->reg[i]) == len && !memcmp(f->reg[i], name, len))
			return i;
	if (f->regs % 64 == 0)
		f->reg = (char(*)[PTX_NAME])realloc(f->reg, (f->regs + 64) * sizeof(*f->reg));
	if (len >= PTX_NAME)
		ptx_fail("%.*s: a long name", (int)len, name);
	memcpy(f->reg[f->regs], name, len);
	f->reg[f->regs][len] = 0;
	return f->regs++;
}

/* One operand: a register, a number, {a, b}, [a+4] or (a); the brackets are dropped. Returns what follows. */
static const char *ptx_operand(struct ptx_function *f, const char *s, struct ptx_arg *arg)
{
	const char *word;
	char close = 0;

	memset(arg, 0, sizeof(*arg));
	s += strspn(s, " \t,");
	if (*s == '{' || *s == '[' || *s == '(') {
		close = *s == '{' ? '}' : *s == '[' ? ']' : ')';
		s++;
	}
	do {
		s += strspn(s, " \t,!");
		word = s;
		if (isdigit((unsigned char)*s) || *s == '-') {
			char *end;
			uint64_t v = *s == '-' ? (uint64_t)strtoll(s, &end, 0) : strtoull(s, &end, 0);

			s = end + (*end == 'U');
			arg->value += v;
		} else {
			s += strcspn(s, " \t,;}])+");
			arg->is_reg = !strncmp(word, "%laneid", 7) || !strncmp(word, "%tid.x", 6) ? PTX_LANE :
				      !strncmp(word, "__local_depot", 13) ? PTX_ARRAY : 1;
			if (arg->of == 4)
				ptx_fail("a long list: %s", word);
			arg->reg[arg->of++] = ptx_reg(f, word, (size_t)(s - word));
		}
		s += strspn(s, " \t");
		if (*s == '+') { /* an offset */
			char *end;

			arg->value = (uint64_t)strtoll(s + 1, &end, 0);
			s = end + strspn(end, " \t");
		}
	} while (close && *s == ',');
	if (close) {
		if (*s != close)
			ptx_fail("no %c at %s", close, s);
		s++;
	}
	return s + strspn(s, " \t");
}

static uint8_t ptx_width(const char *type)
{
	return !strcmp(type, "pred") ? 1 : (uint8_t)(atoi(type + 1) / 8);
}

static void ptx_instruction(struct ptx_function *f, const char *s)
{
	static const char *const whats[] = {PTX_WHATS(PTX_STRING)};
	static const char *const compares[] = {"eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs"};
	char name[48], *part, *rest = NULL;
	struct ptx_op *op;
	uint32_t i, types = 0;

	if (f->ops % 64 == 0)
		f->code = (struct ptx_op *)realloc(f->code, (f->ops + 64) * sizeof(*f->code));
	op = &f->code[f->ops++];
	memset(op, 0, sizeof(*op));
	op->guard = -1;
	op->compare = op->combine = 0xff;
	if (*s == '@') {
		const char *end = s + strcspn(s, " \t");

		op->negated = s[1] == '!';
		s += 1 + op->negated;
		op->guard = (int32_t)ptx_reg(f, s, (size_t)(end - s));
		s = end + strspn(end, " \t");
	}
	i = (uint32_t)strcspn(s, " \t;");
	snprintf(op->name, sizeof(op->name), "%.*s", (int)i, s);
	strcpy(name, op->name);
	s += i + strspn(s + i, " \t");
	for (part = strtok_r(name, ".", &rest); part; part = strtok_r(NULL, ".", &rest)) {
		uint32_t k;

		if (part == name) {
			for (k = 0; k < PTX_END && strcmp(whats[k], part); k++)
				;
			op->what = (uint8_t)(!strcmp(part, "membar") ? (uint32_t)PTX_fence : !strcmp(part, "exit") ? (uint32_t)PTX_ret : k);
			if (op->what == PTX_END)
				ptx_fail("unknown: %s", op->name);
			continue;
		}
		for (k = 0; k < 10; k++)
			if (op->what == PTX_setp && !strcmp(part, compares[k]))
				op->compare = (uint8_t)(k < 6 ? k : k - 4);
		if (strchr("busf", *part) && isdigit((unsigned char)part[1]) && *part != 'f') {
			op->from = ptx_width(part);
			if (!types++)
				op->bytes = op->from;
			op->is_signed = *part == 's';
		}
		if (!strcmp(part, "pred"))
			op->bytes = 1, op->from = 1;
		op->wide |= !strcmp(part, "wide") || !strcmp(part, "l");
		op->high |= !strcmp(part, "hi") && op->what != PTX_setp;
		if (!strcmp(part, "param"))
			op->space = 'p';
		if (op->what == PTX_atom && (!strcmp(part, "cas") || !strcmp(part, "exch") || !strcmp(part, "add")))
			op->atomic = (uint8_t)*part;
		if (op->what == PTX_setp && (!strcmp(part, "and") || !strcmp(part, "or")))
			op->combine = *part == 'a';
		if (!strcmp(part, "relaxed") || !strcmp(part, "volatile"))
			op->order = op->order == PTX_MMIO ? PTX_MMIO : PTX_RELAXED;
		if (!strcmp(part, "acquire"))
			op->order = PTX_ACQUIRE;
		if (!strcmp(part, "release"))
			op->order = PTX_RELEASE;
		if (!strcmp(part, "mmio"))
			op->order = PTX_MMIO;
	}
	if ((op->what == PTX_fence || op->order == PTX_MMIO) && !strstr(op->name, ".sys"))
		ptx_fail("%s: the device is outside of its scope", op->name);
	if (op->what == PTX_bra) {
		snprintf(op->text, sizeof(op->text), "%.*s", (int)strcspn(s, " \t;"), s);
		return;
	}
	if (op->what == PTX_call) { /* call (ret), name, (a, b); */
		if (*s == '(')
			s = ptx_operand(f, s, &op->arg[0]) , op->num = 1;
		s += strspn(s, " \t,");
		snprintf(op->text, sizeof(op->text), "%.*s", (int)strcspn(s, " \t,;"), s);
		s += strcspn(s, ",;");
		s += strspn(s, " \t,");
		if (*s == '(') {
			for (s++; *s != ')'; s += strspn(s, " \t,"))
				s = ptx_operand(f, s, &op->arg[1 + op->target++]);
		}
		return;
	}
	while (*s && *s != ';') {
		if (op->num == PTX_ARGS)
			ptx_fail("%s: too many operands", op->name);
		/* setp.lt.and.u32 p, a, b, !q */
		if (op->what == PTX_setp && op->num == 3 && strchr(s, '!'))
			op->wide = 1;
		s = ptx_operand(f, s, &op->arg[op->num++]);
	}
}

/* The kernels as a compiler made them: `make` has put them into $B/gpu. Returns 0 if they are not there. */
static int ptx_find_file(const char *compiler, char *path, size_t len)
{
	FILE *file;

	snprintf(path, len, "%s/gpu/%s.ptx", getenv("B") ? getenv("B") : "build", compiler);
	file = fopen(path, "r");
	return file ? !fclose(file) : 0;
}

/* Reads a file, and stops the test if it cannot. */
static void ptx_read(struct ptx *ptx, const char *path)
{
	struct ptx_label { uint32_t function, op; char name[32]; } *labels = NULL;
	char line[4096], statement[8192] = "";
	struct ptx_function *f = NULL;
	uint32_t i, k, n = 0;
	int depth = 0, in_head = 0;
	FILE *file = fopen(path, "r");

	if (!file)
		ptx_fail("%s cannot be read", path);
	memset(ptx, 0, sizeof(*ptx));
	while (fgets(line, sizeof(line), file)) {
		char *s = line + strspn(line, " \t"), *end = strstr(s, "//");

		if (end)
			*end = 0;
		for (end = s + strlen(s); end > s && isspace((unsigned char)end[-1]);)
			*--end = 0;
		if (!*s)
			continue;
		if (!depth && (strstr(s, ".entry") || strstr(s, ".func"))) {
			if (ptx->functions == 48)
				ptx_fail("%s: too many functions", path);
			f = &ptx->function[ptx->functions++];
			in_head = 1;
			statement[0] = 0;
		}
		if (in_head) {
			strcat(statement, s);
			strcat(statement, " ");
			if (*s == ';' || s[strlen(s) - 1] == ';') { /* a declaration */
				ptx->functions--;
				in_head = 0;
			} else if (*s == '{' || s[strlen(s) - 1] == '{') {
				char *open, *p = strstr(statement, ".entry") ? strstr(statement, ".entry") + 6 : strstr(statement, ".func") + 5;

				p += strspn(p, " \t");
				if (*p == '(') { /* (.param .b32 result) */
					char *close = strchr(p, ')'), *word = close;

					while (!isspace((unsigned char)word[-1]))
						word--;
					f->returns = 1;
					f->return_reg = ptx_reg(f, word, (size_t)(close - word));
					p = close + 1 + strspn(close + 1, " \t");
				}
				open = strchr(p, '(');
				snprintf(f->name, sizeof(f->name), "%.*s", (int)strcspn(p, " \t("), p);
				for (p = open + 1; *p != ')'; p++) {
					if (*p == ',' || p[1] == ')') {
						char *word, *stop = *p == ',' ? p : p + 1;

						while (isspace((unsigned char)stop[-1]))
							stop--;
						for (word = stop; !isspace((unsigned char)word[-1]); word--)
							;
						f->param_reg[f->params++] = ptx_reg(f, word, (size_t)(stop - word));
					}
				}
				in_head = 0;
				depth = 1;
				statement[0] = 0;
			}
			continue;
		}
		if (!depth)
			continue;
		/* Several statements on a line, or one on several lines */
		while (*s) {
			size_t len;

			s += strspn(s, " \t");
			if (!statement[0] && (*s == '{' || *s == '}')) {
				depth += *s++ == '{' ? 1 : -1;
				continue;
			}
			len = strcspn(s, ";");
			if (!statement[0] && s[len] != ';' && s[strlen(s) - 1] == ':') {
				if (n % 64 == 0)
					labels = (struct ptx_label *)realloc(labels, (n + 64) * sizeof(*labels));
				labels[n].function = ptx->functions - 1;
				labels[n].op = f->ops;
				snprintf(labels[n++].name, sizeof(labels->name), "%.*s", (int)strlen(s) - 1, s);
				break;
			}
			strncat(statement, s, len + (s[len] == ';'));
			strcat(statement, s[len] == ';' ? "" : " ");
			s += len + (s[len] == ';');
			if (!strchr(statement, ';'))
				break;
			if (statement[0] != '.')
				ptx_instruction(f, statement);
			statement[0] = 0;
		}
		if (!depth)
			f = NULL;
	}
	fclose(file);
	for (i = 0; i < ptx->functions; i++)
		for (k = 0; k < ptx->function[i].ops; k++) {
			struct ptx_op *op = &ptx->function[i].code[k];
			uint32_t to;

			if (op->what == PTX_bra) {
				for (to = 0; to < n && (labels[to].function != i || strcmp(labels[to].name, op->text)); to++)
					;
				if (to == n)
					ptx_fail("no label %s", op->text);
				op->target = labels[to].op;
			}
		}
	free(labels);
}

static const struct ptx_function *ptx_find(const struct ptx *ptx, const char *name)
{
	for (uint32_t i = 0; i < ptx->functions; i++)
		if (!strcmp(ptx->function[i].name, name))
			return &ptx->function[i];
	ptx_fail("no function %s", name);
}

/* ---- Running ---- */

static void ptx_enter(struct ptx_thread *t, const struct ptx_function *f)
{
	if (t->depth == PTX_CALLS)
		ptx_fail("%s: too many calls", f->name);
	t->frame[t->depth].f = f;
	t->frame[t->depth].at = 0;
	t->frame[t->depth].reg = (uint64_t *)calloc(f->regs + 1, sizeof(uint64_t));
	t->depth++;
}

static void ptx_leave(struct ptx_thread *t)
{
	free(t->frame[--t->depth].reg);
}

/* Starts a kernel. The thread is zeroed but for lane, memory and own. */
static void ptx_start(struct ptx_thread *t, const struct ptx *ptx, const char *name, const uint64_t *args)
{
	const struct ptx_function *f = ptx_find(ptx, name);

	t->ptx = ptx;
	ptx_enter(t, f);
	for (uint32_t i = 0; i < f->params; i++)
		t->frame[0].reg[f->param_reg[i]] = args[i];
}

static uint64_t ptx_mask(uint32_t bytes)
{
	return bytes >= 8 ? ~0ull : (1ull << 8 * bytes) - 1;
}

static uint64_t ptx_extend(uint64_t v, uint32_t bytes, int is_signed)
{
	v &= ptx_mask(bytes);
	return is_signed && bytes < 8 && v >> (8 * bytes - 1) ? v | ~ptx_mask(bytes) : v;
}

static uint64_t ptx_value(const struct ptx_thread *t, const struct ptx_arg *arg)
{
	switch (arg->is_reg) {
	case 0: return arg->value;
	case PTX_LANE: return t->lane;
	case PTX_ARRAY: return (uint64_t)(uintptr_t)(t->local + (t->depth - 1) * (PTX_LOCAL / PTX_CALLS));
	}
	return t->frame[t->depth - 1].reg[arg->reg[0]];
}

/* Executes an instruction. Returns 0 when the kernel has ended. A thread at a barrier does nothing: ptx_meet. */
static int ptx_step(struct ptx_thread *t)
{
	const struct ptx_function *f;
	const struct ptx_op *op;
	uint64_t *reg, a, b, c, v = 0, mask;
	uint32_t i, n, shift;

	if (!t->depth)
		return 0;
	if (t->waits)
		return 1;
	f = t->frame[t->depth - 1].f;
	reg = t->frame[t->depth - 1].reg;
	op = &f->code[t->frame[t->depth - 1].at++];
	t->executed++;
	t->atomics += op->what == PTX_atom;
	t->fences += op->what == PTX_fence;
	t->doorbells += op->order == PTX_MMIO;
	t->net += op->what != PTX_mov && op->what != PTX_cvt && op->what != PTX_cvta && op->space != 'p';
	if (op->guard >= 0 && (reg[op->guard] != 0) == op->negated)
		return 1;
	n = op->bytes ? op->bytes : 4;
	mask = ptx_mask(n);
	a = op->num > 1 ? ptx_value(t, &op->arg[1]) : 0;
	b = op->num > 2 ? ptx_value(t, &op->arg[2]) : 0;
	c = op->num > 3 ? ptx_value(t, &op->arg[3]) : 0;
	switch (op->what) {
	case PTX_ld:
		if (op->space == 'p') {
			v = reg[op->arg[1].reg[0]] >> 8 * op->arg[1].value;
			break;
		}
		a += op->arg[1].is_reg ? op->arg[1].value : 0;
		if (a % (n * op->arg[0].of))
			ptx_fail("%s of %s: misaligned", op->name, f->name);
		for (i = 0; i < op->arg[0].of; i++)
			reg[op->arg[0].reg[i]] = ptx_extend(t->memory->load(t, a + i * n, n, (enum ptx_order)op->order), n, op->is_signed);
		return 1;
	case PTX_st:
		v = ptx_value(t, &op->arg[0]) + (op->arg[0].is_reg ? op->arg[0].value : 0);
		if (op->space == 'p') {
			reg[op->arg[0].reg[0]] = a & mask;
			return 1;
		}
		if (v % (n * (op->arg[1].of ? op->arg[1].of : 1)))
			ptx_fail("%s of %s: misaligned", op->name, f->name);
		if (op->order == PTX_RELEASE)
			t->memory->fence(t);
		if (!op->arg[1].of)
			t->memory->store(t, v, n, a & mask, (enum ptx_order)op->order);
		for (i = 0; i < op->arg[1].of; i++)
			t->memory->store(t, v + i * n, n, reg[op->arg[1].reg[i]] & mask, (enum ptx_order)op->order);
		return 1;
	case PTX_atom:
		a += op->arg[1].value;
		v = t->memory->load(t, a, n, PTX_ATOMIC) & mask; /* the latest value */
		b &= mask;
		if (op->atomic != 'c' || v == b)
			t->memory->store(t, a, n, (op->atomic == 'c' ? c : op->atomic == 'a' ? v + b : b) & mask, PTX_ATOMIC);
		if (op->order == PTX_ACQUIRE)
			t->memory->fence(t);
		break;
	case PTX_fence: t->memory->fence(t); return 1;
	case PTX_nop: return 1; /* what a test has removed */
	case PTX_mov:
		if (op->arg[0].of > 1) { /* mov.b64 {lo, hi}, a */
			for (i = 0; i < op->arg[0].of; i++)
				reg[op->arg[0].reg[i]] = a >> 8 * n / op->arg[0].of * i & ptx_mask(n / op->arg[0].of);
			return 1;
		}
		v = a;
		if (op->arg[1].of > 1)
			for (v = i = 0; i < op->arg[1].of; i++)
				v |= (reg[op->arg[1].reg[i]] & ptx_mask(n / op->arg[1].of)) << 8 * n / op->arg[1].of * i;
		break;
	case PTX_cvta: v = a; break;
	case PTX_cvt: v = ptx_extend(a, op->from, op->is_signed); break;
	case PTX_add: v = a + b; break;
	case PTX_sub: v = a - b; break;
	case PTX_mul: case PTX_mad:
		a = ptx_extend(a, n, op->is_signed);
		b = ptx_extend(b, n, op->is_signed);
		v = op->high ? (uint64_t)((unsigned __int128)a * b >> 8 * n) : a * b;
		v += op->what == PTX_mad ? c : 0;
		mask = op->wide ? ptx_mask(2 * n) : mask;
		break;
	case PTX_and: v = a & b; break;
	case PTX_or: v = a | b; break;
	case PTX_xor: v = a ^ b; break;
	case PTX_not: v = n == 1 ? !a : ~a; break;
	case PTX_neg: v = -a; break;
	case PTX_shl: v = (uint32_t)b >= 8 * n ? 0 : a << (uint32_t)b; break;
	case PTX_shr:
		a = ptx_extend(a, n, op->is_signed);
		shift = (uint32_t)b < 8 * n ? (uint32_t)b : 8 * n - 1;
		v = op->is_signed ? (uint64_t)((int64_t)a >> shift) : (uint32_t)b >= 8 * n ? 0 : a >> shift;
		break;
	case PTX_bfe:
		v = (a & mask) >> (b & 0xff) & ((1ull << (c & 0xff)) - 1);
		if (op->is_signed && c & 0xff && v >> ((c & 0xff) - 1))
			v |= ~0ull << (c & 0xff);
		break;
	case PTX_bfi: { /* a into b at c, of a length */
		uint64_t len = ptx_value(t, &op->arg[4]) & 0xff, field = (len >= 64 ? ~0ull : (1ull << len) - 1) << (c & 0xff);

		v = (b & ~field) | (a << (c & 0xff) & field);
		break;
	}
	case PTX_prmt:
		for (a = (a & 0xffffffff) | b << 32, i = 0; i < 4; i++)
			v |= (a >> 8 * (c >> 4 * i & 7) & 0xff) << 8 * i;
		break;
	case PTX_shf: /* shf.l.wrap lo, hi, n; shf.r.wrap */
		a = (a & 0xffffffff) | b << 32;
		v = op->wide ? a << (c & 31) >> 32 : a >> (c & 31);
		break;
	case PTX_lop3:
		for (i = 0, shift = (uint32_t)ptx_value(t, &op->arg[4]); i < 32; i++)
			v |= (uint64_t)(shift >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)) & 1) << i;
		break;
	case PTX_selp: v = c ? a : b; break;
	case PTX_min: case PTX_max:
		a = ptx_extend(a, n, op->is_signed);
		b = ptx_extend(b, n, op->is_signed);
		v = (op->is_signed ? (int64_t)a < (int64_t)b : a < b) == (op->what == PTX_min) ? a : b;
		break;
	case PTX_setp: {
		int less, equal;

		a = ptx_extend(a, n, op->is_signed);
		b = ptx_extend(b, n, op->is_signed);
		less = op->is_signed ? (int64_t)a < (int64_t)b : a < b;
		equal = a == b;
		switch (op->compare) {
		case 0: v = equal; break;
		case 1: v = !equal; break;
		case 2: v = less; break;
		case 3: v = less || equal; break;
		case 4: v = !less && !equal; break;
		case 5: v = !less; break;
		default: ptx_fail("%s", op->name);
		}
		if (op->combine != 0xff)
			v = op->combine ? v && (c != 0) != op->wide : v || (c != 0) != op->wide;
		mask = 1;
		break;
	}
	case PTX_popc: v = (uint64_t)__builtin_popcountll(a & mask); break;
	case PTX_clz: v = a & mask ? (uint64_t)__builtin_clzll(a & mask) - (64 - 8 * n) : 8 * n; mask = ~0ull; break;
	case PTX_bfind: v = a & mask ? 63 - (uint64_t)__builtin_clzll(a & mask) : 0xffffffff; mask = 0xffffffff; break;
	case PTX_bra: t->frame[t->depth - 1].at = op->target; return 1;
	case PTX_ret:
		v = f->returns ? reg[f->return_reg] : 0;
		ptx_leave(t);
		if (!t->depth)
			return 0;
		f = t->frame[t->depth - 1].f;
		op = &f->code[t->frame[t->depth - 1].at - 1];
		if (op->num)
			t->frame[t->depth - 1].reg[op->arg[0].reg[0]] = v;
		return 1;
	case PTX_call:
		f = ptx_find(t->ptx, op->text);
		ptx_enter(t, f);
		for (i = 0; i < f->params; i++)
			t->frame[t->depth - 1].reg[f->param_reg[i]] = reg[op->arg[1 + i].reg[0]];
		return 1;
	case PTX_bar: t->waits = (uint32_t)ptx_value(t, &op->arg[0]); return 1;
	case PTX_shfl: case PTX_vote: /* d, value, lane, 31, lanes; d, value, lanes */
		t->exchange = a;
		t->waits = (uint32_t)ptx_value(t, &op->arg[op->num - 1]);
		return 1;
	default: ptx_fail("%s in %s", op->name, f->name);
	}
	reg[op->arg[0].reg[0]] = v & mask;
	return 1;
}

/* Lets the lanes of a warp go on that have all come to the same barrier. */
static void ptx_meet(struct ptx_thread *warp)
{
	uint32_t lane, lanes = 0, all = 0, any = 0, back;
	const struct ptx_op *op = NULL, *at;

	for (lane = 0; lane < 32; lane++) {
		struct ptx_thread *t = &warp[lane];

		if (!t->waits)
			continue;
		at = &t->frame[t->depth - 1].f->code[t->frame[t->depth - 1].at - 1];
		if ((op && at != op) || (all && t->waits != all) || !(t->waits >> lane & 1))
			ptx_fail("%s: lane %u meets others at %s, or with another mask", at->name, lane, op ? op->name : "nothing");
		op = at;
		lanes |= 1u << lane;
		all = t->waits;
		any |= t->exchange != 0;
	}
	if (!all || lanes != all)
		return;
	for (back = 0; back < 64; back++) { /* up, and down again: what one knows, all know */
		struct ptx_thread *t = &warp[lane = back < 32 ? back : 63 - back];

		if (!(all >> lane & 1))
			continue;
		if (op->what == PTX_bar) {
			uint32_t below = all & ((1u << lane) - 1);

			t->memory->fence(t);
			if (below)
				t->memory->meet(&warp[31 - __builtin_clz(below)], t);
		} else if (back < 32) { /* orders no memory */
			t->frame[t->depth - 1].reg[op->arg[0].reg[0]] =
				op->what == PTX_vote ? any : warp[ptx_value(t, &op->arg[2]) & 31].exchange & 0xffffffff;
		}
		t->waits = back < 32 ? t->waits : 0;
	}
}

/* ---- This process's memory, at once ---- */

static uint64_t ptx_plain_load(struct ptx_thread *t, uint64_t at, uint32_t bytes, enum ptx_order order)
{
	uint64_t v = 0;

	(void)t, (void)order;
	memcpy(&v, (const void *)(uintptr_t)at, bytes);
	return v;
}

static void ptx_plain_store(struct ptx_thread *t, uint64_t at, uint32_t bytes, uint64_t value, enum ptx_order order)
{
	(void)t, (void)order;
	memcpy((void *)(uintptr_t)at, &value, bytes);
}

static void ptx_plain_fence(struct ptx_thread *t)
{
	(void)t;
}

static void ptx_plain_meet(struct ptx_thread *t, struct ptx_thread *other)
{
	(void)t, (void)other;
}

static const struct ptx_memory ptx_plain = {ptx_plain_load, ptx_plain_store, ptx_plain_fence, ptx_plain_meet};

#endif
