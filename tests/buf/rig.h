/* SPDX-License-Identifier: BSD-3-Clause */
/* several buffers at once. */
#ifndef TESTS_BUF_RIG_H
#define TESTS_BUF_RIG_H

/* The loops that a caller writes who wants all of several buffers, or none */
struct buf_args {
	void *addr;
	size_t len;
	void *data;
	size_t data_len;
};

UNUSED static uint32_t put_all(struct inlay_buf *const *b, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n && !inlay_buf_dec_refcount(b[i], NULL); i++)
		;
	return i;
}

UNUSED static int get_all(struct inlay_inventory *inv, struct inlay_mmap *m, const struct buf_args *a, uint32_t n, struct inlay_buf **b)
{
	uint32_t i;
	int err;

	for (i = 0; i < n; i++) {
		err = inlay_inventory_get_by_args(inv, m, a[i].addr, a[i].len, a[i].data, a[i].data_len, &b[i]);
		if (err) {
			while (i--)
				must(inlay_inventory_dec_refcount(inv, b[i], NULL));
			return err;
		}
	}
	return 0;
}

#endif
