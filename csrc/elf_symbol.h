/* A symbol of one loaded object, from its own tables: the loader is not asked, nobody's scope matters, and
 * nothing is called, for a sanitizer's first act is a dlsym, when not even strcmp works yet. */
#ifndef KDB_ELF_SYMBOL_H
#define KDB_ELF_SYMBOL_H
#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static uint32_t elf_gnu_hash(const char *name) {
    uint32_t h = 5381;
    for (; *name; name++)
        h = h * 33 + (unsigned char)*name;
    return h;
}

static bool elf_same(const char *a, const char *b) {
    for (; *a && *a == *b; a++, b++)
        ;
    return *a == *b;
}

/* The address of what `name` is defined as; NULL if it is not. `low`: where the object begins. */
static void *elf_symbol(uintptr_t base, uintptr_t low, const void *dynamic, const char *name) {
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    const uint32_t *hash = NULL;
    const ElfW(Dyn) *d = dynamic;
    for (; d && d->d_tag != DT_NULL; d++) {
        /* glibc has relocated these already; a libc that does not gives offsets. */
        uintptr_t at = d->d_un.d_ptr < low ? base + d->d_un.d_ptr : d->d_un.d_ptr;
        if (d->d_tag == DT_SYMTAB)
            symbols = (const void *)at;
        else if (d->d_tag == DT_STRTAB)
            strings = (const void *)at;
        else if (d->d_tag == DT_GNU_HASH)
            hash = (const void *)at;
    }
    if (!symbols || !strings || !hash || !hash[0])
        return NULL;
    const uint32_t *buckets = hash + 4 + hash[2] * (sizeof(ElfW(Addr)) / 4);
    const uint32_t *chain = buckets + hash[0];
    uint32_t wanted = elf_gnu_hash(name);
    for (uint32_t i = buckets[wanted % hash[0]]; i >= hash[1]; i++) {
        uint32_t h = chain[i - hash[1]];
        const ElfW(Sym) *s = &symbols[i];
        int type = ELF64_ST_TYPE(s->st_info);
        if ((h | 1) == (wanted | 1) && s->st_shndx != SHN_UNDEF && (type == STT_FUNC || type == STT_OBJECT) &&
            elf_same(strings + s->st_name, name))
            return (void *)(base + s->st_value);
        if (h & 1)
            break;
    }
    return NULL;
}

#endif
