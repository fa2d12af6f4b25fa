/* The selection's grammar and what it keeps: see selection.h. */
#define _GNU_SOURCE
#include "selection.h"

#include <locale.h>
#include <regex.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int wrong(char *why, size_t room, const char *name, const char *what) {
    if (room)
        snprintf(why, room, "%.32s: %s", name, what);
    return -1;
}

/* A number that ends at one of `ends`; what follows it in *rest. */
static bool number(const char *text, const char *ends, uint64_t most, uint64_t *value, const char **rest) {
    int digits = 0;
    *value = 0;
    for (; *text >= '0' && *text <= '9' && digits < 19; text++, digits++)
        *value = *value * 10 + (uint64_t)(*text - '0');
    *rest = text;
    return digits && *value <= most && (!*text || strchr(ends, *text));
}

static bool whole(const char *text, uint64_t least, uint64_t most, uint64_t *value) {
    const char *rest;
    return number(text, "", most, value, &rest) && !*rest && *value >= least;
}

/* "0,2-3" */
static bool spans(const char *text, struct kdbt_span *span, uint32_t *count) {
    const char *rest = text;
    do {
        uint64_t low, high;
        if (*count == KDBT_SELECT_SPANS || !number(text, ",-", KDBT_SELECT_NUMBER, &low, &rest))
            return false;
        high = low;
        if (*rest == '-' && (!number(rest + 1, ",", KDBT_SELECT_NUMBER, &high, &rest) || high < low))
            return false;
        span[(*count)++] = (struct kdbt_span){(uint32_t)low, (uint32_t)high};
        text = rest + 1;
    } while (*rest == ',');
    return true;
}

static bool iterations(const char *text, uint64_t *from, uint64_t *to) {
    const char *rest = text;
    *from = 0;
    *to = UINT64_MAX;
    if (*text != ':' && !number(text, ":", UINT64_MAX, from, &rest))
        return false;
    return *rest == ':' && (!rest[1] ? rest > text : whole(rest + 1, *from + 1, UINT64_MAX, to));
}

/* One line; `name` and `value` stand in s->text. */
static int line(struct kdbt_selection *s, const char *name, const char *value, uint32_t *seen, char *why,
                size_t room) {
    static const char *const names[] = {"kernel", "every",  "first",  "iterations", "device",
                                        "rank",   "paused", "signal", "region",     NULL};
    uint32_t at = (uint32_t)(value - s->text);
    uint64_t n = 0;
    int which = 0;
    while (names[which] && strcmp(name, names[which]) != 0)
        which++;
    if (!names[which])
        return wrong(why, room, name, "no such filter");
    if (*seen >> which & 1 && which != 8)
        return wrong(why, room, name, "given twice");
    *seen |= 1u << which;
    if (!*value)
        return wrong(why, room, name, "empty");
    switch (which) {
    case 0:
        s->kernel = at;
        return 0;
    case 1:
        return whole(value, 1, UINT64_MAX, &s->every) ? 0 : wrong(why, room, name, "not a number from 1 on");
    case 2:
        return whole(value, 1, UINT64_MAX, &s->first) ? 0 : wrong(why, room, name, "not a number from 1 on");
    case 3:
        return iterations(value, &s->from, &s->to)
                   ? 0
                   : wrong(why, room, name, "not A:B with A below B (A: and :B are open)");
    case 4:
        return spans(value, s->device, &s->devices) ? 0 : wrong(why, room, name, "not numbers like 0,2-3");
    case 5:
        return spans(value, s->rank, &s->ranks) ? 0 : wrong(why, room, name, "not numbers like 0,2-3");
    case 6:
        if (strcmp(value, "1") != 0)
            return wrong(why, room, name, "not 1");
        s->paused = 1;
        return 0;
    case 7:
        if (!whole(value, 1, 64, &n) || n == SIGKILL || n == SIGSTOP || n == SIGSEGV || n == SIGBUS ||
            n == SIGFPE || n == SIGILL || n == SIGTRAP || n == SIGABRT || n == 32 || n == 33)
            return wrong(why, room, name, "not a signal that can be had");
        s->signal = (int32_t)n;
        return 0;
    default:
        if (s->regions == KDBT_SELECT_REGIONS)
            return wrong(why, room, name, "too many");
        s->region[s->regions++] = at;
        return 0;
    }
}

int kdbt_select_parse(struct kdbt_selection *s, const char *text, char *why, size_t room) {
    uint32_t seen = 0;
    memset(s, 0, sizeof *s);
    s->every = 1;
    s->first = s->to = UINT64_MAX;
    /* text[0] stays 0: no value stands there */
    if (strlen(text) + 2 > sizeof s->text)
        return wrong(why, room, "selection", "too long");
    strcpy(s->text + 1, text);
    for (char *at = s->text + 1, *next; *at; at = next) {
        char *end = strchr(at, '\n');
        next = end ? end + 1 : at + strlen(at);
        if (end)
            *end = 0;
        if (!*at)
            continue;
        char *value = strchr(at, '=');
        if (!value)
            return wrong(why, room, at, "not name=value");
        *value++ = 0;
        if (line(s, at, value, &seen, why, room) != 0)
            return -1;
    }
    if (s->paused && !s->signal && !s->regions)
        return wrong(why, room, "paused", "needs a signal or a region that ends it");
    return 0;
}

static int within(const struct kdbt_span *span, uint32_t count, uint64_t value) {
    for (uint32_t i = 0; i < count; i++)
        if (value >= span[i].low && value <= span[i].high)
            return 1;
    return count == 0;
}

int kdbt_select_device(const struct kdbt_selection *s, uint32_t device) {
    return within(s->device, s->devices, device);
}

int kdbt_select_rank(const struct kdbt_selection *s, int64_t rank) {
    return rank < 0 ? s->ranks == 0 : within(s->rank, s->ranks, (uint64_t)rank);
}

int kdbt_select_region(const struct kdbt_selection *s, const char *name) {
    for (uint32_t i = 0; i < s->regions; i++)
        if (strcmp(name, s->text + s->region[i]) == 0)
            return 1;
    return 0;
}

int kdbt_select_numbers(const struct kdbt_selection *s) {
    return s->every > 1 || s->first != UINT64_MAX || s->from > 0 || s->to != UINT64_MAX;
}

int kdbt_select_judges(const struct kdbt_selection *s) {
    return s->kernel || s->devices || kdbt_select_numbers(s);
}

int kdbt_select_nth(const struct kdbt_selection *s, uint64_t n) {
    return n >= s->from && n < s->to && n - s->from < s->first && (n - s->from) % s->every == 0;
}

/* ---- patterns ---- */

static locale_t c_locale(void) {
    return newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

void *kdbt_pattern_new(const char *text, char *why, size_t room) {
    regex_t *made = malloc(sizeof *made);
    locale_t c = c_locale(), host = c ? uselocale(c) : (locale_t)0;
    int error = made ? regcomp(made, text, REG_EXTENDED | REG_NOSUB) : REG_ESPACE;
    if (error && room)
        regerror(error, made, why, room);
    if (c) {
        uselocale(host);
        freelocale(c);
    }
    if (!error)
        return made;
    free(made);
    return NULL;
}

int kdbt_pattern_matches(const void *pattern, const char *name) {
    return regexec(pattern, name, 0, NULL, 0) == 0;
}

void kdbt_pattern_free(void *pattern) {
    if (pattern)
        regfree(pattern);
    free(pattern);
}
