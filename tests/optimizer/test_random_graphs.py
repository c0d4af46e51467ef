"""Random graphs compute the same at every level of optimization as without any."""

from __future__ import annotations

import os

import numpy as np
import pytest

from sardonyx.errors import Fail
from sardonyx.formats.onnx.writer import write_model
from sardonyx.ir import Model, TensorType, dim, verify
from sardonyx.ir.text import to_text
from sardonyx.optimizer import pipeline
from sardonyx.optimizer.pipeline import Level, optimize, run_level
from sardonyx.optimizer.rewrite import Journal
from sardonyx.optimizer.rewriting import Rewriting
from sardonyx.providers.cpu.provider import CPUExecutionProvider, evaluate
from sardonyx.runtime.execution.executor import execute
from sardonyx.runtime.preparation.plan import make_plan
from tests.optimizer.random_graphs import random_model
from tests.tolerance import OPTIMIZED

CASES = int(os.environ.get("SARDONYX_RANDOM_GRAPHS", "1500"))
BATCH = 50
SIZES = ({"N": 2, "S": 5}, {"N": 1, "S": 1}, {"N": 0, "S": 3})
LEVELS = (Level.BASIC, Level.EXTENDED, Level.LAYOUT, Level.ALL)


@pytest.mark.parametrize("batch", range(CASES // BATCH))
def test_random_graphs_compute_the_same_at_every_level(batch):
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        check(seed)


@pytest.mark.parametrize("batch", range(4))
def test_optimized_graphs_run_in_onnxruntime(batch):
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        model = random_model(seed)
        feeds = random_feeds(model, SIZES[0], seed)
        expected = in_onnxruntime(model, feeds)
        optimize(model, Level.ALL, evaluate=evaluate, journal=Journal(strict=True))
        if expected is not None:
            compare(in_onnxruntime(model, feeds), expected, f"seed {seed}")


def test_rules_tried_around_edits_alone_do_what_those_do_that_are_tried_everywhere(monkeypatch):
    for seed in range(200):
        around, everywhere = random_model(seed), random_model(seed)
        journals = [optimize(around, Level.ALL, evaluate=evaluate)]
        with monkeypatch.context() as patch:
            patch.setattr(pipeline, "_near", lambda rules, rewriting, edits: None)
            journals.append(optimize(everywhere, Level.ALL, evaluate=evaluate))
        assert summary(around) == summary(everywhere), f"seed {seed}"
        applied = [sorted(event.rule for event in journal.applied()) for journal in journals]
        assert applied[0] == applied[1], f"seed {seed}"


def summary(model: Model) -> list[tuple[str, int]]:
    return [(node.op_type, len(node.inputs)) for node in model.graph.all_nodes()]


def in_onnxruntime(model: Model, feeds: dict[str, np.ndarray]) -> list[np.ndarray] | None:
    """What onnxruntime computes without optimizing anything itself; None where it lacks a kernel."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(
            write_model(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return session.run(None, {value.name: feeds[value.name] for value in session.get_inputs()})
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        return None


@pytest.mark.parametrize("block", ["8", "16"])
def test_blocks_of_channels_do_not_change_results(block):
    options = {"sardonyx.nchwc_transformer": "1", "sardonyx.nhwc_transformer": "1", "sardonyx.nchwc_block_size": block}
    journals = [check(seed, options) for seed in range(120)]
    assert any(event.rule == "NchwcTransformer" for journal in journals for event in journal.events)


def check(seed: int, options: dict[str, str] | None = None) -> Journal:
    model = random_model(seed)
    verify.verify(model)
    feeds = [random_feeds(model, sizes, seed) for sizes in SIZES]
    expected = outputs(model, feeds)
    rewriting = Rewriting(model, evaluate, options or {}, Journal(strict=True))
    text = to_text(model)
    for level in LEVELS:
        run_level(level, rewriting)
        before, text = text, to_text(model)
        if text == before:
            continue  # it computes what it did
        verify.verify(model)
        for got, wanted in zip(outputs(model, feeds), expected, strict=True):
            if wanted is not None:
                compare(got, wanted, f"seed {seed}, level {level.name}")
    return rewriting.journal


def random_feeds(model: Model, sizes: dict[str, int], seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    feeds = {}
    for value in model.graph.inputs:
        assert isinstance(value.type, TensorType) and value.type.shape is not None and value.type.dtype is not None
        shape = [dim.evaluate(size, sizes) for size in value.type.shape]
        feeds[value.name] = rng.standard_normal(shape).astype(value.type.dtype.numpy)
    return feeds


def outputs(model: Model, feeds: list[dict[str, np.ndarray]]) -> list[list[np.ndarray] | None]:
    """What a model computes from each of some feeds; None where it refuses such sizes."""
    plan = make_plan(model.graph, [CPUExecutionProvider()])
    results: list[list[np.ndarray] | None] = []
    for feed in feeds:
        try:
            results.append(execute(plan, dict(feed)))
        except Fail:
            results.append(None)
    return results


def compare(got: list[np.ndarray] | None, expected: list[np.ndarray], where: str) -> None:
    assert got is not None, f"{where}: it does not run any more"
    for one, other in zip(got, expected, strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype, where
        wide, wanted = one.astype(np.float64), other.astype(np.float64)
        scale = np.abs(wanted[np.isfinite(wanted)]).max(initial=1.0)
        tolerance = OPTIMIZED.get(one.dtype.name, 0)
        np.testing.assert_allclose(wide, wanted, rtol=tolerance, atol=tolerance * scale, err_msg=where)
