/* $KDBTOOL_SIMGPU_LOG: one line per module load, per first call of a function that is not simulated,
 * and per process at exit. Lines are appended with one write each, so processes may share the file.
 * Without the variable nothing is written anywhere: the program's own streams are never touched.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

struct sim_counts sim_counts;
/* How another library in the process tells the simulated device from a real one. */
SIM_EXPORT extern const int kdbtool_simgpu;
const int kdbtool_simgpu = 1;

char *sim_printable(char *text) {
    for (char *c = text; *c; c++)
        if (*c < 0x20 || *c > 0x7e || *c == '"')
            *c = '?';
    return text;
}

void sim_log(const char *format, ...) {
    int before = errno;
    const char *path = secure_getenv("KDBTOOL_SIMGPU_LOG");
    if (!path || !*path)
        return;
    char line[1024];
    int n = snprintf(line, sizeof line, "pid=%ld ", (long)getpid());
    va_list args;
    va_start(args, format);
    int m = vsnprintf(line + n, sizeof line - (size_t)n - 1, format, args);
    va_end(args);
    size_t length = m < 0 ? (size_t)n : (size_t)(n + m);
    if (length > sizeof line - 2)
        length = sizeof line - 2;
    line[length++] = '\n';
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0) {
        /* A log that cannot be written must not disturb the program. */
        ssize_t written = write(fd, line, length);
        (void)written;
        close(fd);
    }
    errno = before;
}

int sim_unsupported(struct sim_stub *stub) {
    if (atomic_fetch_add(&stub->calls, 1) == 0)
        sim_log("unsupported function=%s", stub->name);
    return sim_return(hipErrorNotSupported);
}

__attribute__((destructor)) static void at_exit(void) {
    unsigned long long unsupported = 0;
    for (unsigned i = 0; i < sim_stub_count; i++)
        unsupported += atomic_load(&sim_stubs[i].calls);
    sim_log(
        "exit launches=%llu fatbin_launches=%llu modules=%llu modules_refused=%llu unsupported_calls=%llu",
        atomic_load(&sim_counts.launches), atomic_load(&sim_counts.fatbin_launches),
        atomic_load(&sim_counts.modules), atomic_load(&sim_counts.modules_refused), unsupported);
}
