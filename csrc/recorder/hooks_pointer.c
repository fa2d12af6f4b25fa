/* HIP: pointers to its functions that it gives out itself. One taken this way is as good as one from dlsym.
 *
 * What is given out may be another function than was asked for: the one for the thread's own stream, or
 * that of a later version (clr, hip_device.cpp). So it is looked up by its address. */
#include "hip.h"

static void give(const char *name, void **function, int result) {
    static const char *const endings[] = {"", "_spt", "R0600"};
    char text[96];
    if (result != 0 || !name || !function || !*function || strlen(name) > 80 || !kdb_recording())
        return;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        memcpy(text, name, strlen(name));
        memcpy(text + strlen(name), endings[i], strlen(endings[i]) + 1);
        if (kdb_symbol_at(*function, text) != *function)
            continue;
        void *ours = kdb_thunk_for(text, *function);
        *function = ours ? ours : *function;
        return;
    }
}

int hipGetProcAddress(const char *name, void **function, int version, uint64_t flags, void *status) {
    KDB_REAL_HIP(hipGetProcAddress);
    int result = real(name, function, version, flags, status);
    give(name, function, result);
    return result;
}

int hipGetProcAddress_spt(const char *name, void **function, int version, uint64_t flags, void *status) {
    KDB_REAL_HIP(hipGetProcAddress_spt);
    int result = real(name, function, version, flags, status);
    give(name, function, result);
    return result;
}

int hipGetDriverEntryPoint(const char *name, void **function, unsigned long long flags, void *status) {
    KDB_REAL_HIP(hipGetDriverEntryPoint);
    int result = real(name, function, flags, status);
    give(name, function, result);
    return result;
}

int hipGetDriverEntryPoint_spt(const char *name, void **function, unsigned long long flags, void *status) {
    KDB_REAL_HIP(hipGetDriverEntryPoint_spt);
    int result = real(name, function, flags, status);
    give(name, function, result);
    return result;
}
