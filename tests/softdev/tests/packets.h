/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * packets.h: builds Ethernet packets, and checks them. From the standards alone: neither the device's
 * code nor inlay's is in it.
 */
#ifndef SOFTDEV_TESTS_PACKETS_H
#define SOFTDEV_TESTS_PACKETS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PACKET_MAX 20000u

/* What a packet is made of; 0 where there is none */
struct shape {
	unsigned tags;            /* VLAN tags, 0 to 2 */
	unsigned version;         /* 4, 6, or 0: an unknown type */
	unsigned proto;           /* 6, 17, or another */
	unsigned options;         /* bytes of IPv4 or IPv6 options, a multiple of 8 */
	unsigned tcp_options;     /* bytes, a multiple of 4 */
	unsigned payload;
	uint16_t port;            /* destination */
};

struct packet {
	unsigned l3, l4, data, len;
	uint8_t at[PACKET_MAX];
};

__attribute__((unused)) static void packet16(uint8_t *at, unsigned v)
{
	at[0] = (uint8_t)(v >> 8);
	at[1] = (uint8_t)v;
}

__attribute__((unused)) static unsigned packet_u16(const uint8_t *at)
{
	return (unsigned)at[0] << 8 | at[1];
}

__attribute__((unused)) static uint32_t packet_u32(const uint8_t *at)
{
	return (uint32_t)packet_u16(at) << 16 | packet_u16(at + 2);
}

/* Fills in everything but checksums, which hold rubbish; the IP packet begins at `from` */
__attribute__((unused)) static unsigned packet_ip(struct packet *p, unsigned from, const struct shape *s)
{
	unsigned l4 = s->proto == 6 ? 20 + s->tcp_options : s->proto == 17 ? 8 : 0, at = from + (s->version == 4 ? 20 : 40);
	uint8_t *ip = p->at + from;

	p->l3 = from;
	p->l4 = at + s->options;
	p->data = p->l4 + l4;
	p->len = p->data + s->payload;
	if (s->version == 4) {
		ip[0] = (uint8_t)(0x40 | (5 + s->options / 4));
		ip[1] = 0x20;
		packet16(ip + 2, p->len - from);
		packet16(ip + 4, 0xfffd);
		packet16(ip + 6, 0x4000);
		ip[8] = 61;
		ip[9] = (uint8_t)s->proto;
		packet16(ip + 10, 0xdead);
		memcpy(ip + 12, "\x0a\x01\x02\x03\x0a\x04\x05\x06", 8);
		memset(ip + 20, 1, s->options); /* no operation */
	} else {
		memcpy(ip, "\x62\x01\x23\x45", 4);
		packet16(ip + 4, p->len - from - 40);
		ip[6] = (uint8_t)(s->options ? 60 : s->proto);
		ip[7] = 62;
		memcpy(ip + 8, "\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x02", 32);
		if (s->options) {
			/* One header of destination options: padding */
			memset(p->at + at, 0, s->options);
			p->at[at] = (uint8_t)s->proto;
			p->at[at + 1] = (uint8_t)(s->options / 8 - 1);
			p->at[at + 2] = 1;
			p->at[at + 3] = (uint8_t)(s->options - 4);
		}
	}
	memset(p->at + p->l4, 0, l4);
	if (l4) {
		packet16(p->at + p->l4, 5000);
		packet16(p->at + p->l4 + 2, s->port ? s->port : 80);
	}
	if (s->proto == 6) {
		uint8_t *tcp = p->at + p->l4;

		packet16(tcp + 4, 0xffff);
		packet16(tcp + 6, 0xf800); /* passes 2^32 soon */
		packet16(tcp + 8, 0x1234);
		tcp[12] = (uint8_t)(l4 / 4 << 4);
		tcp[13] = 0x99; /* CWR, ACK, PSH, FIN */
		packet16(tcp + 14, 0x7777);
		packet16(tcp + 16, 0xbeef);
		memset(tcp + 20, 1, s->tcp_options);
	} else if (s->proto == 17) {
		packet16(p->at + p->l4 + 4, 8 + s->payload);
		packet16(p->at + p->l4 + 6, 0xbeef);
	}
	return p->len;
}

__attribute__((unused)) static void packet_make(struct packet *p, const struct shape *s, const uint8_t dmac[6], const uint8_t smac[6])
{
	static uint32_t seed = 1;
	unsigned at = 12, i;

	memcpy(p->at, dmac, 6);
	memcpy(p->at + 6, smac, 6);
	for (i = s->tags; i; i--, at += 4) {
		packet16(p->at + at, i == 2 ? 0x88a8 : 0x8100);
		packet16(p->at + at + 2, 0x6000 + 100 * i);
	}
	packet16(p->at + at, s->version == 4 ? 0x0800 : s->version == 6 ? 0x86dd : 0x88b5);
	p->l3 = p->l4 = p->data = at + 2;
	p->len = p->data + s->payload;
	if (s->version)
		packet_ip(p, at + 2, s);
	for (i = p->data; i < p->len; i++)
		p->at[i] = (uint8_t)((seed = seed * 1103515245 + 12345) >> 16);
}

static uint32_t packet_sum(const uint8_t *at, unsigned len, uint32_t sum)
{
	for (; len > 1; len -= 2, at += 2)
		sum += packet_u16(at);
	sum += len ? (uint32_t)at[0] << 8 : 0;
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/* Whether the IP packet at `from` of len bytes is right: IPv4's header checksum, that of TCP or UDP, lengths */
__attribute__((unused)) static bool packet_l3_good(const uint8_t *at, unsigned from, unsigned len)
{
	const uint8_t *ip = at + from;

	if (ip[0] >> 4 == 6)
		return packet_u16(ip + 4) + 40 == len - from;
	return packet_u16(ip + 2) == len - from && packet_sum(ip, (ip[0] & 15) * 4, 0) == 0xffff;
}

__attribute__((unused)) static bool packet_l4_good(const uint8_t *at, unsigned from, unsigned l4, unsigned proto, unsigned len)
{
	const uint8_t *ip = at + from;
	uint32_t sum = packet_sum(ip + (ip[0] >> 4 == 6 ? 8 : 12), ip[0] >> 4 == 6 ? 32 : 8, proto + len - l4);

	if (proto == 17 && (packet_u16(at + l4 + 4) != len - l4 || !packet_u16(at + l4 + 6)))
		return false;
	return packet_sum(at + l4, len - l4, sum) == 0xffff;
}

#endif
