"""Resize with a region of the image in view, composed of other ops: its tables are NumPy's, and what lies outside is one number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sardonyx.errors import KernelError
from sardonyx.ir import Node, Value
from sardonyx.ops.reading import operand, word
from sardonyx.providers.cpu.resize import COORDINATES, ResizedAxis, nearest_pixels, plan_axes, stencil
from sardonyx.providers.native.program.composition import Composer, compose
from sardonyx.providers.native.program.values import dims, element_of, rank_of, required
from sardonyx.providers.provider import CannotCompile

CROPPING = "tf_crop_and_resize"
LONGEST = 1 << 16
"""Of an axis whose table is made before runs."""


def _crops_floats(node: Node) -> bool:
    type = element_of(required(node.inputs[0]))
    return word(node, "coordinate_transformation_mode", "half_pixel") == CROPPING and type is not None and type.is_float


@compose("Resize", since=11, claims=_crops_floats, widen=True)
def resize(op: Composer, X: Value, mode: str, node: Node) -> Value:
    """Axis by axis, those first that leave least to do for the others."""
    steps = [step for step in _plan(node) if step.changes]
    transform: Callable[..., np.ndarray] = COORDINATES[CROPPING]
    places = {step.axis: transform(step, np.arange(step.resized, dtype=np.float32)) for step in steps}
    made = X
    for step in sorted(steps, key=lambda step: step.resized / max(1, step.length)):
        made = _along(op, made, node, mode, step, places[step.axis])
    for step in steps:
        outside = (places[step.axis] < 0) | (places[step.axis] > step.length - 1)
        shape = [-1 if axis == step.axis else 1 for axis in range(rank_of(X))]
        value = op.number(operand(node, "extrapolation_value"), X)
        made = op.Where(op.constant(outside.reshape(shape)), value, made)
    return made


def _plan(node: Node) -> Sequence[ResizedAxis]:
    shape = dims(required(node.inputs[0]))
    given: dict[str, Any] = {name: operand(node, name) for name in ("roi", "scales", "sizes", "axes")}
    is_computed = any(value is not None and not value.is_constant for value in node.inputs[1:])
    if is_computed or not all(isinstance(size, int) for size in shape):
        raise CannotCompile("which region is in view, or how large, depends on data", quiet=True)
    roi, scales = (None if given[name] is None else np.asarray(given[name], np.float32) for name in ("roi", "scales"))
    policy = word(node, "keep_aspect_ratio_policy", "stretch")
    try:
        plan: Sequence[ResizedAxis] = plan_axes(shape, roi, scales, given["sizes"], given["axes"], policy)  # type: ignore[no-untyped-call]
    except KernelError as error:
        raise CannotCompile(str(error), quiet=True) from error
    if not all(step.length > 0 and 0 <= step.resized <= LONGEST for step in plan):
        raise CannotCompile("an axis is empty or very long", quiet=True)
    return plan


def _along(op: Composer, image: Value, node: Node, mode: str, step: ResizedAxis, places: np.ndarray) -> Value:
    """One axis: the sum of its taps, each a choice of pixels times their weights."""
    if mode == "nearest":
        rounding = word(node, "nearest_mode", "round_prefer_floor")
        pixels = nearest_pixels(places, step.length, rounding)  # type: ignore[no-untyped-call]
        made: Value = op.Gather(image, op.constant(pixels.astype(np.int64)), axis=step.axis)
        return made
    names = ("antialias", "exclude_outside", "cubic_coeff_a")
    pixels, weights = stencil(step, places, mode, *(operand(node, name) for name in names))  # type: ignore[no-untyped-call]
    shape = [-1 if axis == step.axis else 1 for axis in range(rank_of(image))]
    total: Value | None = None
    for tap in range(pixels.shape[1]):
        part = op.Gather(image, op.constant(pixels[:, tap].astype(np.int64)), axis=step.axis)
        part = op.Mul(part, op.cast(op.constant(weights[:, tap].reshape(shape)), image))
        total = part if total is None else op.Add(total, part)
    assert total is not None
    return total
