"""Ops of com.microsoft that are gradients of other ops: signatures and inference. `ops/gradients/bodies.py` says what most compute."""

from __future__ import annotations

from sardonyx.dtypes import FLOATS, bool_, int32, int64
from sardonyx.errors import InferenceError
from sardonyx.ir import TensorType, dim
from sardonyx.ops.contrib.fused import CONVOLUTION
from sardonyx.ops.conv import convolved_shape
from sardonyx.ops.schemas import define
from sardonyx.ops.shapes import axis_index, fresh_shape, merge_shapes, same_as
from sardonyx.ops.table import in_domain, infer
from sardonyx.ops.window import SAME

contrib = in_domain("com.microsoft")


def _defined(names, text, **constraints):
    for name in names.split():
        define("com.microsoft", name, 1, text, T=FLOATS, **constraints)


INDICES = {int32, int64}

# --- elementwise

_defined("ReluGrad GeluGrad FastGeluGrad", "(dY: T, X: T) -> (dX: T)")
_defined("SigmoidGrad TanhGrad", "(dY: T, Y: T) -> (dX: T)")
_defined("LeakyReluGrad", "(dY: T, Y: T, *, alpha: float = 0.01) -> (dX: T)")
_defined("QuickGeluGrad", "(dY: T, X: T, *, alpha: float = 1.702) -> (dX: T)")
_defined("BiasGeluGrad_dX BiasFastGeluGrad_dX", "(dY: T, X: T, B: T) -> (dX: T)")
_defined("DivGrad", "(dY: T, A: T, B: T) -> (dA: T?, dB: T?)")

contrib("ReluGrad", "GeluGrad", "FastGeluGrad", "SigmoidGrad", "TanhGrad", "LeakyReluGrad", "QuickGeluGrad")(same_as("dY"))
contrib("BiasGeluGrad_dX", "BiasFastGeluGrad_dX")(same_as("dY"))


@contrib("DivGrad")
def div_grad(A, B):
    return [A.shape, B.shape]


# --- softmax, losses, dropout

_defined("SoftmaxGrad", "(dY: T, Y: T, *, axis: int = 1) -> (dX: T)")
_defined("SoftmaxGrad_13", "(dY: T, Y: T, *, axis: int = -1) -> (dX: T)")
_defined("LogSoftmaxGrad", "(dY: T, X: T, *, axis: int = 1) -> (dX: T)")
_defined("LogSoftmaxGrad_13", "(dY: T, X: T, *, axis: int = -1) -> (dX: T)")
_defined(
    "SoftmaxCrossEntropyLossGrad",
    "(dY: T, log_prob: T, label: Tind, weight: T?, bias: T?, *, reduction: string = 'mean', ignore_index: int?) -> (d_logits: T)",
    Tind=INDICES,
)
REDUCED = "reduction: string = 'mean'"
_defined(
    "SoftmaxCrossEntropyLossInternalGrad",
    f"(dY: T, log_prob: T, label: Tind, weight: T?, ignore_index: I?, bias: T?, *, {REDUCED}) -> (d_logits: T)",
    Tind=INDICES,
    I={int64},
)
_defined(
    "SoftmaxCrossEntropyLossInternal",
    f"(scores: T, labels: Tind, weights: T?, ignore_index: I?, *, {REDUCED}) -> (output: T, log_prob: T?)",
    Tind=INDICES,
    I={int64},
)
_defined(
    "NegativeLogLikelihoodLossInternal NegativeLogLikelihoodLossInternal2",
    f"(input: T, target: Tind, weight: T?, ignore_index: I?, *, {REDUCED}) -> (loss: T)",
    Tind=INDICES,
    I={int64},
)
_defined("SoftmaxCrossEntropy", f"(logits: T, label: T, *, {REDUCED}) -> (Y: T, log_prob: T?)")
_defined("SoftmaxCrossEntropyGrad", f"(dY: T, log_prob: T, label: T, *, {REDUCED}) -> (d_logits: T)")
define(
    "",
    "SparseSoftmaxCrossEntropy",
    9,
    f"(logits: T, label: Tind, weight: T?, *, {REDUCED}) -> (Y: T, log_prob: T?)",
    T=FLOATS,
    Tind=INDICES,
)
define(
    "",
    "SparseSoftmaxCrossEntropyGrad",
    9,
    f"(dY: T, log_prob: T, label: Tind, weight: T?, *, {REDUCED}) -> (d_logits: T)",
    T=FLOATS,
    Tind=INDICES,
)
_defined(
    "DropoutGrad",
    "(dy: T, mask: T2, ratio: T1?, training_mode: T2?) -> (dx: T)",
    T1=FLOATS,
    T2={bool_},
)

contrib("SoftmaxGrad", "SoftmaxGrad_13", "LogSoftmaxGrad", "LogSoftmaxGrad_13")(same_as("dY"))
contrib("DropoutGrad")(same_as("dy"))


@contrib("SoftmaxCrossEntropyLossInternal")
def softmax_cross_entropy_loss_internal(scores, labels, reduction):
    return [labels.shape if reduction == "none" else (), scores.shape]


@contrib("NegativeLogLikelihoodLossInternal", "NegativeLogLikelihoodLossInternal2")
def negative_log_likelihood_loss_internal(target, reduction):
    return target.shape if reduction == "none" else ()


@infer("SparseSoftmaxCrossEntropy")
def sparse_softmax_cross_entropy(logits, label, weight, reduction):
    _check_labels(logits, label, weight)
    return [label.shape if reduction == "none" else (), logits.shape]


@infer("SparseSoftmaxCrossEntropyGrad")
def sparse_softmax_cross_entropy_grad(log_prob, label, weight):
    _check_labels(log_prob, label, weight)
    return log_prob.shape


def _check_labels(scores, label, weight):
    """Classes are the last axis of scores; labels and weights have the others."""
    if scores.shape is not None:
        if not scores.shape:
            raise InferenceError("scores need an axis of classes")
        merge_shapes(label.shape, scores.shape[:-1], "label")
    if weight is not None:
        merge_shapes(weight.shape, label.shape, "weight")


@contrib("SoftmaxCrossEntropy")
def softmax_cross_entropy(logits):
    return [(), logits.shape]


@contrib("SoftmaxCrossEntropyLossGrad", "SoftmaxCrossEntropyLossInternalGrad", "SoftmaxCrossEntropyGrad")
def softmax_cross_entropy_loss_grad(log_prob):
    return log_prob.shape


# --- normalization

_defined(
    "LayerNormalizationGrad",
    "(Y_grad: V, X: T, scale: V, mean: U, inv_std_dev: U, *, axis: int = -1, epsilon: float?, stash_type: int?)"
    " -> (X_grad: T, scale_grad: V, bias_grad: V)",
    U=FLOATS,
    V=FLOATS,
)
_defined(
    "SimplifiedLayerNormalizationGrad",
    "(Y_grad: V, X: T, scale: V, inv_std_var: U, *, axis: int = -1, epsilon: float?, stash_type: int?)"
    " -> (X_grad: T, scale_grad: V)",
    U=FLOATS,
    V=FLOATS,
)
_defined(
    "InvertibleLayerNormalizationGrad",
    "(Y_grad: V, Y: V, scale: V, bias: V, inv_std_var: U, *, axis: int = -1) -> (X_grad: T, scale_grad: V, bias_grad: V)",
    U=FLOATS,
    V=FLOATS,
)
_defined(
    "BatchNormInternal",
    "(X: T, scale: T1, B: T1, input_mean: T2, input_var: T2, *, epsilon: float = 1e-5, momentum: float = 0.9,"
    " training_mode: int = 0) -> (Y: T, running_mean: T2?, running_var: T2?, saved_mean: T2?, saved_inv_std: T2?)",
    T1=FLOATS,
    T2=FLOATS,
)
_defined(
    "BatchNormalizationGrad",
    "(dY: T, X: T, scale: T1, mean: T2, variance: T2, *, epsilon: float = 1e-5) -> (dX: T, dscale: T1, dB: T1)",
    T1=FLOATS,
    T2=FLOATS,
)


@contrib("LayerNormalizationGrad", "SimplifiedLayerNormalizationGrad")
def layer_normalization_grad(X, scale, axis):
    _check_axis(X.shape, axis)
    return [X.shape, scale.shape, scale.shape]


@contrib("InvertibleLayerNormalizationGrad")
def invertible_layer_normalization_grad(Y, scale, axis):
    _check_axis(Y.shape, axis)
    return [TensorType(Y.dtype, Y.shape), scale.shape, scale.shape]


@contrib("BatchNormInternal")
def batch_norm_internal(X, input_mean):
    return [X.shape, *[input_mean.shape] * 4]


@contrib("BatchNormalizationGrad")
def batch_normalization_grad(X, scale):
    return [X.shape, scale.shape, scale.shape]


# --- convolution and pools

PLAIN_CONVOLUTION = CONVOLUTION.partition(", activation")[0]
POOL = "auto_pad: string = 'NOTSET', ceil_mode: int = 0, kernel_shape: ints, pads: ints?, strides: ints?"

_defined("ConvGrad", f"(dY: T, X: T, W: T, *, {PLAIN_CONVOLUTION}) -> (dX: T?, dW: T?, dB: T?)")
_defined(
    "ConvTransposeGrad",
    f"(dY: T, X: T, W: T, *, {PLAIN_CONVOLUTION}, output_padding: ints?, output_shape: ints?) -> (dX: T?, dW: T?, dB: T?)",
)
define(
    "",
    "MaxPoolGrad",
    9,
    f"(dY: T, Indices: I, *, {POOL}, dilations: ints?, storage_order: int = 0) -> (dX: T)",
    T=FLOATS,
    I={int64},
)
define("", "AveragePoolGrad", 9, f"(dY: T, *, {POOL}, count_include_pad: int = 0) -> (dX: T)", T=FLOATS)


@contrib("ConvGrad")
def conv_grad(dY, X, W, group, auto_pad, dilations, kernel_shape, pads, strides):
    merge_shapes(dY.shape, convolved_shape(X, W, group, kernel_shape, strides, dilations, pads, auto_pad), "dY")
    return [X.shape, W.shape, None if W.shape is None else (W.shape[0],)]


@contrib("ConvTransposeGrad")
def conv_transpose_grad(dY, X, W, group, auto_pad, dilations, kernel_shape, pads, strides, output_shape):
    """The convolution that it goes back through leads from dY to X."""
    if output_shape is None and auto_pad not in SAME:
        merge_shapes(X.shape, convolved_shape(dY, W, group, kernel_shape, strides, dilations, pads, auto_pad), "X")
    return [X.shape, W.shape, None if dY.shape is None else (dY.shape[1],)]


@infer("MaxPoolGrad", "AveragePoolGrad")
def pool_grad(dY, declared_types):
    """Several sizes of an image give one of the pool's: the model declares which was meant, of all but the batch."""
    (declared,) = declared_types
    if not isinstance(declared, TensorType) or not declared.shape or dY.shape is None:
        return None if dY.shape is None else (*dY.shape[:2], *fresh_shape(len(dY.shape) - 2))
    return (dY.shape[0], *declared.shape[1:])


# --- indexing

_defined("GatherGrad", "(shape: I, indices: Tind, dY: T, *, axis: int = 0) -> (dX: T)", I={int64}, Tind=INDICES)
_defined("GatherElementsGrad", "(dY: T, shape: I, indices: Tind, *, axis: int = 0) -> (dX: T)", I={int64}, Tind=INDICES)
_defined("GatherNDGrad", "(shape: I, indices: Tind, update: T, *, batch_dims: int = 0) -> (output: T)", I={int64}, Tind={int64})
_defined(
    "SliceGrad",
    "(dY: T, shape: I, starts: Tind, ends: Tind, axes: Tind?, steps: Tind?) -> (dX: T)",
    I={int64},
    Tind=INDICES,
)
define("com.microsoft", "BroadcastGradientArgs", 1, "(a_shape: T, b_shape: T) -> (a_axes: T?, b_axes: T?)", T={int64})


@contrib("GatherGrad", "GatherElementsGrad")
def gathered_along(shape, axis):
    found = scattered(shape)
    _check_axis(found, axis)
    return found


@contrib("SliceGrad")
def sliced(shape, axes):
    found = scattered(shape)
    for axis in axes.value.tolist() if axes is not None and axes.is_concrete else ():
        _check_axis(found, axis)
    return found


def _check_axis(shape, axis):
    if shape is not None:
        axis_index(axis, len(shape))


@contrib("GatherNDGrad")
def scattered(shape):
    if shape.dims is not None:
        return shape.dims
    rank = shape.shape[0] if shape.shape else None
    return fresh_shape(rank) if isinstance(rank, int) else None


@contrib("BroadcastGradientArgs")
def broadcast_gradient_args():
    return [(dim.fresh(),), (dim.fresh(),)]


# --- recurrent layers

LAYER = (
    "activation_alpha: floats?, activation_beta: floats?, activations: strings?, clip: float?,"
    " direction: string = 'forward', hidden_size: int?"
)
_defined(
    "LSTMTraining",
    "(X: T, W: T, R: T, B: T?, sequence_lens: T1?, initial_h: T?, initial_c: T?, P: T?, *,"
    f" {LAYER}, input_forget: int = 0) -> (HAll: T?, HFinal: T?, CFinal: T?, CAll: T?, iofc: T?)",
    T1={int32},
)
_defined(
    "LSTMGrad",
    "(X: T, W: T, R: T, SL: T1?, Ht0: T?, Ct0: T?, HAll: T?, CAll: T?, iofc: T?, dHAll: T?, dHFinal: T?, dCFinal: T?, *,"
    f" {LAYER}, input_forget: int = 0) -> (dX: T?, dW: T?, dR: T?, dB: T?, dH0: T?, dC0: T?, dP: T?)",
    T1={int32},
)
_defined(
    "GRUTraining",
    "(X: T, W: T, R: T, B: T?, sequence_lens: T1?, initial_h: T?, *,"
    f" {LAYER}, linear_before_reset: int = 0) -> (HAll: T?, HFinal: T?, ZRH: T?)",
    T1={int32},
)
_defined(
    "GRUGrad",
    "(X: T, W: T, R: T, B: T?, SL: T1?, H0: T?, HAll: T?, ZRH: T?, dHAll: T?, dHFinal: T?, *,"
    f" {LAYER}, linear_before_reset: int = 0) -> (dX: T?, dW: T?, dR: T?, dB: T?, dH0: T?)",
    T1={int32},
)


@contrib("LSTMTraining")
def lstm_training(X, R):
    every, last = _states(X, R)
    return [every, last, last, every, _gates(every, 4)]


@contrib("GRUTraining")
def gru_training(X, R):
    every, last = _states(X, R)
    return [every, last, _gates(every, 3)]


def _states(X, R):
    steps, batch, _ = X.require_rank(3, name="X") or fresh_shape(3)
    directions, _, hidden = R.require_rank(3, name="R") or fresh_shape(3)
    return (steps, directions, batch, hidden), (directions, batch, hidden)


def _gates(states, count):
    return (*states[:3], count * states[3])


@contrib("LSTMGrad")
def lstm_grad(X, W, R):
    _, state = _states(X, R)
    return [X.shape, W.shape, R.shape, _bias(W), state, state, None]


@contrib("GRUGrad")
def gru_grad(X, W, R):
    return [X.shape, W.shape, R.shape, _bias(W), _states(X, R)[1]]


OURS = "sardonyx"
"""The domain of what gradients of layers are made of here."""
define(
    OURS,
    "LSTMStepsGrad",
    1,
    "(R: T, gates: T, CAll: T, Ct0: T?, dHAll: T?, dHFinal: T?, dCFinal: T?, *, direction: string = 'forward')"
    " -> (dGates: T, dH0: T, dC0: T)",
    T=FLOATS,
)
define(
    OURS,
    "GRUStepsGrad",
    1,
    "(R: T, gates: T, HAll: T, candidates: T, H0: T?, dHAll: T?, dHFinal: T?, *, direction: string = 'forward')"
    " -> (dGates: T, dProducts: T, dH0: T)",
    T=FLOATS,
)


@in_domain(OURS)("LSTMStepsGrad")
def lstm_steps_grad(gates, R):
    state = _state_of(gates, R)
    return [gates.shape, state, state]


@in_domain(OURS)("GRUStepsGrad")
def gru_steps_grad(gates, R):
    return [gates.shape, gates.shape, _state_of(gates, R)]


def _state_of(gates, R):
    _, directions, batch, _ = gates.require_rank(4, name="gates") or fresh_shape(4)
    return directions, batch, (R.require_rank(3, name="R") or fresh_shape(3))[2]


def _bias(W):
    return None if W.shape is None else (W.shape[0], 2 * W.shape[1])
