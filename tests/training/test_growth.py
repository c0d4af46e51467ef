"""How work grows with a model: gradients, the cut and what is computed again take about twice as long for twice as many nodes."""

from __future__ import annotations

from collections.abc import Callable

import onnx.parser
import pytest

from sardonyx import formats
from sardonyx.ir import Model
from sardonyx.ops.inference import infer
from sardonyx.training.crossing import halves_of
from sardonyx.training.gradient import add_gradients
from sardonyx.training.recompute import candidates, recompute
from tests.counting import executed_lines

SMALL, LARGE = 50, 200


def chain(layers: int) -> Model:
    """Products and activations; every activation is also read by a sum at the end, so that gradients come from two sides."""
    nodes = "".join(f"p{n} = Mul(a{n}, w) a{n + 1} = Gelu(p{n}) " for n in range(layers))
    read = ", ".join(f"a{n + 1}" for n in range(layers))
    text = f"""<ir_version: 10, opset_import: ["": 21]> net (float[N] a0, float[1] w) => (float y) {{
        {nodes} s = Sum({read}) y = ReduceSum<keepdims=0>(s)
    }}"""
    model = formats.load(onnx.parser.parse_model(text).SerializeToString())
    infer(model)
    return model


def trained(layers: int) -> Model:
    model = chain(layers)
    add_gradients(model, "y", ["w"])
    return model


WORK: dict[str, tuple[Callable[[int], Model], Callable[[Model], object]]] = {
    "gradients": (chain, lambda model: add_gradients(model, "y", ["w"])),
    "cut": (trained, halves_of),
    "candidates": (trained, lambda model: candidates(model, halves_of(model))),
    "recompute": (trained, lambda model: recompute(model, "Gelu+:1:-1")),
}


@pytest.mark.parametrize("name", WORK)
def test_work_is_linear_in_nodes(name: str) -> None:
    make, work = WORK[name]
    work(make(2))  # imports and tables are made once
    small, large = (executed_lines(work, make(layers)) for layers in (SMALL, LARGE))
    assert large < 1.25 * LARGE / SMALL * small
