/* The binary interface of HIP 6 that the simulated device fills in: structs, attribute numbers.
 *
 * Layouts and numbers were read from the headers of Debian sid's libamdhip64-dev 6.4.3-5 with
 * offsetof; the assertions below hold the ones that clients are known to read. Names follow AMD's
 * fields, so that a row can be compared with the public documentation.
 */
#ifndef KDBTOOL_SIMGPU_HIP6_H
#define KDBTOOL_SIMGPU_HIP6_H

#include <stddef.h>

#define HIP_VERSION_NUMBER 60443484 /* 6.4.43484 */

/* hipDeviceProp_tR0600 */
struct hip_prop {
    char name[256], uuid[16], luid[8];
    unsigned luidDeviceNodeMask;
    size_t totalGlobalMem, sharedMemPerBlock;
    int regsPerBlock, warpSize;
    size_t memPitch;
    int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], clockRate;
    size_t totalConstMem;
    int major, minor;
    size_t textureAlignment, texturePitchAlignment;
    int deviceOverlap, multiProcessorCount, kernelExecTimeoutEnabled, integrated, canMapHostMemory;
    int computeMode, maxTexture1D, maxTexture1DMipmap, maxTexture1DLinear, maxTexture2D[2];
    int maxTexture2DMipmap[2], maxTexture2DLinear[3], maxTexture2DGather[2], maxTexture3D[3];
    int maxTexture3DAlt[3], maxTextureCubemap, maxTexture1DLayered[2], maxTexture2DLayered[3];
    int maxTextureCubemapLayered[2], maxSurface1D, maxSurface2D[2], maxSurface3D[3];
    int maxSurface1DLayered[2], maxSurface2DLayered[3], maxSurfaceCubemap;
    int maxSurfaceCubemapLayered[2];
    size_t surfaceAlignment;
    int concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID, tccDriver;
    int asyncEngineCount, unifiedAddressing, memoryClockRate, memoryBusWidth, l2CacheSize;
    int persistingL2CacheMaxSize, maxThreadsPerMultiProcessor, streamPrioritiesSupported;
    int globalL1CacheSupported, localL1CacheSupported;
    size_t sharedMemPerMultiprocessor;
    int regsPerMultiprocessor, managedMemory, isMultiGpuBoard, multiGpuBoardGroupID;
    int hostNativeAtomicSupported, singleToDoublePrecisionPerfRatio, pageableMemoryAccess;
    int concurrentManagedAccess, computePreemptionSupported, canUseHostPointerForRegisteredMem;
    int cooperativeLaunch, cooperativeMultiDeviceLaunch;
    size_t sharedMemPerBlockOptin;
    int pageableMemoryAccessUsesHostPageTables, directManagedMemAccessFromHost;
    int maxBlocksPerMultiProcessor, accessPolicyMaxWindowSize;
    size_t reservedSharedMemPerBlock;
    int hostRegisterSupported, sparseHipArraySupported, hostRegisterReadOnlySupported;
    int timelineSemaphoreInteropSupported, memoryPoolsSupported, gpuDirectRDMASupported;
    unsigned gpuDirectRDMAFlushWritesOptions;
    int gpuDirectRDMAWritesOrdering;
    unsigned memoryPoolSupportedHandleTypes;
    int deferredMappingHipArraySupported, ipcEventSupported, clusterLaunch, unifiedFunctionPointers;
    int reserved[63], hipReserved[32];
    char gcnArchName[256];
    size_t maxSharedMemoryPerMultiProcessor;
    int clockInstructionRate;
    unsigned arch;
    void *hdpMemFlushCntl;
    void *hdpRegFlushCntl;
    int cooperativeMultiDeviceUnmatchedFunc, cooperativeMultiDeviceUnmatchedGridDim;
    int cooperativeMultiDeviceUnmatchedBlockDim, cooperativeMultiDeviceUnmatchedSharedMem;
    int isLargeBar, asicRevision;
};

/* hipDeviceProp_tR0000, which hipGetDeviceProperties without a suffix still fills in. */
struct hip_prop0 {
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlock;
    int regsPerBlock, warpSize, maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], clockRate;
    int memoryClockRate, memoryBusWidth;
    size_t totalConstMem;
    int major, minor, multiProcessorCount, l2CacheSize, maxThreadsPerMultiProcessor, computeMode;
    int clockInstructionRate;
    unsigned arch;
    int concurrentKernels, pciDomainID, pciBusID, pciDeviceID;
    size_t maxSharedMemoryPerMultiProcessor;
    int isMultiGpuBoard, canMapHostMemory, gcnArch;
    char gcnArchName[256];
    int integrated, cooperativeLaunch, cooperativeMultiDeviceLaunch, maxTexture1DLinear;
    int maxTexture1D, maxTexture2D[2], maxTexture3D[3];
    void *hdpMemFlushCntl;
    void *hdpRegFlushCntl;
    size_t memPitch, textureAlignment, texturePitchAlignment;
    int kernelExecTimeoutEnabled, ECCEnabled, tccDriver, cooperativeMultiDeviceUnmatchedFunc;
    int cooperativeMultiDeviceUnmatchedGridDim, cooperativeMultiDeviceUnmatchedBlockDim;
    int cooperativeMultiDeviceUnmatchedSharedMem, isLargeBar, asicRevision, managedMemory;
    int directManagedMemAccessFromHost, concurrentManagedAccess, pageableMemoryAccess;
    int pageableMemoryAccessUsesHostPageTables;
};

struct hip_pointer_attributes { /* hipPointerAttribute_t */
    int type, device;
    void *devicePointer, *hostPointer;
    int isManaged;
    unsigned allocationFlags;
};

struct hip_func_attributes { /* hipFuncAttributes */
    int binaryVersion, cacheModeCA;
    size_t constSizeBytes, localSizeBytes;
    int maxDynamicSharedSizeBytes, maxThreadsPerBlock, numRegs, preferredShmemCarveout, ptxVersion;
    size_t sharedSizeBytes;
};

struct hip_dim3 { /* dim3, passed by value in two registers */
    unsigned x, y, z;
};

#define AT(type, field, offset)                                                                              \
    _Static_assert(offsetof(struct type, field) == (offset), #type "." #field " moved")
_Static_assert(sizeof(struct hip_prop) == 1472, "hipDeviceProp_tR0600");
AT(hip_prop, totalGlobalMem, 288);
AT(hip_prop, warpSize, 308);
AT(hip_prop, maxThreadsPerBlock, 320);
AT(hip_prop, major, 360);
AT(hip_prop, multiProcessorCount, 388);
AT(hip_prop, integrated, 396);
AT(hip_prop, surfaceAlignment, 568);
AT(hip_prop, l2CacheSize, 616);
AT(hip_prop, maxThreadsPerMultiProcessor, 624);
AT(hip_prop, cooperativeLaunch, 688);
AT(hip_prop, memoryPoolsSupported, 744);
AT(hip_prop, gcnArchName, 1160);
AT(hip_prop, maxSharedMemoryPerMultiProcessor, 1416);
AT(hip_prop, arch, 1428);
AT(hip_prop, asicRevision, 1468);
_Static_assert(sizeof(struct hip_prop0) == 792, "hipDeviceProp_tR0000");
AT(hip_prop0, warpSize, 276);
AT(hip_prop0, multiProcessorCount, 336);
AT(hip_prop0, gcnArchName, 396);
AT(hip_prop0, memPitch, 712);
AT(hip_prop0, pageableMemoryAccessUsesHostPageTables, 788);
_Static_assert(sizeof(struct hip_pointer_attributes) == 32, "hipPointerAttribute_t");
AT(hip_pointer_attributes, devicePointer, 8);
AT(hip_pointer_attributes, allocationFlags, 28);
_Static_assert(sizeof(struct hip_func_attributes) == 56, "hipFuncAttributes");
AT(hip_func_attributes, sharedSizeBytes, 48);
#undef AT

enum { hipMemoryTypeUnregistered, hipMemoryTypeHost, hipMemoryTypeDevice, hipMemoryTypeManaged };

/* Attributes that are a field of the properties: X(number, field). Others are answered by device.c. */
#define HIP_ATTRIBUTE_FIELDS(X)                                                                              \
    X(0, ECCEnabled)                                                                                         \
    X(1, accessPolicyMaxWindowSize)                                                                          \
    X(2, asyncEngineCount)                                                                                   \
    X(3, canMapHostMemory)                                                                                   \
    X(4, canUseHostPointerForRegisteredMem)                                                                  \
    X(5, clockRate)                                                                                          \
    X(6, computeMode)                                                                                        \
    X(7, computePreemptionSupported)                                                                         \
    X(8, concurrentKernels)                                                                                  \
    X(9, concurrentManagedAccess)                                                                            \
    X(10, cooperativeLaunch)                                                                                 \
    X(11, cooperativeMultiDeviceLaunch)                                                                      \
    X(12, deviceOverlap)                                                                                     \
    X(13, directManagedMemAccessFromHost)                                                                    \
    X(14, globalL1CacheSupported)                                                                            \
    X(15, hostNativeAtomicSupported)                                                                         \
    X(16, integrated)                                                                                        \
    X(17, isMultiGpuBoard)                                                                                   \
    X(18, kernelExecTimeoutEnabled)                                                                          \
    X(19, l2CacheSize)                                                                                       \
    X(20, localL1CacheSupported)                                                                             \
    X(23, major)                                                                                             \
    X(24, managedMemory)                                                                                     \
    X(25, maxBlocksPerMultiProcessor)                                                                        \
    X(26, maxThreadsDim[0])                                                                                  \
    X(27, maxThreadsDim[1])                                                                                  \
    X(28, maxThreadsDim[2])                                                                                  \
    X(29, maxGridSize[0])                                                                                    \
    X(30, maxGridSize[1])                                                                                    \
    X(31, maxGridSize[2])                                                                                    \
    X(39, maxTexture1D)                                                                                      \
    X(41, maxTexture1DLinear)                                                                                \
    X(43, maxTexture2D[0])                                                                                   \
    X(44, maxTexture2D[1])                                                                                   \
    X(49, maxTexture3D[0])                                                                                   \
    X(50, maxTexture3D[1])                                                                                   \
    X(51, maxTexture3D[2])                                                                                   \
    X(56, maxThreadsPerBlock)                                                                                \
    X(57, maxThreadsPerMultiProcessor)                                                                       \
    X(58, memPitch)                                                                                          \
    X(59, memoryBusWidth)                                                                                    \
    X(60, memoryClockRate)                                                                                   \
    X(61, minor)                                                                                             \
    X(62, multiGpuBoardGroupID)                                                                              \
    X(63, multiProcessorCount)                                                                               \
    X(65, pageableMemoryAccess)                                                                              \
    X(66, pageableMemoryAccessUsesHostPageTables)                                                            \
    X(67, pciBusID)                                                                                          \
    X(68, pciDeviceID)                                                                                       \
    X(69, pciDomainID)                                                                                       \
    X(70, persistingL2CacheMaxSize)                                                                          \
    X(71, regsPerBlock)                                                                                      \
    X(72, regsPerMultiprocessor)                                                                             \
    X(73, reservedSharedMemPerBlock)                                                                         \
    X(74, sharedMemPerBlock)                                                                                 \
    X(75, sharedMemPerBlockOptin)                                                                            \
    X(76, sharedMemPerMultiprocessor)                                                                        \
    X(77, singleToDoublePrecisionPerfRatio)                                                                  \
    X(78, streamPrioritiesSupported)                                                                         \
    X(79, surfaceAlignment)                                                                                  \
    X(80, tccDriver)                                                                                         \
    X(81, textureAlignment)                                                                                  \
    X(82, texturePitchAlignment)                                                                             \
    X(83, totalConstMem)                                                                                     \
    X(84, totalGlobalMem)                                                                                    \
    X(85, unifiedAddressing)                                                                                 \
    X(87, warpSize)                                                                                          \
    X(88, memoryPoolsSupported)                                                                              \
    X(90, hostRegisterSupported)                                                                             \
    X(91, memoryPoolSupportedHandleTypes)                                                                    \
    X(10000, clockInstructionRate)                                                                           \
    X(10002, maxSharedMemoryPerMultiProcessor)                                                               \
    X(10007, cooperativeMultiDeviceUnmatchedFunc)                                                            \
    X(10008, cooperativeMultiDeviceUnmatchedGridDim)                                                         \
    X(10009, cooperativeMultiDeviceUnmatchedBlockDim)                                                        \
    X(10010, cooperativeMultiDeviceUnmatchedSharedMem)                                                       \
    X(10011, isLargeBar)                                                                                     \
    X(10012, asicRevision)                                                                                   \
    X(10015, multiProcessorCount)                                                                            \
    X(10017, clockInstructionRate)

#endif
