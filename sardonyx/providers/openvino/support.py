"""Which nodes OpenVINO gets: ops whose results there are ours, with the types and attributes for which that holds.

The list is careful. OpenVINO's CPU device computes int64 as int32 and float64 as float32, so integers reach it as indices and shapes
only. It loses NaN in comparisons, minima and maxima, which are not here for that reason; it loses it in Exp and Relu too, which are,
because without them there would be little left.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from sardonyx.dtypes import ElementType, bool_, float16, float32, int8, int32, int64, uint8
from sardonyx.ir import Node, TensorType, Value
from sardonyx.ops import schemas

OLDEST_OPSET, NEWEST_OPSET = 7, 23

REAL = frozenset({float32, float16})
TRUTH = frozenset({bool_})
PLAIN = REAL | TRUTH | {int32, int8, uint8}
INDEX = frozenset({int64, int32})


def _named(text: str) -> list[str]:
    return text.split()


ELEMENTWISE = _named("""
    Abs Neg Exp Log Sqrt Reciprocal Sigmoid Tanh Relu LeakyRelu PRelu Elu Selu HardSwish Softplus Erf Gelu Mish
    Sin Cos Floor Ceil Clip Add Sub Mul Div Pow Sum Mean
""")
HEAVY = _named("""
    MatMul Gemm Conv ConvTranspose MaxPool AveragePool GlobalAveragePool GlobalMaxPool BatchNormalization InstanceNormalization
    LayerNormalization LRN Softmax LogSoftmax ReduceMean ReduceSum ReduceProd ReduceL2
""")
COMPARISONS = _named("Less LessOrEqual Equal")
LOGIC = _named("And Or Not Xor")
MOVEMENT = _named("""
    Identity Reshape Flatten Transpose Concat Split Squeeze Unsqueeze Slice Gather Expand Tile DepthToSpace SpaceToDepth Where Cast
""")

INDICES = {
    "Reshape": {"shape"},
    "Split": {"split"},
    "Squeeze": {"axes"},
    "Unsqueeze": {"axes"},
    "Slice": {"starts", "ends", "axes", "steps"},
    "Gather": {"indices"},
    "Expand": {"shape"},
    "Tile": {"repeats"},
    **{op: {"axes"} for op in HEAVY if op.startswith("Reduce")},
}
"""Operands that hold indices, axes or sizes."""

TYPES: dict[str, frozenset[ElementType]] = {
    **dict.fromkeys([*ELEMENTWISE, *HEAVY, *COMPARISONS], REAL),
    **dict.fromkeys(LOGIC, TRUTH),
    **dict.fromkeys(MOVEMENT, PLAIN),
}
"""The types of all other operands, by op; an op that is not here is left to others."""


def is_supported(node: Node) -> bool:
    """Whether OpenVINO can have the node."""
    if node.domain or node.op_type not in TYPES or not OLDEST_OPSET <= node.version <= NEWEST_OPSET:
        return False
    signature = schemas.find("", node.op_type, node.version)
    if signature is None or any(True for _ in node.subgraphs):
        return False
    indices: Collection[str] = INDICES.get(node.op_type, ())
    for position, value in enumerate(node.inputs):
        if value is not None and not _fits(
            value, INDEX if signature.input_at(position).name in indices else TYPES[node.op_type]
        ):
            return False
    result = TRUTH if node.op_type in COMPARISONS else TYPES[node.op_type]
    return all(_fits(value, result) for value in node.outputs if value.name) and CONDITIONS.get(node.op_type, _always)(node)


def is_worth_it(nodes: Collection[Node]) -> bool:
    """Whether a cluster computes anything: merely moving data is not worth a call."""
    return any(node.op_type not in MOVEMENT for node in nodes)


def _fits(value: Value, types: frozenset[ElementType]) -> bool:
    type = value.type
    return isinstance(type, TensorType) and type.dtype in types and type.shape is not None and 0 not in type.shape


# --- where it depends on more than types


def _always(node: Node) -> bool:
    return True


def _one_output(node: Node) -> bool:
    return not any(value.name for value in node.outputs[1:])


def _pool(node: Node) -> bool:
    """Windows that reach over the end are counted differently, so they stay here."""
    dilated = any(size != 1 for size in node.attribute("dilations", ()))
    return _one_output(node) and not node.attribute("ceil_mode", 0) and not (dilated and node.op_type == "AveragePool")


def _batch_normalization(node: Node) -> bool:
    return _one_output(node) and not node.attribute("training_mode", 0) and node.attribute("spatial", 1) == 1


def _constant_indices(node: Node) -> bool:
    """Slice's ends are often the largest int64, which is not an int32."""
    return all(value is None or value.is_constant for value in node.inputs[1:])


def _cast(node: Node) -> bool:
    """Floats are cut and saturated differently on the way to integers."""
    result = node.outputs[0].type
    return isinstance(result, TensorType) and result.dtype in REAL


def _softmax(node: Node) -> bool:
    return node.version >= 13 or node.attribute("axis", 1) in (-1, _rank(node) - 1)


def _rank(node: Node) -> int:
    type = node.inputs[0].type if node.inputs[0] is not None else None
    return len(type.shape) if isinstance(type, TensorType) and type.shape is not None else 0


CONDITIONS: dict[str, Callable[[Node], bool]] = {
    "MaxPool": _pool,
    "AveragePool": _pool,
    "BatchNormalization": _batch_normalization,
    "LayerNormalization": _one_output,
    "Slice": _constant_indices,
    "Cast": _cast,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
}
