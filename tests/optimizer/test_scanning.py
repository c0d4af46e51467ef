"""Scans that compute distances become CDist; others stay."""

from __future__ import annotations

import pytest

from sardonyx.optimizer.passes.scanning import find_distances
from sardonyx.optimizer.pipeline import Level, optimize
from sardonyx.providers.cpu.provider import evaluate
from tests.optimizer.rewriting import assert_rewrites, typed

BODY = "{ s2 = Identity(s) t = Sub(%s) u = ReduceSumSquare<keepdims=0>(t, axes) d = Identity(u) }"
SCAN = """g (float[N,4] x, float[S,4] y) => (float[S,N] z) <int64[1] axes = {%s}> {
    kept, z = Scan(x, y)<num_scan_inputs=1%s, body = b (float[N,4] s, float[4] p) => (float[N,4] s2, float[N] d) %s> }"""
DISTANCES = """g (float[N,4] x, float[S,4] y) => (float[S,N] z) <int64[1] axes = {1}> {
    t = com.microsoft.CDist<metric="sqeuclidean">(x, y) z = Transpose<perm=[1, 0]>(t) }"""


@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize("operands", ["s, p", "p, s", "x, p"])
def test_squares_of_differences_are_distances(axis: int, operands: str) -> None:
    assert_rewrites(find_distances, SCAN % (axis, "", BODY % operands), DISTANCES, opset=18)


@pytest.mark.parametrize(
    ("way", "body"),
    [
        (", scan_input_directions=[1]", BODY % "s, p"),
        (", scan_output_directions=[1]", BODY % "s, p"),
        ("", BODY % "s, s"),
        ("", (BODY % "s, p").replace("s2 = Identity(s)", "s2 = Neg(s)")),
        ("", (BODY % "s, p").replace("ReduceSumSquare", "ReduceSum")),
    ],
)
def test_other_scans_stay(way: str, body: str) -> None:
    assert_rewrites(find_distances, SCAN % (1, way, body), None, opset=18)


def test_distances_are_found_among_all_other_rewrites() -> None:
    model = typed(SCAN % (1, "", BODY % "s, p"), opset=18)
    optimize(model, Level.ALL, evaluate=evaluate)
    assert [node.op_type for node in model.graph.nodes] == ["CDist", "Transpose"]
