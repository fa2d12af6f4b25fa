/* Getters of the stand-in libMIOpen: every descriptor says the same. */
static int getters;
int standin_getters(void);
int standin_getters(void) {
    return getters;
}
#define GETTER(name, params, ...)                                                                            \
    int name params;                                                                                         \
    int name params {                                                                                        \
        (void)desc;                                                                                          \
        getters++;                                                                                           \
        __VA_ARGS__;                                                                                         \
        return 0;                                                                                            \
    }
GETTER(miopenGetTensorDescriptorSize, (void *desc, int *dims), *dims = 3)
GETTER(miopenGetTensorDescriptor, (void *desc, int *type, int *lens, int *strides), *type = 1;
       lens[0] = 2, lens[1] = 3, lens[2] = 4; strides[0] = 12, strides[1] = 4, strides[2] = 1)
GETTER(miopenGetConvolutionSpatialDim, (void *desc, int *dims), *dims = 2)
GETTER(miopenGetConvolutionNdDescriptor,
       (void *desc, int wanted, int *dims, int *pads, int *strides, int *dilations, int *mode),
       *dims = wanted;
       for (int i = 0; i < wanted; i++) pads[i] = 0, strides[i] = dilations[i] = 1; *mode = 0)
GETTER(miopenGetConvolutionGroupCount, (void *desc, int *groups), *groups = 1)
/* Like MIOpen's: as many values are copied as are asked for. */
GETTER(miopenGetNdPoolingDescriptor,
       (void *desc, int wanted, int *mode, int *dims, int *window, int *pads, int *strides), *mode = 1;
       *dims = 2; for (int i = 0; i < wanted; i++) window[i] = i < 2 ? 3 + i : 666, pads[i] = i < 2 ? i : 666,
                  strides[i] = i < 2 ? 1 + i : 666)
GETTER(miopenGetPoolingIndexType, (void *desc, int *type), *type = 2)
GETTER(miopenGetPoolingWorkSpaceIndexMode, (void *desc, int *mode), *mode = 1)
GETTER(miopenGetActivationDescriptor, (void *desc, int *mode, double *a, double *b, double *c), *mode = 8;
       *a = 0.01; *b = 2; *c = -1)
GETTER(miopenGetLRNDescriptor, (void *desc, int *mode, unsigned *n, double *a, double *b, double *k),
       *mode = 1;
       *n = 5; *a = 1e-4; *b = 0.75; *k = 1)
GETTER(miopenGetReduceTensorDescriptor, (void *desc, int *op, int *type, int *nan, int *indices, int *bits),
       *op = 3;
       *type = 1; *nan = 1; *indices = 1; *bits = 1)
GETTER(miopenGetRNNDescriptor_V2,
       (void *desc, int *hidden, int *layers, void **dropout, int *input, int *direction, int *mode,
        int *bias, int *algo, int *type),
       *hidden = 64;
       *layers = 2; *dropout = NULL; *input = 1; *direction = 1; *mode = 2; *bias = 1; *algo = 0; *type = 1)
GETTER(miopenGetRNNPaddingMode, (void *desc, int *mode), *mode = 1)
GETTER(miopenGetRNNDataSeqTensorDescriptor,
       (void *desc, int *type, int *layout, int *length, int *batch, int *vector, int limit, int *lens,
        void *marker),
       (void)limit;
       (void)lens; (void)marker; *type = 0; *layout = 2; *length = 7; *batch = 3; *vector = 16)
GETTER(miopenGetDropoutDescriptor,
       (void *desc, void *handle, float *rate, void **states, unsigned long long *seed, bool *mask,
        bool *evolves, int *rng),
       (void)handle;
       *rate = 0.1f; *states = NULL; *seed = 1; *mask = true; *evolves = false; *rng = 0)
GETTER(miopenGetCTCLossDescriptor, (void *desc, int *type, int *blank, bool *softmax), *type = 1; *blank = 4;
       *softmax = true)
