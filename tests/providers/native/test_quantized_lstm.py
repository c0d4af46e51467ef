"""DynamicQuantizeLSTM in native code: whole numbers are those of int64, and results those of NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from sardonyx.runtime.execution.executor import execute
from tests.compiler.functions import levels
from tests.providers.native.agreement import assert_agrees, native_plan, programs
from tests.providers.native.levels import BYTES, use_level

CODE_STEP = 1 / 255
"""Where a number lies between two codes, a last bit of an activation decides: one step of the state."""


class Layer:
    """A node with random weights of 8 bits; `initial` and `lengths` say which further inputs are fed."""

    def __init__(self, size: int, hidden: int, kind: str = "int8", *, zero: bool = False, per_column: bool = False, **more):
        direction, self.lengths, self.initial = (more.pop(name, None) for name in ("direction", "lengths", "initial"))
        peepholes, bias = more.pop("peepholes", False), more.pop("bias", False)
        self.directions, self.size, self.hidden = 2 if direction == "bidirectional" else 1, size, hidden
        rng = np.random.default_rng(size * 100 + hidden)
        ends = np.iinfo(kind)
        each = (self.directions, 4 * hidden) if per_column else (self.directions,)
        self.arrays = {}
        for name, rows in (("W", size), ("R", hidden)):
            self.arrays[name] = rng.integers(ends.min, ends.max + 1, (self.directions, rows, 4 * hidden)).astype(kind)
            self.arrays[f"{name}_scale"] = (rng.uniform(0.5, 1, each) / 40 / np.sqrt(rows)).astype(np.float32)
            middle = np.full(each, 0 if kind == "int8" else 128)
            points = rng.integers(ends.min, ends.max + 1, each) if zero else middle
            self.arrays[f"{name}_zero_point"] = points.astype(kind)
        if bias:
            self.arrays["B"] = rng.standard_normal((self.directions, 8 * hidden)).astype(np.float32)
        if peepholes:
            self.arrays["P"] = rng.standard_normal((self.directions, 3 * hidden)).astype(np.float32)
        self.attributes = {"hidden_size": hidden, "direction": direction or "forward", **more}

    def model(self):
        names = [
            "X",
            "W",
            "R",
            "B",
            "sequence_lens",
            "initial_h",
            "initial_c",
            "P",
            "W_scale",
            "W_zero_point",
            "R_scale",
            "R_zero_point",
        ]
        fed = {"X": (1, ["T", "N", self.size])}
        if self.lengths:
            fed["sequence_lens"] = (TensorProto.INT32, ["N"])
        if self.initial:
            fed |= {f"initial_{name}": (1, [self.directions, "N", self.hidden]) for name in "hc"}
        inputs = [name if name in fed or name in self.arrays else "" for name in names]
        node = helper.make_node("DynamicQuantizeLSTM", inputs, ["Y", "Y_h", "Y_c"], domain="com.microsoft", **self.attributes)
        feeds = [helper.make_tensor_value_info(name, type, shape) for name, (type, shape) in fed.items()]
        outputs = [helper.make_tensor_value_info(name, 1, None) for name in node.output]
        weights = [numpy_helper.from_array(array, name) for name, array in self.arrays.items()]
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(helper.make_graph([node], "g", feeds, outputs, weights), opset_imports=opsets, ir_version=10)

    def feeds(self, steps: int, batch: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(steps * 10 + batch)
        feeds = {"X": rng.standard_normal((steps, batch, self.size)).astype(np.float32)}
        if self.lengths:
            feeds["sequence_lens"] = rng.integers(0, steps + 1, batch).astype(np.int32)
        if self.initial:
            shape = (self.directions, batch, self.hidden)
            feeds |= {f"initial_{name}": rng.uniform(-1, 1, shape).astype(np.float32) for name in "hc"}
        return feeds


FORMS = {
    "plain": Layer(12, 16),
    "odd sizes": Layer(7, 5, bias=True),
    "without sign": Layer(9, 20, "uint8", direction="reverse", bias=True),
    "zero points": Layer(10, 6, "uint8", zero=True, per_column=True, direction="bidirectional"),
    "signs and zero points": Layer(10, 33, zero=True, bias=True, initial=True),
    "lengths": Layer(6, 17, per_column=True, direction="bidirectional", lengths=True, initial=True),
    "peepholes": Layer(8, 12, peepholes=True, bias=True, clip=0.9, input_forget=1),
}


@pytest.mark.parametrize(
    ("form", "level"),
    [
        *((form, level) for form in FORMS for level in levels()[-1:]),
        *(("zero points", level) for level in (*levels()[:-1], BYTES)),
    ],
)
def test_layers_agree_with_numpy(form: str, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_level(monkeypatch, level)
    layer = FORMS[form]
    assert_agrees(layer.model(), [layer.feeds(5, 3), layer.feeds(1, 1), layer.feeds(3, 0)], tolerance=CODE_STEP)


def test_large_layers_are_shared_by_threads() -> None:
    layer = Layer(40, 260, bias=True, direction="bidirectional")
    assert_agrees(layer.model(), [layer.feeds(6, 2), layer.feeds(4, 60)], tolerance=CODE_STEP)


def test_more_rows_than_one_scale_is_found_for_are_left_to_numpy() -> None:
    layer = Layer(4, 3)
    feeds = layer.feeds(2, 65)
    plan = native_plan(layer.model())
    assert len(programs(plan)) == 1
    assert execute(plan, feeds)[0].shape == (2, 1, 65, 3)


def codes(values: np.ndarray) -> tuple[np.ndarray, np.float32, int]:
    """DynamicQuantizeLinear as its standard has it."""
    low, high = np.float32(min(0, values.min())), np.float32(max(0, values.max()))
    scale = (high - low) / np.float32(255) if high > low else np.float32(1)
    zero = int(np.rint(np.clip(-low / scale, 0, 255)))
    return np.clip(np.rint(values / scale) + zero, 0, 255).astype(np.int64), scale, zero


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_sums_of_a_step_are_exact(level: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With activations that hand on what they get, one step gives the sums themselves: i + o, less what c adds."""
    use_level(monkeypatch, level)
    layer = Layer(70, 37, kind, zero=True, initial=True, activations=["Affine"] * 3)
    feeds = layer.feeds(1, 4)
    feeds["initial_c"][:] = 0
    _, _, c = execute(native_plan(layer.model()), feeds)
    gates = np.zeros((4, 4 * layer.hidden), np.float32)
    for name, values in (("W", feeds["X"][0]), ("R", feeds["initial_h"][0])):
        numbers, scale, zero = codes(values)
        weights = layer.arrays[name][0].astype(np.int64) - int(layer.arrays[f"{name}_zero_point"][0])
        gates += ((numbers - zero) @ weights).astype(np.float32) * (scale * layer.arrays[f"{name}_scale"][0])
    i, _, _, candidate = np.split(gates, 4, axis=1)
    np.testing.assert_array_max_ulp(c[0], i * candidate, 2)
