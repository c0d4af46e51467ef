"""Which ops, in which versions and for which types, models need: configuration files for cut-down builds, written and read.

The form is that of onnxruntime's build tool, whose builds they are for: `domain;opset[,opset…];Op[{types as JSON}][,Op…]`. Which
arguments of an op its types are told of follows that tool too. `sardonyx convert --required-ops` writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sardonyx import dtypes
from sardonyx.errors import InvalidArgument
from sardonyx.formats.ort.writer import is_constant
from sardonyx.ir import Model, Node, TensorType, Value
from sardonyx.ops import checking, schemas
from sardonyx.providers.matching import OpId
from sardonyx.startup.records import dataclass, field

ONNX_DOMAIN = "ai.onnx"
ALLOWED_TYPES = "!globally_allowed_types;"
ALL_OPS = "!no_ops_specified_means_all_ops_are_required"
TRIPLES = "OneHot"
"""The op whose types count together."""

Types = dict[str, dict[str, set[str]]]
"""Names of types by position, under "inputs" and "outputs"."""

TYPE_NAMES = {
    dtypes.float32: "float",
    dtypes.float64: "double",
    dtypes.float16: "MLFloat16",
    dtypes.bfloat16: "BFloat16",
    dtypes.bool_: "bool",
    dtypes.string: "std::string",
    dtypes.float8e4m3fn: "Float8E4M3FN",
    dtypes.float8e4m3fnuz: "Float8E4M3FNUZ",
    dtypes.float8e5m2: "Float8E5M2",
    dtypes.float8e5m2fnuz: "Float8E5M2FNUZ",
    **{dtype: f"{dtype.name}_t" for dtype in dtypes.INTS if dtype.bits >= 8},
}

_FIRST_INPUT = (
    "Abs ArgMax ArgMin AveragePool BatchNormalization BitShift Ceil Clip Conv CumSum Exp Expand Floor Gemm IsNaN Log LogSoftmax "
    "LpNormalization MatMul Max MaxPool Mean Min NonZero Pad QLinearConv QLinearMatMul Range Reciprocal ReduceL1 ReduceL2 "
    "ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Resize ReverseSequence "
    "RoiAlign Round Scatter ScatterElements ScatterND Shrink Sigmoid Sign Sin Softmax Split SplitToSequence Sqrt Sum Tanh TopK "
    "Transpose Unique Add Concat Div Equal Greater Less Mul Neg Sub DequantizeLinear"
)
_MADE = "ConstantOfShape RandomNormal RandomNormalLike RandomUniform RandomUniformLike Multinomial QuantizeLinear DynamicQuantizeLinear"
TRACKED: dict[tuple[str, str], tuple[tuple[int, ...], tuple[int, ...]]] = {
    **{("", name): ((0,), ()) for name in _FIRST_INPUT.split()},
    **{("com.microsoft", name): ((0,), ()) for name in ("QLinearAdd", "QLinearMul", "QLinearConv")},
    **{("", name): ((0, 1), ()) for name in ("Gather", "GatherElements", "Pow", "Slice")},
    **{("", name): ((), (0,)) for name in _MADE.split()},
    ("", "Cast"): ((0,), (0,)),
    ("", "Where"): ((1,), ()),
}
"""The inputs and outputs of an op whose types matter to its kernels; other ops need no types."""

KEPT = {
    **{name: {"int32_t", "int64_t"} for name in ("Add", "Concat", "Div", "Equal", "Greater", "Less", "Mul", "Neg", "Sub")},
    "DequantizeLinear": {"int8_t", "uint8_t", "int32_t"},
}
"""Types that builds keep for an op's first input, whatever is asked for: sizes and indices are computed with them."""


@dataclass
class RequiredOperators:
    """What a build must have."""

    operators: dict[tuple[str, int], set[str]] = field(default_factory=dict)
    """Names of ops by domain and opset."""
    types: dict[tuple[str, str], Types] = field(default_factory=dict)
    """The types that ops, by domain and name, are needed for; one that is not here is needed for all."""
    triples: set[tuple[str, ...]] = field(default_factory=set)
    """The same for OneHot: indices, values, depth."""
    allowed_types: frozenset[str] | None = None
    """Types for all ops alike."""
    all_if_empty: bool = False
    """Whether naming no op means all of them."""

    def add(self, model: Model, *, with_types: bool = True) -> None:
        """Ask for all that a typed model needs, in the versions in which its ops came to be."""
        for node in _nodes(model):
            self._require(OpId(node.domain, node.op_type, checking.signature_of(node).since_version))
            if with_types:
                self._use(node)
        for saved in model.saved_optimizations:
            for record in (record for records in saved.by_optimizer.values() for record in records):
                for text in record.produced:
                    self._require(OpId.parse(text))

    def _require(self, op: OpId) -> None:
        self.operators.setdefault((op.domain, op.since_version), set()).add(op.name)

    def _use(self, node: Node) -> None:
        if node.op_type == TRIPLES and not node.domain:
            self.triples.add(_triple(node))
        for side, position, name in _used_types(node):
            self.types.setdefault((node.domain, node.op_type), {}).setdefault(side, {}).setdefault(str(position), set()).add(
                name
            )

    def lacking(self, model: Model) -> list[Node]:
        """The nodes of a typed model that a build made from this could not run."""
        if not self.operators and self.all_if_empty:
            return []
        known: dict[tuple[str, str], set[int]] = {}
        for (domain, opset), names in self.operators.items():
            for name in names:
                signature = schemas.find(domain, name, opset)
                known.setdefault((domain, name), set()).add(opset if signature is None else signature.since_version)
        return [node for node in _nodes(model) if not self._covers(node, known)]

    def _covers(self, node: Node, known: Mapping[tuple[str, str], set[int]]) -> bool:
        key = node.domain, node.op_type
        if checking.signature_of(node).since_version not in known.get(key, ()):
            return False
        if node.op_type == TRIPLES and not node.domain and self.triples and _triple(node) not in self.triples:
            return False
        for side, position, name in _used_types(node):
            kept = KEPT.get(node.op_type, set()) if side == "inputs" and position == 0 else set()
            allowed = self.types.get(key, {}).get(side, {}).get(str(position), self.allowed_types)
            if allowed is not None and name not in allowed and name not in kept:
                return False
        return True

    # --- as text

    def text(self, sources: Sequence[object] = ()) -> str:
        """The configuration file; `sources` are named in it as what asks for this."""
        lines = ["# Needed by:", *(f"# - {source}" for source in sources)] if sources else []
        if self.all_if_empty:
            lines.append(ALL_OPS)
        if self.allowed_types is not None:
            lines.append(ALLOWED_TYPES + ",".join(sorted(self.allowed_types)))
        for (domain, opset), names in sorted(self.operators.items()):
            lines.append(f"{domain or ONNX_DOMAIN};{opset};{','.join(self._entry(domain, name) for name in sorted(names))}")
        return "\n".join(lines) + "\n"

    def _entry(self, domain: str, name: str) -> str:
        types: dict[str, Any] = {
            side: {position: sorted(names) for position, names in sorted(positions.items())}
            for side, positions in self.types.get((domain, name), {}).items()
        }
        if name == TRIPLES and not domain and self.triples:
            types = {"custom": sorted(map(list, self.triples))}
        return name + (json.dumps(types) if types else "")

    @classmethod
    def parse(cls, text: str, *, with_types: bool = True) -> RequiredOperators:
        """What a configuration file asks for, `with_types` or in terms of ops alone."""
        required = cls()
        for number, line in enumerate(text.splitlines(), 1):
            try:
                required._read_line(line.strip())
            except (ValueError, AttributeError) as error:
                raise InvalidArgument(
                    f"line {number} of the required operators is not right, {error}: {line.strip()!r}"
                ) from error
        if not with_types:
            required.types, required.triples, required.allowed_types = {}, set(), None
        if required.allowed_types is not None and (required.types or required.triples):
            raise InvalidArgument("Specifying globally allowed types and per-op type reduction info together is unsupported.")
        return required

    def _read_line(self, line: str) -> None:
        if not line or line.startswith("#"):
            return
        if line.startswith(ALLOWED_TYPES):
            if self.allowed_types is not None:
                raise ValueError("globally allowed types were given already")
            self.allowed_types = frozenset(name.strip() for name in line.removeprefix(ALLOWED_TYPES).split(","))
        elif line == ALL_OPS:
            self.all_if_empty = True
        else:
            parts = line.split(";", 2)
            if len(parts) != 3:
                raise ValueError("it must read domain;opsets;ops")
            domain = schemas.normal_domain(parts[0].strip())
            entries = list(_entries(parts[2]))
            for opset in map(int, parts[1].split(",")):
                self.operators.setdefault((domain, opset), set()).update(name for name, _ in entries)
            for name, types in entries:
                self._read_types(domain, name, types)

    def _read_types(self, domain: str, name: str, types: Mapping[str, Any]) -> None:
        if "custom" in types:
            self.triples.update(tuple(triple) for triple in types["custom"])
        for side in ("inputs", "outputs"):
            for position, names in types.get(side, {}).items():
                sides = self.types.setdefault((domain, name), {})
                sides.setdefault(side, {}).setdefault(position, set()).update(names)


def _entries(text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Names of ops, each with the types that follow it."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        name = re.compile(r"\s*(\w+)\s*").match(text, at)
        if name is None:
            raise ValueError(f"an op is missing at {text[at : at + 20]!r}")
        types: Mapping[str, Any] = {}
        at = name.end()
        if text[at : at + 1] == "{":
            types, at = decoder.raw_decode(text, at)
        yield name[1], types
        rest = text[at:].lstrip()
        if rest and not rest.startswith(","):
            raise ValueError(f"a comma is missing at {rest[:20]!r}")
        at = len(text) - len(rest) + 1


def _nodes(model: Model) -> Iterable[Node]:
    return (node for node in model.graph.all_nodes() if not is_constant(node))


def _used_types(node: Node) -> Iterator[tuple[str, int, str]]:
    """The types that matter to a node's kernel, each with its place."""
    inputs, outputs = TRACKED.get((node.domain, node.op_type), ((), ()))
    for side, positions, values in (("inputs", inputs, node.inputs), ("outputs", outputs, node.outputs)):
        for position in positions:
            value = values[position] if position < len(values) else None
            if value is not None:
                yield side, position, _type_name(value)


def _type_name(value: Value | None) -> str:
    dtype = value.type.dtype if value is not None and isinstance(value.type, TensorType) else None
    return "unknown" if dtype is None else TYPE_NAMES.get(dtype, dtype.name)


def _triple(node: Node) -> tuple[str, ...]:
    indices, depth, values = node.inputs[:3]
    return _type_name(indices), _type_name(values), _type_name(depth)
