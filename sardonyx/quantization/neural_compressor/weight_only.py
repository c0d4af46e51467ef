"""Weights of MatMul in few bits by functions: `rtn_quantize`, `gptq_quantize`, and the steps that they are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from sardonyx.quantization.neural_compressor.onnx_model import ONNXModel
from sardonyx.quantization.neural_compressor.util import to_numpy
from sardonyx.quantization.observation import observe
from sardonyx.quantization.progress import progress
from sardonyx.quantization.weight_only.blocks import Blocks
from sardonyx.quantization.weight_only.gptq import GptqOptions, optimal_rounding, second_moments
from sardonyx.quantization.weight_only.kquant import k_quant
from sardonyx.quantization.weight_only.nodes import matmul_node
from sardonyx.runtime.api.options import SessionOptions
from sardonyx.runtime.api.session import InferenceSession

Quantized = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Codes of each group, scales, and zero points, the last two with one column."""
Settings = Mapping[str, Any]
OP_BITS = (4, 8)
"""Numbers of bits for which these functions write MatMulNBits; for others weights are rounded and stay floats."""


def pad_tensor(weight: np.ndarray, group_size: int, k_blocks: int) -> np.ndarray:
    """A weight (K, N) with zeros below it, so that groups fill it."""
    missing = 0 if group_size == -1 else k_blocks * group_size - len(weight)
    return np.pad(weight, ((0, missing), (0, 0))) if missing > 0 else weight


def quant_tensor(
    data: np.ndarray, num_bits: int = 4, group_size: int = 32, scheme: str = "asym", dtype: str = "int", ratio: float = 1.0
) -> Quantized:
    """Round to nearest: each group has a scale and, unless "sym", a zero point; `ratio` narrows its range."""
    groups = np.reshape(data, (-1, group_size))
    is_signed = scheme == "sym" and dtype != "uint"
    lowest, highest = (-(2 ** (num_bits - 1)), 2 ** (num_bits - 1) - 1) if is_signed else (0, 2**num_bits - 1)
    low, high = (extreme(groups, axis=1, keepdims=True).astype(np.float64) * ratio for extreme in (np.min, np.max))
    reach = 2 * np.maximum(np.abs(low), np.abs(high)) if scheme == "sym" else high - low
    scale = np.where(reach > 0, reach / (highest - lowest), 1.0)
    if scheme == "sym":
        middle = 0 if is_signed else 2 ** (num_bits - 1)
        zero_point = np.full(scale.shape, middle, np.float64 if is_signed else np.uint8)
    else:
        zero_point = np.round(-low / scale)
        if dtype != "int":
            zero_point = np.clip(zero_point, 0, highest).astype(np.uint8)
    return np.clip(np.round(groups / scale + zero_point), lowest, highest), scale, zero_point


def quant_tensor_k_quant_cpu(data: np.ndarray, num_bits: int = 4, group_size: int = 32) -> Quantized:
    """k-quant: scale and minimum of each group by weighted least squares."""
    blocks = k_quant(np.reshape(data, (-1, group_size)).astype(np.float32), num_bits, group_size)
    assert blocks.zero_points is not None
    return blocks.codes[:, 0].astype(np.float64), blocks.scales.astype(np.float64), blocks.zero_points


def quant_tensor_k_quant_cuda(data: np.ndarray, num_bits: int = 4, group_size: int = 32) -> Quantized:
    """The same; without a GPU onnxruntime, too, computes it on the CPU."""
    return quant_tensor_k_quant_cpu(data, num_bits, group_size)


def qdq_tensor(
    data: np.ndarray, num_bits: int = 4, group_size: int = 32, scheme: str = "asym", dtype: str = "int", ratio: float = 1.0
) -> np.ndarray:
    """The floats that the codes of a tensor stand for."""
    codes, scale, zero_point = quant_tensor(data, num_bits, group_size, scheme, dtype, ratio)
    return np.reshape(scale * (codes - zero_point), np.shape(data))


def get_weight_scale(weight: np.ndarray, group_size: int) -> np.ndarray:
    """How large the weights of each column are, measured by the largest of their groups, on average."""
    groups = weight if group_size == -1 else np.reshape(weight, (-1, group_size))
    sizes = np.abs(groups)
    return np.mean(np.reshape(sizes / sizes.max(axis=1, keepdims=True), weight.shape), axis=0)


def make_matmul_weight_only_node(
    node: NodeProto,
    weight_shape: tuple[int, int],
    num_bits: int,
    group_size: int,
    k_blocks: int,
    q_weight: np.ndarray,
    scale: np.ndarray,
    zero_point: np.ndarray | None,
    accuracy_level: int = 0,
) -> tuple[NodeProto, list[TensorProto]]:
    """MatMulNBits for a MatMul whose codes, a group in each row, are known, and its tensors."""
    shape = weight_shape[1], k_blocks
    zero_points = None if zero_point is None else np.reshape(zero_point, shape).astype(np.uint8)
    codes = np.reshape(q_weight, (*shape, group_size)).astype(np.uint8)
    blocks = Blocks(codes, np.reshape(scale, shape), zero_points, num_bits, weight_shape[0])
    name = node.input[1]
    return matmul_node(node, blocks, accuracy_level, (f"{name}_Q{num_bits}G{group_size}", f"{name}_scale", f"{name}_zp"))


def rtn_quantize(
    model: ModelProto | ONNXModel | str,
    weight_config: Mapping[str, Any] = {},
    num_bits: int = 4,
    group_size: int = 32,
    scheme: str = "asym",
    ratios: Mapping[str, float] = {},
    accuracy_level: int = 0,
    providers: Any = ("CPUExecutionProvider",),
    algorithm: str = "k_quant",
) -> ONNXModel:
    """Weights in groups by k-quant, or rounded to nearest for another `algorithm`; `weight_config` says otherwise for single nodes."""
    defaults = {"bits": num_bits, "group_size": group_size, "scheme": scheme}

    def rounded(node: NodeProto, rows: np.ndarray, how: Settings) -> tuple[Quantized, bool]:
        bits, size = how["bits"], how["group_size"]
        if algorithm == "k_quant" and bits in OP_BITS:
            return quant_tensor_k_quant_cpu(rows, bits, size), True
        kind = "uint" if bits in OP_BITS else "int"
        return quant_tensor(rows, bits, size, how["scheme"], kind, ratios.get(node.input[1], 1.0)), how["scheme"] == "asym"

    return _quantized(model, defaults, weight_config, accuracy_level, rounded)


def gptq_quantize(
    model: ModelProto | ONNXModel | str,
    dataloader: Iterable[Any],
    weight_config: Mapping[str, Any] = {},
    num_bits: int = 4,
    group_size: int = 32,
    scheme: str = "asym",
    n_samples: int = 128,
    percdamp: float = 0.01,
    blocksize: int = 128,
    actorder: bool = False,
    mse: bool = False,
    perchannel: bool = True,
    accuracy_level: int = 0,
    providers: Any = ("CPUExecutionProvider",),
) -> ONNXModel:
    """Weights by GPTQ, which looks at what `dataloader` feeds; `weight_config` says otherwise for single nodes."""
    wrapped = _wrapped(model)
    feeds, _ = prepare_inputs(wrapped, n_samples, dataloader, providers)
    names = sorted({node.input[0] for node in _products(wrapped, weight_config)})
    moments: dict[str, np.ndarray] = {}
    for batch in observe(wrapped.model, names, _Feeds(feeds), "calibrating") if names else ():
        for name, array in batch.items():
            moments[name] = second_moments(array, moments.get(name))
    defaults = {"bits": num_bits, "group_size": group_size, "scheme": scheme}

    def rounded(node: NodeProto, rows: np.ndarray, how: Settings) -> tuple[Quantized, bool]:
        columns = len(moments[node.input[0]])
        weight = gptq(
            rows[:, :columns].T, moments[node.input[0]], how["bits"], how["group_size"], how["scheme"], blocksize, percdamp,
            actorder, mse, perchannel,
        )  # fmt: skip
        padded = np.pad(weight.T, ((0, 0), (0, rows.shape[1] - columns)))
        return quant_tensor(padded, how["bits"], how["group_size"], how["scheme"], "uint"), how["scheme"] == "asym"

    return _quantized(wrapped, defaults, weight_config, accuracy_level, rounded)


def gptq(
    W: np.ndarray,
    H: np.ndarray,
    num_bits: int = 4,
    group_size: int = 32,
    scheme: str = "asym",
    blocksize: int = 128,
    percdamp: float = 0.01,
    actorder: bool = False,
    mse: bool = False,
    perchannel: bool = True,
) -> np.ndarray:
    """A weight (K, N) rounded so that its products with inputs of second moments H change little. `blocksize` changes speed alone."""
    if not perchannel:
        raise NotImplementedError("perchannel=False: each column of a weight has its own scales here")
    size = len(W) if group_size == -1 else group_size
    options = GptqOptions(percdamp, actorder, mse)
    blocks = optimal_rounding(np.asarray(W).T, np.asarray(H, np.float64), num_bits, size, scheme == "sym", options)
    return blocks.dequantized().T.astype(W.dtype)


def prepare_inputs(
    model: ONNXModel, n_samples: int, dataloader: Any, providers: Any
) -> tuple[list[dict[str, np.ndarray]], SessionOptions]:
    """What a loader of (inputs, label) feeds, up to a number of samples; -1 takes all. And options for a session."""
    options = SessionOptions()
    session = InferenceSession(model.model.SerializeToString(), options, providers=list(providers))
    names = [value.name for value in session.get_inputs()]
    feeds = []
    for number, data in enumerate(dataloader):
        if n_samples != -1 and (number + 1) * getattr(dataloader, "batch_size", 1) > n_samples:
            break
        feeds.append(_feed(data[0], names))
    return feeds, options


def _feed(inputs: Any, names: list[str]) -> dict[str, np.ndarray]:
    if isinstance(inputs, Mapping):
        values = dict(inputs)
    else:
        values = dict(zip(names, [inputs] if len(names) == 1 and hasattr(inputs, "shape") else inputs, strict=True))
    if len(values) != len(names):
        raise ValueError(f"the model has {len(names)} inputs, the loader gives {len(values)}")
    return {name: to_numpy(value) for name, value in values.items()}


class _Feeds:
    """Feeds as a reader of calibration data."""

    def __init__(self, feeds: list[dict[str, np.ndarray]]):
        self._left = iter(feeds)

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._left, None)


def _wrapped(model: ModelProto | ONNXModel | str) -> ONNXModel:
    return model if isinstance(model, ONNXModel) else ONNXModel(model)


def _products(model: ONNXModel, weight_config: Settings) -> list[NodeProto]:
    """The products whose weights are quantized: two axes, and nobody said that they stay."""
    weights = {tensor.name: tensor for tensor in model.initializer()}
    nodes = [node for node in model.nodes() if node.op_type == "MatMul" and weight_config.get(node.name) != "fp32"]
    return [node for node in nodes if node.input[1] in weights and len(weights[node.input[1]].dims) == 2]


def _quantized(
    model: ModelProto | ONNXModel | str,
    defaults: Settings,
    weight_config: Settings,
    accuracy_level: int,
    rounded: Callable[[NodeProto, np.ndarray, Settings], tuple[Quantized, bool]],
) -> ONNXModel:
    """The model with weights that `rounded` has made of rows of whole groups; it says too whether zero points are written."""
    wrapped = _wrapped(model)
    products = _products(wrapped, weight_config)
    for node in progress(products, len(products), "quantizing weights"):
        how = {**defaults, **weight_config.get(node.name, {})}
        weight = wrapped.get_initializer(node.input[1])
        array = numpy_helper.to_array(weight)
        size = how["group_size"] if how["group_size"] != -1 else len(array)
        blocks = -(-len(array) // size)
        values, has_zeros = rounded(node, pad_tensor(array, size, blocks).T, {**how, "group_size": size})
        if how["bits"] in OP_BITS:
            _write_bits(wrapped, node, array, (how["bits"], size, blocks), values, has_zeros, accuracy_level)
        else:
            _write_floats(wrapped, node, array, f"{weight.name}_Q{how['bits']}G{size}", values)
    wrapped.remove_unused_constant()
    if any(node.op_type == "MatMulNBits" for node in wrapped.nodes()):
        wrapped.set_opset_import("com.microsoft", 1)
    wrapped.topological_sort()
    return wrapped


def _write_bits(
    model: ONNXModel,
    node: NodeProto,
    weight: np.ndarray,
    sizes: tuple[int, int, int],
    values: Quantized,
    has_zeros: bool,
    accuracy_level: int,
) -> None:
    codes, scale, zeros = values
    stored = scale.astype(weight.dtype)
    new, tensors = make_matmul_weight_only_node(
        node, weight.shape, *sizes, codes, stored, zeros if has_zeros else None, accuracy_level
    )
    model.add_initializers(tensors)
    model.remove_node(node)
    model.add_node(new)


def _write_floats(model: ONNXModel, node: NodeProto, weight: np.ndarray, name: str, values: Quantized) -> None:
    codes, scale, zeros = values
    floats = np.reshape(scale * (codes - zeros), (weight.shape[1], -1))[:, : len(weight)]
    model.add_initializer(numpy_helper.from_array(np.ascontiguousarray(floats.T).astype(weight.dtype), name))
    node.input[1] = name
