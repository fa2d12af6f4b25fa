/* The code object that HIP takes out of a fat binary for the devices of this process. */
#ifndef KDB_FATBIN_H
#define KDB_FATBIN_H
#include "image.h"

/* What __hipRegisterFatBinary is given: the address of the bundle, or NULL. */
const void *kdb_fatbin_image(const void *wrapper);
/* `image` stays empty where it is not certain which object it is, or where it is a large one. */
void kdb_fatbin_read(struct kdb_image *image, const void *bundle, unsigned char *scratch, size_t room);

#endif
