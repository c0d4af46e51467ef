"""Ops that onnxruntime's providers for phones take: NNAPI of Android, and the two kinds of models of Apple's CoreML.

What is asked of an op beyond its name stands beside it; nobody checks that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FLAT_POOL = "pools two axes"
FLAT_CONV = "runs over two axes; weights and bias are constants"
LINE_CONV = "runs over one or two axes; weights and bias are constants"
CONSTANT_SCALES = "scales and zero points are constants"
CONSTANT_AXES = "axes are constants"
CONSTANT_B = "B is a constant"
CONSTANT_BOUNDS = "starts, ends, axes and steps are constants"
CONSTANT_SPLIT = "sizes of the parts are constants"
HALVES = "the parts are equal"
BOTH_FLOAT = "both inputs are float"
PIXELS = "resizes two axes, by whole factors for some modes"
DEPTH_FIRST = "mode is DCR"
OF_OPTIMIZER = "comes of the optimizer alone"


@dataclass(frozen=True)
class SupportedOps:
    """The ops that a provider takes."""

    ops: Mapping[str, str]
    """By `domain:name`: what else is asked, or nothing."""
    max_rank: int | None = None
    """How many axes an input may have, if that is limited."""


def _ops(plain: str, conditions: Mapping[str, str]) -> dict[str, str]:
    known = {f"ai.onnx:{name}": "" for name in plain.split()}
    return known | {name if ":" in name else f"ai.onnx:{name}": text for name, text in conditions.items()}


NNAPI = SupportedOps(
    _ops(
        "Abs Add BatchNormalization Cast Clip Concat Div Elu Exp Flatten Floor Identity LRN LeakyRelu Log MatMul Max Min Mul Neg "
        "PRelu Pow ReduceMean Relu Reshape Sigmoid Sin Slice Softmax Sqrt Sub Tanh Transpose",
        {
            "AveragePool": FLAT_POOL,
            "Conv": FLAT_CONV,
            "DepthToSpace": DEPTH_FIRST,
            "DequantizeLinear": CONSTANT_SCALES,
            "Gather": "indices are int32 or constants",
            "Gemm": "B is a constant, or transB is 1",
            "GlobalAveragePool": FLAT_POOL,
            "GlobalMaxPool": FLAT_POOL,
            "MaxPool": FLAT_POOL,
            "Pad": "mode is constant; pads and value are constants, and no pad is negative",
            "QLinearConv": f"{FLAT_CONV}; {CONSTANT_SCALES}",
            "QLinearMatMul": CONSTANT_SCALES,
            "QuantizeLinear": CONSTANT_SCALES,
            "Resize": PIXELS,
            "Split": HALVES,
            "Squeeze": CONSTANT_AXES,
            "Unsqueeze": CONSTANT_AXES,
            "com.microsoft:QLinearAdd": CONSTANT_SCALES,
            "com.microsoft:QLinearAveragePool": f"{FLAT_POOL}; {CONSTANT_SCALES}",
            "com.microsoft:QLinearSigmoid": CONSTANT_SCALES,
        },
    )
)

COREML_NETWORK = SupportedOps(
    _ops(
        "Add ArgMax BatchNormalization Cast Clip Concat Div Flatten LRN LeakyRelu Mul Reciprocal ReduceSum Relu Reshape Sigmoid Softmax "
        "Sqrt Squeeze Sub Tanh Transpose",
        {
            "AveragePool": FLAT_POOL,
            "Conv": LINE_CONV,
            "DepthToSpace": DEPTH_FIRST,
            "Gather": "indices have an axis",
            "Gemm": CONSTANT_B,
            "GlobalAveragePool": FLAT_POOL,
            "GlobalMaxPool": FLAT_POOL,
            "MatMul": CONSTANT_B,
            "MaxPool": FLAT_POOL,
            "PRelu": "slope is a constant of one number a channel, or of one",
            "Pad": "mode is constant, over the last two axes",
            "Pow": BOTH_FLOAT,
            "Resize": PIXELS,
            "Shape": "the whole shape is asked for",
            "Slice": f"{CONSTANT_BOUNDS}, and something is left",
            "Split": CONSTANT_SPLIT,
        },
    ),
    max_rank=5,
)

COREML_PROGRAM = SupportedOps(
    _ops(
        "Add ArgMax Cast Ceil Clip Concat Cos Div Elu Erf Exp Gelu GroupNormalization HardSigmoid Identity InstanceNormalization "
        "LayerNormalization LeakyRelu Max Mul PRelu ReduceMax ReduceMean ReduceSum Relu Reshape Round Shape Sigmoid Sin Softmax "
        "Softplus Sqrt Squeeze Sub Tanh Transpose Unsqueeze",
        {
            "And": "both inputs are bool",
            "AveragePool": FLAT_POOL,
            "Conv": "runs over one or two axes; the bias is a constant",
            "ConvTranspose": "weights and bias are constants; no output_shape, no output_padding",
            "DepthToSpace": "sizes are known where mode is CRD",
            "GatherND": "batch_dims is 0",
            "Gemm": CONSTANT_B,
            "GlobalAveragePool": FLAT_POOL,
            "GlobalMaxPool": FLAT_POOL,
            "GridSample": "the input has four axes, mode is linear or zeros",
            "MatMul": "nothing is transposed or scaled",
            "MaxPool": FLAT_POOL,
            "Pow": BOTH_FLOAT,
            "Reciprocal": "numbers near 0 may be others",
            "Resize": PIXELS,
            "Slice": CONSTANT_BOUNDS,
            "Split": CONSTANT_SPLIT,
            "Tile": "repeats are constants",
            "Where": "the branches are of one type of floats",
            "com.microsoft:FusedConv": OF_OPTIMIZER,
            "com.microsoft:QuickGelu": OF_OPTIMIZER,
        },
    ),
    max_rank=5,
)

BY_FILE = {
    "nnapi_supported_ops.md": NNAPI,
    "coreml_supported_neuralnetwork_ops.md": COREML_NETWORK,
    "coreml_supported_mlprogram_ops.md": COREML_PROGRAM,
}
"""By the names of the files in which onnxruntime has these lists."""
