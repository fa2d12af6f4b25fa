"""Every function of MIOpen: arguments and result unchanged, one event each, and what its detail says."""

from __future__ import annotations

import collections
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import absent
from support import miopen_standin as standin
from support.miopen_scripts import Script, built, script
from support.standins import Standins, standins, traces

__all__ = ["built", "script", "standins", "traces"]  # fixtures


def test_every_argument_arrives_and_every_result_comes_back(
    standins: Standins, traces: Path, built: Path
) -> None:
    """From 1 to 47 arguments; one event for each call, failed ones with their result; none for a setter.
    All a second time: nothing is taken from the heap."""
    env = {"LD_LIBRARY_PATH": str(built / "plain")}
    plain, ran = (standins.run(t, built / "calls", env=env) for t in (None, traces))
    assert (ran.code, ran.out, ran.err) == (0, plain.out, "")
    said = {name: int(result) for name, result, _ in map(str.split, ran.out.splitlines())}
    assert list(said) == [h.name for h in standin.HOOKS]
    assert len(set(said.values())) == 5
    forms = {h.name: h.form for h in standin.HOOKS}
    events = [n for n, form in forms.items() if form in standin.EVENTS - standin.CONVOLUTIONS]
    assert [(c.api, c.result) for c in ran.trace.calls] == [(name, said[name]) for name in events] * 2
    assert len(events) == 76
    # nothing set them, and this library has no getters
    assert ran.trace.notes == ["50 calls of a convolution whose descriptors were set out of sight"]


T = "FP32[2,8,16,16]"
DETAILS = [
    (
        "api('miopenSet2dPoolingDescriptor', pool_desc=9, mode=0, window_height=3, window_width=2, pad_h=1,"
        " stride_h=2, stride_w=1);"
        "api('miopenSetPoolingWorkSpaceIndexMode', pool_desc=9, workspace_index=1);"
        "api('miopenPoolingForward', pool_desc=9, x_desc=X, y_desc=Y, do_backward=True)",
        "pool=max window=3x2 pads=1x0 strides=2x1 index=uint8 index_mode=image"
        f" x={T} y=FP32[2,4,14,14] do_backward=1",
    ),
    (
        "api('miopenSetNdPoolingDescriptor', pool_desc=9, mode=2, nb_dims=3,"
        " window_dim_a=array(1, 2, 3, type=ctypes.c_int), pad_a=array(0, 1, 2, type=ctypes.c_int),"
        " strides_a=array(4, 5, 6, type=ctypes.c_int));"
        "api('miopenSetPoolingIndexType', pool_desc=9, index_type=3);"
        "api('miopenPoolingBackward', pool_desc=9, y_desc=Y)",
        "pool=average-inclusive window=1x2x3 pads=0x1x2 strides=4x5x6 index=uint64 index_mode=mask"
        " y=FP32[2,4,14,14] dy=- x=- dx=-",
    ),
    (
        "api('miopenSetActivationDescriptor', activ_desc=9, mode=8, activ_alpha=0.01, activ_beta=-2.5,"
        " activ_gamma=1e-30);"
        "api('miopenActivationForward', activ_desc=9, x_desc=X, y_desc=X)",
        f"activation=leaky-relu alpha=0.01 beta=-2.5 gamma=1e-30 x={T} y={T}",
    ),
    (
        "api('miopenSetLRNDescriptor', lrn_desc=9, mode=1, lrn_n=5, lrn_alpha=0.0001,"
        " lrn_beta=0.75, lrn_k=2);"
        "api('miopenLRNForward', lrn_desc=9, x_desc=X, y_desc=X)",
        f"lrn=cross-channel n=5 alpha=0.0001 beta=0.75 k=2 x={T} y={T} do_backward=0",
    ),
    (
        "api('miopenSoftmaxForward_V2', x_desc=X, y_desc=Y, algorithm=2, mode=1)",
        f"x={T} y=FP32[2,4,14,14] algorithm=log mode=channel",
    ),
    (
        "api('miopenOpTensor', tensor_op=1, a_desc=X, b_desc=Z, c_desc=X)",
        f"op=mul a={T} b=FP32[1,4,1,1] c={T}",
    ),
    ("api('miopenOpTensor', tensor_op=77)", "op=77 a=- b=- c=-"),
    (
        "api('miopenSetReduceTensorDescriptor', reduce_desc=9, op=5, type=6, nan=1, indices=1, index_bits=1);"
        "api('miopenReduceTensor', reduce_tensor_desc=9, a_desc=X, c_desc=Z)",
        f"reduce=avg type=FP64 nan=1 indices=flattened index_bits=64 a={T} c=FP32[1,4,1,1]",
    ),
    (
        "api('miopenBatchNormalizationForwardTraining', bn_mode=1, x_desc=X, y_desc=X, bn_desc=Z,"
        " exp_avg_factor=0.3, epsilon=1e-5, result_save_mean=1)",
        f"mode=spatial x={T} y={T} bn=FP32[1,4,1,1] running=0 epsilon=1e-05 saved=1",
    ),
    (
        "api('miopenSetActivationDescriptor', activ_desc=9, mode=10);"
        "api('miopenBatchNormForwardInferenceActivation', x_desc=X, activ_desc=9, epsilon=0.1)",
        f"mode=per-activation x={T} y=- scale=- bias=- est_mean=- est_variance=- epsilon=0.1"
        " activation=clamp alpha=0 beta=0 gamma=0",
    ),
    (  # statistics of a batch norm are float whatever the data is
        "api.tensor(0x9000, 0, 2, 3, 4, 5, 6);"
        "api('miopenDeriveBNTensorDescriptor', derived_bn_desc=0x9100, x_desc=0x9000, bn_mode=1);"
        "api('miopenDeriveBNTensorDescriptor', derived_bn_desc=0x9200, x_desc=0x9000);"
        "api('miopenOpTensor', a_desc=0x9100, b_desc=0x9200)",
        "op=add a=FP32[1,3,1,1,1] b=FP32[1,3,4,5,6] c=-",
    ),
    (
        "api('miopenSetDropoutDescriptor', dropout_desc=8, dropout=0.1, use_mask=True, seed=5)",
        "mask=1 rng=0 dropout=0.1",
    ),
    (
        "api('miopenRestoreDropoutDescriptor', dropout_desc=8, dropout=0.25);"
        "api('miopenDropoutForward', dropout_desc=8, noise_desc=Z, x_desc=X, y_desc=X)",
        f"mask=0 rng=0 dropout=0.25 noise=FP32[1,4,1,1] x={T} y={T}",
    ),
    (
        "api('miopenRestoreDropoutDescriptor', dropout_desc=8, dropout=0.5);"
        "api('miopenSetRNNDescriptor_V2', rnn_desc=9, hsize=64, nlayers=3, dropout_desc=8,"
        " direction=1, rnn_mode=2,"
        " bias_mode=1, data_type=5);"
        "a, b = api.tensor(0x9000, 5, 4, 16), api.tensor(0x9100, 5, 2, 16);"
        "api('miopenRNNForwardTraining', rnn_desc=9, sequence_len=5, x_desc=array(a, a, a, b,"
        " None), y_desc=0,"
        " hx_desc=a)",
        "rnn=lstm hidden=64 layers=3 input=linear directions=both bias=1 algorithm=default type=BF16 padded=0"
        " dropout=0.5 x=BF16[4,16]*3,BF16[2,16],- hx=BF16[4,16] cx=- w=- y=- hy=- cy=-",
    ),
    (
        "api('miopenSetRNNDescriptor', rnn_desc=9, hsize=8, nlayers=1, in_mode=1, rnn_mode=3, data_type=1);"
        "api('miopenSetRNNPaddingMode', rnn_desc=9, padding_mode=1);"
        "api('miopenSetRNNDataSeqTensorDescriptor', seq_tensor_desc=10, data_type=0, layout=3,"
        " max_sequence_len=7,"
        " batch_size=4, vector_size=16);"
        "api('miopenRNNForward', rnn_desc=9, fwd_mode=1, x_desc=10, y_desc=11)",
        "rnn=gru hidden=8 layers=1 input=skip directions=one bias=0 algorithm=default type=FP32"
        " padded=1 dropout=0"
        " mode=inference x=FP16[4,7,16]:batch-major h=- c=- y=?",
    ),
    (  # what they set is not known
        "api.tensor(0x9000, 1, 5); api('miopenGetRNNLayerParam', param_desc=0x9000, layer=2);"
        "api('miopenOpTensor', a_desc=0x9000)",
        "op=add a=? b=- c=-",
    ),
    (
        "api('miopenSetCTCLossDescriptor', ctc_loss_desc=9, data_type=1, blank_label_id=3,"
        " apply_softmax_layer=True);"
        "api('miopenCTCLoss', ctc_loss_desc=9, probs_desc=X)",
        f"probs={T} gradients=- ctc=FP32 blank=3 softmax=1",
    ),
    (
        "api('miopenCatForward', x_count=4, x_descs=array(X, X, Y, X), y_desc=X, dim=1)",
        f"x={T}*2,FP32[2,4,14,14],{T} y={T} dim=1",
    ),
    ("api('miopenCatForward', x_count=-1, x_descs=array(X), dim=-1)", "x=- y=- dim=-1"),
    (
        "api('miopenGetitemBackward', index_count=1, index_descs=array(Z), dim_count=2,"
        " dims=array(1, 0, type=ctypes.c_int), slice_count=3, slices=array(0, 8, 2,"
        " type=ctypes.c_int), offset=6)",
        "dy=- index=FP32[1,4,1,1] dx=- error=- dims=1,0 slices=0,8,2 offset=6",
    ),
    (
        "api('miopenLayerNormForward', mode=1, x_desc=X, epsilon=1e-5, normalized_dim=2)",
        f"mode=weight-bias x={T} weight=- bias=- epsilon=1e-05 normalized_dim=2 y=- mean=- rstd=-",
    ),
    (
        "api('miopenGroupNormForward', mode=0, num_groups=4, x_desc=X)",
        f"mode=elementwise x={T} weight=- bias=- num_groups=4 epsilon=0 y=- mean=- rstd=-",
    ),
    (
        "api('miopenReduceExtremeForward', x_desc=X, dim=3, reduce_extreme_op=2)",
        f"x={T} dim=3 op=argmax y=- indice=-",
    ),
    (
        "api('miopenMultiMarginLossForward', p=2, margin=0.1, reduction=2, input_desc=Z)",
        "input=FP32[1,4,1,1] target=- weight=- output=- p=2 margin=0.1 reduction=mean",
    ),
    (  # nothing that is another at each step
        "api('miopenTransformersAdamW', param_desc=Z, step=7, lr=0.1, beta1=0.9, beta2=0.99,"
        " weight_decay=0.5,"
        " eps=1e-8, correct_bias=True)",
        "param=FP32[1,4,1,1] grad=- exp_avg=- exp_avg_sq=- state_step=- eps=1e-08 correct_bias=1"
        " grad_scale=- found_inf=-",
    ),
    (
        "api.set('standin_made', 0x9900);"
        "api('miopenBackendCreateDescriptor', descriptor_type=4, descriptor=array(0));"
        "api('miopenBackendExecute', execution_plan=0x9900)",
        "descriptor=execution-plan",
    ),
]


@pytest.mark.parametrize(("code", "detail"), DETAILS, ids=[d.split("=")[0] for _, d in DETAILS])
def test_detail(script: Script, code: str, detail: str) -> None:
    call = script(code).trace.calls[-1]
    assert (call.detail, call.result, call.nested) == (detail, 0, False)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        *(
            (f"api.tensor(9, 1, *range(2, {2 + n}))", f"FP32[{','.join(map(str, range(2, 2 + n)))}]")
            for n in range(1, 9)
        ),
        ("api.tensor(9, 1, *range(2, 11))", "?"),  # nine dimensions are not kept
        ("api.tensor(9, 0, 2, 3, 4, strides=(12, 1, 3))", "FP16[2,3,4]/[12,1,3]"),
        ("api.tensor(9, 3, 2, 3, strides=(3, 1))", "INT8[2,3]"),
        ("api.tensor(9, 44, 2)", "44[2]"),
        ("api.tensor(9, 1, 2); api('miopenSetTensorCastType', tensor_desc=9, cast_type=7)", "FP32[2]->FP8"),
        ("api('miopenSet4dTensorDescriptor', tensor_desc=9, data_type=5, n=1, c=2, h=3)", "BF16[1,2,3,0]"),
        (
            "api('miopenSetNdTensorDescriptorWithLayout', tensor_desc=9, data_type=1, tensor_layout=1,"
            " lens=array(1, 2, 3, 4, type=ctypes.c_int), num_lens=4)",
            "FP32[1,2,3,4]/[24,1,8,2]",
        ),
        (
            "api('miopenSetNdTensorDescriptorWithLayout', tensor_desc=9, data_type=0, tensor_layout=3,"
            " lens=array(1, 8, 3, 4, type=ctypes.c_int), num_lens=4)",
            "FP16[1,2,3,4]:NCHWc4",
        ),
        (
            "api('miopenSetTensorDescriptorV2', tensor_desc=9, data_type=1, nb_dims=2,"
            " dims_a=array(1 << 40, 2, type=ctypes.c_size_t))",
            "FP32[1099511627776,2]",
        ),
        ("api.tensor(9, 1, 5); api('miopenDestroyTensorDescriptor', tensor_desc=9)", "?"),
        (
            "api.tensor(9, 1, 5); api('miopenDestroyTensorDescriptor', tensor_desc=9); api.tensor(9, 1, 6)",
            "FP32[6]",
        ),
        ("api.tensor(9, 1, 5); api.set('standin_result', 3); api.tensor(9, 1, 6)", "FP32[5]"),  # refused
        ("api('miopenSetLRNDescriptor', lrn_desc=9)", "?"),  # another kind had this address
    ],
)  # fmt: skip
def test_tensor(script: Script, code: str, text: str) -> None:
    (call,) = script(code + "\napi('miopenSetTensor', y_desc=9)").trace.calls
    assert call.detail == f"y={text}"


def test_getters_are_asked_when_the_setting_was_not_seen(script: Script) -> None:
    """Each kind of descriptor, once; with MIOpen's logging on, never."""
    code = """
api('miopenPoolingForward', pool_desc=0x9000, x_desc=0x9010)
api('miopenPoolingForward', pool_desc=0x9000, x_desc=0x9010)
api('miopenActivationForward', activ_desc=0x9020)
api('miopenLRNForward', lrn_desc=0x9030)
api('miopenReduceTensor', reduce_tensor_desc=0x9040)
api('miopenRNNForward', rnn_desc=0x9050, x_desc=0x9060)
api('miopenDropoutForward', dropout_desc=0x9070)
api('miopenCTCLoss', ctc_loss_desc=0x9080)
print(api.lib.standin_getters())
"""
    ran = script(code, getters=True)
    said = [
        "pool=average window=3x4 pads=0x1 strides=1x2 index=uint32 index_mode=image x=FP32[2,3,4]"
        " y=- do_backward=0",
        "activation=leaky-relu alpha=0.01 beta=2 gamma=-1 x=- y=-",
        "lrn=cross-channel n=5 alpha=0.0001 beta=0.75 k=1 x=- y=- do_backward=0",
        "reduce=max type=FP32 nan=1 indices=flattened index_bits=64 a=- c=-",
        "rnn=lstm hidden=64 layers=2 input=skip directions=both bias=1 algorithm=default type=FP32"
        " padded=1 dropout=0"
        " mode=training x=FP16[3,7,16]:seq-major h=- c=- y=-",
        "mask=1 rng=0 dropout=0.1 noise=- x=- y=-",
        "probs=- gradients=- ctc=FP32 blank=4 softmax=1",
    ]
    assert [c.detail for c in ran.trace.calls] == [said[0], *said]
    assert ran.out == "14\n"


def test_getters_are_not_asked_while_they_would_log(script: Script) -> None:
    code = "api('miopenPoolingForward', pool_desc=9, x_desc=X, y_desc=8); print(api.lib.standin_getters())"
    ran = script(code, getters=True, MIOPEN_ENABLE_LOGGING="1")
    assert [c.detail for c in ran.trace.calls] == [f"pool=? x={T} y=? do_backward=0"]
    assert ran.out == "0\n"


def test_a_text_is_written_once(script: Script, traces: Path) -> None:
    """However often it is called, by whatever function, with a descriptor made anew each time."""
    code = """
for i in range(500):
    api.tensor(0x9000 + 16 * i, 1, 3, 5)
    api('miopenSetTensor', y_desc=0x9000 + 16 * i)
    api('miopenScaleTensor', y_desc=0x9000 + 16 * i)
    api('miopenDestroyTensorDescriptor', tensor_desc=0x9000 + 16 * i)
"""
    ran = script(code)
    assert collections.Counter(c.detail for c in ran.trace.calls) == {"y=FP32[3,5]": 1000}
    (file,) = traces.iterdir()
    assert file.read_bytes().count(b"y=FP32[3,5]") == 1


def test_a_call_that_miopen_makes_itself_is_marked(script: Script) -> None:
    """Batch norm's first form calls the second: both are seen, in the order of their ends."""
    code = "api.set('standin_nested', 1); api('miopenBatchNormalizationForwardTraining', x_desc=X, bn_desc=Z)"
    inner, outer = script(code).trace.calls
    assert (outer.api, outer.nested) == ("miopenBatchNormalizationForwardTraining", False)
    assert (inner.api, inner.nested) == ("miopenBatchNormalizationForwardTraining_V2", True)
    assert outer.time_ns <= inner.time_ns


def test_threads_keep_their_descriptors_apart(script: Script) -> None:
    code = """
def work(n):
    for i in range(100):
        api.tensor(0x10000 * n, 1, n, i)
        api('miopenSetTensor', y_desc=0x10000 * n)
        api('miopenDestroyTensorDescriptor', tensor_desc=0x10000 * n)
threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 9)]
for t in threads: t.start()
for t in threads: t.join()
"""
    calls = script(code).trace.calls
    found = collections.Counter(c.detail for c in calls)
    assert found == {f"y=FP32[{n},{i}]": 1 for n in range(1, 9) for i in range(100)}


def test_too_long_a_text_is_cut(script: Script) -> None:
    code = """
each = [api.tensor(0x9000 + 16 * i, 1, i + 1) for i in range(200)]
api('miopenCatForward', x_count=200, x_descs=array(*each))
"""
    (call,) = script(code).trace.calls
    assert call.detail.startswith("x=FP32[1],FP32[2],") and call.detail.endswith("FP32[32],... y=- dim=0")


def test_of_a_child_after_fork(script: Script) -> None:
    """Its trace stands alone: what the parent said of the same descriptors is said again."""
    code = """
import os
api('miopenSetTensor', y_desc=X)
if os.fork() == 0:
    api('miopenSetTensor', y_desc=X)
    os._exit(0)
os.wait()
"""
    ran = script(code)
    assert [[c.detail for c in t.calls] for t in ran.traces] == [[f"y={T}"]] * 2


def test_numbers_have_a_point_in_every_locale(script: Script, tmp_path: Path) -> None:
    """A program that writes 0,5 for itself."""
    source = 'comment_char %\nLC_NUMERIC\ndecimal_point ","\nthousands_sep "."\ngrouping 3\nEND LC_NUMERIC\n'
    (tmp_path / "comma").write_text(source)
    made = ["localedef", "-c", "-i", tmp_path / "comma", "-f", "UTF-8", tmp_path / "xx_XX"]
    if shutil.which("localedef"):
        subprocess.run(made, capture_output=True, check=False)  # it misses the other categories
    if not (tmp_path / "xx_XX").is_dir():
        absent("no locale can be made (Debian: locales)")
    code = """
import locale
locale.setlocale(locale.LC_NUMERIC, "xx_XX")
print(locale.str(0.5))
api('miopenSetLRNDescriptor', lrn_desc=9, lrn_n=10000, lrn_alpha=0.5, lrn_beta=1234567.25, lrn_k=1e-5)
api('miopenLRNForward', lrn_desc=9)
"""
    ran = script(code, LOCPATH=str(tmp_path))
    assert ran.out == "0,5\n"
    assert ran.trace.calls[0].detail.startswith("lrn=within-channel n=10000 alpha=0.5 beta=1234567.2 k=1e-05")
