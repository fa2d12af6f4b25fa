/* The getters of MIOpen, for a descriptor that was set before the recorder could see it. They are
 * looked up in the library that the call goes to, and never called while they would log
 * (kdb_described). */
#include "describe.h"

#define GETTER(name, ...) int (*name)(__VA_ARGS__) = (int (*)(__VA_ARGS__))kdb_symbol_at(library, #name)

static bool tensor(const void *library, const void *desc, struct kdb_tensor *t) {
    GETTER(miopenGetTensorDescriptorSize, const void *, int *);
    GETTER(miopenGetTensorDescriptor, const void *, int *, int *, int *);
    int dims = 0, type = 0, lens[KDB_DIMS], strides[KDB_DIMS];
    int64_t l[KDB_DIMS], s[KDB_DIMS];
    if (!miopenGetTensorDescriptorSize || !miopenGetTensorDescriptor ||
        miopenGetTensorDescriptorSize(desc, &dims) != 0 || dims < 1 || dims > KDB_DIMS ||
        miopenGetTensorDescriptor(desc, &type, lens, strides) != 0)
        return false;
    for (int i = 0; i < dims; i++) {
        l[i] = lens[i];
        s[i] = strides[i];
    }
    return kdb_tensor_fill(t, type, KDB_NONE, dims, l, s);
}

static bool conv(const void *library, const void *desc, struct kdb_conv *c) {
    GETTER(miopenGetConvolutionSpatialDim, const void *, int *);
    GETTER(miopenGetConvolutionNdDescriptor, const void *, int, int *, int *, int *, int *, int *);
    GETTER(miopenGetConvolutionGroupCount, const void *, int *);
    int dims = 0;
    return miopenGetConvolutionSpatialDim && miopenGetConvolutionNdDescriptor &&
           miopenGetConvolutionGroupCount && miopenGetConvolutionSpatialDim(desc, &dims) == 0 && dims >= 2 &&
           dims <= 3 &&
           miopenGetConvolutionNdDescriptor(desc, dims, &c->dims, c->pads, c->strides, c->dilations,
                                            &c->mode) == 0 &&
           c->dims == dims && miopenGetConvolutionGroupCount(desc, &c->groups) == 0;
}

/* MIOpen copies as many values as are asked for, without a look at how many there are: 2 or 3. */
static bool pool(const void *library, const void *desc, struct kdb_plain *p) {
    GETTER(miopenGetNdPoolingDescriptor, const void *, int, int *, int *, int *, int *, int *);
    GETTER(miopenGetPoolingIndexType, const void *, int *);
    GETTER(miopenGetPoolingWorkSpaceIndexMode, const void *, int *);
    int *n = p->numbers;
    if (!miopenGetNdPoolingDescriptor || !miopenGetPoolingIndexType || !miopenGetPoolingWorkSpaceIndexMode ||
        miopenGetNdPoolingDescriptor(desc, 2, &n[0], &n[1], &n[2], &n[5], &n[8]) != 0 || n[1] < 2 || n[1] > 3)
        return false;
    return miopenGetNdPoolingDescriptor(desc, n[1], &n[0], &n[1], &n[2], &n[5], &n[8]) == 0 &&
           miopenGetPoolingIndexType(desc, &n[11]) == 0 &&
           miopenGetPoolingWorkSpaceIndexMode(desc, &n[12]) == 0;
}

static bool dropout(const void *library, const void *desc, struct kdb_plain *p) {
    GETTER(miopenGetDropoutDescriptor, const void *, void *, float *, void **, unsigned long long *, bool *,
           bool *, int *);
    float rate = 0;
    void *states;
    unsigned long long seed;
    bool mask = false, evolving = false;
    /* MIOpen does not use the handle */
    if (!miopenGetDropoutDescriptor ||
        miopenGetDropoutDescriptor(desc, NULL, &rate, &states, &seed, &mask, &evolving, &p->numbers[1]) != 0)
        return false;
    p->reals[0] = (double)rate;
    p->numbers[0] = mask;
    return true;
}

static bool rnn(const void *library, const void *desc, struct kdb_plain *p) {
    GETTER(miopenGetRNNDescriptor_V2, const void *, int *, int *, void **, int *, int *, int *, int *, int *,
           int *);
    GETTER(miopenGetRNNPaddingMode, const void *, int *);
    int *n = p->numbers;
    struct kdb_desc by;
    void *dropout_desc = NULL;
    if (!miopenGetRNNDescriptor_V2 || miopenGetRNNDescriptor_V2(desc, &n[1], &n[2], &dropout_desc, &n[3],
                                                                &n[4], &n[0], &n[5], &n[6], &n[7]) != 0)
        return false;
    if (kdb_content(kdb_known(dropout_desc, KDB_DROPOUT), &by))
        p->reals[0] = by.plain.reals[0];
    return !miopenGetRNNPaddingMode || miopenGetRNNPaddingMode(desc, &n[8]) == 0;
}

static bool sequence(const void *library, const void *desc, struct kdb_plain *p) {
    GETTER(miopenGetRNNDataSeqTensorDescriptor, const void *, int *, int *, int *, int *, int *, int, int *,
           void *);
    int *n = p->numbers, none;
    return miopenGetRNNDataSeqTensorDescriptor &&
           miopenGetRNNDataSeqTensorDescriptor(desc, &n[0], &n[1], &n[2], &n[3], &n[4], 0, &none, NULL) == 0;
}

static bool plain(const void *library, const void *desc, uint32_t kind, struct kdb_plain *p) {
    GETTER(miopenGetActivationDescriptor, const void *, int *, double *, double *, double *);
    GETTER(miopenGetLRNDescriptor, const void *, int *, unsigned *, double *, double *, double *);
    GETTER(miopenGetSoftmaxDescriptor, const void *, float *, float *, int *, int *);
    GETTER(miopenGetReduceTensorDescriptor, const void *, int *, int *, int *, int *, int *);
    GETTER(miopenGetCTCLossDescriptor, const void *, int *, int *, bool *);
    GETTER(miopenGetMhaDescriptor, const void *, float *);
    int *n = p->numbers;
    double *r = p->reals;
    float f[2] = {0, 0};
    bool flag = false, done = false;
    unsigned size = 0;
    switch (kind) {
    case KDB_ACTIVATION:
        return miopenGetActivationDescriptor &&
               miopenGetActivationDescriptor(desc, &n[0], &r[0], &r[1], &r[2]) == 0;
    case KDB_LRN:
        done = miopenGetLRNDescriptor && miopenGetLRNDescriptor(desc, &n[0], &size, &r[0], &r[1], &r[2]) == 0;
        n[1] = (int)size;
        return done;
    case KDB_SOFTMAX:
        done =
            miopenGetSoftmaxDescriptor && miopenGetSoftmaxDescriptor(desc, &f[0], &f[1], &n[0], &n[1]) == 0;
        break;
    case KDB_REDUCE:
        return miopenGetReduceTensorDescriptor &&
               miopenGetReduceTensorDescriptor(desc, &n[0], &n[1], &n[2], &n[3], &n[4]) == 0;
    case KDB_CTC:
        done = miopenGetCTCLossDescriptor && miopenGetCTCLossDescriptor(desc, &n[0], &n[1], &flag) == 0;
        n[2] = flag;
        return done;
    case KDB_MHA:
        done = miopenGetMhaDescriptor && miopenGetMhaDescriptor(desc, &f[0]) == 0;
        break;
    default:
        return false;
    }
    r[0] = (double)f[0];
    r[1] = (double)f[1];
    return done;
}

bool kdb_ask(const void *library, const void *address, struct kdb_desc *desc) {
    switch (desc->kind) {
    case KDB_TENSOR:
        return tensor(library, address, &desc->tensor);
    case KDB_CONV:
        return conv(library, address, &desc->conv);
    case KDB_POOL:
        return pool(library, address, &desc->plain);
    case KDB_DROPOUT:
        return dropout(library, address, &desc->plain);
    case KDB_RNN:
        return rnn(library, address, &desc->plain);
    case KDB_SEQUENCE:
        return sequence(library, address, &desc->plain);
    default:
        return plain(library, address, desc->kind, &desc->plain);
    }
}
