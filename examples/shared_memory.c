/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shared_memory.c: two processes share memory. The owner exports a notice board that may be read
 * and written, and a counter that may be added to. It sends the blob, with a message authentication
 * code, through a socket. The guest imports it and posts: writes a notice, reads it back, counts
 * itself. Then the owner stops its map, and the guest finds the door closed.
 *
 * The guest asks its map before it posts: what is not granted is refused at home, with an errno,
 * and not by the owner's device, with an error completion that costs the connection.
 */
#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include <inlay/inlay.h>
#include <inlay/mmap.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include "common/peer.h"
#include "common/side.h"

#define BOARD 4096

/* ---- The code that both sides put under a blob: any function of any library ---- */

static uint8_t key[32] = "what only owner and guest know";

static int hmac(void *k, const void *data, size_t len, uint8_t *code)
{
	return HMAC(EVP_sha256(), k, sizeof(key), data, len, code, NULL) ? 0 : -EIO;
}

static const struct inlay_mac mac = {hmac, key, 32};

/* Rings for what was posted and waits for it: 0, or what the device says went wrong */
static int finish(struct side *s)
{
	time_t end = time(NULL) + 10;
	const struct mlx5_cqe64 *cqe;
	int status = 0;

	inlay_sq_ring(&s->sq);
	while (!(cqe = inlay_cq_peek(&s->cq)))
		must(time(NULL) < end, "waiting for the completion");
	if (inlay_cqe_is_error(cqe))
		status = inlay_cqe_status(cqe);
	must(inlay_sq_release(&s->sq, cqe) > 0, "the completion");
	inlay_cq_advance(&s->cq, 1);
	return status;
}

/* ---- The owner ---- */

static void owner(struct side *s)
{
	static char board[BOARD] __attribute__((aligned(64)));
	static uint64_t counter;
	void *room = memory(inlay_mmap_size(1, 2));
	struct inlay_source sources[2];
	struct inlay_mmap map;
	uint8_t blob[256];
	size_t len = sizeof(blob);
	char word;

	must(!inlay_mmap_create(&map, room, inlay_mmap_size(1, 2), 1, 2), "making a map");
	sources[0] = inlay_source_host(board, sizeof(board));
	sources[0].limit = INLAY_LOCAL_READ_WRITE | INLAY_RDMA_READ | INLAY_RDMA_WRITE;
	sources[1] = inlay_source_host(&counter, sizeof(counter));
	sources[1].limit = INLAY_LOCAL_READ_WRITE | INLAY_RDMA_ATOMIC;
	must(!inlay_mmap_add_dev(&map, s->pd) && !inlay_mmap_add(&map, sources[0]) && !inlay_mmap_add(&map, sources[1]),
	     "filling the map");
	must(!inlay_mmap_set_permissions(&map, INLAY_LOCAL_READ_WRITE | INLAY_RDMA_READ | INLAY_RDMA_WRITE |
						       INLAY_RDMA_ATOMIC),
	     "permissions");
	map.mac = &mac;
	must(!inlay_mmap_start(&map), "starting the map");
	must(!inlay_mmap_export_rdma(&map, s->pd, blob, &len), "the export");
	peer_tell(&len, sizeof(len));
	peer_tell(blob, len);

	peer_hear(&word, 1); /* the guest has done */
	printf("owner: the board says \"%s\", %llu counted\n", board, (unsigned long long)counter);
	must(!strcmp(board, "the guest was here") && counter == 1, "finding what the guest did");
	must(!inlay_mmap_stop(&map), "stopping the map");
	peer_tell(&word, 1);
	peer_hear(&word, 1);
	must(!strcmp(board, "the guest was here"), "closing the door");
	must(!inlay_mmap_destroy(&map), "destroying the map");
	free(room);
}

/* ---- The guest ---- */

static void guest(struct side *s)
{
	static char notice[64] __attribute__((aligned(64))) = "the guest was here",
			       back[64] __attribute__((aligned(64)));
	struct ibv_mr *mr = ibv_reg_mr(s->pd, back, sizeof(back), IBV_ACCESS_LOCAL_WRITE);
	struct inlay_mmap map;
	uint32_t rkey = 0;
	uint8_t blob[256];
	size_t len, size;
	char word = 0;

	must(mr != NULL, "ibv_reg_mr");
	peer_hear(&len, sizeof(len));
	must(len <= sizeof(blob), "a blob of this length");
	peer_hear(blob, len);
	size = inlay_mmap_import_size(blob, len);
	must(size != 0, "a blob");
	void *room = memory(size);
	blob[40] ^= 1; /* on the way, somebody changes it: that is seen */
	must(inlay_mmap_create_from_export(&map, room, size, s->pd, blob, len, &mac) == -EBADMSG,
	     "refusing a forged blob");
	blob[40] ^= 1;
	must(!inlay_mmap_create_from_export(&map, room, size, s->pd, blob, len, &mac), "the import");

	const uint64_t board = map.sources[0].start, counter = map.sources[1].start;
	struct ibv_sge sge = {.addr = (uintptr_t)back, .length = sizeof(back), .lkey = mr->lkey};

	must(!inlay_mmap_remote(&map, board, sizeof(notice), INLAY_RDMA_WRITE, &rkey), "the board's key");
	must(!inlay_post_write_inline(&s->sq, board, rkey, notice, sizeof(notice), INLAY_SIGNALED) && !finish(s),
	     "the write");
	must(!inlay_post_read(&s->sq, board, rkey, &sge, 1, INLAY_SIGNALED) && !finish(s), "the read");
	must(!memcmp(back, notice, sizeof(notice)), "reading what was written");
	must(!inlay_mmap_remote(&map, counter, 8, INLAY_RDMA_ATOMIC, &rkey), "the counter's key");
	struct inlay_wr add = {.raddr = counter, .rkey = rkey, .data = back, .len = 8, .lkey = mr->lkey};
	must(!inlay_post_atomic(&s->sq, inlay_atomic_add(1), &add, INLAY_SIGNALED) && !finish(s), "the addition");

	/* What is not granted is known here */
	must(inlay_mmap_remote(&map, counter, 8, INLAY_RDMA_WRITE, &rkey) == -EPERM, "being refused the counter");
	must(inlay_mmap_remote(&map, board + BOARD - 8, 16, INLAY_RDMA_READ, &rkey) == -ENOENT,
	     "being refused the bytes after the board");
	peer_tell(&word, 1);

	/* The owner has stopped its map: nobody tells this one, and the owner's device refuses */
	peer_hear(&word, 1);
	must(!inlay_mmap_remote(&map, board, 8, INLAY_RDMA_WRITE, &rkey), "the board's key");
	must(!inlay_post_write_inline(&s->sq, board, rkey, "too late", 8, INLAY_SIGNALED) &&
		     finish(s) == IBV_WC_REM_ACCESS_ERR,
	     "finding the door closed");
	printf("guest: wrote, read and counted; then the door was closed\n");
	peer_tell(&word, 1);
	must(!inlay_mmap_destroy(&map) && !ibv_dereg_mr(mr), "cleaning up");
	free(room);
}

int main(int argc, char **argv)
{
	struct side s = {.attr = inlay_connect_defaults()};
	uint8_t record[INLAY_CONNECT_SIZE];
	int child;

	arguments(argc, argv, "Two processes share memory, by a blob that one of them exports.", "", NULL);
	need_device(NULL);
	child = peer_fork();
	s.attr.access |= IBV_ACCESS_REMOTE_ATOMIC;
	side_open(&s, NULL, (struct ibv_qp_cap){.max_send_wr = 16, .max_send_sge = 1, .max_inline_data = 64});
	peer_swap(s.record, record, sizeof(record));
	side_connect(&s, record);
	peer_meet(0); /* both are ready */
	(child ? guest : owner)(&s);
	side_close(&s);
	peer_join();
	return 0;
}
