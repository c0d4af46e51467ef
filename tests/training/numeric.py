"""Gradients against differences: `check` compares what the Gradient op gives with central differences in float64."""

from __future__ import annotations

import numpy as np

from sardonyx.ir.text import parse_model
from sardonyx.providers.cpu.provider import CPUExecutionProvider
from sardonyx.runtime.execution.executor import execute
from sardonyx.runtime.preparation.plan import Plan
from tests.runtime.models import plan_of

STEP = 1e-6


def planned(body: str, inputs: str, outputs: str, constants: str = "", opset: int = 21) -> Plan:
    text = f"""
        <ir_version: 10, opset_import: ["" : {opset}, "com.microsoft" : 1, "ai.onnx.preview.training" : 1]>
        g ({inputs}) => ({outputs}) <{constants}> {{ {body} }}
    """
    return plan_of(parse_model(text), [CPUExecutionProvider()])


def declared(arrays: dict[str, np.ndarray], suffix: str = "") -> str:
    sizes = {name: f"[{','.join(map(str, array.shape))}]" if array.ndim else "" for name, array in arrays.items()}
    return ", ".join(f"double{size} {name}{suffix}" for name, size in sizes.items())


def check(body: str, arrays: dict[str, np.ndarray], constants: str = "", opset: int = 21) -> None:
    """Compare the gradients of a weighted sum of `y` by all arrays with differences along random directions."""
    rng = np.random.default_rng(7)
    forward = planned(body, declared(arrays), "double[] y", constants, opset)
    (y,) = execute(forward, arrays)
    weights = rng.normal(size=y.shape)
    names = ", ".join(f'"{name}"' for name in arrays)
    outputs = ", ".join(f"{name}_gradient" for name in arrays)
    weighted = f"{body} weighted = Mul(y, weights) loss = ReduceSum<keepdims = 0>(weighted)"
    gradient = f'{outputs} = ai.onnx.preview.training.Gradient<xs = [{names}], y = "loss">({", ".join(arrays)})'
    inputs = f"{declared(arrays)}, {declared({'weights': weights})}"
    backward = planned(f"{weighted} {gradient}", inputs, declared(arrays, "_gradient"), constants, opset)
    found = execute(backward, {**arrays, "weights": weights})
    for name, part in zip(arrays, found, strict=True):
        assert part.shape == arrays[name].shape
        for _ in range(2):
            direction = rng.normal(size=part.shape)
            sides = [
                float((execute(forward, {**arrays, name: arrays[name] + sign * STEP * direction})[0] * weights).sum())
                for sign in (1, -1)
            ]
            expected = (sides[0] - sides[1]) / (2 * STEP)
            np.testing.assert_allclose((part * direction).sum(), expected, rtol=1e-5, atol=1e-6, err_msg=name)
