#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The examples of the README and of the pages beside the headers compile; recovery.md's runs. What the others do: examples, tests/queue.
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
{
	cat <<-'END'
	#include <inlay/inlay.h>
	struct client { struct inlay_sq sq; };
	static struct ibv_context *ctx;
	static struct ibv_pd *pd;
	static struct inlay_cq cq;
	static struct inlay_srq srq;
	static struct inlay_qpn_table clients;
	static uint8_t *buffers[16];
	void keep_for_later(struct client *c, const void *data, uint32_t len);
	void loop(struct ibv_qp_init_attr init, uint64_t raddr, uint32_t rkey);
	void loop(struct ibv_qp_init_attr init, uint64_t raddr, uint32_t rkey)
	{
		uint64_t value = 77;
		struct ibv_cq *ibcq;
		struct inlay_uar uar;
		struct inlay_sq sq;
		struct ibv_qp *qp, *peer = NULL;
		const char *why;
		int err;

	END
	extract README.md 1 | sed 's,^ *\.\.\.$,return;,'
	cat <<-'END'
	}
	int post_imm(struct inlay_sq *psq, uint64_t raddr, uint32_t rkey, const void *p, uint32_t len, uint32_t imm, struct ibv_mr *mr);
	int post_imm(struct inlay_sq *psq, uint64_t raddr, uint32_t rkey, const void *p, uint32_t len, uint32_t imm, struct ibv_mr *mr)
	{
		int err;

	END
	extract README.md 2 | sed 's/&sq/psq/'
	cat <<-'END'
		return err;
	}
	int post(struct inlay_sq *psq, const void *header, const void *payload, uint32_t len);
	int post(struct inlay_sq *psq, const void *header, const void *payload, uint32_t len)
	{
	END
	extract include/inlay/send_queue.md 1 | sed 's/&sq/psq/'
	cat <<-'END'
		return 0;
	}
	void serve(void);
	void serve(void)
	{
		const struct mlx5_cqe64 *cqe;

	END
	extract include/inlay/objects.md 1
	echo '}'
} >"$dir/readme.c"
try "the README's loop, server and transport compile" \
	"$CC" -std=gnu11 -Wall -Wextra -Werror -O2 -Iinclude -c "$dir/readme.c" -o "$dir/readme.o"
# A queue pair connected to itself: receives, and a write that succeeds; in the second round one with a wrong key before it. After the
# example's drain each has come back, and the queue pair goes on.
{
	printf '#include <%s>\n' stdlib.h string.h inlay/inlay.h
	awk '/^```c$/ { on = 1; next } /^```/ { on = 0 } on' include/inlay/recovery.md
	cat <<-'END'
	static struct inlay_uar uar;
	static struct inlay_cq cq;
	static struct inlay_sq sq;
	static struct inlay_rq rq;
	static unsigned bad, receives;

	#define NEED(what) ((what) ? (void)0 : (fprintf(stderr, "not so: %s\n", #what), exit(1)))

	static void handle(const struct mlx5_cqe64 *cqe)
	{
		bad += inlay_cqe_is_send(cqe) && inlay_cqe_is_error(cqe);
		receives += !inlay_cqe_is_send(cqe);
		NEED(inlay_cqe_is_send(cqe) ? inlay_sq_release(&sq, cqe) > 0 : inlay_cqe_is_error(cqe) && inlay_rq_release(&rq, cqe) == 1);
	}

	int main(void)
	{
		static uint64_t target;
		struct ibv_device **list = ibv_get_device_list(NULL);
		const char *name = getenv("INLAY_TEST_DEVICE");
		struct ibv_qp_cap cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 64};
		struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = cap};
		struct ibv_sge sge = {(uintptr_t)&target, 8, 0};
		struct ibv_context *ctx;
		struct ibv_qp *qp;
		struct ibv_mr *mr;
		struct ibv_pd *pd;

		while (list && *list && (name && *name ? strcmp(ibv_get_device_name(*list), name) : !mlx5dv_is_supported(*list)))
			list++;
		NEED(list && *list && (ctx = ibv_open_device(*list)) && (pd = ibv_alloc_pd(ctx)));
		NEED((mr = ibv_reg_mr(pd, &target, 8, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
		sge.lkey = mr->lkey;
		NEED(!inlay_uar_create(&uar, pd, INLAY_UAR_SERIAL, NULL));
		init.send_cq = ibv_create_cq(ctx, (int)(inlay_send_cqes(&init) + inlay_recv_cqes(&init)), NULL, NULL, 0);
		init.recv_cq = init.send_cq;
		NEED(init.send_cq && (qp = ibv_create_qp(uar.pd, &init)) && !inlay_cq_from_cq(&cq, init.send_cq, NULL));
		NEED(!inlay_sq_from_qp(&sq, qp, &uar, &cq, NULL) && !inlay_rq_from_qp(&rq, qp, &cq, NULL));
		for (uint64_t round = 1; round <= 3; round++) {
			NEED(!inlay_connect_pair(qp, qp, NULL, NULL));
			for (unsigned i = 0; i < 5; i++)
				NEED(!inlay_post_recv(&rq, &sge, 1));
			inlay_rq_ring(&rq);
			NEED(!inlay_post_write_inline(&sq, sge.addr, mr->rkey, &round, 8, INLAY_RING));
			while (*(volatile uint64_t *)&target != round)
				;
			NEED(round != 2 || !inlay_post_write_inline(&sq, sge.addr, ~mr->rkey, &round, 8, 0));
			NEED(!inlay_post_write_inline(&sq, sge.addr, mr->rkey, &round, 8, INLAY_RING));
			NEED(!stop_and_reset(qp, &sq, &rq, &cq, handle));
			NEED(!inlay_sq_pending(&sq) && !inlay_rq_pending(&rq) && !inlay_cq_peek(&cq) && bad >= round && receives == 5 * round);
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
	find . -name '*.md' ! -path './build*' | xargs perl -ne '
		BEGIN { for my $file ("Makefile", "tests/softdev/softmlx5.mk") {
			open my $m, "<", $file or die;
			for (<$m>) { $target{$1} = 1 if /^([a-z0-9-]+):/ }
		} }
		my ($at) = $ARGV =~ m,(.*)/,;
		while (/(?:^|`)make((?: [a-z0-9-]+(?![a-z0-9\/-]))+)/g) {
			$target{$_} or print "$ARGV: make $_\n" for split " ", $1;
		}
		while (m,`((?:tests|examples|bench|pkgconfig|include/inlay)/[a-z0-9_./-]+|[a-z_]+/[a-z0-9_]+\.[ct]\b)|]\(([^)#:]+),g) {
			my $name = $1 // $2;
			-e "$at/$name" || -e $name || -e "tests/$name" or print "$ARGV: $name\n";
		}' || echo "perl failed"
}
same "what the pages name is there" "" "$(unknown)"
if grep -nE '@[A-Z]+@' README.md >"$dir/out"; then false; fi
result $? "nothing is left to fill in"
finish
