/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waiting for completions: fi_cq_sread, the descriptor and fi_trywait, fi_cq_signal. Another thread sends.
 */
#include "fabric/rig.h"
#include <poll.h>
#include <pthread.h>

static struct side s[2];
static fi_addr_t there[2];

static void open_waiting(struct side *side, enum fi_wait_obj kind)
{
	struct fi_cq_attr cq;
	struct fi_av_attr av;
	struct fi_info *hints = hints_for(FI_TAGGED);
	size_t len = NAME;

	memset(side, 0, sizeof(*side));
	memset(&cq, 0, sizeof(cq));
	memset(&av, 0, sizeof(av));
	cq.format = FI_CQ_FORMAT_TAGGED;
	cq.wait_obj = kind;
	hints->domain_attr->threading = FI_THREAD_SAFE;
	side->info = info_for(hints);
	must(fi_fabric(side->info->fabric_attr, &side->fabric, NULL));
	must(fi_domain(side->fabric, side->info, &side->domain, NULL));
	must(fi_av_open(side->domain, &av, &side->av, NULL));
	must(fi_cq_open(side->domain, &cq, &side->cq, NULL));
	must(fi_endpoint(side->domain, side->info, &side->ep, NULL));
	must(fi_ep_bind(side->ep, &side->av->fid, 0));
	must(fi_ep_bind(side->ep, &side->cq->fid, FI_TRANSMIT | FI_RECV));
	must(fi_enable(side->ep));
	must(fi_getname(&side->ep->fid, side->name, &len));
}

static void close_waiting(struct side *side)
{
	must(fi_close(&side->ep->fid));
	must(fi_close(&side->cq->fid));
	must(fi_close(&side->av->fid));
	must(fi_close(&side->domain->fid));
	must(fi_close(&side->fabric->fid));
	fi_freeinfo(side->info);
}

static void open_both(enum fi_wait_obj kind)
{
	int i;

	for (i = 0; i < 2; i++)
		open_waiting(&s[i], kind);
	for (i = 0; i < 2; i++)
		there[i] = insert(&s[i], s[1 - i].name);
}

static void close_both(void)
{
	close_waiting(&s[0]);
	close_waiting(&s[1]);
}

/* ---- The other side ---- */

#define ROUNDS 40

static int asleep; /* the round in which the main thread is about to sleep, from 1 */

/* Waits for a number, sends the next one */
static void *answer(void *arg)
{
	struct fi_cq_tagged_entry e;
	uint64_t n = 0, sent;
	int i, got;

	(void)arg;
	for (i = 0; i < ROUNDS; i++) {
		must((int)fi_trecv(s[1].ep, &n, sizeof(n), NULL, there[1], 7, 0, &n));
		got = (int)fi_cq_sread(s[1].cq, &e, 1, NULL, -1);
		assert_int_equal(got, 1);
		assert_ptr_equal(e.op_context, &n);
		sent = n + 1;
		while (i % 3 == 0 && __atomic_load_n(&asleep, __ATOMIC_ACQUIRE) <= i)
			sched_yield();
		while (fi_tsend(s[1].ep, &sent, sizeof(sent), NULL, there[1], 7, &sent) == -FI_EAGAIN)
			;
		assert_int_equal(fi_cq_sread(s[1].cq, &e, 1, NULL, -1), 1);
		assert_ptr_equal(e.op_context, &sent);
	}
	return NULL;
}

static void send_number(uint64_t *n)
{
	struct fi_cq_tagged_entry e;
	ssize_t r;

	while ((r = fi_tsend(s[0].ep, n, sizeof(*n), NULL, there[0], 7, NULL)) == -FI_EAGAIN)
		fi_cq_sread(s[0].cq, &e, 1, NULL, 1);
	must((int)r);
}

static void sread(UNUSED void **state)
{
	struct fi_cq_tagged_entry e[2];
	uint64_t n = 1, back = 0;
	pthread_t thread;
	int i, got;

	open_both(FI_WAIT_UNSPEC);
	assert_int_equal(fi_cq_sread(s[0].cq, e, 2, NULL, 0), -FI_EAGAIN);
	assert_int_equal(fi_cq_sread(s[0].cq, e, 2, NULL, 30), -FI_EAGAIN);
	asleep = 0;
	assert_int_equal(pthread_create(&thread, NULL, answer, NULL), 0);
	for (i = 0; i < ROUNDS; i++) {
		must((int)fi_trecv(s[0].ep, &back, sizeof(back), NULL, there[0], 7, 0, NULL));
		send_number(&n);
		__atomic_store_n(&asleep, i + 1, __ATOMIC_RELEASE);
		for (got = 0; got < 2;) {
			ssize_t r = fi_cq_sread(s[0].cq, e, 2, NULL, (int)(1000 * DEADLINE));

			assert_in_range(r, 1, 2);
			got += (int)r;
		}
		assert_int_equal(back, n + 1);
		n = back + 10;
	}
	pthread_join(thread, NULL);
	close_both();
}

static void descriptor(UNUSED void **state)
{
	struct fi_cq_tagged_entry e;
	struct fid *fids[1];
	uint64_t n = 1, back = 0;
	pthread_t thread;
	struct pollfd p;
	ssize_t r;
	int i, got;

	open_both(FI_WAIT_FD);
	fids[0] = &s[0].cq->fid;
	must(fi_control(fids[0], FI_GETWAIT, &p.fd));
	p.events = POLLIN;
	asleep = 0;
	assert_int_equal(pthread_create(&thread, NULL, answer, NULL), 0);
	for (i = 0; i < ROUNDS; i++) {
		must((int)fi_trecv(s[0].ep, &back, sizeof(back), NULL, there[0], 7, 0, NULL));
		send_number(&n);
		for (got = 0; got < 2;) {
			r = fi_cq_read(s[0].cq, &e, 1);
			if (r == 1) {
				got++;
				continue;
			}
			assert_int_equal(r, -FI_EAGAIN);
			if (fi_trywait(s[0].fabric, fids, 1) == 0) {
				__atomic_store_n(&asleep, i + 1, __ATOMIC_RELEASE);
				assert_int_equal(poll(&p, 1, (int)(1000 * DEADLINE)), 1);
			}
		}
		assert_int_equal(back, n + 1);
		n = back + 10;
	}
	pthread_join(thread, NULL);
	close_both();
}

static void *later(void *arg)
{
	usleep(30000);
	must(fi_cq_signal((struct fid_cq *)arg));
	return NULL;
}

static void signalled(UNUSED void **state)
{
	struct fi_cq_tagged_entry e;
	pthread_t thread;

	open_both(FI_WAIT_UNSPEC);
	assert_int_equal(pthread_create(&thread, NULL, later, s[0].cq), 0);
	assert_int_equal(fi_cq_sread(s[0].cq, &e, 1, NULL, -1), -FI_EAGAIN);
	pthread_join(thread, NULL);
	close_both();
}

/* Those that cannot be waited for say so */
static void refused(UNUSED void **state)
{
	struct fi_cq_tagged_entry e;
	struct fi_cq_attr attr;
	struct fid_cq *cq;
	struct fid *fid;
	int fd;

	open_both(FI_WAIT_NONE);
	fid = &s[0].cq->fid;
	assert_int_equal(fi_cq_sread(s[0].cq, &e, 1, NULL, 0), -FI_ENOSYS);
	assert_int_equal(fi_cq_signal(s[0].cq), -FI_ENOSYS);
	assert_int_equal(fi_control(fid, FI_GETWAIT, &fd), -FI_ENOSYS);
	assert_int_equal(fi_trywait(s[0].fabric, &fid, 1), -FI_EINVAL);
	memset(&attr, 0, sizeof(attr));
	attr.wait_obj = FI_WAIT_MUTEX_COND;
	assert_int_equal(fi_cq_open(s[0].domain, &attr, &cq, NULL), -FI_ENOSYS);
	close_both();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sread), cmocka_unit_test(descriptor), cmocka_unit_test(signalled),
		cmocka_unit_test(refused),
	};

	use_provider();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
