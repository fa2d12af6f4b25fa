/* Which events are kept (docs/selection.md): one grammar and one matcher, in the recorder and, through
 * cffi, in the reader. Nothing here knows of either. Plain C declarations below the guard: cffi takes
 * nothing else. */
#ifndef KDBT_SELECTION_H
#define KDBT_SELECTION_H
#include <stddef.h>
#include <stdint.h>

enum kdbt_selection_limits {
    KDBT_SELECT_BYTES = 4096, /* of the text, its end included */
    KDBT_SELECT_SPANS = 64,   /* numbers and ranges of device= and rank= */
    KDBT_SELECT_REGIONS = 16,
    KDBT_SELECT_NUMBER = 999999999 /* the largest device or rank */
};

struct kdbt_span {
    uint32_t low, high; /* both belong to it */
};

/* Lines of `name=value`: kernel=REGEX every=N first=N iterations=A:B device=0,2-3 rank=0 region=NAME
 * paused=1 signal=N. All but region= once at most. */
struct kdbt_selection {
    uint64_t every; /* 1: each */
    uint64_t first; /* how many at most */
    uint64_t from;  /* numbers of iterations, */
    uint64_t to;    /* `to` not among them */
    struct kdbt_span device[KDBT_SELECT_SPANS];
    struct kdbt_span rank[KDBT_SELECT_SPANS];
    uint32_t devices; /* spans; 0: all */
    uint32_t ranks;
    uint32_t kernel;                      /* where in `text` the pattern is; 0 none */
    uint32_t regions;                     /* 0: everywhere */
    uint32_t region[KDBT_SELECT_REGIONS]; /* where in `text` the names are */
    int32_t signal;                       /* that pauses and goes on; 0 none */
    uint32_t paused;                      /* 1: until the signal comes */
    char text[KDBT_SELECT_BYTES];
};

/* 0, or -1 and one line in `why`: what is wrong. Patterns are not compiled yet. */
int kdbt_select_parse(struct kdbt_selection *s, const char *text, char *why, size_t room);
int kdbt_select_device(const struct kdbt_selection *s, uint32_t device);
int kdbt_select_rank(const struct kdbt_selection *s, int64_t rank); /* -1: it has none */
int kdbt_select_region(const struct kdbt_selection *s, const char *name);
/* Whether single launches are judged at all; whether they have to be numbered, and whether number `n` (from
 * 0) of a kernel is kept. */
int kdbt_select_judges(const struct kdbt_selection *s);
int kdbt_select_numbers(const struct kdbt_selection *s);
int kdbt_select_nth(const struct kdbt_selection *s, uint64_t n);

/* A POSIX extended expression, in the C locale whatever the program's is; NULL and `why` if it is none.
 * Allocates; regexec takes a lock of the pattern's own, so not for two processes after a fork. */
void *kdbt_pattern_new(const char *text, char *why, size_t room);
int kdbt_pattern_matches(const void *pattern, const char *name);
void kdbt_pattern_free(void *pattern);

#endif
