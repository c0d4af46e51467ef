"""Sums of the bytes in each window of a convolution. Those whose filters are stored with a zero point left in them need them."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.compiler.builder import Value, Variable
from sardonyx.compiler.products import add_group_sums
from sardonyx.compiler.types import I32, I64, PTR, U8
from sardonyx.providers.native.kernels.conv.form import Geometry, axes_of
from sardonyx.providers.native.kernels.conv.tiles import Axis
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size, each
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.views import View, contiguous_strides

PIECE_BYTES = 65536
"""How many bytes are worth handing to another thread."""


class WindowSumArguments(Arguments):
    x: Pointer
    zeros: Pointer
    """A pixel of the padding."""
    target: Pointer
    channels: Size
    image_step: Size
    axes: Sequence[Axis] = each(lambda rank: rank)


def window_sums(lowerer: Lowerer, geometry: Geometry, view: View, zeros: Pointer) -> View:
    """Of each window of an image (N, C, …) of bytes the sum, as (N, 1, …) of 32 bits."""
    count = geometry.batch * geometry.positions
    buffer = lowerer.scratch(count * I32.bytes)
    bytes = geometry.taps * geometry.channels
    lowerer.call(
        window_sums_kernel(lowerer.target, len(geometry.kernel)),
        WindowSumArguments(
            x=view.place,
            zeros=zeros,
            target=buffer,
            channels=geometry.channels,
            image_step=view.strides[0],
            axes=axes_of(geometry, view),
        ),
        count,
        max(1, PIECE_BYTES // max(1, bytes)),
        traffic=count * bytes,
    )
    shape = (geometry.batch, 1, *geometry.output)
    return View(buffer, I32, shape, contiguous_strides(shape))


@kernel("window sums", WindowSumArguments)
def window_sums_kernel(f: KernelFunction, a: WindowSumArguments, rank: int) -> None:
    """Items are windows."""
    lanes = f.lanes(I32)
    with f.loop(f.begin, f.end) as item:
        firsts: list[Value] = []
        rest = item
        for axis in reversed(a.axes):
            firsts.insert(0, (rest % axis.output) * axis.stride - axis.begin)
            rest = rest // axis.output
        sums = f.variable(f.const(I32.vector(lanes), 0))
        _add_taps(f, a, sums, firsts, f.address(a.x, rest * a.image_step, U8), None)
        f.store(f.reduce("add", sums.get()), a.target, item, I32)


def _add_taps(
    f: KernelFunction, a: WindowSumArguments, sums: Variable, firsts: Sequence[Value], place: Value, inside: Value | None
) -> None:
    """All taps along the axes that are left; `inside` says whether those along the axes before are inside the image."""
    if not firsts:
        there = place if inside is None else f.emit(PTR, f"select {inside}, {place}, {a.zeros}")
        _add_pixel(f, a.channels, sums, there)
        return
    axis = a.axes[len(a.axes) - len(firsts)]
    with f.loop(0, axis.kernel) as k:
        number = firsts[0] + k * axis.dilation
        here = (number >= 0) & (number < axis.input)
        both = here if inside is None else here & inside
        _add_taps(f, a, sums, firsts[1:], f.address(place, number * axis.step, U8), both)


def _add_pixel(f: KernelFunction, channels: Value, sums: Variable, place: Value) -> None:
    width = 4 * f.lanes(I32)
    whole = channels - channels % width
    with f.loop(f.const(I64, 0), whole, width) as channel:
        sums.set(add_group_sums(f, f.load(place, channel, U8, width), sums.get()))
    with f.if_(whole < channels):
        rest = f.load(place, whole, U8, width, remaining=channels - whole)
        sums.set(add_group_sums(f, rest, sums.get()))
