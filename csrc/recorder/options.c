/* Which words of a compile's options are kept: the published list (docs/trace-format.md), a grammar that is
 * closed by default. It is that of kdbtool/rebuild/options.py, and the switches of clang that MIOpen adds.
 *
 * Nothing here can hold a path or a file's name: no kept word has a '/', and none of the options takes
 * a file. A define's value is numbers, identifiers, `a::b` and `4,2`. Response files are not read. */
#include "compile.h"

#define LOWER "abcdefghijklmnopqrstuvwxyz"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGIT "0123456789"
#define NAME LOWER UPPER DIGIT "_"
#define PLAIN LOWER DIGIT "-"

enum { LONGEST = 2048 };
/* Whole words. */
static const char *const exact[] = {"-c",
                                    "-S",
                                    "-E",
                                    "-w",
                                    "-Ofast",
                                    "-nogpuinc",
                                    "-nogpulib",
                                    "-nostdinc",
                                    "-nostdinc++",
                                    "-nobuiltininc",
                                    "--cuda-device-only",
                                    "--offload-device-only",
                                    "--genco",
                                    NULL};
/* A beginning, and what the rest consists of: at least one of these. */
static const struct {
    const char *begin, *rest;
    bool device; /* it names a GPU */
} rules[] = {
    {"-O", DIGIT "sz", false},
    {"-std=", LOWER DIGIT "+", false},
    {"--std=", LOWER DIGIT "+", false},
    {"-cl-std=", LOWER UPPER DIGIT ".+", false},
    {"-cl-", PLAIN, false},
    {"-mcpu=gfx", PLAIN ":+", true},
    {"-mcpu=", PLAIN ":+", false},
    {"--offload-arch=", PLAIN ":+", true},
    {"--cuda-gpu-arch=", PLAIN ":+", true},
    {"--gpu-architecture=", PLAIN ":+", true},
    {"-target=", LOWER DIGIT "_-", false}, /* as the word after -target, too */
    {"--target=", LOWER DIGIT "_-", false},
    {"-mcode-object-version=", LOWER DIGIT, false},
    {"-m", PLAIN, false},
    {"--gpu-max-threads-per-block=", DIGIT, false},
    {"-ffp-contract=", PLAIN, false},
    {"-fdenormal-fp-math=", PLAIN ",", false},
    {"-fvisibility=", PLAIN, false},
    {"-f", PLAIN "+", false},
    {"-W", LOWER UPPER DIGIT "-+=", false},
    {"-x", PLAIN "+", false},
};
/* Left out, and so is the word after it. */
static const char *const takes_value[] = {"-o",
                                          "-I",
                                          "-isystem",
                                          "-iquote",
                                          "-idirafter",
                                          "-include",
                                          "-imacros",
                                          "-include-pch",
                                          "-L",
                                          "-l",
                                          "-B",
                                          "-F",
                                          "-MF",
                                          "-MT",
                                          "-MQ",
                                          "-MJ",
                                          "-Xclang",
                                          "-Xlinker",
                                          "-T",
                                          "-Xassembler",
                                          "-Xpreprocessor",
                                          "-u",
                                          "-z",
                                          "-isysroot",
                                          "--sysroot",
                                          "-arch",
                                          "-resource-dir",
                                          "-Xoffload-linker",
                                          "-Xopenmp-target",
                                          "-Xcuda-ptxas",
                                          NULL};

static const char *after(const char *word, const char *begin) {
    size_t n = strlen(begin);
    return strncmp(word, begin, n) == 0 ? word + n : NULL;
}

static bool listed(const char *word, const char *const *list) {
    while (*list && strcmp(word, *list) != 0)
        list++;
    return *list != NULL;
}

/* NAME, or NAME=VALUE. */
static bool define(const char *text) {
    size_t n = strspn(text, NAME);
    if (!n || n > 256 || strchr(DIGIT, *text))
        return false;
    text += n;
    if (!*text || strcmp(text, "=") == 0)
        return true;
    if (*text++ != '=')
        return false;
    for (;;) {
        text += n = strspn(text, NAME "+-.");
        if (!n)
            return false;
        if (!*text)
            return true;
        if (*text == ',')
            text++;
        else if (text[0] == ':' && text[1] == ':')
            text += 2;
        else
            return false;
    }
}

static bool symbol(const char *text) { /* of -Wa,-defsym,: NAME=NUMBER */
    size_t n = strspn(text, NAME);
    if (!n || n > 256 || strchr(DIGIT, *text) || text[n] != '=')
        return false;
    text += n + 1;
    if (text[0] == '0' && text[1] == 'x')
        return text[2] && !text[2 + strspn(text + 2, DIGIT "abcdefABCDEF")];
    text += *text == '-';
    return *text && !text[strspn(text, DIGIT)];
}

static bool llvm(const char *text) { /* of -mllvm: -name, -name=4, -name=true */
    if (*text++ != '-')
        return false;
    text += *text == '-';
    size_t n = strspn(text, PLAIN);
    text += n;
    if (!n || !*text)
        return n != 0;
    if (*text++ != '=')
        return false;
    return strcmp(text, "true") == 0 || strcmp(text, "false") == 0 || (*text && !text[strspn(text, DIGIT)]);
}

static bool plain(const char *text, const char *set) {
    return *text && !text[strspn(text, set)];
}

static void keep(struct kdb_options *o, const char *first, const char *second) {
    size_t a = strlen(first) + 1, b = second ? strlen(second) + 1 : 0;
    if (a + b > o->room - o->used) {
        o->left_out++;
        return;
    }
    memcpy(o->at + o->used, first, a);
    if (second)
        memcpy(o->at + o->used + a, second, b);
    o->used += (uint32_t)(a + b);
}

static bool name(const char *text) {
    return plain(text, NAME);
}
static bool language(const char *text) {
    return plain(text, PLAIN "+");
}
static bool target(const char *text) {
    return plain(text, LOWER DIGIT "_-");
}

/* Options whose value is a word of its own; pending: */
enum { OWN = 0, SKIPPED = '-', DEFINE = 'D', UNDEFINE = 'U', LANGUAGE = 'x', LLVM = 'm', TARGET = 't' };
static const struct valued {
    const char *option; /* the first of a kind is how it is kept */
    char pending;
    bool (*good)(const char *value);
} valued[] = {{"-D", DEFINE, define}, {"-U", UNDEFINE, name},      {"-x", LANGUAGE, language},
              {"-mllvm", LLVM, llvm}, {"-target", TARGET, target}, {"--target", TARGET, target}};
enum { VALUED = sizeof valued / sizeof *valued };

static void value_of(struct kdb_options *o, const char *word) {
    const struct valued *of = valued;
    char pending = o->pending;
    o->pending = OWN;
    if (pending == SKIPPED)
        return;
    while (of->pending != pending)
        of++;
    if (!of->good(word) || strnlen(word, LONGEST + 1) > LONGEST) {
        o->left_out++;
        return;
    }
    o->device |=
        (pending == LANGUAGE && strcmp(word, "hip") == 0) || (pending == TARGET && after(word, "amdgcn"));
    keep(o, of->option, word);
}

static char pending_after(const char *word) {
    for (int i = 0; i < VALUED; i++)
        if (strcmp(word, valued[i].option) == 0)
            return valued[i].pending;
    return OWN;
}

static bool kept(struct kdb_options *o, const char *word) {
    const char *rest;
    if (strnlen(word, LONGEST + 1) > LONGEST)
        return false;
    if (listed(word, exact))
        return true;
    if ((rest = after(word, "-D")))
        return define(rest);
    if ((rest = after(word, "-U")))
        return plain(rest, NAME);
    if ((rest = after(word, "-Wa,-defsym,")))
        return symbol(rest);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (!(rest = after(word, rules[i].begin)) || !plain(rest, rules[i].rest))
            continue;
        o->device |= rules[i].device || strcmp(word, "-xhip") == 0 || after(word, "--target=amdgcn") ||
                     after(word, "-target=amdgcn");
        return true;
    }
    return false;
}

void kdb_option(struct kdb_options *o, const char *word) {
    if (!word) {
        o->pending = OWN;
        o->left_out++;
    } else if (o->pending) {
        value_of(o, word);
    } else if (word[0] != '-' || !word[1]) { /* a lone "-" is the standard input */
        if (word[0] == '@')
            o->left_out++;
        else if (!o->source)
            o->source = word;
    } else if ((o->pending = pending_after(word)) != OWN) {
        return;
    } else if (kept(o, word)) {
        keep(o, word, NULL);
    } else {
        o->left_out++;
        if (listed(word, takes_value) || after(word, "-Xarch_"))
            o->pending = SKIPPED;
    }
}

void kdb_options_end(struct kdb_options *o) {
    if (o->pending && o->pending != SKIPPED) /* its value is missing */
        o->left_out++;
    o->pending = OWN;
}

const char *kdb_base_name(const char *path) {
    const char *slash = path ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path ? path : "";
}
