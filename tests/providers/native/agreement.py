"""How tests of generated code compare it: the same model through the native and the NumPy provider, with any number of threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx.parser
import pytest

from sardonyx import formats, ops
from sardonyx.errors import CODED
from sardonyx.ir import Model
from sardonyx.optimizer.pipeline import Level, optimize
from sardonyx.providers.cpu.provider import CPUExecutionProvider, evaluate
from sardonyx.providers.native.execution.compiled import CompiledProgram
from sardonyx.providers.native.program import budgets
from sardonyx.providers.native.provider import NativeExecutionProvider
from sardonyx.runtime.execution.executor import execute
from sardonyx.runtime.preparation.plan import Plan, make_plan
from sardonyx.startup.records import replace
from tests.tolerance import NATIVE


def change_budgets(monkeypatch: pytest.MonkeyPatch, **changed: int) -> None:
    """Let kernels believe in other caches than there are."""
    unchanged = budgets.of
    monkeypatch.setattr(budgets, "of", lambda caches: replace(unchanged(caches), **changed))


def model_of(source: str | bytes | Any, opset: int = 21) -> Model:
    """A typed model from ONNX text (a bare graph gets opset imports), bytes or a ModelProto."""
    if isinstance(source, str) and not source.lstrip().startswith("<"):
        source = f'<ir_version: 10, opset_import: ["" : {opset}, "com.microsoft" : 1, "ai.onnx.ml" : 5]>' + source
    if isinstance(source, str):
        source = onnx.parser.parse_model(source)
    model = formats.load(source)
    ops.infer(model, evaluate)
    return model


def native_plan(
    source: Any, *, threads: int = 1, opset: int = 21, level: int = 0, options: Mapping[str, str] | None = None
) -> Plan:
    model = model_of(source, opset)
    if level:
        optimize(model, Level(level), evaluate=evaluate, disabled=["CastFloat16Transformer"])  # float16 kernels are meant
    return make_plan(model.graph, [NativeExecutionProvider(options, threads), CPUExecutionProvider()])


def programs(plan: Plan) -> list[CompiledProgram]:
    return [step.call for step in plan.steps if isinstance(step.call, CompiledProgram)]


def without_fallback(plan: Plan) -> None:
    """Let runs that native code leaves to NumPy fail."""

    def refuse(inputs: Any) -> Any:
        raise AssertionError("left to NumPy")

    for program in programs(plan):
        program._fallback = refuse


def native_pair(text: str, threads: int = 1) -> tuple[Plan, Plan]:
    """A plan of one program whose runs may not go to NumPy, and NumPy's."""
    plan = native_plan(text, threads=threads)
    assert len(plan.steps) == len(programs(plan)) == 1
    without_fallback(plan)
    return plan, make_plan(model_of(text).graph, [CPUExecutionProvider()])


def assert_agrees_or_refuses(plan: Plan, reference: Plan, feeds: Mapping[str, np.ndarray]) -> bool:
    """Check that a plan computes what another does, or refuses what that refuses; whether it computes."""
    try:
        wanted = execute(reference, feeds)
    except CODED:
        with pytest.raises(CODED):
            execute(plan, feeds)
        return False
    compare(execute(plan, feeds), wanted)
    return True


def assert_agrees(
    source: Any,
    feeds: Mapping[str, np.ndarray] | Sequence[Mapping[str, np.ndarray]],
    *,
    opset: int = 21,
    tolerance: float | None = None,
    all_native: bool = True,
    steps: int | None = None,
    level: int = 0,
    options: Mapping[str, str] | None = None,
) -> None:
    """Check that native code and NumPy compute the same on each set of feeds, with one thread and with two.

    `all_native` asks that nothing is left to NumPy, `steps` that so many kernels run.
    """
    sets = [feeds] if isinstance(feeds, Mapping) else feeds
    reference = make_plan(model_of(source, opset).graph, [CPUExecutionProvider()])
    for threads in (1, 2):
        plan = native_plan(source, threads=threads, opset=opset, level=level, options=options)
        found = programs(plan)
        assert found, "nothing was compiled"
        if all_native:
            left = [step.node.op_type for step in plan.steps if not isinstance(step.call, CompiledProgram)]
            assert not left, f"left to NumPy: {left}"
        if steps is not None:
            assert sum(len(program.program.steps) for program in found) == steps
        for given in sets:
            compare(execute(plan, given), execute(reference, given), tolerance)


def compare(got: Sequence[Any], wanted: Sequence[Any], tolerance: float | None = None) -> None:
    for mine, his in zip(got, wanted, strict=True):
        assert mine.dtype == his.dtype and mine.shape == his.shape, f"{mine.dtype}{mine.shape} for {his.dtype}{his.shape}"
        bound = NATIVE.get(str(his.dtype), 0.0) if tolerance is None else tolerance
        if not bound:
            np.testing.assert_array_equal(mine, his)
            continue
        a, b = np.asarray(mine, np.float64), np.asarray(his, np.float64)
        scale = np.abs(b[np.isfinite(b)]).max(initial=0)
        np.testing.assert_allclose(a, b, rtol=bound, atol=bound * scale)
