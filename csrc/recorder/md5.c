/* MD5 as RFC 1321 defines it, for data that arrives in pieces. */
#include <string.h>

#include "md5.h"

/* floor(2^32 * |sin(i + 1)|) */
static const uint32_t sine[64] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391};

/* Unrolled: as a loop it takes four times the instructions, and this runs at each load of a module. */
#define F(b, c, d) ((d) ^ ((b) & ((c) ^ (d))))
#define G(b, c, d) ((c) ^ ((d) & ((b) ^ (c))))
#define H(b, c, d) ((b) ^ (c) ^ (d))
#define I(b, c, d) ((c) ^ ((b) | ~(d)))
#define STEP(f, a, b, c, d, k, turn, i)                                                                      \
    a += f(b, c, d) + sine[i] + x[k];                                                                        \
    a = (a << (turn) | a >> (32 - (turn))) + b;
#define FOUR(f, i, k, step, s0, s1, s2, s3)                                                                  \
    STEP(f, a, b, c, d, (k) & 15, s0, i)                                                                     \
    STEP(f, d, a, b, c, ((k) + (step)) & 15, s1, (i) + 1)                                                    \
    STEP(f, c, d, a, b, ((k) + 2 * (step)) & 15, s2, (i) + 2)                                                \
    STEP(f, b, c, d, a, ((k) + 3 * (step)) & 15, s3, (i) + 3)
#define ROUND(f, i, k, step, s0, s1, s2, s3)                                                                 \
    FOUR(f, i, k, step, s0, s1, s2, s3)                                                                      \
    FOUR(f, (i) + 4, (k) + 4 * (step), step, s0, s1, s2, s3)                                                 \
    FOUR(f, (i) + 8, (k) + 8 * (step), step, s0, s1, s2, s3)                                                 \
    FOUR(f, (i) + 12, (k) + 12 * (step), step, s0, s1, s2, s3)

static void chunk(uint32_t state[4], const unsigned char *p) {
    uint32_t x[16], a = state[0], b = state[1], c = state[2], d = state[3];
    for (int i = 0; i < 16; i++)
        x[i] = (uint32_t)p[4 * i] | (uint32_t)p[4 * i + 1] << 8 | (uint32_t)p[4 * i + 2] << 16 |
               (uint32_t)p[4 * i + 3] << 24;
    ROUND(F, 0, 0, 1, 7, 12, 17, 22)
    ROUND(G, 16, 1, 5, 5, 9, 14, 20)
    ROUND(H, 32, 5, 3, 4, 11, 16, 23)
    ROUND(I, 48, 0, 7, 6, 10, 15, 21)
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
}

void kdb_md5_begin(struct kdb_md5 *m) {
    static const uint32_t start[4] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
    memcpy(m->state, start, sizeof start);
    m->bytes = 0;
}

void kdb_md5_add(struct kdb_md5 *m, const void *data, size_t bytes) {
    const unsigned char *p = data;
    size_t held = m->bytes & 63;
    m->bytes += bytes;
    if (held) {
        size_t take = 64 - held < bytes ? 64 - held : bytes;
        memcpy(m->rest + held, p, take);
        p += take;
        bytes -= take;
        if (held + take < 64)
            return;
        chunk(m->state, m->rest);
    }
    for (; bytes >= 64; bytes -= 64, p += 64)
        chunk(m->state, p);
    memcpy(m->rest, p, bytes);
}

void kdb_md5_end(struct kdb_md5 *m, uint8_t digest[16]) {
    uint64_t bits = m->bytes * 8;
    unsigned char tail[72] = {0x80}, length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)(bits >> (8 * i));
    kdb_md5_add(m, tail, 1 + ((55 - m->bytes) & 63));
    kdb_md5_add(m, length, 8);
    for (int i = 0; i < 16; i++)
        digest[i] = (uint8_t)(m->state[i / 4] >> (8 * (i & 3)));
}
