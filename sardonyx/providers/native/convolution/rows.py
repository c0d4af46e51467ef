"""Images of few channels, copied with zeros beside their rows and the channels last. Direct convolutions call it.

Then the taps of one row of a window lie in a row in memory, all channels of them: the sums run over these as over channels.
"""

from __future__ import annotations

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import I64, Type
from sardonyx.ir import Dim, dim
from sardonyx.providers.native.kernel import KernelFunction, kernel
from sardonyx.providers.native.lowering import Lowerer
from sardonyx.providers.native.movement.copying import copy_row, fill_row
from sardonyx.providers.native.program import Argument
from sardonyx.providers.native.views import View, contiguous_strides
from sardonyx.records import dataclass

MOST_INTERLEAVED = 4
"""Up to how many channels are interleaved by shuffles."""
PIECE_ELEMENTS = 16384


@dataclass(frozen=True)
class RowForm:
    """What shapes the code."""

    source: Type
    target: Type
    outer: int
    """Axes over rows: the batch and all spatial axes but the last."""
    channels: int
    """How many are interleaved; 0 if a row's elements lie as they will, 1 or more if each channel's lie side by side, -1 else."""


def padded_rows(lowerer: Lowerer, view: View, type: Type, begin: Dim, width: Dim) -> View:
    """A view (N, C, …, W) with `begin` zeros before each row, and as many behind it that it has `width` pixels; channels last."""
    channels = view.shape[1]
    outer = [0, *range(2, len(view.shape) - 1)]
    sizes = [view.shape[axis] for axis in outer]
    shape = (*sizes, width, channels)
    *steps, pixel, channel = contiguous_strides(shape)
    buffer = lowerer.scratch(dim.product(shape) * type.bytes)
    made = View(buffer, type, (view.shape[0], channels, *view.shape[2:-1], width), (steps[0], channel, *steps[1:], pixel))
    form = RowForm(view.type, type, len(outer), _kind(view, type))
    numbers: list[Argument] = [view.shape[-1], width, begin, channels, view.strides[-1], view.strides[1], steps[-1]]
    numbers += [*sizes[1:], *(view.strides[axis] for axis in outer)]
    rows = dim.product(sizes)
    lowerer.call(
        rows_kernel(lowerer.target, form),
        [view.place, buffer, *numbers],
        rows,
        dim.maximum(1, dim.floordiv(PIECE_ELEMENTS, dim.maximum(1, steps[-1]))),
        traffic=rows * view.shape[-1] * channels * 2 * type.bytes,
    )
    return made


def _kind(view: View, type: Type) -> int:
    channels = view.shape[1]
    if view.type == type and view.strides[-1] == channels and (view.strides[1] == 1 or channels == 1):
        return 0
    return channels if isinstance(channels, int) and channels <= MOST_INTERLEAVED and view.strides[-1] == 1 else -1


@kernel("padded rows")
def rows_kernel(f: KernelFunction, form: RowForm) -> None:
    """Items are rows."""
    source, target = f.pointer(), f.pointer()
    size, width, begin, channels, pixel_step, channel_step, row_size = (f.size() for _ in range(7))
    sizes = [f.size() for _ in range(form.outer - 1)]
    steps = [f.size() for _ in range(form.outer)]
    inside = f.maximum(f.minimum(size, width - begin), 0)
    with f.loop(f.begin, f.end) as row:
        offset, rest = f.const(I64, 0), row
        for one, step in zip(reversed(sizes), reversed(steps[1:])):
            offset, rest = offset + (rest % one) * step, rest // one
        line = f.address(source, offset + rest * steps[0], form.source)
        to = f.address(target, row * row_size, form.target)
        zero = f.const(form.target.computed, 0)
        fill_row(f, zero, to, begin * channels, form.target)
        body = f.address(to, begin * channels, form.target)
        if form.channels == 0:
            copy_row(f, line, body, inside * channels, form.target)
        elif form.channels > 0:
            _interleave(f, form, line, body, inside, channel_step)
        else:
            _pick(f, form, line, body, f.const(I64, 0), inside, channels, pixel_step, channel_step)
        end = begin + inside
        fill_row(f, zero, f.address(to, end * channels, form.target), (width - end) * channels, form.target)


def _pick(
    f: KernelFunction,
    form: RowForm,
    line: Value,
    body: Value,
    start: Value,
    stop: Value,
    channels: Value,
    pixel_step: Value | int,
    channel_step: Value,
) -> None:
    """Element by element."""
    with f.loop(start, stop) as pixel, f.loop(0, channels) as channel:
        found = f.load(line, pixel * pixel_step + channel * channel_step, form.source)
        f.store(found, body, pixel * channels + channel, form.target)


def _interleave(f: KernelFunction, form: RowForm, line: Value, body: Value, count: Value, channel_step: Value) -> None:
    """A vector of pixels of each channel at a time; the last ones overlap those before."""
    lanes = f.lanes(form.target)
    with f.if_else(count >= lanes) as otherwise:
        with f.loop(0, count, lanes) as start:
            pixel = f.minimum(start, count - lanes)
            planes = [f.load(line, pixel + channel_step * channel, form.source, lanes) for channel in range(form.channels)]
            for number, vector in enumerate(_interleaved(f, planes)):
                f.store(vector, body, pixel * form.channels + number * lanes, form.target)
        otherwise()
        _pick(f, form, line, body, f.const(I64, 0), count, f.const(I64, form.channels), 1, channel_step)


def _interleaved(f: KernelFunction, planes: list[Value]) -> list[Value]:
    """The first lanes of all vectors, then the second ones, …"""
    lanes, count = planes[0].type.lanes, len(planes)
    found = []
    for number in range(count):
        places = [divmod(number * lanes + lane, count) for lane in range(lanes)]
        vector = f.shuffle(planes[0], planes[0], [pixel if not plane else 0 for pixel, plane in places])
        for other in range(1, count):
            chosen = [lanes + pixel if plane == other else lane for lane, (pixel, plane) in enumerate(places)]
            vector = f.shuffle(vector, planes[other], chosen)
        found.append(vector)
    return found
