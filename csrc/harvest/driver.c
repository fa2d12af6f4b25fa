/* Walks convolution problems through the real libMIOpen, one line of standard input each, and writes what
 * came of each step to the file descriptor of its argument: nothing else is printed, and a crash loses no
 * finished line. It ends with its parent.
 *
 * A problem:  INDEX SECONDS WAY DIMS GROUPS  x w y (each: TYPE CAST, lengths, strides)  pads strides
 *             dilations  ACTION
 * numbers and single letters parted by blanks: WAY F, B or W; DIMS 4 or 5; TYPE and CAST as in MIOpen's
 * miopenDataType_t, CAST -1 for none. x and y as a forward convolution has them. ACTION is `find`,
 * `offered`, or solver ids (miopenConvSolution_t::solution_id) from SKIP on, as `ids ID...`.
 *
 * Answers:    p INDEX                          the problem begins
 *             s INDEX STEP SOLVER STATUS COUNT a step ended; COUNT look-ups were answered by then
 *             e INDEX STATUS COUNT             the problem ended; STATUS of its descriptors, else 0
 * STEP: c compile, x execute (each by a new handle, since a handle remembers: the two ask for the two
 * spellings of a key), f find and g execute what it found, o the offered solutions were asked for.
 * A problem that takes longer than SECONDS ends the process by SIGALRM. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "harvest.h"

enum { NO_CASTS = -1, NO_MEMORY = -2 }; /* among MIOpen's statuses, which are not negative */
enum { MAX_DIMS = 5, MAX_IDS = 512, MAX_FOUND = 256, BAD_USAGE = 2, NO_LIBRARY = 3 };

typedef void *handle_t;
typedef struct { /* miopenConvSolution_t, miopen.h 2.15 to 3.5 */
    float time;
    size_t workspace;
    uint64_t id;
    int algorithm;
} solution_t;
typedef struct { /* miopenConvAlgoPerf_t */
    int algorithm;
    float time;
    size_t memory;
} perf_t;

struct tensor {
    int type, cast, dims[MAX_DIMS], strides[MAX_DIMS];
    handle_t desc;
    void *data;
};

struct problem {
    long index;
    unsigned seconds;
    char way;
    int n, groups;
    struct tensor x, w, y;
    int pads[3], strides[3], dilations[3];
    char action[16];
    uint64_t ids[MAX_IDS];
    int id_count;
    handle_t conv;
};

/* ---- the libraries, by name: no header of theirs is needed to build this */
static struct {
    int (*create)(handle_t *), (*destroy)(handle_t);
    int (*create_tensor)(handle_t *), (*destroy_tensor)(handle_t);
    int (*set_tensor)(handle_t, int, int, const int *, const int *);
    int (*set_cast)(handle_t, int);
    int (*create_conv)(handle_t *), (*destroy_conv)(handle_t);
    int (*init_conv)(handle_t, int, const int *, const int *, const int *, int);
    int (*set_groups)(handle_t, int);
    int (*malloc)(void **, size_t), (*free)(void *);
} api;

typedef int (*workspace_fn)(handle_t, handle_t, handle_t, handle_t, handle_t, size_t *);
typedef int (*count_fn)(handle_t, handle_t, handle_t, handle_t, handle_t, size_t *);
typedef int (*offer_fn)(handle_t, handle_t, handle_t, handle_t, handle_t, size_t, size_t *, solution_t *);
typedef int (*of_solution_fn)(handle_t, handle_t, handle_t, handle_t, handle_t, uint64_t, size_t *);
typedef int (*compile_fn)(handle_t, handle_t, handle_t, handle_t, handle_t, uint64_t);
typedef int (*immediate_fn)(handle_t, handle_t, const void *, handle_t, const void *, handle_t, handle_t,
                            void *, void *, size_t, uint64_t);
typedef int (*find_fn)(handle_t, handle_t, const void *, handle_t, const void *, handle_t, handle_t, void *,
                       int, int *, perf_t *, void *, size_t, bool);
typedef int (*run_fn)(handle_t, const void *, handle_t, const void *, handle_t, const void *, handle_t, int,
                      const void *, handle_t, void *, void *, size_t);

static struct way {
    char letter;
    const char *name, *find_name;
    workspace_fn workspace;
    count_fn count;
    offer_fn offer;
    of_solution_fn of_solution;
    compile_fn compile;
    immediate_fn immediate;
    find_fn find;
    run_fn run;
} ways[] = {{.letter = 'F', .name = "Forward"},
            {.letter = 'B', .name = "BackwardData"},
            {.letter = 'W', .name = "BackwardWeights"}};

static void *needed(const char *name) {
    void *found = dlsym(RTLD_DEFAULT, name);
    if (!found) {
        dprintf(STDERR_FILENO, "no function %s\n", name);
        exit(NO_LIBRARY);
    }
    return found;
}

static void *of_way(const char *before, const char *way, const char *after) {
    char name[128];
    snprintf(name, sizeof name, "miopen%s%s%s", before, way, after);
    return needed(name);
}

static uint64_t (*answered)(void);

static void open_libraries(const char *soname) {
    if (!dlopen(soname, RTLD_NOW | RTLD_GLOBAL)) {
        dprintf(STDERR_FILENO, "%s\n", dlerror());
        exit(NO_LIBRARY);
    }
#define GET(field, name) *(void **)&api.field = needed(name)
    GET(create, "miopenCreate");
    GET(destroy, "miopenDestroy");
    GET(create_tensor, "miopenCreateTensorDescriptor");
    GET(destroy_tensor, "miopenDestroyTensorDescriptor");
    GET(set_tensor, "miopenSetTensorDescriptor");
    *(void **)&api.set_cast = dlsym(RTLD_DEFAULT, "miopenSetTensorCastType"); /* from 6.0 on */
    GET(create_conv, "miopenCreateConvolutionDescriptor");
    GET(destroy_conv, "miopenDestroyConvolutionDescriptor");
    GET(init_conv, "miopenInitConvolutionNdDescriptor");
    GET(set_groups, "miopenSetConvolutionGroupCount");
    GET(malloc, "hipMalloc");
    GET(free, "hipFree");
    *(void **)&answered = needed("kdb_harvest_answered");
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct way *w = &ways[i];
        *(void **)&w->workspace = of_way("Convolution", w->name, "GetWorkSpaceSize");
        *(void **)&w->count = of_way("Convolution", w->name, "GetSolutionCount");
        *(void **)&w->offer = of_way("Convolution", w->name, "GetSolution");
        *(void **)&w->of_solution = of_way("Convolution", w->name, "GetSolutionWorkspaceSize");
        *(void **)&w->compile = of_way("Convolution", w->name, "CompileSolution");
        *(void **)&w->immediate = of_way("Convolution", w->name, "Immediate");
        *(void **)&w->find = of_way("FindConvolution", w->name, "Algorithm");
        *(void **)&w->run = of_way("Convolution", w->name, "");
    }
}

/* ---- a line */
static bool number(char **at, long *out) {
    char *end;
    long value = strtol(*at, &end, 10);
    if (end == *at)
        return false;
    *at = end;
    *out = value;
    return true;
}

static bool ints(char **at, int n, int *out) {
    for (int i = 0; i < n; i++) {
        long value;
        if (!number(at, &value) || value < INT32_MIN || value > INT32_MAX)
            return false;
        out[i] = (int)value;
    }
    return true;
}

static bool word(char **at, size_t size, char *out) {
    int read = 0;
    char format[16];
    snprintf(format, sizeof format, " %%%zus%%n", size - 1);
    if (sscanf(*at, format, out, &read) != 1)
        return false;
    *at += read;
    return true;
}

static bool tensor(char **at, int n, struct tensor *t) {
    return ints(at, 1, &t->type) && ints(at, 1, &t->cast) && ints(at, n, t->dims) && ints(at, n, t->strides);
}

static bool parse(char *line, struct problem *p) {
    memset(p, 0, sizeof *p);
    char *at = line, way[2];
    long seconds, id;
    if (!number(&at, &p->index) || !number(&at, &seconds) || !word(&at, sizeof way, way) ||
        !ints(&at, 1, &p->n) || p->n < 4 || p->n > MAX_DIMS || !ints(&at, 1, &p->groups))
        return false;
    p->seconds = (unsigned)seconds;
    p->way = way[0];
    int spatial = p->n - 2;
    if (!tensor(&at, p->n, &p->x) || !tensor(&at, p->n, &p->w) || !tensor(&at, p->n, &p->y) ||
        !ints(&at, spatial, p->pads) || !ints(&at, spatial, p->strides) ||
        !ints(&at, spatial, p->dilations) || !word(&at, sizeof p->action, p->action))
        return false;
    while (p->id_count < MAX_IDS && number(&at, &id))
        p->ids[p->id_count++] = (uint64_t)id;
    return true;
}

/* ---- one problem */
static int out_fd;

static void say(const char *what, long index, const char *rest) {
    char line[160];
    int n = snprintf(line, sizeof line, "%s %ld%s\n", what, index, rest);
    if (write(out_fd, line, (size_t)n) != n)
        _exit(BAD_USAGE);
}

static void ended(const struct problem *p, char step, uint64_t solver, int status) {
    char rest[96];
    snprintf(rest, sizeof rest, " %c %llu %d %llu", step, (unsigned long long)solver, status,
             (unsigned long long)answered());
    say("s", p->index, rest);
}

static size_t bytes_of(const struct tensor *t, int n) {
    /* by miopenDataType_t: half, float, int32, int8, int8x4, bfloat16, double, float8, bfloat8, int64 */
    static const unsigned char sizes[] = {2, 4, 4, 1, 4, 2, 8, 1, 1, 8};
    size_t last = 0;
    for (int i = 0; i < n; i++)
        last += (size_t)(t->dims[i] - 1) * (size_t)t->strides[i];
    return (last + 1) * (t->type >= 0 && t->type < (int)sizeof sizes ? sizes[t->type] : 8);
}

static int make_tensor(struct tensor *t, int n) {
    int status = api.create_tensor(&t->desc);
    if (status == 0)
        status = api.set_tensor(t->desc, t->type, n, t->dims, t->strides);
    if (status == 0 && t->cast >= 0)
        status = api.set_cast ? api.set_cast(t->desc, t->cast) : NO_CASTS;
    if (status == 0)
        status = api.malloc(&t->data, bytes_of(t, n)) == 0 ? 0 : NO_MEMORY;
    return status;
}

static int make(struct problem *p) {
    int status = make_tensor(&p->x, p->n);
    if (status == 0)
        status = make_tensor(&p->w, p->n);
    if (status == 0)
        status = make_tensor(&p->y, p->n);
    if (status == 0)
        status = api.create_conv(&p->conv);
    if (status == 0)
        status = api.init_conv(p->conv, p->n - 2, p->pads, p->strides, p->dilations, 0);
    if (status == 0)
        status = api.set_groups(p->conv, p->groups);
    return status;
}

static void clear_tensor(struct tensor *t) {
    if (t->data)
        api.free(t->data);
    if (t->desc)
        api.destroy_tensor(t->desc);
}

static void clear(struct problem *p) {
    clear_tensor(&p->x);
    clear_tensor(&p->w);
    clear_tensor(&p->y);
    if (p->conv)
        api.destroy_conv(p->conv);
}

/* The three operands in the order of immediate mode: F w x y, B dy w dx, W dy x dw. */
static void operands(struct problem *p, struct tensor *out[3]) {
    out[0] = p->way == 'F' ? &p->w : &p->y;
    out[1] = p->way == 'B' ? &p->w : &p->x;
    out[2] = p->way == 'F' ? &p->y : p->way == 'B' ? &p->x : &p->w;
}

static int compile(const struct way *way, struct tensor *t[3], handle_t conv, uint64_t id) {
    handle_t handle;
    int status = api.create(&handle);
    if (status)
        return status;
    status = way->compile(handle, t[0]->desc, t[1]->desc, conv, t[2]->desc, id);
    api.destroy(handle);
    return status;
}

static int execute(const struct way *way, struct tensor *t[3], handle_t conv, uint64_t id) {
    handle_t handle;
    void *space = NULL;
    size_t bytes = 0;
    int status = api.create(&handle);
    if (status)
        return status;
    /* One that is not applicable has no workspace size, but Immediate does not look: it asks for its kernels.
     */
    int applicable = way->of_solution(handle, t[0]->desc, t[1]->desc, conv, t[2]->desc, id, &bytes);
    if (applicable == 0 && bytes)
        status = api.malloc(&space, bytes) == 0 ? 0 : NO_MEMORY;
    if (status == 0)
        status = way->immediate(handle, t[0]->desc, t[0]->data, t[1]->desc, t[1]->data, conv, t[2]->desc,
                                t[2]->data, space, applicable == 0 ? bytes : 0, id);
    if (space)
        api.free(space);
    api.destroy(handle);
    return applicable ? applicable : status;
}

static void each(const struct problem *p, const struct way *way, struct tensor *t[3], uint64_t id) {
    ended(p, 'c', id, compile(way, t, p->conv, id));
    ended(p, 'x', id, execute(way, t, p->conv, id));
}

static void offered(const struct problem *p, const struct way *way, struct tensor *t[3]) {
    static solution_t found[MAX_FOUND];
    handle_t handle;
    size_t count = 0;
    int status = api.create(&handle);
    if (status == 0) {
        status = way->count(handle, t[0]->desc, t[1]->desc, p->conv, t[2]->desc, &count);
        size_t wanted = count < MAX_FOUND ? count : MAX_FOUND;
        count = 0;
        if (status == 0 && wanted)
            status = way->offer(handle, t[0]->desc, t[1]->desc, p->conv, t[2]->desc, wanted, &count, found);
        api.destroy(handle);
    }
    ended(p, 'o', count, status);
    for (size_t i = 0; status == 0 && i < count && i < MAX_FOUND; i++)
        each(p, way, t, found[i].id);
}

static void find(const struct problem *p, const struct way *way, struct tensor *t[3]) {
    static perf_t found[16];
    static const float one = 1, zero = 0;
    handle_t handle;
    void *space = NULL;
    size_t bytes = 0;
    int count = 0, status = api.create(&handle);
    if (status) {
        ended(p, 'f', 0, status);
        return;
    }
    /* Find takes x or dy before w, immediate mode w before x: swap for forward. */
    struct tensor *a = p->way == 'F' ? t[1] : t[0], *b = p->way == 'F' ? t[0] : t[1];
    status = way->workspace(handle, t[0]->desc, t[1]->desc, p->conv, t[2]->desc, &bytes);
    if (status == 0 && bytes)
        status = api.malloc(&space, bytes) == 0 ? 0 : NO_MEMORY;
    if (status == 0)
        status = way->find(handle, a->desc, a->data, b->desc, b->data, p->conv, t[2]->desc, t[2]->data, 16,
                           &count, found, space, bytes, false);
    ended(p, 'f', 0, status);
    if (status == 0 && count) {
        status = way->run(handle, &one, a->desc, a->data, b->desc, b->data, p->conv, found[0].algorithm,
                          &zero, t[2]->desc, t[2]->data, space, bytes);
        ended(p, 'g', 0, status);
    }
    if (space)
        api.free(space);
    api.destroy(handle);
}

static void walk(struct problem *p) {
    const struct way *way = &ways[p->way == 'F' ? 0 : p->way == 'B' ? 1 : 2];
    struct tensor *t[3];
    char rest[64];
    operands(p, t);
    alarm(p->seconds);
    say("p", p->index, "");
    int status = make(p);
    if (status == 0 && strcmp(p->action, "find") == 0)
        find(p, way, t);
    else if (status == 0 && strcmp(p->action, "offered") == 0)
        offered(p, way, t);
    else
        for (int i = 0; status == 0 && i < p->id_count; i++)
            each(p, way, t, p->ids[i]);
    clear(p);
    alarm(0);
    snprintf(rest, sizeof rest, " %d %llu", status, (unsigned long long)answered());
    say("e", p->index, rest);
}

int main(int argc, char **argv) {
    char *line = NULL;
    size_t size = 0;
    struct problem p;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (argc != 3) {
        dprintf(STDERR_FILENO, "usage: kdbharvest LIBMIOPEN FD\n");
        return BAD_USAGE;
    }
    out_fd = atoi(argv[2]);
    open_libraries(argv[1]);
    while (getline(&line, &size, stdin) > 0) {
        if (!parse(line, &p)) {
            dprintf(STDERR_FILENO, "not a problem: %s", line);
            return BAD_USAGE;
        }
        walk(&p);
    }
    free(line);
    return 0;
}
