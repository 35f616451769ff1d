#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The README's loop and post, objects.md's server, send_queue.md's WQE by hand and recovery.md's drain run.
. tests/tap.sh

extract() # page number: its n-th block of C
{
	awk -v want="$2" '/^```c$/ { n++; on = n == want; next } /^```/ { on = 0 } on' "$1"
}

same "the pages have as many blocks" "2 1 1 1" \
	"$(for page in README.md include/inlay/{objects,send_queue,recovery}.md; do grep -c '^```c$' $page; done | xargs)"
runs() # program
{
	if [ -n "$DEVICE" ]; then timeout 300 "$1"; else timeout 300 tests/softdev/run "$1"; fi
}
# Each queue pair is connected to itself: the loop's write arrives, and the server answers the transport's message and
# then each of its own answers
{
	cat <<-'END'
	#include <stdio.h>
	#include <stdlib.h>
	#include <string.h>
	#include <inlay/inlay.h>
	#define NEED(what) ((what) ? (void)0 : (fprintf(stderr, "not so: %s\n", #what), exit(1)))
	struct client { struct inlay_sq sq; };
	static struct ibv_context *ctx;
	static struct ibv_pd *pd;
	static struct ibv_mr *mr;
	static struct inlay_cq cq;
	static struct inlay_srq srq;
	static struct client client;
	static struct inlay_qpn_table clients;
	static uint8_t memory[16][64], *buffers[16];
	static unsigned answers;
	static void keep_for_later(struct client *c, const void *data, uint32_t len)
	{
		(void)c, (void)data, (void)len;
		NEED(!"there is always room");
	}
	static void post_imm(struct inlay_sq *psq, uint64_t raddr, uint32_t rkey)
	{
		const void *p = memory[1];
		uint32_t len = 4, imm = 7;
		int err;

	END
	extract README.md 2 | sed 's/&sq/psq/'
	cat <<-'END'
		NEED(!err && inlay_sq_pending(psq) == 1);
	}
	static void loop(struct ibv_qp_init_attr init, uint64_t raddr, uint32_t rkey)
	{
		uint64_t value = 77;
		struct ibv_cq *ibcq;
		struct inlay_uar uar;
		struct inlay_sq sq;
		struct ibv_qp *qp;
		const char *why;

	END
	extract README.md 1 | sed 's,^ *\.\.\.$,NEED(!"an error");,
		/inlay_sq_from_qp/a NEED(!inlay_connect_pair(qp, qp, NULL, \&why));
		/inlay_cq_peek/i while (!inlay_cq_peek(\&cq));'
	cat <<-'END'
		NEED(!inlay_sq_pending(&sq) && !memcmp(memory, &value, sizeof(value)));
		post_imm(&sq, raddr, rkey);
	}
	static int post(struct inlay_sq *psq, const void *header, const void *payload, uint32_t len)
	{
	END
	extract include/inlay/send_queue.md 1 | sed 's/&sq/psq/'
	cat <<-'END'
		return 0;
	}
	static void serve(void)
	{
		const struct mlx5_cqe64 *cqe;

		if ((cqe = inlay_cq_peek(&cq)) && !inlay_cqe_is_send(cqe)) {
			NEED(inlay_cqe_byte_count(cqe) == 16);
			NEED(!memcmp(inlay_cqe_data(cqe, 64, buffers[inlay_srq_user(&srq, inlay_cqe_wqe_counter(cqe))]), "0123456789abcdef", 16));
			answers++;
		}
	END
	extract include/inlay/objects.md 1
	cat <<-'END'
		NEED(!cqe);
	}
	int main(void)
	{
		struct ibv_qp_cap cap = {.max_send_wr = 64, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1,
					 .max_inline_data = 64};
		struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = cap};
		struct ibv_srq_init_attr many = {.attr = {.max_wr = 8, .max_sge = 1}};
		struct ibv_device **list = ibv_get_device_list(NULL);
		const char *name = getenv("INLAY_TEST_DEVICE");
		struct inlay_uar uar;
		struct ibv_qp *qp;

		while (list && *list && (name && *name ? strcmp(ibv_get_device_name(*list), name) : !mlx5dv_is_supported(*list)))
			list++;
		NEED(list && *list && (ctx = ibv_open_device(*list)) && (pd = ibv_alloc_pd(ctx)));
		NEED((mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
		loop(init, (uintptr_t)memory, mr->rkey);

		init.cap.max_recv_wr = 0;
		init.srq = ibv_create_srq(pd, &many);
		init.send_cq = init.recv_cq = ibv_create_cq(ctx, 1000, NULL, NULL, 0);
		NEED(!inlay_uar_create(&uar, pd, INLAY_UAR_SERIAL, NULL) && (qp = ibv_create_qp(uar.pd, &init)));
		NEED(!inlay_cq_from_cq(&cq, init.send_cq, NULL) && !inlay_srq_from_srq(&srq, init.srq, &cq, NULL));
		NEED(!inlay_sq_from_qp(&client.sq, qp, &uar, &cq, NULL) && !inlay_connect_pair(qp, qp, NULL, NULL));
		inlay_qpn_table_init(&clients, malloc(inlay_qpn_table_size(1)), inlay_qpn_table_size(1));
		NEED(!inlay_qpn_table_add(&clients, qp->qp_num, &client));
		NEED(inlay_srq_size(&srq) <= 16);
		for (uint32_t i = 0; i < inlay_srq_size(&srq); i++) {
			struct ibv_sge sge = {(uintptr_t)memory[i], sizeof(memory[i]), mr->lkey};

			buffers[i] = memory[i];
			NEED(!inlay_post_srq_recv(&srq, &sge, 1, i));
		}
		inlay_srq_ring(&srq);
		NEED(!post(&client.sq, "0123456789", "abcdef", 6));
		while (answers < 100)
			serve();
		return 0;
	}
	END
} >"$dir/readme.c"
try "the README's loop, server and transport compile" \
	"$CC" -std=gnu11 -Wall -Wextra -Werror -O2 -Iinclude "$dir/readme.c" -o "$dir/readme" -lmlx5 -libverbs
try "they run" runs "$dir/readme"
# A queue pair connected to itself: a write that succeeds unsignaled, receives, and in two rounds of three a write with a
# wrong key and one behind it. After the example's drain each has come back, and the queue pair goes on.
{
	printf '#include <%s>\n' stdlib.h string.h inlay/inlay.h
	awk '/^```c$/ { on = 1; next } /^```/ { on = 0 } on' include/inlay/recovery.md
	cat <<-'END'
	static struct inlay_uar uar;
	static struct inlay_cq cq;
	static struct inlay_sq sq;
	static struct inlay_rq rq;
	static unsigned good, bad, receives;

	#define NEED(what) ((what) ? (void)0 : (fprintf(stderr, "not so: %s\n", #what), exit(1)))

	static void handle(const struct mlx5_cqe64 *cqe)
	{
		int bad_one = inlay_cqe_is_error(cqe);

		if (inlay_cqe_is_send(cqe)) {
			NEED(inlay_sq_release(&sq, cqe) > 0);
			bad += bad_one;
			good += !bad_one;
		} else {
			NEED(bad_one && inlay_rq_release(&rq, cqe) == 1);
			receives++;
		}
	}

	int main(void)
	{
		static uint64_t target, value;
		struct ibv_device **list = ibv_get_device_list(NULL);
		const char *name = getenv("INLAY_TEST_DEVICE");
		struct ibv_context *ctx;
		struct ibv_mr *mr;
		struct ibv_pd *pd;
		struct ibv_qp_cap cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1,
					 .max_inline_data = 64};
		struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = cap};
		struct ibv_sge sge = {(uintptr_t)&target, 8, 0};
		const struct mlx5_cqe64 *cqe;
		struct ibv_qp *qp;

		while (list && *list && (name && *name ? strcmp(ibv_get_device_name(*list), name) : !mlx5dv_is_supported(*list)))
			list++;
		NEED(list && *list && (ctx = ibv_open_device(*list)) && (pd = ibv_alloc_pd(ctx)));
		NEED((mr = ibv_reg_mr(pd, &target, 8, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
		NEED(!inlay_uar_create(&uar, pd, INLAY_UAR_SERIAL, NULL));
		sge.lkey = mr->lkey;
		init.send_cq = ibv_create_cq(ctx, (int)(inlay_send_cqes(&init) + inlay_recv_cqes(&init)), NULL, NULL, 0);
		init.recv_cq = init.send_cq;
		NEED(init.send_cq && (qp = ibv_create_qp(uar.pd, &init)) && !inlay_cq_from_cq(&cq, init.send_cq, NULL));
		NEED(!inlay_sq_from_qp(&sq, qp, &uar, &cq, NULL) && !inlay_rq_from_qp(&rq, qp, &cq, NULL));
		for (unsigned round = 1; round <= 3; round++) {
			NEED(!inlay_connect_pair(qp, qp, NULL, NULL));
			for (unsigned i = 0; i < 5; i++)
				NEED(!inlay_post_recv(&rq, &sge, 1));
			inlay_rq_ring(&rq);
			value = round;
			NEED(!inlay_post_write_inline(&sq, sge.addr, mr->rkey, &value, 8, INLAY_SIGNALED | INLAY_RING));
			while (!(cqe = inlay_cq_peek(&cq)))
				;
			handle(cqe);
			inlay_cq_advance(&cq, 1);
			NEED(good == round && *(volatile uint64_t *)&target == round);
			value = ~value;
			NEED(!inlay_post_write_inline(&sq, sge.addr, mr->rkey, &value, 8, INLAY_RING));
			while (*(volatile uint64_t *)&target != value)
				;
			if (round != 2) {
				NEED(!inlay_post_write_inline(&sq, sge.addr, ~mr->rkey, &value, 8, 0));
				NEED(!inlay_post_write_inline(&sq, sge.addr, mr->rkey, &value, 8, INLAY_RING));
			}
			NEED(!stop_and_reset(qp, &sq, &rq, &cq, handle));
			NEED(!inlay_sq_pending(&sq) && !inlay_rq_pending(&rq) && !inlay_cq_peek(&cq));
			NEED(bad >= round && receives == 5 * round);
		}
		return 0;
	}
	END
} >"$dir/recovery.c"
recovers()
{
	"$CC" -std=gnu11 -Wall -Wextra -Werror -O2 -Iinclude "$dir/recovery.c" -o "$dir/recovery" -lmlx5 -libverbs && runs "$dir/recovery"
}
try "recovery.md's example recovers a queue pair" recovers
# Targets of make, files and links that pages name: those that do not exist
unknown()
{
	local page name at
	for page in $(find . -name '*.md' ! -path './build*'); do
		at=$(dirname "$page")
		for name in $(grep -ohP '(^|`)make( [a-z-]+(?![a-z/-]))+' "$page" | sed 's/.*make//'); do
			grep -q "^$name:" Makefile || echo "$page: make $name"
		done
		for name in $(grep -ohE '`((tests|examples|bench|pkgconfig|include/inlay)/[a-z0-9_./-]+|[a-z_]+/[a-z0-9_]+\.[ct]\b)|]\([^)#:]+' "$page" |
			sed 's/^`//; s/^](//'); do
			[ -e "$at/$name" ] || [ -e "$name" ] || [ -e "tests/$name" ] || echo "$page: $name"
		done
	done
}
same "what the pages name is there" "" "$(unknown)"
if grep -nE '@[A-Z]+@' README.md include/inlay/*.md >"$dir/out"; then false; fi
result $? "nothing is left to fill in"
finish
