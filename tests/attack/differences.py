"""Where onnxruntime 1.31 is known to give something else than the standard, or than we do on purpose; each with its reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.attack.reference import captured, is_float

Values = Mapping[str, Any]
PAST = {"GroupQueryAttention": 3, "MultiHeadAttention": 6}
"""Which input is the past keys; the present ones are the second and third output."""
PARAMETERS = {"affine": 2, "scaledtanh": 2, "hardsigmoid": 2, "thresholdedrelu": 1, "leakyrelu": 1, "elu": 1}
"""How many parameters an activation of a recurrent layer has: alpha, or alpha and beta."""
WITHOUT_DEFAULTS = {"affine", "scaledtanh", "thresholdedrelu"}
"""Those whose parameters are 0 in onnxruntime if none are given."""
CPU = Path("/proc/cpuinfo")
HAS_VNNI = CPU.exists() and "vnni" in CPU.read_text()
"""Whether the CPU adds four products of bytes at once. Where it does not, onnxruntime adds two in 16 bits."""


def always(node: onnx.NodeProto, values: Values) -> bool:
    return True


def of_doubles(node: onnx.NodeProto, values: Values) -> bool:
    return any(getattr(values.get(name), "dtype", None) == np.float64 for name in node.input)


def over_nothing(node: onnx.NodeProto, values: Values) -> bool:
    return any(isinstance(values.get(name), np.ndarray) and values[name].size == 0 for name in node.input)


def of_no_numbers(node: onnx.NodeProto, values: Values) -> bool:
    floats = [values[name] for name in node.input if is_float(values.get(name))]
    return any(not np.isfinite(array.astype(np.float64)).all() for array in floats)


def of_floats(node: onnx.NodeProto, values: Values) -> bool:
    return is_float(values.get(node.input[0]))


def with_nan_bounds(node: onnx.NodeProto, values: Values) -> bool:
    bounds = [values[name] for name in node.input[1:] if is_float(values.get(name))]
    return any(bool(np.isnan(bound.astype(np.float64)).any()) for bound in bounds)


def of_faint_sigmoids(node: onnx.NodeProto, values: Values) -> bool:
    """Whether a sigmoid is so near to 0 that rounding it at 1 shows."""
    alpha = attribute_of(node, "alpha", {"QuickGelu": 1.702}.get(node.op_type, 1.0))
    arrays = [values[name] for name in node.input if is_float(values.get(name))]
    return any(bool((array.astype(np.float64) * alpha < -8).any()) for array in arrays)


def past_without_present(node: onnx.NodeProto, values: Values) -> bool:
    past = PAST[node.op_type]
    return len(node.input) > past and bool(node.input[past]) and not all([*node.output, "", ""][1:3])


def causal_of_other_length(node: onnx.NodeProto, values: Values) -> bool:
    """Whether a causal attention has more or fewer keys than queries."""
    shapes = [getattr(values.get(name), "shape", ()) for name in node.input[:2]]
    if not attribute_of(node, "unidirectional", 0) or len(shapes) < 2 or not all(shapes):
        return False
    queries, keys = shapes
    return bool(queries[1] != (keys[2] if len(keys) == 4 else keys[1]))


def padded_in_windows(node: onnx.NodeProto, values: Values) -> bool:
    """Whether there are more queries than a row has tokens, and each sees a few keys."""
    query, last = (values.get(node.input[at]) for at in (0, 5))
    ragged = isinstance(query, np.ndarray) and isinstance(last, np.ndarray) and bool((last + 1 < query.shape[1]).any())
    return ragged and attribute_of(node, "local_window_size", -1) > 0


def with_negative_router_weights(node: onnx.NodeProto, values: Values) -> bool:
    return any(is_float(values.get(name)) and bool((values[name] < 0).any()) for name in node.input[14:15])


def with_rounded_activations(node: onnx.NodeProto, values: Values) -> bool:
    """Whether a layer of experts has 8 bits and a scale for each block."""
    bits = [attribute_of(node, f"{layer}expert_weight_bits", 0) for layer in ("", "fc1_", "fc2_", "fc3_")]
    return 8 in bits and attribute_of(node, "block_size", 0) > 0


def with_group_indices(node: onnx.NodeProto, values: Values) -> bool:
    return len(node.input) > 4 and bool(node.input[4])


def of_a_scalar(node: onnx.NodeProto, values: Values) -> bool:
    return any(isinstance(values.get(name), np.ndarray) and values[name].ndim == 0 for name in node.input)


def of_integers(node: onnx.NodeProto, values: Values) -> bool:
    return any(getattr(values.get(name), "dtype", np.dtype(np.float32)).kind in "iu" for name in node.input[:1])


LARGEST_OF_DOUBLES = 2**53
"""All integers up to here are doubles."""


def beyond_integers(node: onnx.NodeProto, values: Values) -> bool:
    """Whether a reduction of integers may leave their range, or that of doubles, if its sums and products are over all elements."""
    if not of_integers(node, values):
        return False
    magnitudes = np.abs(values[node.input[0]].astype(np.float64))
    with np.errstate(over="ignore"):
        bound = np.prod(np.maximum(magnitudes, 1)) if node.op_type == "ReduceProd" else np.sum(magnitudes**2)
    return bool(bound > min(np.iinfo(values[node.input[0]].dtype).max, LARGEST_OF_DOUBLES))


def with_infinite_parts(node: onnx.NodeProto, values: Values) -> bool:
    numbers = values.get(node.input[0])
    if not is_float(numbers):
        return False
    with np.errstate(all="ignore"):
        large = np.prod(np.maximum(np.abs(numbers), 1), dtype=numbers.dtype)
    return not np.isfinite(large)


HEAVY = 10
"""From so many times the rest of a sum on, a square takes digits from it when it is subtracted again."""


def with_squares_to_take_back(node: onnx.NodeProto, values: Values) -> bool:
    """Whether a window of channels that moves on leaves more behind than it has."""
    channels = values.get(node.input[0])
    if not is_float(channels):
        return False
    largest = np.max(np.square(channels.astype(np.float64)), initial=0) * attribute_of(node, "alpha", 1e-4)
    return not largest <= HEAVY * attribute_of(node, "bias", 1.0) * attribute_of(node, "size", 1)


FAR = 4
"""From so many deviations on, a mean takes digits from what is left when it is subtracted late."""


def with_means_far_from_zero(node: onnx.NodeProto, values: Values) -> bool:
    images = values.get(node.input[0])
    if not is_float(images) or images.size == 0 or images.ndim < 3:
        return False
    rows = images.astype(np.float64).reshape(*images.shape[:2], -1)
    deviations = np.sqrt(rows.var(axis=2) + attribute_of(node, "epsilon", 1e-5))
    return bool((np.abs(rows.mean(axis=2)) > FAR * deviations).any())


def beyond_floats(node: onnx.NodeProto, values: Values) -> bool:
    """Whether integers, or what is taken from them, are too large for float's digits."""
    bias = attribute_of(node, "bias", 0.0)
    return (
        of_integers(node, values) and not abs(bias) + np.abs(values[node.input[0]].astype(np.float64)).max(initial=0) <= 2**24
    )


def power_beyond_integers(node: onnx.NodeProto, values: Values) -> bool:
    if not of_integers(node, values):
        return False
    base, exponent = (np.asarray(values[name]).astype(np.float64) for name in node.input)
    with np.errstate(all="ignore"):
        bound = np.max(np.abs(base) ** exponent, initial=0)
    return bool(bound > min(np.iinfo(values[node.input[0]].dtype).max, LARGEST_OF_DOUBLES))


def with_full_pairs(node: onnx.NodeProto, values: Values) -> bool:
    """Whether two products of uint8 and int8 may exceed 16 bits. What a node quantizes itself has all bytes."""
    arrays = [values[name] for name in node.input if isinstance(values.get(name), np.ndarray)]
    signed = max((np.abs(one.astype(np.int64)).max(initial=0) for one in arrays if one.dtype == np.int8), default=0)
    unsigned = max((one.max(initial=0) for one in arrays if one.dtype == np.uint8 and one.ndim), default=255)
    return not HAS_VNNI and bool(2 * signed * int(unsigned) > np.iinfo(np.int16).max)


def with_parameters_left_out(node: onnx.NodeProto, values: Values) -> bool:
    names = [name.decode().lower() for name in attribute_of(node, "activations", [])]
    counts = [len(attribute_of(node, f"activation_{letter}", [])) for letter in ("alpha", "beta")]
    needed = [sum(PARAMETERS.get(name, 0) > at for name in names) for at in range(2)]
    return bool(WITHOUT_DEFAULTS.intersection(names)) and any(count < wanted for count, wanted in zip(counts, needed))


def of_smoothed_bytes(node: onnx.NodeProto, values: Values) -> bool:
    return attribute_of(node, "antialias", 0) == 1 and of_integers(node, values)


def cropped(node: onnx.NodeProto, values: Values) -> bool:
    return attribute_of(node, "coordinate_transformation_mode", b"") == b"tf_crop_and_resize"


def with_repeated_keys(node: onnx.NodeProto, values: Values) -> bool:
    lists = [attribute_of(node, f"keys_{kind}", []) for kind in ("strings", "int64s", "floats")]
    tensor = attribute_of(node, "keys_tensor", None)
    lists.append([] if tensor is None else numpy_helper.to_array(tensor).reshape(-1).tolist())
    return any(len(set(keys)) < len(keys) for keys in lists)


def with_wider_slopes(node: onnx.NodeProto, values: Values) -> bool:
    X, slope = (values.get(name) for name in node.input)
    arrays = isinstance(X, np.ndarray) and isinstance(slope, np.ndarray)
    return arrays and np.broadcast_shapes(X.shape, slope.shape) != X.shape


def in_no_order(node: onnx.NodeProto, values: Values) -> bool:
    return attribute_of(node, "sorted", 1) == 0


def of_fractions(node: onnx.NodeProto, values: Values) -> bool:
    numbers = values.get(node.input[0])
    return is_float(numbers) and bool((numbers != np.trunc(numbers)).any())


def in_doubles(node: onnx.NodeProto, values: Values) -> bool:
    return attribute_of(node, "output_datatype", onnx.TensorProto.FLOAT) == onnx.TensorProto.DOUBLE


def of_one_symmetric_element(node: onnx.NodeProto, values: Values) -> bool:
    length = values.get(node.input[0])
    return attribute_of(node, "periodic", 1) == 0 and isinstance(length, np.ndarray) and bool((length == 1).all())


def from_other_than_half(node: onnx.NodeProto, values: Values) -> bool:
    """Whether a one-sided inverse transform is given fewer or more frequencies than the half of its length that it needs."""
    x, length = values.get(node.input[0]), values.get(node.input[1]) if len(node.input) > 1 else None
    if not attribute_of(node, "inverse", 0) or not attribute_of(node, "onesided", 0) or not isinstance(length, np.ndarray):
        return False
    return is_float(x) and int(length.reshape(-1)[0]) // 2 + 1 not in x.shape[:-1]


def to_shifted_float8(node: onnx.NodeProto, values: Values) -> bool:
    """Whether the zero point of a quantization to float8 is not 0."""
    zero = values.get(node.input[2]) if len(node.input) > 2 else None
    return isinstance(zero, np.ndarray) and zero.dtype.kind not in "iu" and bool((zero.astype(np.float32) != 0).any())


def with_precision(node: onnx.NodeProto, values: Values) -> bool:
    return attribute_of(node, "precision", 0) != 0


def of_singular_matrices(node: onnx.NodeProto, values: Values) -> bool:
    matrices = values.get(node.input[0])
    return is_float(matrices) and bool((np.linalg.slogdet(matrices.astype(np.float64))[0] == 0).any())


def not_transposed(node: onnx.NodeProto, values: Values) -> bool:
    return attribute_of(node, "transB", 1) == 0


def of_a_lone_row(node: onnx.NodeProto, values: Values) -> bool:
    """Whether corners are to be aligned along an axis of one pixel."""
    size = values.get(node.input[1])
    is_lone = isinstance(size, np.ndarray) and bool((size[2:] == 1).any())
    return attribute_of(node, "align_corners", 0) == 1 and is_lone


def softmax_or_logistic(node: onnx.NodeProto, values: Values) -> bool:
    return attribute_of(node, "post_transform", 0) in (1, 2)


def of_two_weighted_classes(node: onnx.NodeProto, values: Values) -> bool:
    labels = [attribute_of(node, f"classlabels_{kind}", []) for kind in ("int64s", "strings")]
    return any(len(one) == 2 for one in labels) and len(set(attribute_of(node, "class_ids", []))) == 2


def tanh_of_doubles(node: onnx.NodeProto, values: Values) -> bool:
    return attribute_of(node, "approximate", b"none") == b"tanh" and of_doubles(node, values)


def same_size_with_gaps(node: onnx.NodeProto, values: Values) -> bool:
    """Whether windows of SAME_UPPER or SAME_LOWER pass over elements between them."""
    weights = values.get(node.input[1]) if len(node.input) > 1 else None
    kernel = attribute_of(node, "kernel_shape", list(weights.shape[2:]) if isinstance(weights, np.ndarray) else [])
    strides = attribute_of(node, "strides", [1] * len(kernel))
    dilations = attribute_of(node, "dilations", [1] * len(kernel))
    reaches = [dilation * (size - 1) + 1 for dilation, size in zip(dilations, kernel)]
    automatic = attribute_of(node, "auto_pad", b"NOTSET").startswith(b"SAME")
    return automatic and any(stride > reach for stride, reach in zip(strides, reaches))


def attribute_of(node: onnx.NodeProto, name: str, default: Any) -> Any:
    return next((helper.get_attribute_value(one) for one in node.attribute if one.name == name), default)


@dataclass(frozen=True)
class Difference:
    op: str
    reason: str
    applies: Callable[[onnx.NodeProto, Values], bool] = always
    domain: str = ""
    before: str = ""
    """An op that must read the result, as onnxruntime makes one of both."""


OVERFLOWING = ("ReduceSum", "ReduceProd", "ReduceSumSquare", "ReduceMean", "ReduceL1")
LOSSES = ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
BYTES = {
    "": ("MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv"),
    "com.microsoft": ("MatMulIntegerToFloat", "DynamicQuantizeMatMul", "QAttention", "QGemm", "DynamicQuantizeLSTM"),
}
"""Products of bytes."""
WINDOWS = ("HannWindow", "HammingWindow", "BlackmanWindow")
KNOWN = (
    Difference("ConvTranspose", "gives fewer elements than input · stride", same_size_with_gaps),
    *(
        Difference(op, "computes integers in double, and saturates where NumPy's wrap around", beyond_integers)
        for op in OVERFLOWING
    ),
    Difference("Pow", "computes integers in double, and makes the least one of what is too large", power_beyond_integers),
    *(
        Difference(op, "lets sums of two products of uint8 and int8 end at 16 bits, without VNNI", with_full_pairs, domain)
        for domain, ops in BYTES.items()
        for op in ops
    ),
    *(
        Difference("DequantizeLinear", "becomes a product of uint8 and int8", with_full_pairs, before=op)
        for op in ("MatMul", "Gemm", "Conv")
    ),
    *(Difference(op, "takes 0 for parameters that are left out", with_parameters_left_out) for op in ("LSTM", "GRU", "RNN")),
    *(Difference(op, "passes over NaN", of_no_numbers) for op in ("ReduceMax", "ReduceMin")),
    Difference("Clip", "passes over bounds that are NaN", with_nan_bounds),
    Difference("ReduceProd", "takes products in parts, which may be infinite where others are 0", with_infinite_parts),
    Difference("Resize", "smooths bytes by integers", of_smoothed_bytes),
    Difference("Resize", "does not crop where no size changes", cropped),
    Difference("TopK", "has another order where none is asked for", in_no_order),
    Difference("TopK", "takes NaN for less or greater than numbers by where it stands", of_no_numbers),
    Difference("OneHot", "finds no place for indices with fractions, which the standard cuts off", of_fractions),
    Difference("ReduceLogSumExp", "takes each exponential of an integer for an integer", of_integers),
    *(Difference(window, "computes doubles in float", in_doubles) for window in WINDOWS),
    *(Difference(window, "divides 0 by 0 for the place of the only element", of_one_symmetric_element) for window in WINDOWS),
    Difference("QuantizeLinear", "does not add the zero point of float8", to_shifted_float8),
    Difference("QuantizeLinear", "does not heed the precision", with_precision),
    *(Difference(op, "has 0 for the mean of nothing", over_nothing) for op in LOSSES),
    Difference("CDist", "subtracts the product of infinities from their squares", of_no_numbers, "com.microsoft"),
    Difference("LRN", "subtracts the squares that a window leaves from its sum", with_squares_to_take_back),
    Difference("GridSample", "finds places for coordinates that are no numbers", of_no_numbers),
    Difference("AffineGrid", "puts a lone pixel into the corner behind it", of_a_lone_row),
    Difference("DFT", "mirrors frequencies about another one than the middle", from_other_than_half),
    Difference("Shrink", "rounds doubles to float", of_doubles),
    Difference("Shrink", "rounds integers to float", beyond_floats),
    Difference("Unique", "tells numbers apart that are one before they are rounded, or the other way round", of_floats),
    Difference("Gelu", "multiplies minus infinity by 0", of_no_numbers),
    Difference("Gelu", "has constants of float's precision for doubles", tanh_of_doubles),
    Difference("FastGelu", "has constants of float's precision for doubles", of_doubles, "com.microsoft"),
    Difference("PRelu", "says that the result has the shape of X, and gives a larger one", with_wider_slopes),
    Difference(
        "LabelEncoder", "takes the first of equal keys, where the standard has the last", with_repeated_keys, "ai.onnx.ml"
    ),
    Difference("TreeEnsemble", "takes 1 for LOGISTIC and 2 for SOFTMAX", softmax_or_logistic, "ai.onnx.ml"),
    Difference(
        "TreeEnsembleClassifier",
        "goes by the sign of the second score, where both classes have weights",
        of_two_weighted_classes,
        "ai.onnx.ml",
    ),
    Difference("NonZero", "takes a scalar for a vector; the standard has the shape [0, N]", of_a_scalar),
    *(
        Difference(op, "pads by less than nothing, so that windows begin behind the first element", same_size_with_gaps)
        for op in ("LpPool", "AveragePool", "MaxPool")
    ),
    Difference("MeanVarianceNormalization", "takes the mean's square from the square's mean: NaN where that is below 0"),
    Difference("InstanceNormalization", "subtracts the mean behind the product", with_means_far_from_zero),
    Difference("QuickGelu", "takes a sigmoid of float's precision for doubles", of_doubles, "com.microsoft"),
    *(
        Difference(op, "rounds a sigmoid at 1, however near it is to 0", of_faint_sigmoids, domain)
        for op, domain in (("Sigmoid", ""), ("Swish", ""), ("QuickGelu", "com.microsoft"))
    ),
    Difference("GroupNormalization", "rounds doubles to float on the way, as stash_type lets it", of_doubles),
    Difference("LayerNormalization", "rounds doubles to float on the way, as stash_type lets it", of_doubles),
    Difference("RMSNormalization", "rounds doubles to float on the way, as stash_type lets it", of_doubles),
    Difference("MaxPool", "passes over NaN, and gives the lowest number for minus infinity", of_no_numbers),
    Difference("GlobalMaxPool", "passes over NaN, and gives the lowest number for minus infinity", of_no_numbers),
    Difference("Hardmax", "passes over NaN, and finds no largest element behind it", of_no_numbers),
    Difference("QLinearSoftmax", "lets 256 become 0, and cuts the inverse of its scale to an integer", always, "com.microsoft"),
    Difference("Softmax", "becomes QLinearSoftmax, which cuts the inverse of its scale to an integer", before="QuantizeLinear"),
    Difference("Transpose", "quantizes the operand, even where that is an output, too", before="QuantizeLinear"),
    Difference(
        "MaxUnpool", "takes indices for those of the output shape, where the standard's are of the unpadded one", always
    ),
    Difference("Gemm", "does not multiply C by beta where there is nothing to sum", over_nothing),
    Difference("MatMulInteger", "does not set a product over no elements", over_nothing),
    Difference("QLinearMatMul", "does not set a product over no elements", over_nothing),
    Difference("Conv", "does not set a product of float16 over no elements", over_nothing),
    Difference("ConvInteger", "does not set a product over no elements", over_nothing),
    Difference("QLinearConv", "does not set a product over no elements", over_nothing),
    *(Difference(op, "forgets the past if nobody wants the present", past_without_present, "com.microsoft") for op in PAST),
    Difference("MultiHeadAttention", "lets the last query see all keys", causal_of_other_length, "com.microsoft"),
    Difference("GroupQueryAttention", "sees other keys from behind the end of a row", padded_in_windows, "com.microsoft"),
    Difference("QMoE", "passes over experts of negative weight", with_negative_router_weights, "com.microsoft"),
    Difference(
        "QMoE", "rounds tokens to 8 bits where weights and scales are constant", with_rounded_activations, "com.microsoft"
    ),
    Difference("MatMulBnb4", "takes the weights for transposed ones", not_transposed, "com.microsoft"),
    Difference("Inverse", "has infinities among NaN where there is none", of_singular_matrices, "com.microsoft"),
    Difference("MatMulNBits", "does not heed g_idx for 2 bits, nor zero points beside it", with_group_indices, "com.microsoft"),
)


def known(model: onnx.ModelProto, values: Values) -> str | None:
    """The reason why onnxruntime is not asked about a model, None if it may be."""
    nodes = nodes_of(model.graph)
    readers = {(name, reader.op_type) for reader in nodes for name in reader.input}
    for node in nodes:
        for difference in KNOWN:
            if (difference.domain, difference.op) != (node.domain, node.op_type) or not difference.applies(node, values):
                continue
            if not difference.before or (node.output[0], difference.before) in readers:
                return difference.reason
    return None


def nodes_of(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """All nodes. Those of bodies come a second time with what the node around them reads, as values of bodies are not known."""
    nodes = []
    for node in graph.node:
        nodes.append(node)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                inner = nodes_of(attribute.g)
                nodes += inner + [_reading(one, captured(node)) for one in inner]
    return nodes


def _reading(node: onnx.NodeProto, names: list[str]) -> onnx.NodeProto:
    changed = onnx.NodeProto()
    changed.CopyFrom(node)
    changed.input[:] = names
    return changed
