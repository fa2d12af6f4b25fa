/* A kernel with pages of 64 KiB, as far as a file's mappings go. */
#include <dlfcn.h>
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

long sysconf(int name) {
    long (*real)(int) = (long (*)(int))dlsym(RTLD_NEXT, "sysconf");
    return name == _SC_PAGESIZE ? 65536 : real(name);
}

void *mmap(void *at, size_t bytes, int protect, int flags, int fd, off_t offset) {
    void *(*real)(void *, size_t, int, int, int, off_t) =
        (void *(*)(void *, size_t, int, int, int, off_t))dlsym(RTLD_NEXT, "mmap");
    if (fd < 0 || at)
        return real(at, bytes, protect, flags, fd, offset);
    if (offset % 65536) {
        errno = EINVAL;
        return MAP_FAILED;
    }
    /* at an address of 64 KiB, too: reserve more and take the aligned part */
    char *room = real(NULL, bytes + 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *aligned = room + (65536 - (unsigned long)room % 65536) % 65536;
    return real(aligned, bytes, protect, flags | MAP_FIXED, fd, offset);
}
