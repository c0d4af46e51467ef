"""Where shapes decide what a model computes, a plan of its own is made when they come again, and computes the same."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import onnx.parser
import pytest

import sardonyx
from sardonyx.runtime.preparation.plan import all_steps

OPSETS = '<ir_version: 8, opset_import: ["" : 17]>'
LAST_IF_ONE = """x_shape = Shape(x)
    two = Constant<value_ints=[2]>()
    size = Gather(x_shape, two)
    one = Constant<value_ints=[1]>()
    single = Equal(size, one)
    y = If(single)<then_branch = a () => (float[N,3] p) { axes = Constant<value_ints=[2]>() p = Squeeze(x, axes) },
                   else_branch = b () => (float[N,3,S] q) { q = Identity(x) }>"""
SQUEEZE = f"g (float[N,3,S] x) => (float[] z) {{ {LAST_IF_ONE} t = Relu(y) z = Add(t, t) }}"
RATES = f"""g (float[N,3,S] x, int64 rate) => (float[] z) {{
    wanted = Constant<value_int=8>()
    slow = Equal(rate, wanted)
    z = If(slow)<
        then_branch = a () => (float[] p) {{ {LAST_IF_ONE} t = Relu(y) p = Add(t, t) }},
        else_branch = b () => (float[] q) {{ shape = Constant<value_ints=[-1, 6]>() u = Reshape(x, shape) q = Mul(u, u) }}> }}"""
SAME_NAMES = (
    "g (float[N,S] a, float[N,S] b) => (float[N,T] z) { t = Transpose<perm=[1,0]>(b) u = Relu(a) v = Neg(t) z = MatMul(u, v) }"
)


def session(text: str, native: str = "1", **settings: Any) -> sardonyx.InferenceSession:
    options = sardonyx.SessionOptions()
    options.add_session_config_entry("sardonyx.supposes_sizes", "0")
    for name, value in settings.items():
        setattr(options, name, value)
    model = onnx.parser.parse_model(OPSETS + text).SerializeToString()
    return sardonyx.InferenceSession(model, options, providers=[("CPUExecutionProvider", {"native": native})])


def x(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def agree(one: sardonyx.InferenceSession, other: sardonyx.InferenceSession, feeds: dict[str, Any]) -> None:
    for got, wanted in zip(one.run(None, feeds), other.run(None, feeds), strict=True):
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=1e-6)


def plans(one: sardonyx.InferenceSession) -> list[Any]:
    return list(one._sess._specialized._plans.values())  # type: ignore[union-attr]


def test_a_branch_on_a_size_is_decided_for_shapes_that_come_again() -> None:
    quick, plain = session(SQUEEZE), session(SQUEEZE, native="0")
    for shape in ((2, 3, 1), (2, 3, 4)):
        agree(quick, plain, {"x": x(*shape)})
    assert plans(quick) == []
    for _ in range(2):
        for shape in ((2, 3, 1), (2, 3, 4), (5, 3, 2)):
            agree(quick, plain, {"x": x(*shape)})
    assert len(plans(quick)) == 3 and all(len(list(all_steps(plan))) == 1 for plan in plans(quick))
    assert quick._sess.direct is not None and quick._sess.direct({"x": x(5, 3, 2)}) is not None
    assert quick._sess.direct({"x": x(2, 3, 1)}) is None


def test_there_are_only_so_many_plans() -> None:
    quick, plain = session(SQUEEZE), session(SQUEEZE, native="0")
    for _ in range(2):
        for size in range(1, 9):
            agree(quick, plain, {"x": x(1, 3, size)})
    assert len(plans(quick)) == 4


def test_a_number_that_steers_is_part_of_what_comes_again() -> None:
    quick, plain = session(RATES), session(RATES, native="0")
    slow, fast = {"x": x(1, 3, 1), "rate": np.array(8)}, {"x": x(2, 3, 1), "rate": np.array(16)}
    for _ in range(3):
        agree(quick, plain, slow)  # the other branch cannot even be typed with this shape
        agree(quick, plain, fast)
    assert len(plans(quick)) == 2 and all(plan is not None for plan in plans(quick))
    agree(quick, plain, {"x": x(2, 3, 1), "rate": np.array(8)})
    with pytest.raises(Exception, match="cannot be reshaped"):
        quick.run(None, {"x": x(1, 3, 1), "rate": np.array(16)})


def test_models_whose_shapes_tell_nothing_have_no_plans_to_add() -> None:
    assert session("g (float[N,3] x) => (float[N,3] y) { y = Relu(x) }")._sess._specialized is None
    assert session(SQUEEZE, native="0")._sess._specialized is None


def test_inner_values_can_still_be_fetched() -> None:
    quick = session(SQUEEZE)
    for _ in range(3):
        z, y = quick.run(["z", "y"], {"x": x(2, 3, 1)})
        assert quick.run(None, {"x": x(2, 3, 1)})[0].shape == z.shape == y.shape == (2, 3)


def test_threads_may_meet_while_a_plan_is_made() -> None:
    quick, plain = session(SQUEEZE), session(SQUEEZE, native="0")
    failures: list[Exception] = []

    def repeat(size: int) -> None:
        try:
            for _ in range(20):
                agree(quick, plain, {"x": x(2, 3, size)})
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=repeat, args=(size,)) for size in (1, 1, 2, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
