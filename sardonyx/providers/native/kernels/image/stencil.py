"""Which pixels stand around a point of an image, and their weights, in generated code: what GridSample reads.

Pixels are numbered in floating point until they are known to lie inside the image. The numbers are whole and small: nothing is rounded.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import I32, I64, Type
from sardonyx.providers.cpu.sampling import CUBIC_COEFFICIENT
from sardonyx.providers.native.program.arguments import Arguments, Size
from sardonyx.providers.native.program.kernel import KernelFunction
from sardonyx.startup.records import dataclass

REACH = {32: 2.0**22, 64: 2.0**40}
"""How far outside points may lie, by the bits of their type; those beyond are seen there."""
MOST_PIXELS = 1 << 21
"""Sizes of axes whose pixels can be numbered in float32, reflections included."""


@dataclass(frozen=True)
class Stencil:
    """How a point becomes pixels."""

    mode: str
    """nearest, linear or cubic."""
    outside: str
    """What lies beyond the border: zeros, border or reflection."""
    aligned: bool
    """Whether -1 and 1 are the centres of the border pixels; else they are their outer edges."""


@dataclass(frozen=True)
class Tap:
    """A pixel along one axis, or of an image: how far from its beginning, whether it is there at all, and its weight."""

    offset: Value
    missing: Value | None
    weight: Value | None


class ImageAxis(Arguments):
    """A spatial axis of an image."""

    size: Size
    step: Size
    """From pixel to pixel in memory."""


class Axis:
    """A spatial axis of an image, along which points lie."""

    def __init__(self, f: KernelFunction, a: ImageAxis, stencil: Stencil, type: Type):
        self.f = f
        self.stencil = stencil
        self.type = type
        """What points are computed in."""
        self.step = a.step
        self.extent = f.convert(a.size, type)

    def taps(self, normalized: Value, weight_type: Type) -> list[Tap]:
        """The pixels for points between -1 and 1, in the weights' type."""
        with self.f.exact():  # where the nearest pixel changes depends on the last bit
            position = self._position(normalized)
        return self.taps_at(position, weight_type)

    def taps_at(self, position: Value, weight_type: Type) -> list[Tap]:
        """The same for points that are counted in pixels."""
        f, lanes = self.f, position.type.lanes
        with f.exact():
            position = self._bounded(position)
            if self.stencil.mode == "nearest":
                return [Tap(*self._placed(f.round_even(position)), None)]
            below = f.floor(position)
            fraction = position - below
        steps = (0, 1) if self.stencil.mode == "linear" else (-1, 0, 1, 2)
        weights = self._weights(fraction)
        return [
            Tap(*self._placed(below + float(step)), f.convert(weight, weight_type.vector(lanes)))
            for step, weight in zip(steps, weights)
        ]

    def _position(self, normalized: Value) -> Value:
        if self.stencil.aligned:
            return (normalized + 1.0) * 0.5 * (self.extent - 1.0)
        return ((normalized + 1.0) * self.extent - 1.0) * 0.5

    def _bounded(self, position: Value) -> Value:
        """What is not a number lies before the image."""
        reach = self.extent + REACH[32] if self.type.bits == 32 else self.f.const(self.type, REACH[64])
        return self.f.minimum(self.f.maximum(position, -reach), reach)

    def _weights(self, fraction: Value) -> list[Value]:
        if self.stencil.mode == "linear":
            return [1.0 - fraction, fraction]
        return [_far(fraction + 1.0), _near(fraction), _near(1.0 - fraction), _far(2.0 - fraction)]

    def _placed(self, pixel: Value) -> tuple[Value, Value | None]:
        """How far from the axis' beginning a pixel is read, and whether there is none."""
        f, last = self.f, self.extent - 1.0
        missing = None
        if self.stencil.outside == "zeros":
            missing = (pixel < 0.0) | (pixel > last)
            pixel = f.select(missing, 0.0, pixel)
        elif self.stencil.outside == "border":
            pixel = f.minimum(f.maximum(pixel, 0.0), last)
        else:
            pixel = self._reflected(pixel)
        return self._offset(pixel), missing

    def _reflected(self, pixel: Value) -> Value:
        """Mirrored at the centres of the border pixels, or at their outer edges."""
        f, last = self.f, self.extent - 1.0
        period = f.maximum(last * 2.0, 1.0) if self.stencil.aligned else self.extent * 2.0
        with f.exact():
            folded = pixel - f.floor(pixel / period) * period
        # the quotient may have been rounded up to the next whole number, or down from one
        folded = f.select(folded < 0.0, folded + period, folded)
        folded = f.select(folded >= period, folded - period, folded)
        mirrored = period - folded if self.stencil.aligned else period - 1.0 - folded
        return f.minimum(f.minimum(folded, mirrored), last)

    def _offset(self, pixel: Value) -> Value:
        """Vectors have 32 bits, as CPUs gather with these twice as many at a time."""
        f, lanes = self.f, pixel.type.lanes
        whole = f.convert(pixel, I32.vector(lanes))
        if lanes == 1:
            return f.convert(whole, I64) * self.step
        return whole * f.splat(f.convert(self.step, I32), lanes)


def _near(t: Value) -> Value:
    """Keys' kernel up to a distance of 1 (doi 10.1109/TASSP.1981.1163711, eq. 4)."""
    a = CUBIC_COEFFICIENT
    return ((a + 2) * t - (a + 3)) * t * t + 1.0


def _far(t: Value) -> Value:
    """The same between 1 and 2."""
    a = CUBIC_COEFFICIENT
    return ((t - 5.0) * t + 8.0) * t * a - 4 * a


def joined_taps(axes: Sequence[Sequence[Tap]]) -> list[Tap]:
    """The pixels of an image that are taps along all axes."""
    return [_joined(choice) for choice in itertools.product(*axes)]


def _joined(choice: Sequence[Tap]) -> Tap:
    joined = choice[0]
    for tap in choice[1:]:
        missing = joined.missing if tap.missing is None or joined.missing is None else joined.missing | tap.missing
        weight = None if tap.weight is None or joined.weight is None else joined.weight * tap.weight
        joined = Tap(joined.offset + tap.offset, missing, weight)
    return joined
