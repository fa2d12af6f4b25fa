/* Errors: the last one of each thread, names and texts, and the few functions that return text. */
#include <string.h>

#include "internal.h"

static _Thread_local int last_error, last_call;

static const struct {
    int code;
    const char *name, *text;
} table[] = {
#define X(name, number, text) {number, #name, text},
#include "abi/errors.def"
#undef X
};

static size_t find(int error) {
    size_t unknown = 0;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (table[i].code == error)
            return i;
        if (table[i].code == hipErrorUnknown)
            unknown = i;
    }
    return unknown;
}

int sim_return(int error) {
    last_call = error;
    if (error != hipSuccess && error != hipErrorNotReady)
        last_error = error;
    return error;
}

SIM_API(hipGetLastError)(void) {
    int error = last_error;
    last_error = hipSuccess;
    return error;
}

SIM_API(hipExtGetLastError)(void) {
    int error = last_call;
    last_call = hipSuccess;
    return error;
}

SIM_API(hipPeekAtLastError)(void) {
    return last_error;
}

SIM_API_OF(const char *, hipGetErrorName)(int error) {
    return table[find(error)].name;
}

SIM_API_OF(const char *, hipGetErrorString)(int error) {
    return table[find(error)].text;
}

SIM_API(hipDrvGetErrorName)(int error, const char **out) {
    if (!out || table[find(error)].code != error)
        return hipErrorInvalidValue;
    *out = table[find(error)].name;
    return hipSuccess;
}

SIM_API(hipDrvGetErrorString)(int error, const char **out) {
    if (!out || table[find(error)].code != error)
        return hipErrorInvalidValue;
    *out = table[find(error)].text;
    return hipSuccess;
}

/* These return text, so the number of an error would be taken for an address. */
SIM_API_OF(const char *, hipApiName)(unsigned id) {
    (void)id;
    return "unknown";
}

SIM_API_OF(const char *, hipGetCmdName)(unsigned op) {
    (void)op;
    return "unknown";
}

SIM_API_OF(const char *, hiprtcGetErrorString)(int error) {
    (void)error;
    return "the simulated device has no hipRTC";
}

SIM_API_OF(const char *, amd_dbgapi_get_build_name)(void) {
    return "simulated";
}

SIM_API_OF(const char *, amd_dbgapi_get_git_hash)(void) {
    return "";
}

SIM_API_OF(size_t, amd_dbgapi_get_build_id)(void) {
    return 0;
}
