"""Tensors take the place of what reads them out of sequences and optional values, where they are known before the first run."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import sardonyx
from sardonyx.optimizer.passes.sequences import resolve_sequences
from sardonyx.optimizer.rewriting import Rewriting
from sardonyx.providers.cpu.provider import evaluate
from tests.optimizer.rewriting import assert_rewrites
from tests.providers.native.agreement import compare, model_of

HEAD = (
    "g (float[2,3] x, float[2,3] y) => ({result} r) <int64 one = {{1}}, int64 last = {{-1}}, int64 far = {{7}}> {{ {nodes} }}"
)


def text(nodes: str, result: str = "float[A,B]") -> str:
    return HEAD.format(nodes=nodes, result=result)


@pytest.mark.parametrize(
    ("nodes", "kept"),
    [
        ("s = SequenceConstruct(x, y) r0 = SequenceAt(s, last) r = Neg(r0)", {"Neg"}),
        ("s = SequenceConstruct(x, y) t = SequenceInsert(s, y, one) r = ConcatFromSequence<axis=0>(t)", {"Concat"}),
        (
            "s = SequenceEmpty() t = SequenceInsert(s, y) u = SequenceInsert(t, x) r = ConcatFromSequence<axis=-1>(u)",
            {"Concat"},
        ),
        (
            "s = SequenceConstruct(x, y, x) t = SequenceErase(s) u = SequenceErase(t, one) r0 = SequenceAt(u, last) r = Neg(r0)",
            {"Neg"},
        ),
        ("s = SplitToSequence<axis=1>(x) r0 = SequenceAt(s, one) r = Neg(r0)", {"Split", "Slice", "Neg"}),
        ("o = Optional(x) r0 = OptionalGetElement(o) r = Neg(r0)", {"Neg"}),
    ],
)
def test_nothing_of_a_known_sequence_is_left(nodes: str, kept: set[str]) -> None:
    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 21]> ' + text(nodes)).SerializeToString()
    plain, options = sardonyx.SessionOptions(), sardonyx.SessionOptions()
    plain.graph_optimization_level = sardonyx.GraphOptimizationLevel.ORT_DISABLE_ALL
    for one in (plain, options):
        one.add_session_config_entry("sardonyx.remember", "off")
    session = sardonyx.InferenceSession(model, options)
    assert {node.op_type for node in session._engine.plan.graph.nodes} <= kept
    feeds = {name: np.random.default_rng(seed).standard_normal((2, 3)).astype(np.float32) for seed, name in enumerate("xy")}
    compare(session.run(None, feeds), sardonyx.InferenceSession(model, plain).run(None, feeds))


def test_lengths_and_presence_are_constants() -> None:
    assert_rewrites(
        resolve_sequences,
        text("s = SequenceConstruct(x, y, x) n = SequenceLength(s) r = Add(n, one)", "int64"),
        "g (float[2,3] x, float[2,3] y) => (int64 r) <int64 one = {1}, int64 last = {-1}, int64 far = {7}, int64 n = {3}> {"
        " s = SequenceConstruct(x, y, x) r = Add(n, one) }",
    )


@pytest.mark.parametrize(
    "nodes",
    [
        "s = SequenceConstruct(x, y) r = SequenceAt(s, far)",
        "s = SequenceConstruct(x, y) t = SequenceErase(s, far) r = SequenceAt(t, one)",
        "s = SequenceEmpty() r = ConcatFromSequence<axis=0>(s)",
        "s = SplitToSequence<axis=1>(x, far2) r = SequenceAt(s, one)",
        "z = Transpose(y) s = SequenceConstruct(x, z) r = ConcatFromSequence<axis=0>(s)",
    ],
)
def test_what_fails_in_the_run_stays(nodes: str) -> None:
    model = text(nodes).replace("int64 far = {7}", "int64 far = {7}, int64[2] far2 = {1, 2}")
    if "far2" in nodes:
        model = model.replace("float[2,3] x", "float[2,N] x")
    typed = model_of(model)
    before = [node.op_type for node in typed.graph.nodes]
    assert not resolve_sequences(typed.graph, Rewriting(typed, evaluate))
    assert [node.op_type for node in typed.graph.nodes] == before
