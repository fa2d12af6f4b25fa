/* MIOpen's convolutions: find, immediate mode and execution, in three directions, and the calls that
 * set their descriptors. A descriptor is noted only when MIOpen took it. */
#include "internal.h"

/* ---- descriptors ---- */

static void tensor_set(const void *desc, int type, int layout, int dims, const int *lens,
                       const int *strides) {
    struct kdb_tensor t;
    int64_t l[KDB_DIMS], s[KDB_DIMS];
    if (dims < 0 || dims > KDB_DIMS || !lens) {
        kdb_tensor_seen(desc, NULL);
        return;
    }
    for (int i = 0; i < dims; i++) {
        l[i] = lens[i];
        s[i] = strides ? strides[i] : 0;
    }
    kdb_tensor_seen(desc, kdb_tensor_fill(&t, type, layout, dims, l, strides ? s : NULL) ? &t : NULL);
}

static bool active(void) {
    if (atomic_load_explicit(&kdb_mode, memory_order_acquire) == 0)
        kdb_setup();
    return atomic_load_explicit(&kdb_mode, memory_order_acquire) == 2;
}

#define REAL(name)                                                                                           \
    kdb_fn_##name real = KDB_REAL(name);                                                                     \
    if (!real)                                                                                               \
    return KDB_ERROR_MIOPEN
#define SET(name, call, then)                                                                                \
    REAL(name);                                                                                              \
    int result = real call;                                                                                  \
    if (result == 0 && active())                                                                             \
        then;                                                                                                \
    return result

int miopenSet4dTensorDescriptor(void *desc, int type, int n, int c, int h, int w) {
    SET(miopenSet4dTensorDescriptor, (desc, type, n, c, h, w),
        tensor_set(desc, type, KDB_NONE, 4, (const int[]){n, c, h, w}, NULL));
}

int miopenSet4dTensorDescriptorEx(void *desc, int type, int n, int c, int h, int w, int ns, int cs, int hs,
                                  int ws) {
    SET(miopenSet4dTensorDescriptorEx, (desc, type, n, c, h, w, ns, cs, hs, ws),
        tensor_set(desc, type, KDB_NONE, 4, (const int[]){n, c, h, w}, (const int[]){ns, cs, hs, ws}));
}

int miopenSetTensorDescriptor(void *desc, int type, int dims, const int *lens, const int *strides) {
    SET(miopenSetTensorDescriptor, (desc, type, dims, lens, strides),
        tensor_set(desc, type, KDB_NONE, dims, lens, strides));
}

int miopenSetTensorDescriptorV2(void *desc, int type, int dims, const size_t *lens, const size_t *strides) {
    struct kdb_tensor t;
    int64_t l[KDB_DIMS], s[KDB_DIMS];
    REAL(miopenSetTensorDescriptorV2);
    int result = real(desc, type, dims, lens, strides);
    if (result != 0 || !active())
        return result;
    bool known = dims >= 0 && dims <= KDB_DIMS && lens;
    for (int i = 0; known && i < dims; i++) {
        l[i] = (int64_t)lens[i];
        s[i] = strides ? (int64_t)strides[i] : 0;
    }
    known = known && kdb_tensor_fill(&t, type, KDB_NONE, dims, l, strides ? s : NULL);
    kdb_tensor_seen(desc, known ? &t : NULL);
    return result;
}

int miopenSetNdTensorDescriptorWithLayout(void *desc, int type, int layout, const int *lens, int dims) {
    SET(miopenSetNdTensorDescriptorWithLayout, (desc, type, layout, lens, dims),
        tensor_set(desc, type, layout, dims, lens, NULL));
}

int miopenSetTensorCastType(void *desc, int type) {
    SET(miopenSetTensorCastType, (desc, type), kdb_tensor_cast(desc, type));
}

int miopenDestroyTensorDescriptor(void *desc) {
    REAL(miopenDestroyTensorDescriptor);
    if (active()) /* before: another thread may get the same address right after it */
        kdb_tensor_seen(desc, NULL);
    return real(desc);
}

int miopenInitConvolutionDescriptor(void *conv, int mode, int pad_h, int pad_w, int stride_h, int stride_w,
                                    int dilation_h, int dilation_w) {
    struct kdb_conv c = {2, mode, 1, {pad_h, pad_w, 0}, {stride_h, stride_w, 0}, {dilation_h, dilation_w, 0}};
    SET(miopenInitConvolutionDescriptor,
        (conv, mode, pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w), kdb_conv_seen(conv, &c));
}

int miopenInitConvolutionNdDescriptor(void *conv, int dims, const int *pads, const int *strides,
                                      const int *dilations, int mode) {
    REAL(miopenInitConvolutionNdDescriptor);
    int result = real(conv, dims, pads, strides, dilations, mode);
    if (result != 0 || !active())
        return result;
    struct kdb_conv c = {dims, mode, 1, {0}, {0}, {0}};
    bool known = dims >= 2 && dims <= 3;
    for (int i = 0; known && i < dims; i++) {
        c.pads[i] = pads[i];
        c.strides[i] = strides[i];
        c.dilations[i] = dilations[i];
    }
    kdb_conv_seen(conv, known ? &c : NULL);
    return result;
}

int miopenSetConvolutionGroupCount(void *conv, int groups) {
    SET(miopenSetConvolutionGroupCount, (conv, groups), kdb_conv_groups(conv, groups));
}

int miopenDestroyConvolutionDescriptor(void *conv) {
    REAL(miopenDestroyConvolutionDescriptor);
    if (active())
        kdb_conv_seen(conv, NULL);
    return real(conv);
}

/* ---- calls ---- */

struct call {
    uint64_t ticks;
    uint32_t key;
};

/* The key is in the trace before the call: if the process dies in it, the problem is known. */
static void begin(struct call *call, void *real, char direction, const void *x, const void *w, const void *y,
                  const void *conv) {
    struct kdb_thread *t = kdb_enter();
    call->key = 0;
    if (t) {
        kdb_library_facts(t, KDB_LIB_MIOPEN, real);
        kdb_device_facts(t);
        call->key = kdb_problem(t, real, direction, x, w, y, conv);
        kdb_leave();
    }
    call->ticks = kdb_ticks();
}

static int end(const struct call *call, enum kdb_hook api, int result, int algorithm, uint64_t solution,
               uint64_t space) {
    uint64_t duration = kdb_ticks() - call->ticks;
    struct kdb_thread *t = kdb_enter();
    if (!t)
        return result;
    uint32_t name = atomic_load_explicit(&kdb_process->api[api], memory_order_acquire);
    if (!name) {
        name = kdb_text(t, KDBT_API, kdb_hook_names[api], strlen(kdb_hook_names[api]));
        atomic_store_explicit(&kdb_process->api[api], name, memory_order_release);
    }
    struct kdbt_problem p = {call->key, name, algorithm, result, solution, space, duration};
    kdb_put(t, KDBT_PROBLEM, 0, call->ticks, &p, sizeof p, NULL, 0, NULL, 0);
    kdb_leave();
    return result;
}

#define FIND(name, direction, x, w, y, ...)                                                                  \
    struct call call;                                                                                        \
    REAL(name);                                                                                              \
    begin(&call, (void *)real, direction, x, w, y, conv);                                                    \
    int result = real(__VA_ARGS__);                                                                          \
    bool found = result == 0 && returned && *returned > 0 && perf;                                           \
    return end(&call, KDB_##name, result, found ? perf->algorithm : KDB_NONE, 0, found ? perf->memory : 0)
#define EXECUTE(name, direction, x, w, y, ...)                                                               \
    struct call call;                                                                                        \
    REAL(name);                                                                                              \
    begin(&call, (void *)real, direction, x, w, y, conv);                                                    \
    return end(&call, KDB_##name, real(__VA_ARGS__), algorithm, 0, space_bytes)
#define SOLUTIONS(name, direction, x, w, y, ...)                                                             \
    struct call call;                                                                                        \
    REAL(name);                                                                                              \
    begin(&call, (void *)real, direction, x, w, y, conv);                                                    \
    int result = real(__VA_ARGS__);                                                                          \
    bool found = result == 0 && count && *count > 0 && solutions;                                            \
    return end(&call, KDB_##name, result, found ? solutions->algorithm : KDB_NONE,                           \
               found ? solutions->id : 0, found ? solutions->workspace : 0)
#define BY_ID(name, direction, x, w, y, space, ...)                                                          \
    struct call call;                                                                                        \
    REAL(name);                                                                                              \
    begin(&call, (void *)real, direction, x, w, y, conv);                                                    \
    return end(&call, KDB_##name, real(__VA_ARGS__), KDB_NONE, solution, space)

int miopenFindConvolutionForwardAlgorithm(void *handle, void *x_desc, const void *x, void *w_desc,
                                          const void *w, void *conv, void *y_desc, void *y, int requested,
                                          int *returned, struct kdb_perf *perf, void *space,
                                          size_t space_bytes, bool exhaustive) {
    FIND(miopenFindConvolutionForwardAlgorithm, 'F', x_desc, w_desc, y_desc, handle, x_desc, x, w_desc, w,
         conv, y_desc, y, requested, returned, perf, space, space_bytes, exhaustive);
}

int miopenFindConvolutionBackwardDataAlgorithm(void *handle, void *dy_desc, const void *dy, void *w_desc,
                                               const void *w, void *conv, void *dx_desc, void *dx,
                                               int requested, int *returned, struct kdb_perf *perf,
                                               void *space, size_t space_bytes, bool exhaustive) {
    FIND(miopenFindConvolutionBackwardDataAlgorithm, 'B', dx_desc, w_desc, dy_desc, handle, dy_desc, dy,
         w_desc, w, conv, dx_desc, dx, requested, returned, perf, space, space_bytes, exhaustive);
}

int miopenFindConvolutionBackwardWeightsAlgorithm(void *handle, void *dy_desc, const void *dy, void *x_desc,
                                                  const void *x, void *conv, void *dw_desc, void *dw,
                                                  int requested, int *returned, struct kdb_perf *perf,
                                                  void *space, size_t space_bytes, bool exhaustive) {
    FIND(miopenFindConvolutionBackwardWeightsAlgorithm, 'W', x_desc, dw_desc, dy_desc, handle, dy_desc, dy,
         x_desc, x, conv, dw_desc, dw, requested, returned, perf, space, space_bytes, exhaustive);
}

int miopenConvolutionForward(void *handle, const void *alpha, void *x_desc, const void *x, void *w_desc,
                             const void *w, void *conv, int algorithm, const void *beta, void *y_desc,
                             void *y, void *space, size_t space_bytes) {
    EXECUTE(miopenConvolutionForward, 'F', x_desc, w_desc, y_desc, handle, alpha, x_desc, x, w_desc, w, conv,
            algorithm, beta, y_desc, y, space, space_bytes);
}

int miopenConvolutionBackwardData(void *handle, const void *alpha, void *dy_desc, const void *dy,
                                  void *w_desc, const void *w, void *conv, int algorithm, const void *beta,
                                  void *dx_desc, void *dx, void *space, size_t space_bytes) {
    EXECUTE(miopenConvolutionBackwardData, 'B', dx_desc, w_desc, dy_desc, handle, alpha, dy_desc, dy, w_desc,
            w, conv, algorithm, beta, dx_desc, dx, space, space_bytes);
}

int miopenConvolutionBackwardWeights(void *handle, const void *alpha, void *dy_desc, const void *dy,
                                     void *x_desc, const void *x, void *conv, int algorithm, const void *beta,
                                     void *dw_desc, void *dw, void *space, size_t space_bytes) {
    EXECUTE(miopenConvolutionBackwardWeights, 'W', x_desc, dw_desc, dy_desc, handle, alpha, dy_desc, dy,
            x_desc, x, conv, algorithm, beta, dw_desc, dw, space, space_bytes);
}

int miopenConvolutionForwardGetSolution(void *handle, void *w_desc, void *x_desc, void *conv, void *y_desc,
                                        size_t most, size_t *count, struct kdb_solution *solutions) {
    SOLUTIONS(miopenConvolutionForwardGetSolution, 'F', x_desc, w_desc, y_desc, handle, w_desc, x_desc, conv,
              y_desc, most, count, solutions);
}

int miopenConvolutionBackwardDataGetSolution(void *handle, void *dy_desc, void *w_desc, void *conv,
                                             void *dx_desc, size_t most, size_t *count,
                                             struct kdb_solution *solutions) {
    SOLUTIONS(miopenConvolutionBackwardDataGetSolution, 'B', dx_desc, w_desc, dy_desc, handle, dy_desc,
              w_desc, conv, dx_desc, most, count, solutions);
}

int miopenConvolutionBackwardWeightsGetSolution(void *handle, void *dy_desc, void *x_desc, void *conv,
                                                void *dw_desc, size_t most, size_t *count,
                                                struct kdb_solution *solutions) {
    SOLUTIONS(miopenConvolutionBackwardWeightsGetSolution, 'W', x_desc, dw_desc, dy_desc, handle, dy_desc,
              x_desc, conv, dw_desc, most, count, solutions);
}

int miopenConvolutionForwardCompileSolution(void *handle, void *w_desc, void *x_desc, void *conv,
                                            void *y_desc, uint64_t solution) {
    BY_ID(miopenConvolutionForwardCompileSolution, 'F', x_desc, w_desc, y_desc, 0, handle, w_desc, x_desc,
          conv, y_desc, solution);
}

int miopenConvolutionBackwardDataCompileSolution(void *handle, void *dy_desc, void *w_desc, void *conv,
                                                 void *dx_desc, uint64_t solution) {
    BY_ID(miopenConvolutionBackwardDataCompileSolution, 'B', dx_desc, w_desc, dy_desc, 0, handle, dy_desc,
          w_desc, conv, dx_desc, solution);
}

int miopenConvolutionBackwardWeightsCompileSolution(void *handle, void *dy_desc, void *x_desc, void *conv,
                                                    void *dw_desc, uint64_t solution) {
    BY_ID(miopenConvolutionBackwardWeightsCompileSolution, 'W', x_desc, dw_desc, dy_desc, 0, handle, dy_desc,
          x_desc, conv, dw_desc, solution);
}

int miopenConvolutionForwardImmediate(void *handle, void *w_desc, const void *w, void *x_desc, const void *x,
                                      void *conv, void *y_desc, void *y, void *space, size_t space_bytes,
                                      uint64_t solution) {
    BY_ID(miopenConvolutionForwardImmediate, 'F', x_desc, w_desc, y_desc, space_bytes, handle, w_desc, w,
          x_desc, x, conv, y_desc, y, space, space_bytes, solution);
}

int miopenConvolutionBackwardDataImmediate(void *handle, void *dy_desc, const void *dy, void *w_desc,
                                           const void *w, void *conv, void *dx_desc, void *dx, void *space,
                                           size_t space_bytes, uint64_t solution) {
    BY_ID(miopenConvolutionBackwardDataImmediate, 'B', dx_desc, w_desc, dy_desc, space_bytes, handle, dy_desc,
          dy, w_desc, w, conv, dx_desc, dx, space, space_bytes, solution);
}

int miopenConvolutionBackwardWeightsImmediate(void *handle, void *dy_desc, const void *dy, void *x_desc,
                                              const void *x, void *conv, void *dw_desc, void *dw, void *space,
                                              size_t space_bytes, uint64_t solution) {
    BY_ID(miopenConvolutionBackwardWeightsImmediate, 'W', x_desc, dw_desc, dy_desc, space_bytes, handle,
          dy_desc, dy, x_desc, x, conv, dw_desc, dw, space, space_bytes, solution);
}
