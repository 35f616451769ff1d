/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/match/scan.h: packed arrays of tags, searched from the front. A table (table.h) has one for receives of rare masks, and one for
 * the messages that those are looked for in.
 *
 * What the compiler may use is used: AVX-512 (-mavx512f), AVX2 (-mavx2), else words, which are the reference for both. On aarch64 it is
 * words: two of them fill a vector of NEON.
 *
 * Threads: pure functions.
 */
#ifndef INLAY_MATCH_SCAN_H
#define INLAY_MATCH_SCAN_H

#include <inlay/base.h>
#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define INLAY_MATCH_SIMD 512
#elif defined(__AVX2__)
#define INLAY_MATCH_SIMD 256
#else
#define INLAY_MATCH_SIMD 0
#endif

/*
 * The first slot in [at, end) whose receive takes a message of this tag, or end. tags[i] has no bit outside of masks[i]; a hole has tag 1
 * and mask 0, which takes nothing.
 */
INLAY_FN uint32_t inlay_match_scan_words(const uint64_t *tags, const uint64_t *masks, uint32_t at, uint32_t end, uint64_t tag)
{
	while (at < end && (tag & masks[at]) != tags[at])
		at++;
	return at;
}

/* The first slot in [at, end) whose message is for a receive of this tag and mask, or end. */
INLAY_FN uint32_t inlay_match_search_words(const uint64_t *tags, uint32_t at, uint32_t end, uint64_t tag, uint64_t mask)
{
	while (at < end && (tags[at] ^ tag) & mask)
		at++;
	return at;
}

/* Eight slots: bit i says that a message of this tag is for receive i. */
INLAY_ALWAYS uint32_t inlay_match_scan_eight(const uint64_t *tags, const uint64_t *masks, uint64_t tag)
{
#if INLAY_MATCH_SIMD == 512
	__m512i t = _mm512_loadu_si512((const void *)tags), k = _mm512_loadu_si512((const void *)masks);

	return _mm512_cmpeq_epi64_mask(_mm512_and_si512(k, _mm512_set1_epi64((long long)tag)), t);
#elif INLAY_MATCH_SIMD == 256
	const __m256i *t = (const __m256i *)(const void *)tags, *k = (const __m256i *)(const void *)masks;
	const __m256i all = _mm256_set1_epi64x((long long)tag);
	__m256i low = _mm256_cmpeq_epi64(_mm256_and_si256(_mm256_loadu_si256(k), all), _mm256_loadu_si256(t));
	__m256i high = _mm256_cmpeq_epi64(_mm256_and_si256(_mm256_loadu_si256(k + 1), all), _mm256_loadu_si256(t + 1));

	return (uint32_t)_mm256_movemask_pd(_mm256_castsi256_pd(low)) | (uint32_t)_mm256_movemask_pd(_mm256_castsi256_pd(high)) << 4;
#else
	uint32_t hits = 0, i;

	for (i = 0; i < 8; i++)
		hits |= (uint32_t)((tag & masks[i]) == tags[i]) << i;
	return hits;
#endif
}

/* Eight slots: bit i says that message i is for a receive of this tag and mask. */
INLAY_ALWAYS uint32_t inlay_match_search_eight(const uint64_t *tags, uint64_t tag, uint64_t mask)
{
#if INLAY_MATCH_SIMD == 512
	return _mm512_testn_epi64_mask(_mm512_xor_si512(_mm512_loadu_si512((const void *)tags), _mm512_set1_epi64((long long)tag)),
				       _mm512_set1_epi64((long long)mask));
#elif INLAY_MATCH_SIMD == 256
	const __m256i *t = (const __m256i *)(const void *)tags, k = _mm256_set1_epi64x((long long)mask);
	const __m256i wanted = _mm256_set1_epi64x((long long)(tag & mask));
	__m256i low = _mm256_cmpeq_epi64(_mm256_and_si256(_mm256_loadu_si256(t), k), wanted);
	__m256i high = _mm256_cmpeq_epi64(_mm256_and_si256(_mm256_loadu_si256(t + 1), k), wanted);

	return (uint32_t)_mm256_movemask_pd(_mm256_castsi256_pd(low)) | (uint32_t)_mm256_movemask_pd(_mm256_castsi256_pd(high)) << 4;
#else
	uint32_t hits = 0, i;

	for (i = 0; i < 8; i++)
		hits |= (uint32_t)!((tags[i] ^ tag) & mask) << i;
	return hits;
#endif
}

/* The same as the first two, as fast as they go. A wide load of words that were just stored one by one waits for the stores to reach the
   cache, so the newest slots are looked at as they were stored. */
INLAY_FN uint32_t inlay_match_scan(const uint64_t *tags, const uint64_t *masks, uint32_t at, uint32_t end, uint64_t tag)
{
	uint32_t hits;

	for (; INLAY_MATCH_SIMD && at + 16 <= end; at += 8) {
		hits = inlay_match_scan_eight(tags + at, masks + at, tag);
		if (hits)
			return at + (uint32_t)__builtin_ctz(hits);
	}
	return inlay_match_scan_words(tags, masks, at, end, tag);
}

INLAY_FN uint32_t inlay_match_search(const uint64_t *tags, uint32_t at, uint32_t end, uint64_t tag, uint64_t mask)
{
	uint32_t hits;

	for (; INLAY_MATCH_SIMD && at + 16 <= end; at += 8) {
		hits = inlay_match_search_eight(tags + at, tag, mask);
		if (hits)
			return at + (uint32_t)__builtin_ctz(hits);
	}
	return inlay_match_search_words(tags, at, end, tag, mask);
}

#endif
