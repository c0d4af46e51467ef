"""LSTM, GRU and RNN whose weights come with the run: their units, inputs and directions have no number before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from sardonyx.providers.cpu.provider import CPUExecutionProvider
from sardonyx.runtime.execution.executor import execute
from sardonyx.runtime.preparation.plan import Plan, make_plan
from tests.providers.native.agreement import (
    assert_agrees_or_refuses,
    compare,
    model_of,
    native_plan,
    programs,
    without_fallback,
)

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
AXES = {"x": "{outer}I", "W": "D,G,I", "R": "D,G,H", "B": "D,F", "n": "N", "h": "{state}H", "c": "{state}H", "P": "D,E"}
"""Of the operands; those of a state depend on the layout."""
SIZES = [(5, 3, 7, 11), (1, 1, 1, 1), (9, 1, 20, 33), (0, 2, 3, 4), (3, 0, 5, 6), (4, 9, 3, 17), (6, 2, 40, 300)]
"""Steps, rows, inputs and units of runs; the last weights are worth two threads."""


def text_of(op: str, names: str, element: str = "float", apart: bool = False, **attributes: Any) -> str:
    """A layer all of whose axes are open, if `apart` with names of each operand's own; "-" stands for an input that is absent."""
    outer, state = ("N,S,", "N,D,") if attributes.get("layout") else ("S,N,", "D,N,")

    def axes(name: str) -> str:
        found = AXES[name].format(outer=outer, state=state)
        return ",".join(f"{name}_{axis}" for axis in found.split(",")) if apart else found

    inputs = ", ".join(f"{'int32' if name == 'n' else element}[{axes(name)}] {name}" for name in names if name != "-")
    order = ", ".join("" if name == "-" else name for name in names)
    outputs = "Y, Yh, Yc" if op == "LSTM" else "Y, Yh"
    given = ", ".join(f"{name}={value!r}".replace("'", '"') for name, value in attributes.items())
    return f"g ({inputs}) => ({outputs}) {{ {outputs} = {op}{f'<{given}>' if given else ''}({order}) }}"


def feeds_of(
    op: str, names: str, sizes: tuple[int, int, int, int], dtype: Any = np.float32, layout: int = 0, directions: int = 1
) -> dict[str, np.ndarray]:
    steps, rows, inputs, units = sizes
    gates, state = GATES[op] * units, (rows, directions, units) if layout else (directions, rows, units)
    shapes = {
        "x": (rows, steps, inputs) if layout else (steps, rows, inputs),
        "W": (directions, gates, inputs),
        "R": (directions, gates, units),
        "B": (directions, 2 * gates),
        "h": state,
        "c": state,
        "P": (directions, 3 * units),
    }
    rng = np.random.default_rng(7)
    feeds = {name: (rng.normal(size=shape) / np.sqrt(units)).astype(dtype) for name, shape in shapes.items() if name in names}
    return feeds | ({"n": rng.integers(0, steps + 1, rows).astype(np.int32)} if "n" in names else {})


def plans_of(text: str, threads: int = 1) -> tuple[Plan, Plan]:
    plan = native_plan(text, threads=threads)
    assert len(plan.steps) == len(programs(plan)) == 1
    return plan, make_plan(model_of(text).graph, [CPUExecutionProvider()])


CASES: list[tuple[str, str, Mapping[str, Any]]] = [
    ("LSTM", "xWR", {}),
    ("LSTM", "xWRBnhcP", {"direction": "bidirectional"}),
    ("LSTM", "xWR---cP", {"layout": 1, "input_forget": 1}),
    ("GRU", "xWRB-h", {"linear_before_reset": 1}),
    ("GRU", "xWR", {"linear_before_reset": 1, "direction": "reverse"}),
    ("GRU", "xWRBnh", {"direction": "bidirectional", "layout": 1}),
    ("RNN", "xWRB", {"direction": "reverse"}),
    ("RNN", "xWR-n", {"direction": "bidirectional", "activations": ["Tanh", "Relu"]}),
]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("op", "names", "attributes"), CASES)
def test_weights_may_have_any_sizes(op: str, names: str, attributes: Mapping[str, Any], threads: int) -> None:
    plan, reference = plans_of(text_of(op, names, **attributes), threads)
    without_fallback(plan)
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    for sizes in SIZES:
        feeds = feeds_of(op, names, sizes, layout=attributes.get("layout", 0), directions=directions)
        compare(execute(plan, feeds), execute(reference, feeds), 2e-5)


@pytest.mark.parametrize(("element", "dtype"), [("float16", np.float16), ("double", np.float64)])
@pytest.mark.parametrize("op", GATES)
def test_of_any_type(op: str, element: str, dtype: Any) -> None:
    plan, reference = plans_of(text_of(op, "xWRB-h", element))
    without_fallback(plan)
    for sizes in SIZES[:3]:
        feeds = feeds_of(op, "xWRB-h", sizes, dtype)
        compare(execute(plan, feeds), execute(reference, feeds))


WRONG = {
    "units of R": {"R": (1, 44, 10)},
    "gates of R": {"R": (1, 43, 11)},
    "gates of W": {"W": (1, 4, 7)},
    "inputs of W": {"W": (1, 44, 8)},
    "directions": {"W": (2, 44, 7), "R": (2, 44, 11)},
    "bias": {"B": (1, 44)},
    "peepholes": {"P": (1, 32)},
    "state": {"h": (1, 3, 12)},
    "no directions": {"W": (0, 44, 7), "R": (0, 44, 11), "B": (0, 88), "P": (0, 33), "h": (0, 3, 11)},
    "no units": {"W": (1, 0, 7), "R": (1, 0, 0), "B": (1, 0), "P": (1, 0), "h": (1, 3, 0)},
}


@pytest.mark.parametrize("declared", [None, 11, 1000000])
@pytest.mark.parametrize("what", WRONG)
def test_weights_that_do_not_fit_are_refused_as_numpy_refuses_them(what: str, declared: int | None) -> None:
    """Whatever the attribute says, too: nothing is read where a weight is not."""
    attributes = {} if declared is None else {"hidden_size": declared}
    plan, reference = plans_of(text_of("LSTM", "xWRB-h-P", apart=True, **attributes))
    feeds = feeds_of("LSTM", "xWRB-h-P", (5, 3, 7, 11))
    feeds |= {name: np.ones(shape, np.float32) for name, shape in WRONG[what].items()}
    assert_agrees_or_refuses(plan, reference, feeds)
