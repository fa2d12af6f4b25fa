/* The one device: its count, properties and attributes, all out of the spec. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

/* hipDeviceArch_t: atomics, doubles, votes, ballots, shuffles, thread fences, 3-D grids. */
enum {
    ARCH_FEATURES = 1 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 9 |
                    1 << 10 | 1 << 12 | 1 << 15
};
enum { PCI_BUS = 3 };

static int as_int(uint64_t value) {
    return value > INT32_MAX ? INT32_MAX : (int)value;
}

/* What AMD's library reports for every device is written here; the rest is the spec's. */
static void properties(const struct sim_spec *spec, struct hip_prop *out) {
    *out = (struct hip_prop){
        .totalGlobalMem = spec->mem,
        .sharedMemPerBlock = spec->lds,
        .regsPerBlock = 65536,
        .warpSize = (int)spec->warp,
        .memPitch = INT32_MAX,
        .maxThreadsPerBlock = 1024,
        .maxThreadsDim = {1024, 1024, 1024},
        .maxGridSize = {INT32_MAX, 65536, 65536},
        .clockRate = (int)spec->clock_khz,
        .totalConstMem = INT32_MAX,
        .major = (int)spec->major,
        .minor = (int)spec->minor,
        .textureAlignment = 256,
        .texturePitchAlignment = 256,
        .multiProcessorCount = (int)spec->cu,
        .integrated = (int)spec->integrated,
        .canMapHostMemory = 1,
        .maxTexture1D = 16384,
        .maxTexture1DLinear = 16384,
        .maxTexture2D = {16384, 16384},
        .maxTexture3D = {16384, 16384, 8192},
        .concurrentKernels = 1,
        .pciBusID = PCI_BUS,
        .asyncEngineCount = 1,
        .unifiedAddressing = 1,
        .memoryClockRate = (int)spec->mem_clock_khz,
        .memoryBusWidth = (int)spec->bus_bits,
        .l2CacheSize = (int)spec->l2,
        .maxThreadsPerMultiProcessor = 2048,
        .streamPrioritiesSupported = 1,
        .sharedMemPerMultiprocessor = spec->lds,
        .regsPerMultiprocessor = 65536,
        .cooperativeLaunch = 1,
        .sharedMemPerBlockOptin = spec->lds,
        .maxBlocksPerMultiProcessor = 2,
        .hostRegisterSupported = 1,
        .memoryPoolsSupported = 1,
        .maxSharedMemoryPerMultiProcessor = spec->lds,
        .clockInstructionRate = 100000,
        .arch = ARCH_FEATURES,
        .isLargeBar = 1,
    };
    snprintf(out->name, sizeof out->name, "%s", spec->name);
    snprintf(out->gcnArchName, sizeof out->gcnArchName, "%s", spec->device);
    memcpy(out->uuid, "kdbtool-simgpu-0", sizeof out->uuid);
}

SIM_API(hipInit)(unsigned flags) {
    NEED(flags == 0, hipErrorInvalidValue);
    return sim_return(sim_spec() ? hipSuccess : hipErrorNoDevice);
}

SIM_API(hipGetDeviceCount)(int *out) {
    NEED(out, hipErrorInvalidValue);
    *out = sim_spec() ? 1 : 0;
    return sim_return(*out ? hipSuccess : hipErrorNoDevice);
}

static int get_0(int *out) {
    NEED_DEVICE();
    NEED(out, hipErrorInvalidValue);
    *out = 0;
    return sim_return(hipSuccess);
}

static int need(int device) {
    NEED_DEVICE();
    return sim_return(device == 0 ? hipSuccess : hipErrorInvalidDevice);
}

SIM_API(hipGetDevice)(int *out) {
    return get_0(out);
}

SIM_API(hipSetDevice)(int device) {
    return need(device);
}

SIM_API(hipDeviceGet)(int *out, int ordinal) {
    NEED(ordinal == 0, hipErrorInvalidDevice);
    return get_0(out);
}

SIM_API(hipSetValidDevices)(int *devices, int count) {
    NEED(count == 0 || (devices && count == 1), hipErrorInvalidValue);
    return need(count ? devices[0] : 0);
}

SIM_API(hipDeviceSynchronize)(void) {
    return need(0);
}

SIM_API(hipRuntimeGetVersion)(int *out) {
    NEED(out, hipErrorInvalidValue);
    *out = HIP_VERSION_NUMBER;
    return sim_return(hipSuccess);
}

SIM_API(hipDriverGetVersion)(int *out) {
    NEED(out, hipErrorInvalidValue);
    *out = HIP_VERSION_NUMBER;
    return sim_return(hipSuccess);
}

SIM_API(hipGetDevicePropertiesR0600)(struct hip_prop *out, int device) {
    NEED(out, hipErrorInvalidValue);
    NEED_DEVICE_0(device);
    properties(sim_spec(), out);
    return sim_return(hipSuccess);
}

static int old_properties(struct hip_prop0 *out, int device) {
    NEED(out, hipErrorInvalidValue);
    NEED_DEVICE_0(device);
    struct hip_prop p;
    properties(sim_spec(), &p);
    *out = (struct hip_prop0){
        .totalGlobalMem = p.totalGlobalMem,
        .sharedMemPerBlock = p.sharedMemPerBlock,
        .regsPerBlock = p.regsPerBlock,
        .warpSize = p.warpSize,
        .maxThreadsPerBlock = p.maxThreadsPerBlock,
        .clockRate = p.clockRate,
        .memoryClockRate = p.memoryClockRate,
        .memoryBusWidth = p.memoryBusWidth,
        .totalConstMem = p.totalConstMem,
        .major = p.major,
        .minor = p.minor,
        .multiProcessorCount = p.multiProcessorCount,
        .l2CacheSize = p.l2CacheSize,
        .maxThreadsPerMultiProcessor = p.maxThreadsPerMultiProcessor,
        .clockInstructionRate = p.clockInstructionRate,
        .arch = p.arch,
        .concurrentKernels = p.concurrentKernels,
        .pciBusID = p.pciBusID,
        .maxSharedMemoryPerMultiProcessor = p.maxSharedMemoryPerMultiProcessor,
        .canMapHostMemory = p.canMapHostMemory,
        .integrated = p.integrated,
        .cooperativeLaunch = p.cooperativeLaunch,
        .maxTexture1DLinear = p.maxTexture1DLinear,
        .maxTexture1D = p.maxTexture1D,
        .memPitch = p.memPitch,
        .textureAlignment = p.textureAlignment,
        .texturePitchAlignment = p.texturePitchAlignment,
        .isLargeBar = p.isLargeBar,
    };
    memcpy(out->name, p.name, sizeof out->name);
    memcpy(out->gcnArchName, p.gcnArchName, sizeof out->gcnArchName);
    memcpy(out->maxThreadsDim, p.maxThreadsDim, sizeof out->maxThreadsDim);
    memcpy(out->maxGridSize, p.maxGridSize, sizeof out->maxGridSize);
    memcpy(out->maxTexture2D, p.maxTexture2D, sizeof out->maxTexture2D);
    memcpy(out->maxTexture3D, p.maxTexture3D, sizeof out->maxTexture3D);
    return sim_return(hipSuccess);
}

SIM_API(hipGetDeviceProperties)(struct hip_prop0 *out, int device) {
    return old_properties(out, device);
}

SIM_API(hipGetDevicePropertiesR0000)(struct hip_prop0 *out, int device) {
    return old_properties(out, device);
}

SIM_API(hipDeviceGetAttribute)(int *out, int attribute, int device) {
    NEED(out, hipErrorInvalidValue);
    NEED_DEVICE_0(device);
    struct hip_prop p;
    properties(sim_spec(), &p);
    switch (attribute) {
#define X(number, field)                                                                                     \
    case number:                                                                                             \
        *out = as_int((uint64_t)p.field);                                                                    \
        break;
        HIP_ATTRIBUTE_FIELDS(X)
#undef X
    case 89:    /* virtual memory management */
    case 10013: /* hipStreamWaitValue */
        *out = 0;
        break;
    case 10014: /* images */
    case 10016: /* fine grain */
        *out = 1;
        break;
    default:
        return sim_return(hipErrorInvalidValue);
    }
    return sim_return(hipSuccess);
}

SIM_API(hipDeviceTotalMem)(size_t *out, int device) {
    NEED(out, hipErrorInvalidValue);
    NEED_DEVICE_0(device);
    *out = sim_spec()->mem;
    return sim_return(hipSuccess);
}

SIM_API(hipDeviceGetName)(char *out, int size, int device) {
    NEED(out && size > 0, hipErrorInvalidValue);
    NEED_DEVICE_0(device);
    snprintf(out, (size_t)size, "%s", sim_spec()->name);
    return sim_return(hipSuccess);
}

SIM_API(hipDeviceGetUuid)(char out[16], int device) {
    NEED(out, hipErrorInvalidValue);
    NEED_DEVICE_0(device);
    struct hip_prop p;
    properties(sim_spec(), &p);
    memcpy(out, p.uuid, sizeof p.uuid);
    return sim_return(hipSuccess);
}

SIM_API(hipDeviceComputeCapability)(int *major, int *minor, int device) {
    NEED(major && minor, hipErrorInvalidValue);
    NEED_DEVICE_0(device);
    *major = (int)sim_spec()->major;
    *minor = (int)sim_spec()->minor;
    return sim_return(hipSuccess);
}

SIM_API(hipDeviceGetPCIBusId)(char *out, int size, int device) {
    NEED(out && size >= 13, hipErrorInvalidValue);
    NEED_DEVICE_0(device);
    snprintf(out, (size_t)size, "0000:%02x:00.0", PCI_BUS);
    return sim_return(hipSuccess);
}

SIM_API(hipDeviceGetByPCIBusId)(int *out, const char *id) {
    unsigned domain, bus, slot;
    NEED(id && sscanf(id, "%x:%x:%x", &domain, &bus, &slot) == 3, hipErrorInvalidValue);
    NEED(domain == 0 && bus == PCI_BUS && slot == 0, hipErrorInvalidDevice);
    return get_0(out);
}

SIM_API(hipDeviceCanAccessPeer)(int *out, int device, int peer) {
    NEED(out, hipErrorInvalidValue);
    NEED(device == 0 && peer == 0, hipErrorInvalidDevice);
    return get_0(out);
}

SIM_API(hipDeviceGetStreamPriorityRange)(int *least, int *greatest) {
    NEED_DEVICE();
    if (least)
        *least = 1;
    if (greatest)
        *greatest = -1;
    return sim_return(hipSuccess);
}

/* A function by name: the symbol of this library, so a stub answers like a linked one would. */
SIM_API(hipGetProcAddress)(const char *symbol, void **out, int version, uint64_t flags, int *status) {
    (void)flags;
    NEED(symbol && *symbol && out, hipErrorInvalidValue);
    *out = NULL;
    Dl_info self;
    void *library = dladdr(&sim_counts, &self) ? dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    if (library) {
        if (strcmp(symbol, "hipGetDeviceProperties") == 0 && version >= 600)
            symbol = "hipGetDevicePropertiesR0600";
        *out = dlsym(library, symbol);
        dlclose(library);
    }
    if (status)
        *status = *out ? 0 : 1;
    return sim_return(*out ? hipSuccess : hipErrorInvalidValue);
}
