/* A compiler's own process: who started it, what it compiles, how it ended.
 *
 * Something is said only of one that a program with libMIOpen started, a few processes up (sh, hipcc), and of
 * a compiler driver only if it compiles for a GPU: a Makefile's compilers have a header alone. Its
 * command line is not kept but for what options.c lists and the base name of its source. How it ended is
 * known where it calls exit: not after a signal, nor _exit, which lld calls. */
#include "compile.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LEVELS = 8 }; /* clang -cc1, clang, sh, hipcc.bin, hipcc, sh, and room */

static pid_t own;
static uint64_t begun;

static int open_of(long pid, const char *file) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/%s", pid, file);
    return open(path, O_RDONLY | O_CLOEXEC);
}

static bool has_miopen(long pid) {
    static const char LIBRARY[] = "/libMIOpen.so";
    enum { OVERLAP = sizeof LIBRARY - 2 };
    char text[16384];
    size_t have = 0;
    bool found = false;
    int fd = open_of(pid, "maps");
    while (fd >= 0 && !found) {
        ssize_t n = read(fd, text + have, sizeof text - have);
        if (n <= 0)
            break;
        have += (size_t)n;
        found = memmem(text, have, LIBRARY, sizeof LIBRARY - 1) != NULL;
        size_t keep = have < OVERLAP ? have : OVERLAP;
        memmove(text, text + have - keep, keep);
        have = keep;
    }
    if (fd >= 0)
        close(fd);
    return found;
}

static long parent_of(long pid) {
    char text[512];
    long parent = 0;
    int fd = open_of(pid, "stat");
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    const char *name_ends = strrchr(text, ')'); /* a program's name may hold anything */
    if (!name_ends || sscanf(name_ends + 1, " %*c %ld", &parent) != 1)
        return 0;
    return parent;
}

static uint32_t find_starter(void) {
    long pid = getppid();
    for (int i = 0; i < LEVELS && pid > 0; i++) {
        if (has_miopen(pid))
            return (uint32_t)pid;
        pid = parent_of(pid);
    }
    return 0;
}

static void ended(int status, void *unused) {
    (void)unused;
    if (getpid() != own) /* a child that forked and did not exec */
        return;
    struct kdb_thread *t = kdb_enter();
    if (!t)
        return;
    struct kdbt_exit e = {.code = status & 0xff, .duration = kdb_ticks() - begun};
    kdb_put(t, KDBT_EXIT, 0, kdb_ticks(), &e, sizeof e, NULL, 0, NULL, 0);
    kdb_leave();
}

void kdb_child(struct kdb_thread *t, int role, int argc, char **argv, uint64_t ticks) {
    struct kdb_options o = {.at = (char *)t->scratch, .room = KDB_OPTION_ROOM};
    struct kdb_name name = {""};
    if (role == KDBT_ROLE_COMPILER) {
        for (int i = 1; i < argc && argv[i]; i++)
            kdb_option(&o, argv[i]);
        kdb_options_end(&o);
        if (!o.device)
            return;
        kdb_name_of(&name, o.source);
    } else {
        for (int i = 1; i < argc && argv[i]; i++)
            o.left_out += argv[i][0] == '-';
    }
    struct kdbt_compile event = {
        .by = KDBT_BY_PROCESS, .option_bytes = o.used, .left_out = o.left_out, .starter = find_starter()};
    if (!event.starter)
        return;
    kdb_compiled(t, ticks, &event, name.text, o.at);
    own = getpid();
    begun = ticks;
    on_exit(ended, NULL);
}
