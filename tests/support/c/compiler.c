/* A compiler that says what it was told on stdout and stderr, and ends as $END says: a code, abort, _exit or
 * fork (a child that exits with 9 and did not exec). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    const char *end = getenv("END") ? getenv("END") : "0";
    for (int i = 1; i < argc; i++)
        fprintf(i & 1 ? stdout : stderr, "%s\n", argv[i]);
    fflush(NULL);
    if (strcmp(end, "abort") == 0)
        abort();
    if (strcmp(end, "_exit") == 0)
        _exit(5);
    if (strcmp(end, "fork") == 0) {
        pid_t child = fork();
        if (child == 0)
            exit(9);
        waitpid(child, NULL, 0);
        return 3;
    }
    return atoi(end);
}
