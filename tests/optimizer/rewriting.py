"""How optimizer tests compare graphs: by structure up to names, and by what they compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx.parser

from sardonyx import formats, ops
from sardonyx.dtypes import FLOATS
from sardonyx.ir import Graph, Model, Node, TensorType, Value, dim, verify
from sardonyx.optimizer.pipeline import Pass
from sardonyx.optimizer.rewrite import Journal, Rule, apply_rules
from sardonyx.optimizer.rewriting import Rewriting
from sardonyx.providers.cpu.provider import CPUExecutionProvider, evaluate
from sardonyx.runtime.execution.executor import execute
from sardonyx.runtime.preparation.plan import make_plan

SIZES = {"N": 2, "S": 5, "H": 7, "W": 6}
"""What symbolic sizes become when graphs are run."""


def typed(text: str, opset: int = 21) -> Model:
    """A model from ONNX text; a bare graph gets opset imports for ONNX and com.microsoft."""
    if not text.lstrip().startswith("<"):
        text = f'<ir_version: 10, opset_import: ["" : {opset}, "com.microsoft" : 1, "ai.onnx.ml" : 5]>' + text
    model = formats.load(onnx.parser.parse_model(text))
    ops.infer(model, evaluate)
    return model


def assert_rewrites(
    what: Rule | Sequence[Rule] | Pass,
    before: str,
    after: str | None,
    *,
    opset: int = 21,
    rtol: float = 1e-5,
    options: dict[str, str] | None = None,
    compare: bool = True,
) -> Journal:
    """Check that a rule, several, or a pass turn `before` into `after` (None: nothing changes), and that both compute the same."""
    model = typed(before, opset)
    expected = typed(before if after is None else after, opset)
    journal = Journal(strict=True)
    feeds = random_feeds(model.graph)
    want = run(model, feeds) if compare else []
    if isinstance(what, Rule):
        what = [what]
    if callable(what):
        what(model.graph, Rewriting(model, evaluate, options or {}, journal))
    else:
        apply_rules(model, what, evaluate=evaluate, journal=journal)
    verify.verify(model)
    assert_described(model.graph, expected.graph)
    for got, wanted in zip(run(model, feeds) if compare else [], want, strict=True):
        np.testing.assert_allclose(
            got, wanted, rtol=rtol, atol=rtol * max(1e-30, np.abs(np.asarray(wanted, np.float64)).max(initial=0))
        )
    return journal


def run(model: Model, feeds: dict[str, Any]) -> list[Any]:
    """What a model computes, on a copy of its plan."""
    return execute(make_plan(model.graph, [CPUExecutionProvider()]), feeds)


def random_feeds(graph: Graph, seed: int = 0) -> dict[str, np.ndarray]:
    """Seeded values for all inputs; symbolic sizes as SIZES says, else 3."""
    rng = np.random.default_rng(seed)
    return {value.name: _random(value, rng) for value in graph.inputs}


def _random(value: Value, rng: np.random.Generator) -> np.ndarray:
    assert isinstance(value.type, TensorType) and value.type.dtype is not None and value.type.shape is not None
    shape = [dim.evaluate(size, _Sizes()) for size in value.type.shape]
    dtype = value.type.dtype
    if dtype in FLOATS:
        return rng.standard_normal(shape).astype(dtype.numpy)
    return rng.integers(0, 2, shape).astype(dtype.numpy)


class _Sizes(dict):  # type: ignore[type-arg]
    def __missing__(self, name: str) -> int:
        return SIZES.get(name, 3)


def described(graph: Graph) -> list[str]:
    """A graph as text up to the names of inner values: each output's expression, written out."""
    return [f"{value.name} = {_expression(value, graph, 0)}" for value in graph.outputs]


def assert_described(graph: Graph, expected: Graph) -> None:
    """Check that two graphs are the same up to names; show both where they are not."""
    found, wanted = ("\n    ".join(described(each)) for each in (graph, expected))
    assert found == wanted, f"the graph became\n    {found}\nand not\n    {wanted}"


def _expression(value: Value | None, graph: Graph, depth: int) -> str:
    if value is None:
        return "-"
    constant = value.constant.numpy() if value.is_constant and value.constant is not None else None
    if constant is None and value.producer is not None and value.producer.op_type == "Constant":
        constant = value.known
    if constant is not None:
        return _number(constant)
    if value.producer is None:
        return value.name
    assert depth < 200
    return _call(value.producer, list(value.producer.outputs).index(value), graph, depth)


def _call(node: Node, index: int, graph: Graph, depth: int) -> str:
    attributes = ", ".join(f"{name}={_attribute(node.attributes[name].value)}" for name in sorted(node.attributes))
    arguments = [_expression(value, graph, depth + 1) for value in node.inputs]
    while arguments and arguments[-1] == "-":
        arguments.pop()
    which = f"#{index}" if index else ""
    return f"{node.op_id}{which}<{attributes}>({', '.join(arguments)})"


def _attribute(value: Any) -> str:
    if isinstance(value, Graph):
        return "{" + "; ".join(described(value)) + "}"
    return _number(value.numpy()) if hasattr(value, "numpy") else str(value)


def _number(array: np.ndarray) -> str:
    items = array.reshape(-1)[:16].tolist()
    short = [float(f"{item:.5g}") if isinstance(item, float) else item for item in items]
    return f"{array.dtype}{list(array.shape)}{short}"
