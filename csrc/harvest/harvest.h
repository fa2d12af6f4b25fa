/* What the two parts of a harvest share: the answering library and the driver that counts its answers. */
#ifndef KDB_HARVEST_H
#define KDB_HARVEST_H
#include <stdbool.h>
#include <stdint.h>

/* Look-ups of kernels that were answered so far, in this process. */
uint64_t kdb_harvest_answered(void);

#endif
