/* Code objects: the ELF file for this device, bare or in an offload bundle, and what it defines.
 *
 * Every number in it is hostile. Memory is read through the kernel, which answers an address that
 * is not there with an error: an image in memory comes without its length.
 * Sources: LLVM's AMDGPU usage (e_flags, kernel descriptor) and ClangOffloadBundler documents.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "internal.h"

enum { OSABI_HSA = 64, MACHINE_AMDGPU = 224, ABI_V3 = 1, ABI_V4 = 2, ABI_V6 = 4, MACH_MASK = 0xff };
enum {
    DESCRIPTOR = 64,
    TABLE_LIMIT = 256 << 20,
    ENTRY_LIMIT = 1024,
    SYMBOL_LIMIT = 1 << 22,
    NAME_LIMIT = 1 << 16
};

struct object { /* one ELF file inside the bytes */
    const struct sim_bytes *bytes;
    uint64_t offset, size;
    Elf64_Ehdr header;
    Elf64_Shdr *sections;
};

static int refuse(struct sim_module *module, int error, const char *why) {
    module->why = why;
    return error;
}

static bool read_bytes(const struct sim_bytes *bytes, uint64_t offset, void *to, size_t n) {
    if (offset > bytes->size || n > bytes->size - offset)
        return false;
    char *at = to;
    for (size_t got; n; n -= got, at += got, offset += got) {
        ssize_t r;
        if (bytes->fd >= 0) {
            r = pread(bytes->fd, at, n, (off_t)offset);
        } else {
            struct iovec local = {at, n}, remote = {(void *)(uintptr_t)(bytes->base + offset), n};
            if (UINTPTR_MAX - (uintptr_t)bytes->base < offset)
                return false;
            r = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
            if (r < 0 && (errno == ENOSYS || errno == EPERM)) { /* a sandbox without the call */
                memcpy(at, bytes->base + offset, n);
                r = (ssize_t)n;
            }
        }
        if (r <= 0 && errno != EINTR)
            return false;
        if (r == 0)
            return false;
        got = r > 0 ? (size_t)r : 0;
    }
    return true;
}

static bool read_object(const struct object *o, uint64_t offset, void *to, size_t n) {
    return offset <= o->size && n <= o->size - offset && read_bytes(o->bytes, o->offset + offset, to, n);
}

/* The last byte of a range exists. */
static bool present(const struct object *o, uint64_t offset, uint64_t n) {
    char last;
    return n == 0 || (offset <= UINT64_MAX - n && read_object(o, offset + n - 1, &last, 1));
}

static void *read_table(const struct object *o, const Elf64_Shdr *section) {
    /* One byte more, so that a string table always ends. */
    char *table = section->sh_size <= TABLE_LIMIT ? calloc(1, section->sh_size + 1) : NULL;
    if (table && !read_object(o, section->sh_offset, table, section->sh_size)) {
        free(table);
        return NULL;
    }
    return table;
}

/* XNACK or SRAMECC out of e_flags: two bits from code object v4 on, one bit in v3. */
static enum sim_feature flag_feature(const Elf64_Ehdr *h, unsigned v4_shift, uint32_t v3_bit) {
    static const enum sim_feature v4[4] = {SIM_UNSUPPORTED, SIM_ANY, SIM_OFF, SIM_ON};
    if (h->e_ident[EI_ABIVERSION] >= ABI_V4)
        return v4[h->e_flags >> v4_shift & 3];
    return h->e_flags & v3_bit ? SIM_ON : SIM_ANY;
}

static int check_header(struct object *o, struct sim_module *module) {
    const struct sim_spec *spec = sim_spec();
    Elf64_Ehdr *h = &o->header;
    if (!read_object(o, 0, h, sizeof *h))
        return refuse(module, hipErrorInvalidImage, "shorter than an ELF header");
    if (memcmp(h->e_ident, ELFMAG, SELFMAG) != 0)
        return refuse(module, hipErrorInvalidImage, "neither ELF nor an offload bundle");
    if (h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_ident[EI_DATA] != ELFDATA2LSB ||
        h->e_version != EV_CURRENT)
        return refuse(module, hipErrorInvalidImage, "not a 64-bit little-endian ELF file");
    if (h->e_machine != MACHINE_AMDGPU || h->e_ident[EI_OSABI] != OSABI_HSA || h->e_type != ET_DYN)
        return refuse(module, hipErrorInvalidImage, "not a linked code object for AMD HSA");
    if (h->e_ident[EI_ABIVERSION] < ABI_V3 || h->e_ident[EI_ABIVERSION] > ABI_V6)
        return refuse(module, hipErrorInvalidImage, "unknown code object version");
    snprintf(module->target, sizeof module->target, "mach-0x%x", (unsigned)(h->e_flags & MACH_MASK));
    if ((h->e_flags & MACH_MASK) != spec->mach)
        return refuse(module, hipErrorNoBinaryForGpu, "built for another architecture");
    snprintf(module->target, sizeof module->target, "%s", spec->arch);
    if (!sim_feature_fits(flag_feature(h, 8, 0x100), spec->xnack))
        return refuse(module, hipErrorNoBinaryForGpu, "built for another xnack setting");
    if (!sim_feature_fits(flag_feature(h, 10, 0x200), spec->sramecc))
        return refuse(module, hipErrorNoBinaryForGpu, "built for another sramecc setting");
    return hipSuccess;
}

static int read_sections(struct object *o, struct sim_module *module) {
    const Elf64_Ehdr *h = &o->header;
    size_t n = h->e_shnum, bytes = n * sizeof(Elf64_Shdr);
    if (n == 0 || h->e_shentsize != sizeof(Elf64_Shdr))
        return refuse(module, hipErrorInvalidImage, "no section table");
    o->sections = malloc(bytes);
    if (!o->sections)
        return refuse(module, hipErrorOutOfMemory, "out of memory");
    if (!read_object(o, h->e_shoff, o->sections, bytes))
        return refuse(module, hipErrorInvalidImage, "the section table lies outside the object");
    module->size = h->e_shoff + bytes;
    for (size_t i = 0; i < n; i++) {
        const Elf64_Shdr *s = &o->sections[i];
        if (s->sh_type == SHT_NULL || s->sh_type == SHT_NOBITS)
            continue;
        if (!present(o, s->sh_offset, s->sh_size))
            return refuse(module, hipErrorInvalidImage, "a section lies outside the object");
        if (s->sh_offset + s->sh_size > module->size)
            module->size = s->sh_offset + s->sh_size;
    }
    for (size_t i = 0; i < h->e_phnum; i++) {
        Elf64_Phdr p;
        if (h->e_phentsize != sizeof p || h->e_phoff > UINT64_MAX - i * sizeof p ||
            !read_object(o, h->e_phoff + i * sizeof p, &p, sizeof p) || !present(o, p.p_offset, p.p_filesz))
            return refuse(module, hipErrorInvalidImage, "a segment lies outside the object");
        if (p.p_offset + p.p_filesz > module->size)
            module->size = p.p_offset + p.p_filesz;
    }
    return hipSuccess;
}

/* The section that holds `n` bytes at an address, and where in the file they are. */
static const Elf64_Shdr *at_address(const struct object *o, uint64_t address, uint64_t n, uint64_t *offset) {
    for (size_t i = 0; i < o->header.e_shnum; i++) {
        const Elf64_Shdr *s = &o->sections[i];
        if (s->sh_type == SHT_NULL || !(s->sh_flags & SHF_ALLOC) || address < s->sh_addr)
            continue;
        uint64_t into = address - s->sh_addr;
        if (into <= s->sh_size && n <= s->sh_size - into) {
            *offset = s->sh_offset + into; /* present() has shown that this does not wrap */
            return s;
        }
    }
    return NULL;
}

static int add_kernel(const struct object *o, struct sim_module *module, char *name, size_t length,
                      const Elf64_Sym *symbol) {
    uint64_t offset;
    uint32_t words[DESCRIPTOR / 4];
    const Elf64_Shdr *s = at_address(o, symbol->st_value, DESCRIPTOR, &offset);
    if (!s || s->sh_type == SHT_NOBITS || !read_object(o, offset, words, sizeof words))
        return refuse(module, hipErrorInvalidImage, "a kernel descriptor lies outside the object");
    name[length - 3] = 0; /* no other symbol of the table can end inside ".kd" and be asked for */
    module->kernels[module->kernel_count++] =
        (struct sim_kernel){.name = name, .lds = words[0], .scratch = words[1]};
    return hipSuccess;
}

/* A device variable: device memory with its initial bytes. */
static int add_global(const struct object *o, struct sim_module *module, const char *name,
                      const Elf64_Sym *symbol) {
    struct sim_global *g = &module->globals[module->global_count];
    uint64_t offset;
    const Elf64_Shdr *s = at_address(o, symbol->st_value, symbol->st_size, &offset);
    if (!s)
        return refuse(module, hipErrorInvalidImage, "a variable lies outside the object");
    *g = (struct sim_global){.name = name, .size = symbol->st_size};
    int error = sim_alloc(&g->device, g->size, SIM_DEVICE, 0);
    if (error)
        return refuse(module, error, "no room for a variable");
    module->global_count++;
    if (s->sh_type != SHT_NOBITS && g->size && !read_object(o, offset, g->device, g->size))
        return refuse(module, hipErrorInvalidImage, "a variable lies outside the object");
    return hipSuccess;
}

static int by_name(const void *left, const void *right) {
    return strcmp(((const struct sim_kernel *)left)->name, ((const struct sim_kernel *)right)->name);
}

static int read_symbols(const struct object *o, struct sim_module *module) {
    const Elf64_Shdr *dynsym = NULL;
    for (size_t i = 0; i < o->header.e_shnum && !dynsym; i++)
        if (o->sections[i].sh_type == SHT_DYNSYM)
            dynsym = &o->sections[i];
    if (!dynsym || dynsym->sh_entsize != sizeof(Elf64_Sym) || dynsym->sh_link >= o->header.e_shnum ||
        o->sections[dynsym->sh_link].sh_type != SHT_STRTAB)
        return refuse(module, hipErrorInvalidImage, "no dynamic symbols");
    const Elf64_Shdr *strtab = &o->sections[dynsym->sh_link];
    size_t count = dynsym->sh_size / sizeof(Elf64_Sym);
    Elf64_Sym *symbols = read_table(o, dynsym);
    module->strings = read_table(o, strtab);
    int error = symbols && module->strings && count <= SYMBOL_LIMIT
                    ? hipSuccess
                    : refuse(module, hipErrorInvalidImage, "the symbol table cannot be read");
    if (!error) {
        module->kernels = calloc(count + 1, sizeof *module->kernels);
        module->globals = calloc(count + 1, sizeof *module->globals);
        if (!module->kernels || !module->globals)
            error = refuse(module, hipErrorOutOfMemory, "out of memory");
    }
    for (size_t i = 1; i < count && !error; i++) {
        if (symbols[i].st_name >= strtab->sh_size) {
            error = refuse(module, hipErrorInvalidImage, "a symbol name lies outside the string table");
            break;
        }
        char *name = module->strings + symbols[i].st_name;
        size_t length = strnlen(name, NAME_LIMIT); /* many symbols may share one huge name */
        if (length == NAME_LIMIT)
            error = refuse(module, hipErrorInvalidImage, "a symbol name is too long");
        if (error)
            break;
        if (symbols[i].st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbols[i].st_info) != STT_OBJECT)
            continue;
        if (length > 3 && strcmp(name + length - 3, ".kd") == 0)
            error = add_kernel(o, module, name, length, &symbols[i]);
        else
            error = add_global(o, module, name, &symbols[i]);
    }
    free(symbols);
    if (!error)
        qsort(module->kernels, module->kernel_count, sizeof *module->kernels, by_name);
    return error;
}

/* What `kdbtool harvest` answers look-ups of kernels with: a header for this device and nothing more, its
 * padding a mark that no compiler writes. Such a module has a function of any name. */
static bool is_stand_in(const Elf64_Ehdr *h) {
    return memcmp(h->e_ident + EI_PAD, "kdbtool", EI_NIDENT - EI_PAD) == 0 && h->e_shnum == 0 &&
           h->e_phnum == 0;
}

static int read_elf(struct object *o, struct sim_module *module) {
    int error = check_header(o, module);
    if (!error && is_stand_in(&o->header)) {
        module->any = true;
        module->size = sizeof o->header;
        return hipSuccess;
    }
    if (!error)
        error = read_sections(o, module);
    if (!error)
        error = read_symbols(o, module);
    free(o->sections);
    return error;
}

/* "hipv4-amdgcn-amd-amdhsa--gfx906:xnack-" fits the device: how many features it names, plus one; else 0. */
static int entry_fits(const char *id, size_t n) {
    static const char *const kinds[] = {"hipv4-", "hip-"};
    static const char *const triples[] = {"amdgcn-amd-amdhsa--", "amdgcn-amd-amdhsa-unknown-"};
    for (size_t k = 0; k < 2; k++)
        for (size_t t = 0; t < 2; t++) {
            size_t kind = strlen(kinds[k]), triple = strlen(triples[t]);
            if (n <= kind + triple || memcmp(id, kinds[k], kind) != 0 ||
                memcmp(id + kind, triples[t], triple) != 0)
                continue;
            char arch[32];
            enum sim_feature xnack, sramecc;
            const struct sim_spec *spec = sim_spec();
            if (sim_target_id(id + kind + triple, n - kind - triple, arch, &xnack, &sramecc) &&
                strcmp(arch, spec->arch) == 0 && sim_feature_fits(xnack, spec->xnack) &&
                sim_feature_fits(sramecc, spec->sramecc))
                return 1 + (xnack != SIM_UNSUPPORTED) + (sramecc != SIM_UNSUPPORTED);
        }
    return 0;
}

static int read_bundle(const struct sim_bytes *bytes, struct sim_module *module) {
    uint64_t count, at = 24 + 8, best_offset = 0, best_size = 0;
    if (!read_bytes(bytes, 24, &count, sizeof count) || count == 0 || count > ENTRY_LIMIT)
        return refuse(module, hipErrorInvalidImage, "a damaged offload bundle");
    int best = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t entry[3]; /* offset, size, length of the id */
        char id[256];
        if (!read_bytes(bytes, at, entry, sizeof entry) || entry[2] > sizeof id ||
            !read_bytes(bytes, at + sizeof entry, id, entry[2]) || entry[0] > bytes->size ||
            entry[1] > bytes->size - entry[0])
            return refuse(module, hipErrorInvalidImage, "a damaged offload bundle");
        at += sizeof entry + entry[2];
        int fits = entry_fits(id, entry[2]);
        if (fits > best) {
            best = fits;
            best_offset = entry[0];
            best_size = entry[1];
        }
    }
    if (!best)
        return refuse(module, hipErrorNoBinaryForGpu, "the bundle holds nothing for this device");
    struct object o = {.bytes = bytes, .offset = best_offset, .size = best_size};
    return read_elf(&o, module);
}

int sim_module_read(const struct sim_bytes *bytes, struct sim_module *module) {
    char magic[24];
    if (!read_bytes(bytes, 0, magic, 4))
        return refuse(module, hipErrorInvalidImage, "shorter than any code object");
    if (memcmp(magic, "CCOB", 4) == 0)
        return refuse(module, hipErrorNotSupported, "compressed bundles are not simulated");
    if (read_bytes(bytes, 0, magic, sizeof magic) &&
        memcmp(magic, "__CLANG_OFFLOAD_BUNDLE__", sizeof magic) == 0)
        return read_bundle(bytes, module);
    struct object o = {.bytes = bytes, .offset = 0, .size = bytes->size};
    return read_elf(&o, module);
}

struct sim_any_kernel {
    struct sim_kernel kernel;
    struct sim_any_kernel *next;
    char name[];
};

static struct sim_kernel *any_kernel(struct sim_module *module, const char *name) {
    size_t bytes = strnlen(name, NAME_LIMIT);
    if (bytes == NAME_LIMIT)
        return NULL;
    sim_lock();
    struct sim_any_kernel *one = module->asked;
    while (one && strcmp(one->name, name) != 0)
        one = one->next;
    if (!one && (one = calloc(1, sizeof *one + bytes + 1)) != NULL) {
        memcpy(one->name, name, bytes);
        one->kernel.name = one->name;
        one->next = module->asked;
        module->asked = one;
    }
    sim_unlock();
    return one ? &one->kernel : NULL;
}

void sim_module_clear(struct sim_module *module) {
    while (module->asked) {
        struct sim_any_kernel *one = module->asked;
        module->asked = one->next;
        if (one->kernel.handle)
            sim_handle_free(one->kernel.handle, SIM_FUNCTION);
        free(one);
    }
    for (size_t i = 0; i < module->kernel_count; i++)
        if (module->kernels[i].handle)
            sim_handle_free(module->kernels[i].handle, SIM_FUNCTION);
    for (size_t i = 0; i < module->global_count; i++)
        sim_free(module->globals[i].device, false);
    free(module->kernels);
    free(module->globals);
    free(module->strings);
}

struct sim_kernel *sim_module_kernel(struct sim_module *module, const char *name) {
    if (module->any)
        return any_kernel(module, name);
    struct sim_kernel key = {.name = name};
    return bsearch(&key, module->kernels, module->kernel_count, sizeof key, by_name);
}
