/* What a module is made of. */
#ifndef KDB_IMAGE_H
#define KDB_IMAGE_H
#include "internal.h"

#define KDB_BUNDLE "__CLANG_OFFLOAD_BUNDLE__"
/* Rows of a kdb have some 100 KB; rocBLAS loads files of 20 MB, whose MD5 would be most of a short run:
 * a larger object has none. */
enum { KDB_HASHED = 4 << 20 };

struct kdb_image {
    uint8_t md5[16];
    uint64_t size;   /* 0: could not be read; md5 is 0 then, as it is of a large one */
    uint64_t mark;   /* of a large one: a hash of its begin and end, to tell it from others here */
    char target[64]; /* "gfx906:sramecc+:xnack-", or empty */
};

bool kdb_read_memory(const void *from, void *to, size_t bytes); /* false: not all of it is mapped */
void kdb_image_in_memory(struct kdb_image *image, const void *memory, unsigned char *scratch, size_t room);
void kdb_image_in_file(struct kdb_image *image, const char *path, unsigned char *scratch, size_t room);

#endif
