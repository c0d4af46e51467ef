"""coverage.md: for each op and element type who computes it, asked of the providers about the models of the op cases (tests/ops)."""

from __future__ import annotations

import importlib
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from docs.pages.domains import domains
from docs.pages.text import NOTE, joined, table
from sardonyx import dtypes, ops
from sardonyx.dtypes import ElementType
from sardonyx.errors import CODED
from sardonyx.ir import Graph, MapType, OptionalType, SequenceType, SparseTensorType, TensorType, Type
from sardonyx.ops import schemas
from sardonyx.ops.signatures import Signature
from sardonyx.providers.cpu.provider import CPUExecutionProvider
from sardonyx.providers.native.provider import NativeExecutionProvider
from tests.ops.cases import Case, build, inputs_of, takes, wanted_outputs

CASES = Path(__file__).parent.parent.parent / "tests" / "ops"

NATIVE, PARTLY, NUMPY, BODY = "native", "native in some forms", "NumPy", "function body"
TYPES = sorted(dtypes.ALL, key=lambda dtype: dtype.code)
WAYS = (NATIVE, PARTLY, NUMPY, BODY)
HEAD = ("op", *WAYS)

OPENING = """
# Who computes what

For the newest version of each op: which element types of its first tensor run as machine code
([compiler](compiler.md)), which with NumPy ([providers](providers.md)), and which through the body
by which the standard defines the op. *In some forms* means that attributes, shapes or other operands
decide. `sardonyx check MODEL` and `sardonyx inspect MODEL --after native` tell it for the nodes of a
model.

The page is made by asking the providers about the models that the op cases under `tests/ops/` stand
for, each in all element types that the op's schema allows there.
"""


def page() -> str:
    found = answers()
    parts = []
    for domain in domains():
        rows = [
            (f"{name} {_newest(domain, name).since_version}", *_cells(found[domain, name]))
            for name in schemas.operators(domain)
            if (domain, name) in found
        ]
        shown = [index for index, head in enumerate(HEAD) if head != BODY or any(row[index] for row in rows)]
        parts += [
            f"## {domain or 'ai.onnx'}",
            _counts(rows),
            table([HEAD[index] for index in shown], [[row[index] for index in shown] for row in rows]),
        ]
    return joined(NOTE, OPENING, *parts)


def _counts(rows: Sequence[Sequence[str]]) -> str:
    native = sum(bool(row[HEAD.index(NATIVE)] or row[HEAD.index(PARTLY)]) for row in rows)
    bodies = sum(bool(row[HEAD.index(BODY)]) for row in rows)
    return f"Of {len(rows)} ops {native} have native code, and {bodies or 'none'} run through their function body."


Answers = dict[tuple[str, str], dict[ElementType, set[str]]]
"""Domain and op: element type: who computes it in one case or another."""


def answers() -> Answers:
    native, numpy = NativeExecutionProvider(threads=1), CPUExecutionProvider()
    found: Answers = defaultdict(lambda: defaultdict(set))
    with warnings.catch_warnings(action="ignore"):  # of what is lost where operands are cast to each type
        for case in _cases():
            for dtype, graphs in _graphs(case, _newest(case.domain, case.op)):
                node = next(graphs[0].nodes)
                kernel = NUMPY if numpy.find_kernel(node) is not None else BODY
                is_native = any(_is_native(native, graph) for graph in graphs)
                found[case.domain, case.op][dtype].add(NATIVE if is_native else kernel)
    return found


def _is_native(native: NativeExecutionProvider, graph: Graph) -> bool:
    (node,) = graph.nodes
    return native.can_lower(node) or any(native.get_capability(graph, [node]))


def _cases() -> Iterator[Case]:
    known = domains()
    for path in sorted(CASES.rglob("test_*.py")):
        name = ".".join(path.relative_to(CASES.parent.parent).with_suffix("").parts)
        for case in getattr(importlib.import_module(name), "CASES", ()):
            if case.refusal is None and case.domain in known and schemas.versions(case.domain, case.op):
                yield case


def _newest(domain: str, op: str) -> Signature:
    history = schemas.versions(domain, op)
    return history[max(history)]


def _graphs(case: Case, signature: Signature) -> Iterator[tuple[ElementType, list[Graph]]]:
    """The case in each element type that its first tensor may have: with small operands known, and with weights known."""
    for types in _choices(signature):
        try:
            if takes(signature, case, types):
                graphs = [_graph(case, signature, types, view) for view in ("known", "weights")]
                node = next(graphs[0].nodes)
                elements = [_element_type(value.type) for value in (*node.inputs, *node.outputs) if value is not None]
                yield next(filter(None, elements)), graphs
        except (*CODED, ArithmeticError, ValueError, TypeError, AttributeError):
            continue  # the case's operands cannot have these types


def _choices(signature: Signature) -> list[dict[str, ElementType]]:
    """Element types for the type string of the first input that has a choice, alone and with others that have the same choice."""
    for parameter in signature.inputs:
        allowed = [dtype for dtype in TYPES if f"tensor({dtype})" in parameter.types]
        if len(allowed) > 1:
            alike = {other.type_string for other in signature.inputs if other.types == parameter.types}
            together = [alike] if len(alike) > 1 else []
            return [dict.fromkeys(names, dtype) for names in ({parameter.type_string}, *together) for dtype in allowed]
    return [{}]


def _graph(case: Case, signature: Signature, types: Mapping[str, ElementType], view: str) -> Graph:
    inputs, wanted = inputs_of(signature, case, types), wanted_outputs(case, signature, None)
    model = build(signature, signature.since_version, case, inputs, wanted, view)
    ops.infer(model)
    return model.graph


def _element_type(type: Type | None) -> ElementType | None:
    match type:
        case TensorType(dtype) | SparseTensorType(dtype):
            return dtype
        case SequenceType(element) | OptionalType(element) | MapType(_, element):
            return _element_type(element)
    return None


def _cells(by_type: Mapping[ElementType, set[str]]) -> Iterator[str]:
    """The types in each column."""
    ways = {
        dtype: PARTLY if NATIVE in found and len(found) > 1 else min(found, key=WAYS.index) for dtype, found in by_type.items()
    }
    for way in WAYS:
        yield ", ".join(str(dtype) for dtype in TYPES if ways.get(dtype) == way)
