/* What the files of the simulated device share. Nothing here is exported but through SIM_API.
 *
 * The device has one in-order, synchronous timeline per stream: when a call returns, its work is
 * done. One lock guards all tables; no call out of this library (a callback) is made under it.
 */
#ifndef KDBTOOL_SIMGPU_INTERNAL_H
#define KDBTOOL_SIMGPU_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/hip6.h"

#define SIM_EXPORT __attribute__((visibility("default")))
/* The definition of an exported function; abi/generate.py reads these names. Exported functions are
 * not called from inside: a preloaded recorder would take such a call for one of the program's. */
#define SIM_API_OF(type, name) SIM_EXPORT type name
#define SIM_API(name) SIM_API_OF(int, name)

enum sim_error {
#define X(name, number, text) name = number,
#include "abi/errors.def"
#undef X
};

/* ---- errors.c */
/* Remember `error` as this thread's last one, unless it is success or "not ready"; returns it. */
int sim_return(int error);
#define NEED(condition, error)                                                                               \
    do {                                                                                                     \
        if (!(condition))                                                                                    \
            return sim_return(error);                                                                        \
    } while (0)
#define NEED_DEVICE() NEED(sim_spec() != NULL, hipErrorNoDevice)
#define NEED_DEVICE_0(device)                                                                                \
    NEED_DEVICE();                                                                                           \
    NEED((device) == 0, hipErrorInvalidDevice)

/* ---- spec.c: what $KDBTOOL_SIMGPU says */
enum sim_feature { SIM_UNSUPPORTED, SIM_ANY, SIM_OFF, SIM_ON };

struct sim_spec {
    char arch[32], device[64], name[128];
    enum sim_feature xnack, sramecc;
    uint64_t mem, mach, cu, warp, lds, major, minor, clock_khz, mem_clock_khz, bus_bits, l2, integrated;
};
/* The device, or NULL when the environment describes none. */
const struct sim_spec *sim_spec(void);
/* Split "gfx906:sramecc+:xnack-" (`n` bytes); false unless it is a well-formed target id. */
bool sim_target_id(const char *id, size_t n, char arch[32], enum sim_feature *xnack,
                   enum sim_feature *sramecc);
/* Can code for `object` run on a device that has `device`? */
bool sim_feature_fits(enum sim_feature object, enum sim_feature device);

/* ---- log.c: $KDBTOOL_SIMGPU_LOG */
struct sim_stub {
    const char *name;
    atomic_uint calls;
};
extern struct sim_stub sim_stubs[];
extern const unsigned sim_stub_count;
extern struct sim_counts {
    atomic_ullong launches, fatbin_launches, modules, modules_refused;
} sim_counts;
int sim_unsupported(struct sim_stub *stub);
__attribute__((format(printf, 1, 2))) void sim_log(const char *format, ...);
/* Make `text` printable in place, so that one event stays one line. */
char *sim_printable(char *text);

/* ---- handles.c: the lock, and handles that stay readable after they are destroyed */
void sim_lock(void);
void sim_unlock(void);
enum sim_kind {
    SIM_STREAM = 0x5353494d,
    SIM_EVENT = 0x4553494d,
    SIM_MODULE = 0x4d53494d,
    SIM_FUNCTION = 0x4653494d
};

struct sim_handle {
    _Atomic uint32_t kind; /* 0 once destroyed */
    uint32_t flags;
    int priority;
    _Atomic uint64_t clock; /* stream: its time in ns; event: when recorded, 0 = never */
    void *data;             /* module: struct sim_module; function: struct sim_kernel */
    struct sim_handle *next;
};
/* A new handle, or NULL when memory is out. Takes the lock. */
struct sim_handle *sim_handle_new(enum sim_kind kind);
/* False, and nothing done, unless it was a live handle of that kind: two threads may destroy at once. */
bool sim_handle_free(struct sim_handle *handle, enum sim_kind kind);
bool sim_handle_is(const struct sim_handle *handle, enum sim_kind kind);
/* The stream of a handle, the default one for NULL and its two constants; NULL when there is none. */
struct sim_handle *sim_stream(struct sim_handle *stream);

/* ---- memory.c */
enum sim_memory { SIM_DEVICE = 1, SIM_HOST, SIM_MANAGED, SIM_REGISTERED };

struct sim_alloc {
    uintptr_t base;
    size_t size, mapped;
    enum sim_memory kind;
    unsigned flags;
    uint64_t id;
};
/* Reserve `size` bytes, zero, uncommitted; hipErrorOutOfMemory past the device's memory. 0 bytes: NULL. */
int sim_alloc(void **out, size_t size, enum sim_memory kind, unsigned flags);
int sim_free(void *pointer, bool host);
/* The allocation that `pointer` lies in. */
bool sim_find(const void *pointer, struct sim_alloc *out);
/* False when `pointer` is in an allocation that ends before `size` bytes more. */
bool sim_in_bounds(const void *pointer, size_t size);
uint64_t sim_memory_used(void);

/* ---- copy.c */
int sim_copy(void *to, const void *from, size_t size, int kind);

/* ---- elf.c: code objects, all of whose bytes are hostile */
struct sim_bytes {
    int fd;                    /* a file, or -1 for memory at `base` */
    const unsigned char *base; /* memory of unknown length: `size` is then only a ceiling */
    uint64_t size;
};
struct sim_kernel {
    const char *name; /* into the module's strings, without the ".kd" */
    uint32_t lds, scratch;
    struct sim_handle *handle; /* made when first asked for */
};
struct sim_global {
    const char *name;
    size_t size;
    void *device;
};
struct sim_any_kernel; /* of a stand-in, see elf.c */
struct sim_module {
    char *strings;
    struct sim_kernel *kernels; /* sorted by name */
    struct sim_global *globals;
    size_t kernel_count, global_count;
    bool any;                     /* a stand-in: it has every kernel that it is asked for */
    struct sim_any_kernel *asked; /* those, newest first; under the lock */
    uint64_t size;                /* bytes of the object's extent */
    char target[64];              /* as in the bundle or from e_flags, for the log */
    const char *why;              /* static text, set with an error */
};
/* Read the object for this device out of an ELF file or an offload bundle; a hipError. */
int sim_module_read(const struct sim_bytes *bytes, struct sim_module *module);
void sim_module_clear(struct sim_module *module);
/* Takes the lock for a stand-in. NULL: there is none of that name. */
struct sim_kernel *sim_module_kernel(struct sim_module *module, const char *name);

/* ---- launch.c */
/* Time of a kernel on the simulated device in ns: see docs/simulated-gpu.md. */
uint64_t sim_kernel_time(const char *name, uint64_t work_items);
int sim_launch(const char *name, const uint32_t grid[3], const uint32_t block[3], uint64_t lds,
               struct sim_handle *stream, struct sim_handle *start, struct sim_handle *stop);
int sim_occupancy(int *blocks, int block_size, size_t lds);
int sim_best_block(int *grid, int *block, size_t lds, int limit);

#endif
