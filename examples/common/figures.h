/* SPDX-License-Identifier: BSD-3-Clause */
/* figures.h: latencies and rates by message size: as a table, as JSON, as a picture by gnuplot. */
#ifndef COMMON_FIGURES_H
#define COMMON_FIGURES_H

#include "program.h"

/* One row. lat[0] is 0 when latency was not measured. */
struct figures {
	uint32_t size;
	double lat[5];               /* us, as figures_parts */
	double rate;                 /* messages per second */
};

static const struct { const char *name; double part; } figures_parts[5] = {
	{"min", 0}, {"median", 50}, {"p99", 99}, {"p99.9", 99.9}, {"max", 100}};

static int figures_order(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Percentile p of n sorted values: the smallest one that p per cent of them do not exceed. */
static inline uint64_t figures_percentile(const uint64_t *ns, size_t n, double p)
{
	size_t k = (size_t)(p / 100 * (double)n + 0.999999);

	return ns[k ? k - 1 : 0];
}

/* Sorts n times in ns; f->lat is each part of them, divided by `by`. */
static inline void figures_latency(struct figures *f, uint64_t *ns, size_t n, int by)
{
	qsort(ns, n, sizeof(*ns), figures_order);
	for (int k = 0; k < 5; k++)
		f->lat[k] = (double)figures_percentile(ns, n, figures_parts[k].part) / 1e3 / by;
}

static inline void figures_head(int latency)
{
	printf("%9s", "bytes");
	for (int k = 0; k < 5 && latency; k++)
		printf(" %9s", figures_parts[k].name);
	printf(" %11s %10s\n", "messages/s", "MB/s");
}

static inline void figures_row(const struct figures *f)
{
	printf("%9u", f->size);
	for (int k = 0; k < 5 && f->lat[0] > 0; k++)
		printf(" %9.2f", f->lat[k]);
	printf(" %11.0f %10.1f\n", f->rate, f->rate * f->size / 1e6);
	fflush(stdout);
}

/* about: members of the object that come before the results, with a comma after each. Closes f. */
static inline int figures_json(FILE *f, const char *about, const struct figures *r, int n)
{
	fprintf(f, "{%s\n \"results\": [", about);
	for (int i = 0; i < n; i++, r++) {
		fprintf(f, "%s\n  {\"bytes\": %u", i ? "," : "", r->size);
		for (int k = 0; k < 5 && r->lat[0] > 0; k++)
			fprintf(f, "%s\"%s\": %.3f%s", k ? ", " : ", \"latency_us\": {", figures_parts[k].name,
				r->lat[k], k == 4 ? "}" : "");
		fprintf(f, ", \"messages_per_s\": %.0f, \"bytes_per_s\": %.0f}", r->rate, r->rate * r->size);
	}
	fprintf(f, "\n ]}\n");
	return fclose(f) ? -errno : 0;
}

/* Draws them into a PNG file. Returns 0 if gnuplot could. */
static inline int figures_plot(const char *png, const char *title, const struct figures *r, int n)
{
	FILE *g = popen("gnuplot >/dev/null 2>&1", "w");

	if (!g)
		return -1;
	fprintf(g, "set terminal png size 900,600\nset output '");
	for (const char *c = png; *c; c++)
		fprintf(g, "%s%c", *c == '\'' ? "'" : "", *c);
	fprintf(g, "'\n$d << EOD\n");
	for (int i = 0; i < n; i++)
		fprintf(g, "%u %g %g %g\n", r[i].size, r[i].lat[1], r[i].lat[2], r[i].rate);
	fprintf(g, "EOD\nset title '%s' noenhanced\nset logscale x 2\nset xlabel 'bytes'\nset grid\nset key top left\n",
		title);
	fprintf(g, "set y2tics\nset ytics nomirror\nset yrange [0:*]\nset y2range [0:*]\nset xrange [%g:%g]\n",
		r[0].size / 1.5, r[n - 1].size * 1.5);
	if (r->lat[0] > 0)
		fprintf(g,
			"set ylabel 'latency, us'\nset y2label 'messages/s'\nplot $d using 1:2 with linespoints title 'median latency', "
			"$d using 1:3 with linespoints title '99 %% latency', "
			"$d using 1:4 axes x1y2 with linespoints title 'messages/s'\n");
	else
		fprintf(g,
			"set ylabel 'messages/s'\nunset y2tics\nplot $d using 1:4 with linespoints title 'messages/s'\n");
	return pclose(g);
}

#endif
