"""A difference from onnxruntime is a finding where nobody else agrees with us, and none where somebody does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx.parser
import pytest

from sardonyx.providers.cpu.table import cpu
from sardonyx.startup.records import replace
from tests.attack.kinds import graphs
from tests.attack.opinions import node_model, peer_opinion
from tests.attack.reference import SAMPLES, Expectation, Reference
from tests.attack.subject import Problem, Subject
from tests.attack.test_differences import HEADER, NAN_FIRST

FAR = np.array([-17, -12], np.float32)
OWN: dict[str, tuple[str, dict[str, Any]]] = {
    "integers reduced in double": (
        "(int64[2] x) => (int64 y) { y = ReduceSum<keepdims = 0>(x) }",
        {"x": np.array([2**62, 1])},
    ),
    "NaN passed over": ("(float[3] x) => (float[3] y) { y = Hardmax(x) }", {"x": NAN_FIRST}),
    "a sigmoid rounded at 1": (
        "(float[2] x) => (float[2] z) { n = Neg(x) m = Neg(n) y = Sigmoid(m) z = Log(y) }",
        {"x": FAR},
    ),
    "an output quantized because it is transposed later": (
        """(float[1,2] x) => (float[1,2] v, float[2,1] y) <float s = {0.05}, int8 z = {0}>
        { v = Neg(x) t = Transpose(v) q = QuantizeLinear(t, s, z) y = DequantizeLinear(q, s, z) }""",
        {"x": np.array([[0.03, 0.07]], np.float32)},
    ),
    "words of a body": (
        """(float[3] x) => (float[3] y) { n = Constant<value = int64 {1}>() on = Constant<value = bool {1}>()
        y = Loop(n, on, x) <body = b (int64 i, bool k, float[3] s) => (bool l, float[3] t) { l = Identity(k) t = Hardmax(s) }> }""",
        {"x": NAN_FIRST},
    ),
}


def subject_of(text: str, feeds: dict[str, Any]) -> Subject:
    return Subject(onnx.parser.parse_model(HEADER + text), feeds)


@pytest.mark.parametrize("fault", OWN)
def test_faults_of_onnxruntimes_own_are_no_findings_though_nobody_declared_them(fault: str) -> None:
    subject = subject_of(*OWN[fault])
    expectation = Expectation(Reference(subject.model), subject.feeds)
    theirs = peer_opinion(subject.model, subject.feeds)
    assert theirs is not None
    with pytest.raises(Problem):
        expectation.check(theirs, "onnxruntime")
    graphs.judge_with_peer(subject, expectation)


BROKEN: dict[str, tuple[Callable[..., Any], str, dict[str, Any]]] = {
    "Softsign": (
        lambda kernel: lambda *args, **more: kernel(*args, **more) * np.float32(1.001),
        "(float[2] x) => (float[2] z) { y = Softsign(x) z = Exp(y) }",
        {"x": FAR},
    ),
    "ReduceSum": (
        lambda kernel: lambda *args, **more: kernel(*args, **more) + 1,
        "(int64[2] x) => (int64 z) { y = ReduceSum<keepdims = 0>(x) z = Neg(y) }",
        {"x": np.array([2**40, 1])},
    ),
    "Hardmax": (
        lambda kernel: lambda *args, **more: kernel(*args, **more)[..., ::-1],
        "(float[3] x) => (float[3] y) { y = Hardmax(x) }",
        {"x": np.array([3, 1, 2], np.float32)},
    ),
    "Gelu": (  # of the contrib domain, of which the onnx package knows nothing
        lambda kernel: lambda *args, **more: kernel(*args, **more) * np.float32(1.001),
        "(float[2] x) => (float[2] y) { y = com.microsoft.Gelu(x) }",
        {"x": -FAR},
    ),
}


@pytest.mark.parametrize("op", BROKEN)
def test_faults_of_ours_are_findings_by_their_node(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spoiled, text, feeds = BROKEN[op]
    subject = subject_of(text, feeds)
    graphs.judge(subject)
    find = cpu.find

    def found(signature: Any, types: Any) -> Any:
        kernel = find(signature, types)
        if kernel is None or signature.name != op:
            return kernel
        return replace(kernel, function=spoiled(kernel.function), joint={})

    monkeypatch.setattr(cpu, "find", found)
    expectation = Expectation(Reference(subject.model), subject.feeds)
    with pytest.raises(Problem, match=f"onnxruntime: .* elements differ.*; {op} alone differs"):
        graphs.judge_with_peer(subject, expectation)


def test_a_node_is_told_the_sizes_of_what_it_is_fed() -> None:
    """onnxruntime compares attributes with them before it runs."""
    model = onnx.parser.parse_model(
        f"""{HEADER} (float[1,16] x, uint8[8,1,16] b, float[8] s, float[8] bias) => (float[1,8] y)
        {{ y = com.microsoft.MatMulNBits<K = 16, N = 8, bits = 8, block_size = 16>(x, b, s, "", "", bias) }}"""
    )
    numbers = np.random.default_rng(0)
    given = {
        "x": numbers.standard_normal((1, 16)).astype(np.float32),
        "b": numbers.integers(0, 256, (8, 1, 16)).astype(np.uint8),
        "s": np.ones(8, np.float32),
        "bias": np.ones(8, np.float32),
    }
    (y,) = peer_opinion(node_model(model, model.graph.node[0], given), given) or [None]
    np.testing.assert_allclose(y, given["x"] @ (given["b"][:, 0].T - 128.0) + 1, rtol=1e-4)


@pytest.mark.parametrize(("result", "is_right"), [(1, True), (0.5, True), (-0.01, False), (2.5, False), (np.nan, False)])
def test_nobody_is_wrong_who_is_as_near_to_double_precision_as_the_nodes(result: float, is_right: bool) -> None:
    """Single precision leaves nothing of 1 beside 2^25; what noise says of that is left out here."""
    model = onnx.parser.parse_model(f"{HEADER} (float x, float big) => (float z) {{ y = Add(x, big) z = Sub(y, big) }}")
    expectation = Expectation(Reference(model), {"x": np.array(1, np.float32), "big": np.array(2**25, np.float32)})
    assert expectation.values["z"] == 0
    expectation.samples = [expectation.values] * (len(SAMPLES) + 1)
    with contextlib.nullcontext() if is_right else pytest.raises(Problem):
        expectation.check([np.float32(result)], "a sum")


def test_an_integer_may_fall_to_where_double_precision_has_it() -> None:
    model = onnx.parser.parse_model(
        f"{HEADER} (float x, float big) => (int64 n) {{ y = Add(x, big) z = Sub(y, big) n = Cast<to = 7>(z) }}"
    )
    expectation = Expectation(Reference(model), {"x": np.array(1, np.float32), "big": np.array(2**25, np.float32)})
    expectation.samples = [expectation.values] * (len(SAMPLES) + 1)
    expectation.check([np.int64(1)], "a sum of doubles")
    with pytest.raises(Problem):
        expectation.check([np.int64(2)], "a wrong sum")
