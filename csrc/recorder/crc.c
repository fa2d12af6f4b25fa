/* crc32 (the polynomial of zlib and PNG, eight bytes a step) and the checks of Trace v1.
 *
 * Used by the recorder and, through cffi, by the reader. The table is made at the first use; two
 * threads that both make it write the same numbers. */
#include <stdatomic.h>
#include <string.h>

#include "trace_format.h"

_Static_assert(sizeof(struct kdbt_header) == 232, "header");
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

static uint32_t table[8][256];
static _Atomic int table_ready;

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
    atomic_store_explicit(&table_ready, 1, memory_order_release);
}

uint32_t kdbt_crc32(uint32_t crc, const void *data, size_t bytes) {
    const unsigned char *p = data;
    if (!atomic_load_explicit(&table_ready, memory_order_acquire))
        make_table();
    crc = ~crc;
    for (; bytes >= 8; bytes -= 8, p += 8) {
        uint32_t low =
            crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
        crc = table[7][low & 0xff] ^ table[6][low >> 8 & 0xff] ^ table[5][low >> 16 & 0xff] ^
              table[4][low >> 24] ^ table[3][p[4]] ^ table[2][p[5]] ^ table[1][p[6]] ^ table[0][p[7]];
    }
    while (bytes--)
        crc = (crc >> 8) ^ table[0][(crc ^ *p++) & 0xff];
    return ~crc;
}

uint32_t kdbt_record_check(const void *record, size_t bytes) {
    struct kdbt_record head;
    if (bytes < sizeof head)
        return 0;
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
