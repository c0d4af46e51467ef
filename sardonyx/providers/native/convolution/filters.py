"""Filters in the order in which kernels of convolutions read them, packed by generated code: when a node is lowered, if they are constant.

A panel holds, for each tap and channel, as many filters side by side as a register tile is wide. Winograd's filters have points for taps.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sardonyx.compiler.builder import Value as Register
from sardonyx.compiler.jit import Kernel, jit
from sardonyx.compiler.pool import ARGUMENTS, GRAIN, KERNEL, STEP_WORDS, TOTAL, pool
from sardonyx.compiler.target import Target
from sardonyx.compiler.types import F64, I64, Type, of_elements
from sardonyx.dtypes import from_numpy
from sardonyx.ir import Value
from sardonyx.providers.native.convolution.tiles import grain_for
from sardonyx.providers.native.kernel import KernelFunction, kernel
from sardonyx.providers.native.lowering import Lowerer
from sardonyx.providers.native.program import Buffer
from sardonyx.providers.native.weights import aligned_empty


@dataclass(frozen=True)
class PanelForm:
    """What shapes the code."""

    source: Type
    target: Type
    width: int
    matrix: tuple[tuple[float, ...], ...] = ()
    """If filters are transformed along both axes: the rows of the matrix."""


def pack_panels(
    target: Target, weights: np.ndarray, groups: int, width: int, type: Type, matrix: np.ndarray | None = None
) -> np.ndarray:
    """(M, C, …) as (groups, panels, taps, C, width), or transformed as (points, panels, C, width); what is missing in a panel is 0."""
    weights = np.require(weights, requirements=["C", "A"])
    count, channels = weights.shape[0] // groups, weights.shape[1]
    taps = int(np.prod(weights.shape[2:]))
    panels = -(-count // width)
    points = taps if matrix is None else len(matrix) ** 2
    shape = (groups, panels, points, channels, width) if matrix is None else (points, panels, channels, width)
    packed = aligned_empty(shape, f"f{type.bytes}")
    tap_step = channels * width * (1 if matrix is None else panels)
    panel_step = channels * width * (points if matrix is None else 1)
    source = of_elements(from_numpy(weights.dtype))
    assert source is not None
    form = PanelForm(source, type, width, () if matrix is None else tuple(tuple(map(float, row)) for row in matrix))
    numbers = [count, channels, taps, panels, tap_step, panel_step]
    run_at_once(panels_kernel(target, form), [weights, packed], numbers, groups * panels * channels)
    return packed


def panels_of(lowerer: Lowerer, value: np.ndarray | Value, groups: int, width: int, type: Type) -> Buffer:
    """Filters, or a bias as filters of one tap, in panels: packed now if they are known, else by a step."""
    if isinstance(value, Value) and value.is_constant and value.constant is not None:
        value = value.constant.peek()
    if isinstance(value, np.ndarray):
        shaped = value.reshape(len(value), 1, 1) if value.ndim == 1 else value
        return lowerer.constant(pack_panels(lowerer.target, shaped, groups, width, type))
    view = lowerer.contiguous(value)
    count, channels, *kernel = (*(int(size) for size in view.shape), 1, 1)[: max(3, len(view.shape))]  # type: ignore[arg-type]
    taps, panels = int(np.prod(kernel)), -(-(count // groups) // width)
    buffer = lowerer.scratch(groups * panels * taps * channels * width * type.bytes)
    numbers = [count // groups, channels, taps, panels, channels * width, channels * width * taps]
    items = groups * panels * channels
    kernel_code = panels_kernel(lowerer.target, PanelForm(view.type, type, width))
    lowerer.call(kernel_code, [view.place, buffer, *numbers], items, grain_for(taps * width * 8))
    return buffer


def run_at_once(kernel: Kernel, arrays: Sequence[np.ndarray], numbers: Sequence[int], items: int) -> None:
    """Run a kernel on arrays and sizes, on this thread."""
    arguments = np.array([*(array.ctypes.data for array in arrays), *numbers], np.int64)
    step = np.zeros(STEP_WORDS, np.int64)
    step[[KERNEL, ARGUMENTS, TOTAL, GRAIN]] = [jit().addresses([kernel])[0], arguments.ctypes.data, items, max(1, items)]
    stop = ctypes.c_int64(0)
    workers = pool()
    workers.run(step.ctypes.data, 1, workers.address, 1, ctypes.addressof(stop))


@kernel("filters")
def panels_kernel(f: KernelFunction, form: PanelForm) -> None:
    """Items are channels of panels."""
    source, target = f.pointer(), f.pointer()
    count, channels, taps, panels, tap_step, panel_step = (f.size() for _ in range(6))
    lanes = math.gcd(f.lanes(form.target), form.width)
    with f.loop(f.begin, f.end) as item:
        channel, rest = item % channels, item // channels
        panel, group = rest % panels, rest // panels
        first = panel * form.width
        start = f.address(source, ((group * count + first) * channels + channel) * taps, form.source)
        to = f.address(target, rest * panel_step + channel * form.width, form.target)
        for column in range(0, form.width, lanes):
            mask = f.first_lanes(f.maximum(count - first - column, 0), lanes)
            indices = (f.iota(I64, lanes) + column) * f.splat(channels * taps, lanes)

            def tap(number: Register | int, mask: Register = mask, indices: Register = indices) -> Register:
                return f.gather(f.address(start, number, form.source), indices, form.source, mask=mask)

            if form.matrix:
                _transform(f, form, [tap(number) for number in range(9)], f.address(to, column, form.target), tap_step)
            else:
                with f.loop(0, taps) as number:
                    f.store(tap(number), to, number * tap_step + column, form.target)


def _transform(f: KernelFunction, form: PanelForm, taps: list[Register], target: Register, tap_step: Register) -> None:
    """A filter of 3×3 taps at all points, in float64."""
    wide = [f.convert(tap, F64) for tap in taps]
    columns = [_at_points(f, form.matrix, [wide[3 * row + column] for row in range(3)]) for column in range(3)]
    for i in range(len(form.matrix)):
        for j, value in enumerate(_at_points(f, form.matrix, [column[i] for column in columns])):
            f.store(f.convert(value, form.target), target, tap_step * (i * len(form.matrix) + j), form.target)


def _at_points(f: KernelFunction, matrix: Sequence[Sequence[float]], taps: list[Register]) -> list[Register]:
    found = []
    for row in matrix:
        terms = [(factor, tap) for factor, tap in zip(row, taps) if factor]
        total = terms[0][1] * terms[0][0]
        for factor, tap in terms[1:]:
            total = f.fma(factor, tap, total)
        found.append(total)
    return found
