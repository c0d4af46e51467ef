"""Ops of com.microsoft that training graphs are made of besides gradients: accumulation, scaling, optimizers."""

from __future__ import annotations

from sardonyx.dtypes import FLOATS, bool_, float32, int32, int64
from sardonyx.errors import InferenceError
from sardonyx.ir import TensorType, dim
from sardonyx.ops.schemas import define
from sardonyx.ops.shapes import axis_index, element_type, fresh_shape, same_as, text
from sardonyx.ops.table import in_domain

contrib = in_domain("com.microsoft")

SEQUENCES = {"seq(tensor(float))"}

define(
    "com.microsoft",
    "InPlaceAccumulatorV2",
    1,
    "(accumulation_buffer: T, value: T, overwrite_flag: T_BOOL?) -> (updated_flag: T_BOOL, accumulation_buffer_out: T?)",
    T=FLOATS,
    T_BOOL={bool_},
)
define(
    "com.microsoft",
    "Scale",
    1,
    "(input: T, scale: ScaleT, *, scale_down: int = 0) -> (output: T)",
    T=FLOATS,
    ScaleT=FLOATS | {int64},
)
define(
    "com.microsoft",
    "ConcatTraining",
    1,
    "(*inputs: T, *, axis: int) -> (concat_result: T, per_input_length: Tint?)",
    T=FLOATS | {int64, bool_},
    Tint={int64},
)
define(
    "com.microsoft",
    "SplitTraining",
    1,
    "(input: T, split: Tint, *, axis: int = 0) -> (*outputs: T)",
    T=FLOATS | {int64, bool_},
    Tint={int64},
)
define("com.microsoft", "PassThrough", 1, "(*inputs: T) -> (*outputs: T)", T=FLOATS)
define("com.microsoft", "ReduceAllL2", 1, "(*X: T) -> (Y: TOut)", T=FLOATS, TOut={float32})
define(
    "com.microsoft",
    "AdamWOptimizer",
    1,
    "(lr: T1, step: T2, weights: S, gradients: S, momentums_1: S, momentums_2: S, update_signal: T3?, *,"
    " alpha: float = 0.9, beta: float = 0.999, epsilon: float = 1e-8, weight_decay: float = 1e-2, adam_mode: int = 0,"
    " correct_bias: int = 1) -> (updated_flag: T3, updated_weights: S?, updated_momentums_1: S?, updated_momentums_2: S?)",
    T1={float32},
    T2={int64},
    T3={bool_},
    S=SEQUENCES,
)
define(
    "com.microsoft",
    "SGDOptimizerV2",
    1,
    "(lr: T1, weights: S, gradients: S, update_signal: T3?) -> (updated_flag: T3, updated_weights: S?)",
    T1={float32},
    T3={bool_},
    S=SEQUENCES,
)
define(
    "com.microsoft",
    "InplaceClipGradNorm",
    1,
    "(gradients: S, *, max_norm: float = 1.0, norm_type: string = 'fro') -> (clipped_gradients: S)",
    S=SEQUENCES,
)

define(
    "com.microsoft",
    "ReduceSumTraining",
    1,
    "(data: T, axes: I, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> (reduced: T)",
    T=FLOATS,
    I={int64},
)
define(
    "com.microsoft",
    "InPlaceAccumulator",
    1,
    "(old_sum: T, value: V, update_signal: T_BOOL?) -> (new_sum: T)",
    T=FLOATS,
    V=FLOATS,
    T_BOOL={bool_},
)
define(
    "com.microsoft",
    "ZeroGradient",
    1,
    "(old_gradient: T1, reset_signal: T2) -> (zero_gradient: T1)",
    T1=FLOATS,
    T2=FLOATS | {int64, bool_},
)
define("com.microsoft", "Group", 1, "(*input_tensors: T) -> (done: B)", T=FLOATS | {int64, bool_}, B={bool_})
define(
    "com.microsoft",
    "ScaledSum",
    1,
    "(input_0: T, input_1: T, input_2: T?, *, scale_0: float, scale_1: float, scale_2: float = 1.0) -> (output: T)",
    T=FLOATS,
)
define(
    "com.microsoft",
    "FakeQuant",
    1,
    "(input_tensor: T, scale: T, zero_point: T, *, quant_min: int = 0, quant_max: int = 255)"
    " -> (fake_quantized_tensor: T, quantization_mask: B)",
    T=FLOATS,
    B={bool_},
)
define("com.microsoft", "FakeQuantGrad", 1, "(dY: T, gradient_mask: B) -> (dX: T)", T=FLOATS, B={bool_})

define("com.microsoft", "IsFinite", 1, "(X: T) -> (Y: T1)", T=FLOATS, T1={bool_})
define(
    "com.microsoft",
    "IsAllFinite",
    1,
    "(*input: V, *, isinf_only: int = 0, isnan_only: int = 0) -> (output: T)",
    V=FLOATS,
    T={bool_},
)
define("com.microsoft", "All", 1, "(X: T) -> (Y: T)", T={bool_})
define(
    "com.microsoft",
    "MixedPrecisionScale",
    1,
    "(S: ScaleT, *X: SrcT, *, to: int, fuse_outputs: int = 0) -> (*Y: DstT)",
    ScaleT=FLOATS,
    SrcT=FLOATS,
    DstT=FLOATS,
)
define(
    "com.microsoft",
    "BatchScale",
    1,
    "(input: T, *, scale_0: float, scale_1: float, scale_2: float?) -> (output_0: T, output_1: T, output_2: T?)",
    T=FLOATS,
)
define("com.microsoft", "View", 1, "(input: T, *shapes: I) -> (*outputs: T)", T=FLOATS, I={int64})
define(
    "com.microsoft",
    "PadAndUnflatten",
    1,
    "(input: T, indices: T_INDEX, unflatten_dims: T_INT) -> (output: T)",
    T=FLOATS | {int32, int64},
    T_INDEX={int32, int64},
    T_INT={int64},
)
define(
    "com.microsoft",
    "FlattenAndUnpad",
    1,
    "(input: T, indices: T_INDEX) -> (output: T, unflatten_dims: T_INT)",
    T=FLOATS | {int32, int64},
    T_INDEX={int32, int64},
    T_INT={int64},
)

contrib("Scale")(same_as("input"))
contrib("ScaledSum")(same_as("input_0"))
contrib("InPlaceAccumulator")(same_as("old_sum"))
contrib("ZeroGradient")(same_as("old_gradient"))
contrib("FakeQuantGrad")(same_as("dY"))


@contrib("IsFinite")
def is_finite(X):
    return X.shape


@contrib("IsAllFinite", "All")
def whether():
    return ()


@contrib("MixedPrecisionScale")
def mixed_precision_scale(X, to, fuse_outputs):
    dtype = element_type(to, "to")
    if dtype not in FLOATS:
        raise InferenceError(f"'to' is {dtype}, it must be a type of floats")
    if not fuse_outputs:
        return [TensorType(dtype, operand.shape) for operand in X]
    return [TensorType(dtype, (sum((_count(operand) for operand in X[1:]), _count(X[0])),))]


def _count(operand):
    return dim.fresh() if operand.shape is None else dim.product(operand.shape)


@contrib("BatchScale")
def batch_scale(input, scale_2, output_count):
    if output_count > 2 and scale_2 is None:
        raise InferenceError("a third output needs scale_2")
    return [input.shape] * 3


@contrib("View")
def view(shapes):
    return [shape.dims for shape in shapes]


@contrib("PadAndUnflatten")
def pad_and_unflatten(input, unflatten_dims):
    if input.shape is None:
        return None
    return (*(unflatten_dims.dims or fresh_shape(2)), *input.shape[1:])


@contrib("FlattenAndUnpad")
def flatten_and_unpad(input, indices):
    if input.rank is not None and input.rank < 2:
        raise InferenceError(f"input must have two axes to be flattened, it has {input.rank}")
    if input.shape is None or indices.shape is None:
        return [None, (2,)]
    return [(*indices.shape, *input.shape[2:]), (2,)]


@contrib("Group")
def group():
    return (1,)


@contrib("FakeQuant")
def fake_quant(input_tensor):
    return [input_tensor.shape, input_tensor.shape]


@contrib("ReduceSumTraining")
def reduce_sum_training():
    return None


@contrib("InPlaceAccumulatorV2")
def in_place_accumulator(accumulation_buffer):
    return [(1,), accumulation_buffer.shape]


@contrib("ConcatTraining")
def concat_training(inputs, axis):
    shapes = [operand.shape for operand in inputs]
    lengths = (len(inputs),)
    if any(shape is None for shape in shapes):
        return [None, lengths]
    if len({len(shape) for shape in shapes}) != 1:
        raise InferenceError("the inputs have different ranks: " + ", ".join(map(text, shapes)))
    joined, axis = list(shapes[0]), axis_index(axis, len(shapes[0]))
    joined[axis] = sum((shape[axis] for shape in shapes[1:]), shapes[0][axis])
    return [tuple(joined), lengths]


@contrib("SplitTraining")
def split_training(input, split, axis, output_count):
    if input.shape is None:
        return [None] * output_count
    axis, sizes = axis_index(axis, len(input.shape)), split.dims or [dim.fresh() for _ in range(output_count)]
    return [(*input.shape[:axis], size, *input.shape[axis + 1 :]) for size in sizes][:output_count]


@contrib("PassThrough")
def pass_through(inputs):
    return [operand.type for operand in inputs]


@contrib("ReduceAllL2")
def reduce_all_l2():
    return ()


@contrib("AdamWOptimizer")
def adam_w_optimizer(weights, momentums_1, momentums_2):
    return [(1,), weights.type, momentums_1.type, momentums_2.type]


@contrib("SGDOptimizerV2")
def sgd_optimizer(weights):
    return [(1,), weights.type]


@contrib("InplaceClipGradNorm")
def clip_grad_norm(gradients):
    return gradients.type
