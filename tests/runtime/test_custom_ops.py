"""Custom operators: made from a signature and a NumPy function, known to one session or to all, wherever the op may stand."""

from __future__ import annotations

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx.parser
import pytest

import sardonyx
from sardonyx.dtypes import FLOATS, float32, int64
from sardonyx.errors import Fail, InvalidGraph

HEAD = '<ir_version: 10, opset_import: ["" : 21, "my.domain" : 1]>'
TEXT = f"{HEAD} g (float[N, 3] x) => (float[N, 3] y) {{ t = my.domain.Swish<alpha = 2.0>(x) y = Neg(t) }}"
X = np.array([[1, -2, 3]], np.float32)


@sardonyx.custom_op("my.domain::Swish", "(X: T, *, alpha: float = 1.0) -> (Y: T)", T=FLOATS, widen=True)
def swish(X, alpha):
    return X / (1 + np.exp(-alpha * X))


@swish.infer
def swish_shape(X):
    return X.shape


def session(text: str, *ops: sardonyx.CustomOp, **keywords) -> sardonyx.InferenceSession:
    options = sardonyx.SessionOptions()
    for op in ops:
        options.register_custom_op(op)
    return sardonyx.InferenceSession(onnx.parser.parse_model(text), options, **keywords)


def test_a_session_uses_its_custom_op():
    made = session(TEXT, swish)
    np.testing.assert_allclose(made.run(None, {"x": X})[0], -X / (1 + np.exp(-2 * X)), rtol=1e-6)
    np.testing.assert_allclose(made.run(["t"], {"x": X})[0], X / (1 + np.exp(-2 * X)), rtol=1e-6)


def test_other_sessions_do_not_know_it():
    session(TEXT, swish)
    with pytest.raises(Fail, match=r"my.domain:Swish\(1\) is not a registered function/op"):
        session(TEXT)


def test_it_is_still_a_function():
    np.testing.assert_allclose(swish(X, alpha=1.0), X / (1 + np.exp(-X)))
    assert swish.__name__ == "swish"


def test_two_sessions_may_mean_different_things_by_one_name():
    @sardonyx.custom_op("my.domain::Swish", "(X: T, *, alpha: float = 1.0) -> (Y: T)", T=FLOATS)
    def other(X, alpha):
        return X * alpha

    first, second = session(TEXT, swish), session(TEXT, other)
    np.testing.assert_allclose(second.run(None, {"x": X})[0], -2 * X)
    np.testing.assert_allclose(first.run(None, {"x": X})[0], -X / (1 + np.exp(-2 * X)), rtol=1e-6)


def test_narrow_types_are_computed_widely():
    text = TEXT.replace("float[", "float16[")
    (y,) = session(text, swish).run(None, {"x": X.astype(np.float16)})
    assert y.dtype == np.float16
    np.testing.assert_array_equal(y, (-X / (1 + np.exp(-2 * X))).astype(np.float16))


def test_types_that_the_signature_lacks_are_refused():
    with pytest.raises(InvalidGraph, match=r"Type 'tensor\(int64\)' of input parameter \(x\) of operator \(Swish\)"):
        session(TEXT.replace("float[", "int64["), swish)


def test_attributes_have_defaults_and_are_checked():
    (y,) = session(TEXT.replace("<alpha = 2.0>", ""), swish).run(None, {"x": X})
    np.testing.assert_allclose(y, -X / (1 + np.exp(-X)), rtol=1e-6)
    with pytest.raises(InvalidGraph, match="Unrecognized attribute: beta for operator Swish"):
        session(TEXT.replace("alpha", "beta"), swish)


# --- where it stands

BRANCH = f"""{HEAD} g (bool c, float[2, 3] x) => (float[2, 3] y) {{
    y = If(c) <then_branch = t () => (float[2, 3] p) {{ p = my.domain.Swish(x) }},
               else_branch = e () => (float[2, 3] q) {{ q = Identity(x) }}>
}}"""
FUNCTION = """
    <ir_version: 10, opset_import: ["" : 21, "my.domain" : 1, "local" : 1]>
    g (float[2, 3] x) => (float[2, 3] y) { y = local.twice(x) }
    <domain: "local", opset_import: ["" : 21, "my.domain" : 1]>
    twice (a) => (c) { b = my.domain.Swish(a) c = my.domain.Swish(b) }
"""


@pytest.mark.parametrize(("text", "times", "feed"), [(BRANCH, 1, {"c": np.array(True)}), (FUNCTION, 2, {})])
def test_it_works_inside_subgraphs_and_functions(text, times, feed):
    x = expected = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    for _ in range(times):
        expected = expected / (1 + np.exp(-expected))
    np.testing.assert_allclose(session(text, swish).run(None, {"x": x, **feed})[0], expected, rtol=1e-5)


def test_shapes_are_inferred_if_it_says_how():
    @sardonyx.custom_op("my.domain::Halve", "(X: T) -> (Y: T, count: int64)", T={float32})
    def halve(X):
        return X[::2], np.int64(len(X) // 2)

    text = f"{HEAD} g (float[8, 3] x) => (y, n) {{ y, n = my.domain.Halve(x) }}"
    made = session(text, halve)
    assert [(one.type, one.shape) for one in made.get_outputs()] == [("tensor(float)", []), ("tensor(int64)", [])]
    halve.infer(lambda X: [(X.shape[0] // 2, *X.shape[1:]), ()])
    made = session(text, halve)
    assert [one.shape for one in made.get_outputs()] == [[4, 3], []]
    y, n = made.run(None, {"x": np.zeros((8, 3), np.float32)})
    assert y.shape == (4, 3) and n.dtype == np.int64 and n == 4


def test_optional_and_variadic_inputs_and_runtime_parameters():
    @sardonyx.custom_op("my.domain::Gather2", "(A: T, B: T?, *more: T, *, names: strings?) -> (*Y: T)", T={float32, int64})
    def gather(A, more, B=None, names=None, *, output_count):
        rows = [A, *([] if B is None else [B]), *more]
        return tuple(rows[:output_count])

    text = f"{HEAD} g (float[2] a, float[2] b) => (float[2] p, float[2] q) {{ p, q = my.domain.Gather2(a, , b) }}"
    p, q = session(text, gather).run(None, {"a": X[0, :2], "b": X[0, 1:]})
    np.testing.assert_array_equal(p, X[0, :2])
    np.testing.assert_array_equal(q, X[0, 1:])


# --- versions


def test_a_later_version_replaces_an_earlier_one():
    @sardonyx.custom_op("my.domain::Swish", "(X: T) -> (Y: T)", T=FLOATS, since=3)
    def third(X):
        return X * 3

    text = TEXT.replace("<alpha = 2.0>", "")
    for version, factor in ((1, X / (1 + np.exp(-X))), (2, X / (1 + np.exp(-X))), (3, X * 3), (7, X * 3)):
        made = session(text.replace('"my.domain" : 1', f'"my.domain" : {version}'), swish, third)
        np.testing.assert_allclose(made.run(None, {"x": X})[0], -factor, rtol=1e-6)


def test_one_version_cannot_be_registered_twice():
    @sardonyx.custom_op("my.domain::Swish", "(X: T) -> (Y: T)", T=FLOATS)
    def again(X):
        return X

    options = sardonyx.SessionOptions()
    options.register_custom_op(swish)
    options.register_custom_op(swish)
    with pytest.raises(ValueError, match="my.domain:Swish:1 is registered already"):
        options.register_custom_op(again)
    with pytest.raises(TypeError, match="is made with @sardonyx.custom_op"):
        options.register_custom_op(lambda X: X)


def test_ops_of_sardonyx_are_not_replaced():
    for name in ("::Relu", "ai.onnx.ml::Scaler", "com.microsoft::FusedConv"):

        @sardonyx.custom_op(name, "(X: T) -> (Y: T)", T=FLOATS)
        def mine(X):
            return X

        with pytest.raises(ValueError, match="is not a custom op, sardonyx has it"):
            sardonyx.SessionOptions().register_custom_op(mine)


# --- everybody's


def test_a_registered_op_is_known_to_all_sessions_until_it_is_withdrawn():
    sardonyx.register_custom_op(swish)
    try:
        np.testing.assert_allclose(session(TEXT).run(None, {"x": X})[0], -X / (1 + np.exp(-2 * X)), rtol=1e-6)
        assert session(TEXT).get_outputs()[0].shape == ["N", 3]
    finally:
        sardonyx.unregister_custom_op(swish)
    with pytest.raises(Fail, match="is not a registered function/op"):
        session(TEXT)


def test_a_sessions_own_op_comes_before_everybodys():
    @sardonyx.custom_op("my.domain::Swish", "(X: T, *, alpha: float = 1.0) -> (Y: T)", T=FLOATS)
    def own(X, alpha):
        return X

    sardonyx.register_custom_op(swish)
    try:
        np.testing.assert_allclose(session(TEXT, own).run(None, {"x": X})[0], -X)
    finally:
        sardonyx.unregister_custom_op(swish)


def test_sessions_with_different_ops_are_made_at_once():
    def op(factor: int) -> sardonyx.CustomOp:
        @sardonyx.custom_op("my.domain::Swish", "(X: T, *, alpha: float = 1.0) -> (Y: T)", T=FLOATS)
        def times(X, alpha):
            return X * factor

        return times

    start = threading.Barrier(8)

    def work(factor: int) -> bool:
        start.wait()
        made = session(TEXT, op(factor))
        return all(np.array_equal(made.run(None, {"x": X})[0], -factor * X) for _ in range(5))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(1, 9)))


def test_options_with_custom_ops_can_be_copied_and_sessions_pickled():
    options = sardonyx.SessionOptions()
    options.register_custom_op(swish)
    assert copy.copy(options)._custom_ops == [swish]
    assert pickle.loads(pickle.dumps(options))._custom_ops == [swish]
    made = pickle.loads(pickle.dumps(session(TEXT, swish)))
    np.testing.assert_allclose(made.run(None, {"x": X})[0], -X / (1 + np.exp(-2 * X)), rtol=1e-6)


def test_a_failure_names_the_node():
    @sardonyx.custom_op("my.domain::Swish", "(X: T, *, alpha: float = 1.0) -> (Y: T)", T=FLOATS)
    def fails(X, alpha):
        raise ValueError("no luck today")

    with pytest.raises(Fail, match="while running Swish node.*ValueError: no luck today"):
        session(TEXT, fails).run(None, {"x": X})


# --- bad signatures


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("", "(X: T) -> (Y: T)", "a custom op is named 'domain::Op', not ''"),
        ("my.domain::", "(X: T) -> (Y: T)", "a custom op is named 'domain::Op'"),
        ("my.domain::Two Words", "(X: T) -> (Y: T)", "a custom op is named 'domain::Op'"),
        ("d::Op", "X: T -> Y: T", r"a signature reads '\(inputs, \*, attributes\) -> \(outputs\)'"),
        ("d::Op", "(X T) -> (Y: T)", "not a parameter: 'X T'"),
        ("d::Op", "(X: U) -> (Y: T)", r"'U' is neither an element type nor a type constraint \(given: T\)"),
        ("d::Op", "(X: T, *, a: number) -> (Y: T)", "not an attribute: 'a: number'"),
        ("d::Op", "(X: T, *, a: int = 1.5) -> (Y: T)", "1.5 is no default for 'a', a int"),
        ("d::Op", "(X: T, *, a: int = what) -> (Y: T)", "d::Op"),
        ("d::Op", "(X: T) -> ()", "an op has at least one output"),
        ("d::Op", "(X: T, X: T) -> (Y: T)", "two operands are named 'X'"),
        ("d::Op", "(*X: T, Z: T) -> (Y: T)", "'X' is variadic and must be the last input"),
    ],
)
def test_bad_signatures_are_refused(name, text, reason):
    with pytest.raises(ValueError, match=reason):
        sardonyx.custom_op(name, text, T=FLOATS)


def test_a_constraint_must_list_types():
    with pytest.raises(ValueError, match="T allows 'f32', which is no type"):
        sardonyx.custom_op("d::Op", "(X: T) -> (Y: T)", T=["f32"])
    with pytest.raises(ValueError, match="versions begin at 1, since is 0"):
        sardonyx.custom_op("d::Op", "(X: T) -> (Y: T)", T=FLOATS, since=0)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda X: X, "the function takes no 'alpha', which the signature has"),
        (lambda X, alpha, beta: X, "the function wants 'beta', which the signature does not have"),
    ],
)
def test_the_function_takes_what_the_signature_has(function, reason):
    with pytest.raises(ValueError, match=reason):
        sardonyx.custom_op("d::Op", "(X: T, *, alpha: float = 1.0) -> (Y: T)", T=FLOATS)(function)


def test_what_may_be_absent_needs_a_default():
    with pytest.raises(ValueError, match="'mode' may be absent, give the function's parameter a default"):
        sardonyx.custom_op("d::Op", "(X: T, *, mode: string?) -> (Y: T)", T=FLOATS)(lambda X, mode: X)
