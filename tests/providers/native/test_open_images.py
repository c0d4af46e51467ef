"""Images whose channels, sizes or blocks only a run tells: Resize and Col2Im; and SwiGLU, whose operands may be of one shape."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from sardonyx.runtime.execution.executor import execute
from tests.providers.native.agreement import assert_agrees_or_refuses, compare, native_pair, native_plan
from tests.tolerance import NATIVE

TYPES = {"float": np.float32, "double": np.float64, "float16": np.float16}
SIZES = [(7, 9), (1, 1), (23, 5), (4, 40), (8, 6)]


def numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(dtype)


@pytest.mark.parametrize("target", ["sizes", "scales"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric"])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_smooth_images_of_any_size(mode: str, coordinates: str, target: str) -> None:
    """Weights are sums of float32 numbers, for double images too, and NumPy adds them in another order."""
    values = "int64[4] s = {2,3,4,6}" if target == "sizes" else "float[4] s = {1.0,1.0,0.375,1.5}"
    for element, dtype in TYPES.items():
        attributes = f'antialias=1, mode="{mode}", coordinate_transformation_mode="{coordinates}"'
        operands = "(x, , , s)" if target == "sizes" else "(x, , s)"
        text = f"g ({element}[N,C,H,W] x) => (y) <{values}> {{ y = Resize<{attributes}>{operands} }}"
        plan, reference = native_pair(text, threads=2)
        for height, width in SIZES:
            if target == "sizes" or (height > 2):
                feeds = {"x": numbers(2, 3, height, width, dtype=dtype)}
                compare(execute(plan, feeds), execute(reference, feeds), max(2e-6, NATIVE[np.dtype(dtype).name]))


def test_smooth_images_without_what_lies_outside() -> None:
    text = """g (float[N,C,H,W] x) => (y) <int64[2] s = {3,4}>
        { y = Resize<antialias=1, mode="cubic", exclude_outside=1, axes=[2,3]>(x, , , s) }"""
    plan, reference = native_pair(text)
    for height, width in SIZES:
        feeds = {"x": numbers(1, 2, height, width)}
        compare(execute(plan, feeds), execute(reference, feeds), 1e-5)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_a_model_that_tells_all_sizes_takes_images_of_any_size(mode: str) -> None:
    text = f"""g (float[N,C,H,W] x) => (y) <int64[4] s = {{2,3,8,6}}>
        {{ n = Neg(x) y = Resize<mode="{mode}">(n, , , s) }}"""
    plan, reference = native_pair(text)
    for height, width in SIZES:
        feeds = {"x": numbers(2, 3, height, width)}
        compare(execute(plan, feeds), execute(reference, feeds))
    other = {"x": numbers(1, 3, 5, 5)}
    assert assert_agrees_or_refuses(native_plan(text), reference, other)  # more images: rare, and NumPy's


def test_blocks_of_open_channels() -> None:
    text = """g (float[N,K,L] x) => (y) <int64[2] i = {5,6}, int64[2] b = {2,3}>
        { y = Col2Im<strides=[1,2], pads=[1,0,1,0], dilations=[2,1]>(x, i, b) }"""
    plan, reference = native_pair(text)
    for batch, channels in itertools.product((1, 3), (1, 2, 9, 40)):
        feeds = {"x": numbers(batch, channels * 6, 10)}
        compare(execute(plan, feeds), execute(reference, feeds))
    for wrong in ((1, 7, 10), (1, 6, 9)):
        assert not assert_agrees_or_refuses(native_plan(text), reference, {"x": numbers(*wrong)})


def test_gates_that_are_as_large_as_what_they_gate() -> None:
    text = '<ir_version: 12, opset_import: ["": 28]> g (float[A,B] x, float[C,D] z) => (y) { n = Exp(x) y = SwiGLU<alpha=0.5>(n, z) }'
    plan, reference = native_pair(text)
    for shape in ((1, 1), (3, 40), (0, 4)):
        feeds = {"x": numbers(*shape), "z": numbers(*shape)}
        compare(execute(plan, feeds), execute(reference, feeds))
    for wrong in ((1, 4), (3, 1), (3, 5)):
        feeds = {"x": numbers(3, 4), "z": numbers(*wrong)}
        assert not assert_agrees_or_refuses(native_plan(text), reference, feeds)
