"""Ops of com.microsoft that training graphs are made of besides gradients: accumulation, scaling, optimizers."""

from __future__ import annotations

from sardonyx.dtypes import FLOATS, bool_, float32, int64
from sardonyx.errors import InferenceError
from sardonyx.ir import dim
from sardonyx.ops.schemas import define
from sardonyx.ops.shapes import axis_index, same_as, text
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

contrib("Scale")(same_as("input"))
contrib("ScaledSum")(same_as("input_0"))
contrib("InPlaceAccumulator")(same_as("old_sum"))
contrib("ZeroGradient")(same_as("old_gradient"))
contrib("FakeQuantGrad")(same_as("dY"))


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
