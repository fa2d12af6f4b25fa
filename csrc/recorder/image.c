/* A code object in memory or in a file: how long it is, its MD5, its target.
 *
 * Memory is read through process_vm_readv, so an image that lies about its size is an error code
 * here and not a fault in the host. */
#include "image.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "md5.h"

static const uint64_t MOST = (uint64_t)1 << 31;

bool kdb_read_memory(const void *from, void *to, size_t bytes) {
    struct iovec local = {to, bytes}, remote = {(void *)from, bytes};
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == (ssize_t)bytes;
}

/* Bytes from `from` on: of a file, or of our own memory when there is no file. */
static bool read_at(int fd, const char *memory, uint64_t from, void *to, size_t bytes) {
    if (fd >= 0)
        return pread(fd, to, bytes, (off_t)from) == (ssize_t)bytes;
    return kdb_read_memory(memory + from, to, bytes);
}

/* Section and program headers and their contents, whichever ends last. */
static uint64_t elf_bytes(const char *memory, unsigned char *scratch) {
    Elf64_Ehdr e;
    memcpy(&e, scratch, sizeof e);
    if (e.e_ident[EI_CLASS] != ELFCLASS64 || e.e_ident[EI_DATA] != ELFDATA2LSB)
        return 0;
    uint64_t end = sizeof e;
    if (e.e_shoff > MOST || e.e_phoff > MOST)
        return 0;
    if (e.e_shnum && e.e_shentsize == sizeof(Elf64_Shdr)) {
        uint64_t table = e.e_shoff + (uint64_t)e.e_shnum * sizeof(Elf64_Shdr);
        end = table > end ? table : end;
        for (unsigned i = 0; i < e.e_shnum; i++) {
            Elf64_Shdr s;
            if (!read_at(-1, memory, e.e_shoff + i * sizeof s, &s, sizeof s))
                return 0;
            if (s.sh_type != SHT_NOBITS && s.sh_offset < MOST && s.sh_size < MOST &&
                s.sh_offset + s.sh_size > end)
                end = s.sh_offset + s.sh_size;
        }
    }
    for (unsigned i = 0; i < e.e_phnum && e.e_phentsize == sizeof(Elf64_Phdr); i++) {
        Elf64_Phdr p;
        if (!read_at(-1, memory, e.e_phoff + i * sizeof p, &p, sizeof p))
            return 0;
        if (p.p_offset < MOST && p.p_filesz < MOST && p.p_offset + p.p_filesz > end)
            end = p.p_offset + p.p_filesz;
    }
    return end;
}

/* Magic, entry count, then per entry offset, size and length of its id, and the id. */
static uint64_t bundle_bytes(const char *memory) {
    uint64_t count, at = sizeof KDB_BUNDLE - 1, end = 0;
    if (!read_at(-1, memory, at, &count, sizeof count) || count > 256)
        return 0;
    at += sizeof count;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t entry[3];
        if (!read_at(-1, memory, at, entry, sizeof entry) || entry[0] > MOST || entry[1] > MOST ||
            entry[2] > 256)
            return 0;
        at += sizeof entry + entry[2];
        end = entry[0] + entry[1] > end ? entry[0] + entry[1] : end;
    }
    return end > at ? end : at;
}

static uint64_t memory_bytes(const char *memory, unsigned char *scratch) {
    if (!read_at(-1, memory, 0, scratch, sizeof(Elf64_Ehdr)))
        return 0;
    if (memcmp(scratch, ELFMAG, SELFMAG) == 0)
        return elf_bytes(memory, scratch);
    if (memcmp(scratch, KDB_BUNDLE, sizeof KDB_BUNDLE - 1) == 0)
        return bundle_bytes(memory);
    return 0;
}

/* "amdgcn-amd-amdhsa--gfx1030" stands in the metadata note of an ELF and in the header of a bundle. */
static void find_target(struct kdb_image *image, const unsigned char *data, size_t bytes) {
    static const char TRIPLE[] = "amdgcn-amd-amdhsa--";
    const unsigned char *end = data + bytes, *p = memmem(data, bytes, TRIPLE, sizeof TRIPLE - 1);
    size_t n = 0;
    if (!p || image->target[0])
        return;
    for (p += sizeof TRIPLE - 1; p < end && n < sizeof image->target - 1; p++, n++) {
        if (!(*p >= 'a' && *p <= 'z') && !(*p >= '0' && *p <= '9') && *p != ':' && *p != '+' && *p != '-')
            break;
        image->target[n] = (char)*p;
    }
    if (p == end) /* it goes on in bytes that are not here: no target is better than half of one */
        memset(image->target, 0, sizeof image->target);
}

static void digest(struct kdb_image *image, int fd, const char *memory, uint64_t bytes,
                   unsigned char *scratch, size_t room) {
    struct kdb_md5 md5;
    image->size = bytes;
    if (bytes > KDB_HASHED) { /* the target stands at the begin, in a note or a bundle's header */
        size_t take = bytes < room ? (size_t)bytes : room;
        if (read_at(fd, memory, 0, scratch, take)) {
            find_target(image, scratch, take);
            image->mark = kdb_hash(7, scratch, take);
        }
        if (read_at(fd, memory, bytes - take, scratch, take))
            image->mark = kdb_hash(image->mark, scratch, take);
        return;
    }
    kdb_md5_begin(&md5);
    for (uint64_t at = 0; at < bytes; at += room) {
        size_t take = bytes - at < room ? (size_t)(bytes - at) : room;
        if (!read_at(fd, memory, at, scratch, take)) {
            memset(image, 0, sizeof *image);
            return;
        }
        kdb_md5_add(&md5, scratch, take);
        find_target(image, scratch, take);
    }
    kdb_md5_end(&md5, image->md5);
}

void kdb_image_in_memory(struct kdb_image *image, const void *memory, unsigned char *scratch, size_t room) {
    struct kdb_quiet quiet = kdb_quiet_begin();
    memset(image, 0, sizeof *image);
    uint64_t bytes = memory ? memory_bytes(memory, scratch) : 0;
    if (bytes && bytes <= MOST)
        digest(image, -1, memory, bytes, scratch, room);
    kdb_quiet_end(quiet);
}

void kdb_image_in_file(struct kdb_image *image, const char *path, unsigned char *scratch, size_t room) {
    struct kdb_quiet quiet = kdb_quiet_begin();
    struct stat st;
    memset(image, 0, sizeof *image);
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) : -1;
    if (fd >= 0) {
        if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 && (uint64_t)st.st_size <= MOST)
            digest(image, fd, NULL, (uint64_t)st.st_size, scratch, room);
        close(fd);
    }
    kdb_quiet_end(quiet);
}
