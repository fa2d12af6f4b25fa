/* MD5 (RFC 1321): MIOpen names code objects by it in `kernel_hash`. Not for security. */
#ifndef KDB_MD5_H
#define KDB_MD5_H
#include <stddef.h>
#include <stdint.h>

struct kdb_md5 {
    uint32_t state[4];
    uint64_t bytes;
    unsigned char rest[64];
};

void kdb_md5_begin(struct kdb_md5 *m);
void kdb_md5_add(struct kdb_md5 *m, const void *data, size_t bytes);
void kdb_md5_end(struct kdb_md5 *m, uint8_t digest[16]);

#endif
