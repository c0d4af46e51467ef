"""How tests of quantized graphs compare results: whole numbers of the full range in, at most one step apart out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sardonyx.dtypes import INTS, bool_
from sardonyx.ir import Graph, TensorType, dim, verify
from sardonyx.optimizer.pipeline import Pass
from sardonyx.optimizer.rewrite import Journal, Rule, apply_rules
from sardonyx.optimizer.rewriting import Rewriting
from sardonyx.providers.cpu.provider import evaluate
from tests.optimizer.rewriting import SIZES, assert_described, run, typed

PARAMETERS = (
    "float s = {0.05}, uint8 z = {120}, float s2 = {0.02}, uint8 z2 = {3}, float s3 = {0.11}, uint8 z3 = {100},"
    " int8 i = {-3}, int8 i2 = {5}"
)
"""Scales and zero points that the graphs of tests use."""


def full_range_feeds(graph: Graph, seed: int = 0) -> dict[str, np.ndarray]:
    """Seeded values for all inputs: whole numbers over all of their type, floats around zero."""
    rng = np.random.default_rng(seed)
    feeds = {}
    for value in graph.inputs:
        assert isinstance(value.type, TensorType) and value.type.dtype is not None and value.type.shape is not None
        shape = [dim.evaluate(size, SIZES) for size in value.type.shape]
        dtype = value.type.dtype
        if dtype is bool_:
            feeds[value.name] = rng.integers(0, 2, shape).astype(bool)
        elif dtype in INTS and dtype.bits <= 16:
            limits = np.iinfo(dtype.numpy)
            feeds[value.name] = rng.integers(limits.min, limits.max + 1, shape).astype(dtype.numpy)
        elif dtype in INTS:
            feeds[value.name] = rng.integers(0, 2, shape).astype(dtype.numpy)
        else:
            feeds[value.name] = (rng.standard_normal(shape) * 3).astype(dtype.numpy)
    return feeds


def assert_quantizes(
    what: Rule | Sequence[Rule] | Pass,
    before: str,
    after: str | None,
    *,
    opset: int = 21,
    steps: int = 1,
    rtol: float = 1e-5,
    options: dict[str, str] | None = None,
) -> Journal:
    """Check what becomes of a graph (None: it stays), and that whole results are at most `steps` apart, real ones close."""
    model = typed(before, opset)
    expected = typed(before if after is None else after, opset)
    feeds = full_range_feeds(model.graph)
    want = run(model, feeds)
    journal = Journal(strict=True)
    if callable(what) and not isinstance(what, Rule):
        what(model.graph, Rewriting(model, evaluate, options or {}, journal))
    else:
        apply_rules(model, [what] if isinstance(what, Rule) else what, evaluate=evaluate, journal=journal)
    verify.verify(model)
    assert_described(model.graph, expected.graph)
    for got, wanted in zip(run(model, feeds), want, strict=True):
        assert_close(got, wanted, steps, rtol)
    return journal


def assert_close(got: np.ndarray, wanted: np.ndarray, steps: int = 1, rtol: float = 1e-5) -> None:
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    if got.dtype.kind in "iu":
        difference = np.abs(got.astype(np.int64) - wanted.astype(np.int64))
        assert difference.max(initial=0) <= steps
        assert np.unique(wanted).size > 2 or wanted.size < 8, "the example is saturated"
    else:
        np.testing.assert_allclose(got, wanted, rtol=rtol, atol=rtol * np.abs(wanted).max(initial=0))
