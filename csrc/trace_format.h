/* Trace v1: the one definition of what is in a .kdbtrace file (docs/trace-format.md).
 *
 * The recorder writes these structs, cffi reads this very file (shim/build_trace.py), so C and
 * Python cannot drift. Only plain C declarations below the guard: cffi takes nothing else. Sizes
 * are asserted in csrc/recorder/crc.c. All numbers are in the byte order of the machine that
 * recorded; `byte_order` tells it. A field is never reused or moved within a version. */
#ifndef KDBT_TRACE_FORMAT_H
#define KDBT_TRACE_FORMAT_H
#include <stddef.h>
#include <stdint.h>

enum kdbt_limits {
    KDBT_VERSION = 1,
    KDBT_BYTE_ORDER = 0x01020304,
    KDBT_HEADER_BYTES = 4096, /* the first block begins here */
    KDBT_LEFT_OUT_AT = 320,
    KDBT_BLOCK_ALIGN = 4096, /* each block begins at a multiple of this */
    KDBT_BLOCK_MAGIC = 0x4b4c424b,
    KDBT_RECORD_MAX = 16777216, /* bytes of one record */
    KDBT_TICK_SHIFT = 4,        /* a launch's `delta` counts 1 << this clock ticks */
    KDBT_STOP_LIMIT = 4096      /* a `stop_errno` that is no errno: the size that was asked for is reached */
};

enum kdbt_role {
    KDBT_ROLE_HOST = 0,
    KDBT_ROLE_COMPILER = 1, /* a compiler driver: one per compiler that somebody started */
    KDBT_ROLE_FRONTEND = 2, /* clang -cc1, started by such a driver */
    KDBT_ROLE_LINKER = 3,
    KDBT_ROLE_BUNDLER = 4,
    KDBT_ROLE_WRAPPER = 5, /* hipcc: starts a compiler of its own */
    KDBT_ROLE_SAMPLER = 6  /* kdbtool record itself: clocks of the cards, nothing else */
};

enum kdbt_clock_kind { KDBT_CLOCK_NANOSECONDS = 1, KDBT_CLOCK_TSC = 2 };

/* At offset 0. The bytes from `version` up to `header_check` never change once the file has its
 * name; what follows is counted up while the process runs. */
struct kdbt_header {
    uint8_t magic[8]; /* "KDBTRACE" */
    uint32_t version;
    uint32_t byte_order;
    uint32_t header_bytes; /* KDBT_HEADER_BYTES */
    uint32_t pid;
    uint32_t ppid;
    uint32_t role;  /* enum kdbt_role */
    uint32_t clock; /* enum kdbt_clock_kind: what `ticks` count */
    uint32_t tick_shift;
    uint64_t load_ns; /* CLOCK_MONOTONIC and ticks when the recorder was loaded, */
    uint64_t load_ticks;
    uint64_t start_ns; /* and when this file was made: two points of the clock's line */
    uint64_t start_ticks;
    uint64_t start_realtime_ns; /* Unix time at start_ns */
    char host[64];              /* node name, zero-terminated */
    char exe[64];               /* base name of the program */
    uint32_t header_check;      /* crc32 of the bytes from `version` to here */
    uint32_t stop_errno;        /* not 0: recording stopped for this reason (28: the disk is full) */
    uint64_t dropped;           /* events that could not be recorded */
    uint64_t file_bytes;        /* where the last block ends: a shorter file was cut; 0: not known */
    uint64_t unselected;        /* events that the selection left out, beside kdbt_left_out */
    uint64_t section_bytes; /* merged: bytes of this trace, the next begins at the next page; 0: the last */
    uint32_t part;          /* 0, 1, ...: a trace that is rotated begins anew, with all it refers to */
    uint32_t deepbound;     /* libraries loaded with RTLD_DEEPBIND or into another namespace */
    uint64_t removed;       /* launches in earlier parts, which were removed to stay below a size */
};

/* In the header's page, at KDBT_LEFT_OUT_AT. Each eighth: events that the selection left out, of some of
 * the threads; a cache line each. */
struct kdbt_left_out {
    uint64_t events[448];
};

/* Blocks follow each other from header_bytes on. A block belongs to one thread. */
struct kdbt_block {
    uint32_t magic;
    uint32_t bytes;     /* whole block, this header included; a multiple of KDBT_BLOCK_ALIGN */
    uint32_t thread;    /* number of the thread within the process, from 1: never reused */
    uint32_t tid;       /* the kernel's thread id: can be reused */
    uint32_t sequence;  /* 0, 1, ... within the thread */
    uint32_t check;     /* crc32 of the fields above */
    uint64_t ticks;     /* when the block was begun */
    uint32_t committed; /* bytes of whole records after this header; grows while it is written */
    uint32_t closed;    /* 1: the thread went on in another block, or ended */
    uint64_t launches;  /* these three are the recorder's own: launches in runs that are whole; */
    uint64_t counted;   /* launches that were counted when the file was removed; */
    uint64_t run;       /* where the run begins that is being added to, from the block on; 0 none */
};

enum kdbt_type {
    KDBT_FACT = 1,        /* struct kdbt_pair: name, value */
    KDBT_CLOCK = 2,       /* struct kdbt_clock: another point of the clock's line */
    KDBT_DATABASE = 3,    /* dictionary: text, the file of a connection */
    KDBT_KEY = 4,         /* dictionary: struct kdbt_pair: kernel name, kernel arguments */
    KDBT_STATEMENT = 5,   /* struct kdbt_statement: MIOpen asks a database for a key */
    KDBT_STEP = 6,        /* struct kdbt_step: what the database answered */
    KDBT_API = 7,         /* dictionary: text, name of a library function */
    KDBT_PROBLEM_KEY = 8, /* dictionary: text, a convolution as MIOpen's find-db spells it */
    KDBT_PROBLEM = 9,     /* struct kdbt_problem: a call with that convolution */
    KDBT_MODULE = 10,     /* dictionary: struct kdbt_module, then the target's text */
    KDBT_KERNEL = 11,     /* dictionary: struct kdbt_kernel, then the name's text */
    KDBT_SHAPE = 12,      /* dictionary: struct kdbt_shape: all of a launch but its time */
    KDBT_LAUNCHES = 13,   /* struct kdbt_launch, as many as fit `bytes` */
    KDBT_CALL = 14,       /* struct kdbt_call: a call that is no convolution with a find-db key */
    KDBT_DETAIL = 15,     /* dictionary: text, the descriptors of a call: name=value, by blanks */
    KDBT_COMPILE = 16,    /* struct kdbt_compile, then name, options (each ends with a zero byte) */
    KDBT_EXIT = 17,       /* struct kdbt_exit: how a compiler's process ended */
    KDBT_GRAPH = 18,      /* struct kdbt_graph: launch of a graph, whose kernels are not seen */
    KDBT_RANGE_NAME = 19, /* dictionary: text, of a ROCTx range or mark */
    KDBT_RANGE = 20,      /* struct kdbt_range */
    KDBT_SAMPLE = 21,     /* struct kdbt_sample: a device's clocks */
    KDBT_GATE = 22,       /* struct kdbt_gate: recording was paused or goes on */
    KDBT_OUTPUT = 23      /* struct kdbt_output: how large a compile's result is, once known */
};

/* Before each record's payload. Records begin at multiples of 8; `bytes` is the whole record with
 * this header and without the padding. */
struct kdbt_record {
    uint16_t type; /* enum kdbt_type; a reader skips what it does not know */
    uint16_t reserved;
    uint32_t bytes; /* 0: launches still being added, up to `committed` of the block */
    uint32_t check; /* crc32 of the record with 0 here; of a run of launches stored before `bytes` */
    uint32_t id;    /* of a dictionary record or a statement: unique in the file, from 1; else 0 */
    uint64_t ticks;
};

struct kdbt_pair {
    uint32_t name_bytes;
    uint32_t value_bytes;
};

struct kdbt_clock {
    uint64_t ns;
};

struct kdbt_statement {
    uint32_t key;
    uint32_t database;
};

struct kdbt_step {
    uint32_t statement;
    int32_t result; /* SQLite's: 100 a row, 101 done, 5 busy, others are errors */
};

struct kdbt_problem {
    uint32_t key; /* 0: a descriptor was set where the recorder could not see it */
    uint32_t api;
    int32_t algorithm; /* miopenConvAlgorithm_t; -1 none */
    int32_t result;    /* miopenStatus_t */
    uint64_t solution; /* 0 none */
    uint64_t workspace;
    uint64_t duration; /* ticks that the call took; the record's `ticks` is its begin */
};

enum kdbt_source {
    KDBT_FROM_MEMORY = 1,
    KDBT_FROM_FILE = 2,
    KDBT_FROM_FATBIN = 3,
    KDBT_FROM_BEFORE = 256 /* added to the source: loaded before this part began; no load of its own */
};

struct kdbt_module {
    uint8_t md5[16];   /* 0: not taken, of an object above 4 MiB or one that could not be read */
    uint64_t size;     /* 0: not known */
    uint64_t duration; /* ticks of the load */
    uint32_t source;   /* enum kdbt_source */
    int32_t result;    /* hipError_t */
};

struct kdbt_kernel {
    uint32_t module; /* 0: loaded where the recorder could not see it */
    uint32_t reserved;
};

enum kdbt_form {
    KDBT_LAUNCH_MODULE = 1,      /* of a module's function: grid in work-groups */
    KDBT_LAUNCH_EXT = 2,         /* hipExt- and hipHccModuleLaunchKernel: grid in work-items */
    KDBT_LAUNCH_COOPERATIVE = 3, /* of either kind: grid in work-groups */
    KDBT_LAUNCH_HOST = 4,        /* of a host function: grid in work-groups */
    KDBT_LAUNCH_CAPTURED = 256   /* added to the form: into a graph that is being captured, not run */
};

struct kdbt_shape {
    uint32_t kernel;
    uint32_t form;
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t lds;    /* dynamic local memory, bytes */
    uint32_t device; /* the stream's */
    uint64_t stream; /* a number that tells streams apart, not an address to use; 2: each thread's own */
};

struct kdbt_launch {
    uint32_t shape;
    uint32_t delta; /* since the launch before, or since the record's `ticks` */
};

struct kdbt_call {
    uint32_t api;
    uint32_t detail; /* 0 none */
    int32_t result;
    uint32_t nested;   /* 1: the library called it itself, inside another call */
    uint64_t duration; /* ticks; the record's `ticks` is its begin */
};

enum kdbt_compiler { KDBT_BY_PROCESS = 1, KDBT_BY_HIPRTC = 2, KDBT_BY_COMGR = 3 };

struct kdbt_compile {
    uint32_t by;       /* enum kdbt_compiler */
    int32_t result;    /* the library's; a process says it in KDBT_EXIT */
    uint32_t action;   /* COMGR: amd_comgr_action_kind_t, by the version in the facts; hipRTC: 1 a link */
    uint32_t nested;   /* 1: inside another compile of this thread (hipRTC calls COMGR) */
    uint64_t duration; /* ticks; the record's `ticks` is its begin; of a process 0 */
    uint64_t bytes;    /* of what came out; 0 not known: perhaps a KDBT_OUTPUT says it */
    uint32_t name_bytes;
    uint32_t option_bytes;
    uint32_t left_out; /* options that are not on the published list: counted, not kept */
    uint32_t starter;  /* of a process: pid of the program with MIOpen that started it, 0 none */
};

struct kdbt_output {
    uint32_t compile; /* id of the record */
    uint32_t reserved;
    uint64_t bytes;
};

struct kdbt_exit {
    int32_t code;
    uint32_t reserved;
    uint64_t duration; /* ticks from the process' begin */
};

struct kdbt_graph {
    uint64_t graph; /* tells executable graphs apart, not an address to use */
    uint64_t stream;
    uint32_t device;
    int32_t kernels; /* kernel nodes, where they could be counted; -1 not known */
};

enum kdbt_range_op {
    KDBT_RANGE_PUSH = 1,
    KDBT_RANGE_POP = 2,
    KDBT_RANGE_MARK = 3,
    KDBT_RANGE_START = 4, /* may be stopped by another thread */
    KDBT_RANGE_STOP = 5
};

struct kdbt_range {
    uint32_t op;
    uint32_t name; /* 0: of a pop or stop */
    uint64_t id;   /* of a start and its stop; else 0 */
};

enum kdbt_sampled {
    KDBT_SAMPLED_SCLK = 1,
    KDBT_SAMPLED_MCLK = 2,
    KDBT_SAMPLED_POWER = 4,
    KDBT_SAMPLED_TEMPERATURE = 8
};

struct kdbt_sample {
    uint32_t device; /* number of the card, as the facts name it */
    uint32_t valid;  /* enum kdbt_sampled, added */
    uint32_t sclk_khz;
    uint32_t mclk_khz;
    uint32_t power_uw;
    int32_t temperature_mc; /* thousandths of a degree Celsius */
};

enum kdbt_gate_cause { KDBT_GATE_START = 1, KDBT_GATE_SIGNAL = 2, KDBT_GATE_REGION = 3 };

struct kdbt_gate {
    uint32_t open; /* 1: recording goes on */
    uint32_t cause;
};

/* The same code checks in C and in Python. */
uint32_t kdbt_crc32(uint32_t crc, const void *data, size_t bytes);
uint32_t kdbt_record_check(const void *record, size_t bytes);
uint32_t kdbt_block_check(const void *block);
uint32_t kdbt_header_check(const void *header);

#endif
