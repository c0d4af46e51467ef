"""Images of few channels, copied with padding beside their rows and the channels last. Direct convolutions call it.

Then the taps of one row of a window lie in a row in memory, all channels of them: the sums run over these as over channels.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import I64, Type
from sardonyx.ir import Dim, dim
from sardonyx.providers.native.kernels.shape.copying import copy_row, fill_row
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size, each, when
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import Buffer
from sardonyx.providers.native.program.views import View, contiguous_strides
from sardonyx.startup.records import dataclass

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
    is_filled: bool = False
    """Whether padding is another number than 0."""


def padded_rows(
    lowerer: Lowerer, view: View, type: Type, begin: Dim, width: Dim, slack: Dim = 0, fill: Buffer | None = None
) -> View:
    """A view (N, C, …, W) with `begin` zeros before each row, and as many behind it that it has `width` pixels; channels last.

    Behind the last row `slack` elements may be read, of any content. Instead of zeros it may be a number that lies in `fill`.
    """
    channels = view.shape[1]
    outer = [0, *range(2, len(view.shape) - 1)]
    sizes = [view.shape[axis] for axis in outer]
    shape = (*sizes, width, channels)
    *steps, pixel, channel = contiguous_strides(shape)
    buffer = lowerer.scratch((dim.product(shape) + slack) * type.bytes)
    padded = View(buffer, type, (view.shape[0], channels, *view.shape[2:-1], width), (steps[0], channel, *steps[1:], pixel))
    form = RowForm(view.type, type, len(outer), _kind(view, type), fill is not None)
    rows = dim.product(sizes)
    lowerer.call(
        rows_kernel(lowerer.target, form),
        RowArguments(
            source=view.place,
            target=buffer,
            fill=fill,
            size=view.shape[-1],
            width=width,
            begin=begin,
            channels=channels,
            pixel_step=view.strides[-1],
            channel_step=view.strides[1],
            row_size=steps[-1],
            sizes=sizes[1:],
            steps=[view.strides[axis] for axis in outer],
        ),
        rows,
        dim.maximum(1, dim.floordiv(PIECE_ELEMENTS, dim.maximum(1, steps[-1]))),
        traffic=rows * view.shape[-1] * channels * 2 * type.bytes,
    )
    return padded


def _kind(view: View, type: Type) -> int:
    channels = view.shape[1]
    if view.type == type and view.strides[-1] == channels and (view.strides[1] == 1 or channels == 1):
        return 0
    return channels if isinstance(channels, int) and channels <= MOST_INTERLEAVED and view.strides[-1] == 1 else -1


class RowArguments(Arguments):
    source: Pointer
    target: Pointer
    fill: Pointer | None = when(lambda form: form.is_filled)
    size: Size
    """Pixels of a row of the source."""
    width: Size
    """Pixels of a row of the target, with the padding."""
    begin: Size
    """Padding before each row, in pixels."""
    channels: Size
    pixel_step: Size
    channel_step: Size
    row_size: Size
    """Elements of a row of the target."""
    sizes: Sequence[Size] = each(lambda form: form.outer - 1)
    """Of all axes over rows but the first."""
    steps: Sequence[Size] = each(lambda form: form.outer)
    """Of the source along axes over rows."""


@kernel("padded rows", RowArguments)
def rows_kernel(f: KernelFunction, a: RowArguments, form: RowForm) -> None:
    """Items are rows."""
    inside = f.maximum(f.minimum(a.size, a.width - a.begin), 0)
    with f.loop(f.begin, f.end) as row:
        offset, rest = f.const(I64, 0), row
        for size, step in zip(reversed(a.sizes), reversed(a.steps[1:])):
            offset, rest = offset + (rest % size) * step, rest // size
        line = f.address(a.source, offset + rest * a.steps[0], form.source)
        target = f.address(a.target, row * a.row_size, form.target)
        padding = f.const(form.target.computed, 0) if a.fill is None else f.load(a.fill, 0, form.target)
        fill_row(f, padding, target, a.begin * a.channels, form.target)
        body = f.address(target, a.begin * a.channels, form.target)
        if form.channels == 0:
            copy_row(f, line, body, inside * a.channels, form.target)
        elif form.channels > 0:
            _interleave(f, form, line, body, inside, a.channel_step)
        else:
            _pick(f, form, line, body, inside, a.channels, a.pixel_step, a.channel_step)
        end = a.begin + inside
        fill_row(f, padding, f.address(target, end * a.channels, form.target), (a.width - end) * a.channels, form.target)


def _pick(
    f: KernelFunction,
    form: RowForm,
    line: Value,
    body: Value,
    count: Value,
    channels: Value | int,
    pixel_step: Value | int,
    channel_step: Value,
) -> None:
    """Element by element."""
    with f.loop(0, count) as pixel, f.loop(0, channels) as channel:
        element = f.load(line, pixel * pixel_step + channel * channel_step, form.source)
        f.store(element, body, pixel * channels + channel, form.target)


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
        _pick(f, form, line, body, count, form.channels, 1, channel_step)


def _interleaved(f: KernelFunction, planes: list[Value]) -> list[Value]:
    """The first lanes of all vectors, then the second ones, …"""
    lanes, count = planes[0].type.lanes, len(planes)
    vectors = []
    for number in range(count):
        places = [divmod(number * lanes + lane, count) for lane in range(lanes)]
        vector = f.shuffle(planes[0], planes[0], [pixel if not plane else 0 for pixel, plane in places])
        for other in range(1, count):
            chosen = [lanes + pixel if plane == other else lane for lane, (pixel, plane) in enumerate(places)]
            vector = f.shuffle(vector, planes[other], chosen)
        vectors.append(vector)
    return vectors
