/* crc32 (the polynomial of zlib and PNG) and the checks of Trace v1.
 *
 * Used by the recorder and, through cffi, by the reader. Eight bytes a step by tables, which are made
 * at the first use (two threads that both make them write the same numbers); 64 bytes a step where
 * the processor multiplies without carry, since a run of launches is checked inside some launch. */
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "trace_format.h"

_Static_assert(sizeof(struct kdbt_header) == 264, "header");
_Static_assert(KDBT_LEFT_OUT_AT % 64 == 0 && KDBT_LEFT_OUT_AT >= sizeof(struct kdbt_header) &&
                   KDBT_LEFT_OUT_AT + sizeof(struct kdbt_left_out) <= KDBT_HEADER_BYTES,
               "left_out");
_Static_assert(offsetof(struct kdbt_header, header_check) == 208, "header_check");
_Static_assert(sizeof(struct kdbt_block) == 64, "block");
_Static_assert(offsetof(struct kdbt_block, check) == 20, "block check");
_Static_assert(sizeof(struct kdbt_record) == 24, "record");
_Static_assert(offsetof(struct kdbt_record, check) == 8, "record check");
_Static_assert(sizeof(struct kdbt_pair) == 8, "pair");
_Static_assert(sizeof(struct kdbt_clock) == 8, "clock");
_Static_assert(sizeof(struct kdbt_statement) == 8, "statement");
_Static_assert(sizeof(struct kdbt_step) == 8, "step");
_Static_assert(sizeof(struct kdbt_problem) == 40, "problem");
_Static_assert(sizeof(struct kdbt_module) == 40, "module");
_Static_assert(sizeof(struct kdbt_kernel) == 8, "kernel");
_Static_assert(sizeof(struct kdbt_shape) == 48, "shape");
_Static_assert(sizeof(struct kdbt_launch) == 8, "launch");
_Static_assert(sizeof(struct kdbt_call) == 24, "call");
_Static_assert(sizeof(struct kdbt_compile) == 48, "compile");
_Static_assert(sizeof(struct kdbt_exit) == 16, "exit");
_Static_assert(sizeof(struct kdbt_output) == 16, "output");
_Static_assert(sizeof(struct kdbt_graph) == 24, "graph");
_Static_assert(sizeof(struct kdbt_range) == 16, "range");
_Static_assert(sizeof(struct kdbt_sample) == 24, "sample");
_Static_assert(sizeof(struct kdbt_gate) == 8, "gate");

static uint32_t table[8][256];
static _Atomic int ready; /* 1: the tables, 2: and the processor can fold */

static void make_table(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++)
            c = (c >> 1) ^ ((c & 1) ? 0xedb88320u : 0);
        table[0][i] = c;
    }
    for (int k = 1; k < 8; k++)
        for (uint32_t i = 0; i < 256; i++)
            table[k][i] = (table[k - 1][i] >> 8) ^ table[0][table[k - 1][i] & 0xff];
}

#if defined(__x86_64__)
/* Folding with carry-less products (Gopal and others, "Fast CRC Computation for Generic Polynomials
 * Using PCLMULQDQ", Intel 2009). A constant x^n mod P is bit-reflected and one bit further up. */
#define FOLD_512 _mm_set_epi64x(0x1c6e41596, 0x154442bd4) /* n = 4 * 128 - 32, 4 * 128 + 32 */
#define FOLD_128 _mm_set_epi64x(0x0ccaa009e, 0x1751997d0) /* n = 128 - 32, 128 + 32 */

__attribute__((target("pclmul,sse4.1"))) static __m128i fold(__m128i sum, __m128i by, __m128i next) {
    __m128i low = _mm_clmulepi64_si128(sum, by, 0x00), high = _mm_clmulepi64_si128(sum, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

static __m128i words(const unsigned char *p) {
    return _mm_loadu_si128((const __m128i *)p);
}

/* 16 bytes that have the crc of the first 16 or more `bytes` (a multiple of 16), to go on from 0. */
__attribute__((target("pclmul,sse4.1"))) static void folded(uint32_t crc, const unsigned char *p,
                                                            size_t bytes, unsigned char out[16]) {
    __m128i sum[4] = {_mm_xor_si128(words(p), _mm_cvtsi32_si128((int)crc))};
    if (bytes >= 128) { /* four sums at once */
        for (int i = 1; i < 4; i++)
            sum[i] = words(p + 16 * i);
        for (p += 64, bytes -= 64; bytes >= 64; p += 64, bytes -= 64)
            for (int i = 0; i < 4; i++)
                sum[i] = fold(sum[i], FOLD_512, words(p + 16 * i));
        for (int i = 1; i < 4; i++)
            sum[0] = fold(sum[0], FOLD_128, sum[i]);
    } else {
        p += 16;
        bytes -= 16;
    }
    for (; bytes; p += 16, bytes -= 16)
        sum[0] = fold(sum[0], FOLD_128, words(p));
    _mm_storeu_si128((__m128i *)out, sum[0]);
}

static bool can_fold(void) {
    unsigned a, b, c, d; /* not __builtin_cpu_supports: its variable is not in every compiler's runtime */
    return __get_cpuid(1, &a, &b, &c, &d) && c & bit_PCLMUL && c & bit_SSE4_1;
}
#endif

static int make_ready(void) {
    int made = 1;
    make_table();
#if defined(__x86_64__)
    made += can_fold();
#endif
    atomic_store_explicit(&ready, made, memory_order_release);
    return made;
}

static uint32_t by_tables(uint32_t crc, const unsigned char *p, size_t bytes) {
    for (; bytes >= 8; bytes -= 8, p += 8) {
        uint32_t low =
            crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
        crc = table[7][low & 0xff] ^ table[6][low >> 8 & 0xff] ^ table[5][low >> 16 & 0xff] ^
              table[4][low >> 24] ^ table[3][p[4]] ^ table[2][p[5]] ^ table[1][p[6]] ^ table[0][p[7]];
    }
    while (bytes--)
        crc = (crc >> 8) ^ table[0][(crc ^ *p++) & 0xff];
    return crc;
}

uint32_t kdbt_crc32(uint32_t crc, const void *data, size_t bytes) {
    const unsigned char *p = data;
    int have = atomic_load_explicit(&ready, memory_order_acquire);
    if (!have)
        have = make_ready();
    crc = ~crc;
#if defined(__x86_64__)
    if (bytes >= 32 && have > 1) {
        unsigned char rest[16];
        size_t whole = bytes & ~(size_t)15;
        folded(crc, p, whole, rest);
        crc = by_tables(0, rest, sizeof rest);
        p += whole;
        bytes -= whole;
    }
#endif
    return ~by_tables(crc, p, bytes);
}

uint32_t kdbt_record_check(const void *record, size_t bytes) {
    struct kdbt_record head;
    if (bytes < sizeof head)
        return 0;
    if (bytes <= 256) { /* most are short: once over all of it costs half */
        unsigned char whole[256];
        memcpy(whole, record, bytes);
        memset(whole + offsetof(struct kdbt_record, check), 0, sizeof head.check);
        return kdbt_crc32(0, whole, bytes);
    }
    memcpy(&head, record, sizeof head);
    head.check = 0;
    uint32_t crc = kdbt_crc32(0, &head, sizeof head);
    return kdbt_crc32(crc, (const char *)record + sizeof head, bytes - sizeof head);
}

uint32_t kdbt_block_check(const void *block) {
    return kdbt_crc32(0, block, offsetof(struct kdbt_block, check));
}

uint32_t kdbt_header_check(const void *header) {
    size_t from = offsetof(struct kdbt_header, version);
    return kdbt_crc32(0, (const char *)header + from, offsetof(struct kdbt_header, header_check) - from);
}
