"""MaxPool that says where its maxima stand, and MaxUnpool, which puts values there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import BOOL, I32, I64, U64, Type
from sardonyx.ir import Dim, Node, dim
from sardonyx.ops.reading import input_named, operand
from sardonyx.ops.window import per_axis, split_pads
from sardonyx.providers.native.kernels.conv.form import last_order
from sardonyx.providers.native.kernels.conv.windows import Windows
from sardonyx.providers.native.kernels.image.image import Image, image_of
from sardonyx.providers.native.kernels.pool.form import Pool, claims_windows, has_places, pool_of, pool_windows
from sardonyx.providers.native.kernels.pool.kernels import Axis, Ranges, Windowed, spaced
from sardonyx.providers.native.kernels.pool.operators import PIECE_TAPS, axes_of, lies_in_rows
from sardonyx.providers.native.kernels.reduction.passes import items
from sardonyx.providers.native.kernels.shape.copying import fill_row, raw
from sardonyx.providers.native.kernels.shape.views import content
from sardonyx.providers.native.kernels.shape.walking import runs
from sardonyx.providers.native.program.arguments import Arguments, Operands, Pointer, Size, each, group
from sardonyx.providers.native.program.chain import Chain, ChainCode, ChainRow
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, element_of, required, shape_of
from sardonyx.providers.native.program.views import Dims, contiguous_strides
from sardonyx.startup.records import replace

MOST_PIXELS = (1 << 31) - 1
"""Of an image: its pixels are numbered with 32 bits."""
FEW = 4
"""So many windows of a row are done together where there are not enough for a vector: one alone waits long for each comparison."""

TOGETHER = 8
"""So many places are looked at together."""


@lower("MaxPool", case="its places are wanted", claims=lambda node: has_places(node) and claims_windows(node), strided=True)
def max_pool(lowerer: Lowerer, node: Node) -> None:
    """Maxima and their numbers in the flat tensor. Channels last if X lies so."""
    windows = pool_windows(node)
    for size in windows.output:
        lowerer.require(dim.maximum(size, 0), size)
    pixels = dim.product(windows.input)
    lowerer.require(dim.minimum(pixels, MOST_PIXELS), pixels)
    X = required(node.inputs[0])
    view = lowerer.view(X)
    along_channels = view.strides[1] == 1 and not lies_in_rows(view)
    view = view if along_channels or lies_in_rows(view) else lowerer.contiguous(X)
    rank = len(view.shape)
    groups, order = ((1, rank - 2, 1), last_order(rank)) if along_channels else ((1, 1, rank - 2), None)
    sinks = [lowerer.sink(node, groups, output=number, order=order) for number in (0, 1)]
    pieces = dim.product(windows.output) if along_channels else view.shape[1] * dim.product(windows.output[:-1])
    rows = view.shape[0] * pieces
    each = (view.shape[1] if along_channels else windows.output[-1]) * windows.taps
    stride = windows.strides[-1]
    pool = replace(pool_of(node), stride=stride if stride <= 2 else 0)
    code = places_kernel if along_channels else places_rows_kernel
    lowerer.call(
        code(lowerer.target, pool, sinks[0].chain, sinks[1].chain),
        PlacesArguments(
            image=image_of(view),
            axes=axes_of(windows, view),
            pixels=pixels,
            number_steps=_number_steps(node, windows),
            values=sinks[0].arguments,
            places=sinks[1].arguments,
        ),
        rows,
        dim.maximum(1, dim.floordiv(PIECE_TAPS, dim.maximum(1, each))),
        flops=rows * each,
        traffic=dim.product(view.shape) * view.type.bytes + dim.product(dims(node.outputs[0])) * (view.type.bytes + 8),
    )


def _number_steps(node: Node, windows: Windows) -> Dims:
    """From the number of a pixel to that of the next, along each axis."""
    if operand(node, "storage_order"):
        return contiguous_strides(windows.input[::-1])[::-1]
    return contiguous_strides(windows.input)


class _Best:
    """The largest pixels so far, and their numbers in the image; -1 before there is any. Of equal ones the first counts."""

    def __init__(self, code: _Numbered, lanes: int):
        f = self.f = code.f
        self.values = code.start(lanes)
        self.places = f.variable(-1, I32.vector(lanes))

    def take(self, pixels: Value, places: Value) -> None:
        f, so_far, lanes = self.f, self.values.get(), pixels.type.lanes
        better = pixels > so_far
        if pixels.type.is_float:  # a NaN is larger than all numbers
            better = ~(pixels <= so_far) & ~f.is_nan(so_far)
        better = better | (self.places.get() < 0)
        self.values.set(f.select(better, pixels, so_far))
        self.places.set(f.select(better, f.splat(places, lanes), self.places.get()))

    def numbers(self, base: Value) -> Value:
        """In the flat tensor, if those of the image begin with `base`."""
        f, places = self.f, self.places.get()
        lanes = places.type.lanes
        return f.select(places < 0, -1, f.convert(places, I64.vector(lanes)) + f.splat(base, lanes))


class PlacesArguments(Arguments):
    image: Image
    axes: Sequence[Axis] = each(lambda pool: pool.axes)
    pixels: Size
    """Of an image."""
    number_steps: Sequence[Size] = each(lambda pool: pool.axes)
    """From the number of a pixel to that of the next, along each axis."""
    values: Operands = group(lambda values: values.slots)
    places: Operands = group(lambda places: places.slots)


class _Numbered(Windowed):
    """Windows over pixels that have numbers."""

    def __init__(self, f: KernelFunction, a: PlacesArguments, pool: Pool, values: Chain, places: Chain):
        super().__init__(f, a.image, a.axes, pool)
        self.a = a
        self.outputs = [ChainCode(f, values, a.values), ChainCode(f, places, a.places)]
        self.lanes = max(FEW, min(f.lanes(self.computed), f.lanes(I32)))

    def rows(self, outer: Sequence[Value]) -> list[ChainRow]:
        return [output.row(outer) for output in self.outputs]

    def numbered_taps(
        self,
        place: Value,
        firsts: Sequence[Value],
        ranges: Ranges,
        do: Callable[[Value, Value], None],
        axis: int = 0,
        number: Value | int = 0,
    ) -> None:
        """`do(pointer, number)` for each tap along the first axes that lies inside the image."""
        if axis == len(ranges):
            do(place, self.f.as_value(number, I64))
            return
        here = self.axes[axis]
        with self.f.loop(*ranges[axis]) as tap:
            pixel = firsts[axis] + tap * here.dilation
            there = self.f.address(place, pixel * here.step, self.pool.type)
            self.numbered_taps(there, firsts, ranges, do, axis + 1, pixel * self.a.number_steps[axis] + number)


@kernel("pool with places", PlacesArguments)
def places_kernel(f: KernelFunction, a: PlacesArguments, pool: Pool, values: Chain, places: Chain) -> None:
    """Channels lie in a row. Items are pixels of the result."""
    code = _Numbered(f, a, pool, values, places)

    def run(outer: Sequence[Value], column: Value, count: Value) -> None:
        image, *others = outer
        plane = f.address(a.image.x, image * a.image.image_step, pool.type)
        with f.loop(column, column + count) as last:
            here = [*others, last]
            firsts = [axis.first(place) for axis, place in zip(a.axes, here)]
            ranges = [axis.range(f, first) for axis, first in zip(a.axes, firsts)]
            targets = code.rows([image, code.position(here)])
            with f.loop(0, a.image.channels, code.lanes) as channel:
                remaining = a.image.channels - channel
                best = _Best(code, code.lanes)

                def take(place: Value, number: Value) -> None:
                    pixels = f.load(place, channel, pool.type, code.lanes, remaining=remaining)
                    best.take(pixels, f.convert(number, I32))

                code.numbered_taps(plane, firsts, ranges, take)
                first = f.splat((image * a.image.channels + channel) * a.pixels, code.lanes)
                base = first + f.iota(I64, code.lanes) * f.splat(a.pixels, code.lanes)
                targets[0].emit(channel, code.lanes, remaining, given=[best.values.get()])
                targets[1].emit(channel, code.lanes, remaining, given=[best.numbers(base)])

    runs(f, [axis.output for axis in a.axes], run)


@kernel("pool of rows with places", PlacesArguments)
def places_rows_kernel(f: KernelFunction, a: PlacesArguments, pool: Pool, values: Chain, places: Chain) -> None:
    """Pixels of a row lie side by side. Items are rows of the result."""
    code = _Numbered(f, a, pool, values, places)
    *outer, axis = a.axes
    with items(f, [a.image.channels, *(above.output for above in outer)]) as (_, (image, channel, *others)):
        plane = f.address(a.image.x, image * a.image.image_step + channel * a.image.channel_step, pool.type)
        firsts = [above.first(place) for above, place in zip(outer, others)]
        ranges = [above.range(f, first) for above, first in zip(outer, firsts)]
        targets = code.rows([image, channel])
        base, start = (image * a.image.channels + channel) * a.pixels, code.position([*others, f.const(I64, 0)])

        def pixels(column: Value, width: int) -> None:
            first, best = axis.first(column), _Best(code, width)
            low, high = axis.range(f, first) if width == 1 else (f.const(I64, 0), axis.kernel)
            lanes = f.iota(I32, width) * f.splat(f.convert(axis.stride * a.number_steps[-1], I32), width)

            def line(place: Value, number: Value) -> None:
                with f.loop(low, high) as tap:
                    pixel = first + tap * axis.dilation
                    where = f.convert(number + pixel * a.number_steps[-1], I32)
                    best.take(spaced(code, place, pixel, width), lanes + f.splat(where, width))

            code.numbered_taps(plane, firsts, ranges, line)
            targets[0].emit(start + column, width, given=[best.values.get()])
            targets[1].emit(start + column, width, given=[best.numbers(base)])

        begin, whole = axis.inner(f, code.lanes)
        _, few = axis.inner(f, FEW)
        for first, stop, width in (
            (f.const(I64, 0), begin, 1),
            (begin, whole, code.lanes),
            (whole, few, FEW),
            (few, axis.output, 1),
        ):
            with f.loop(first, stop, width) as column:
                pixels(column, width)


# --- MaxUnpool ------------------------------------------------------------------------------------------------------


def natural_shape(
    shape: Dims, kernel_shape: Sequence[int], pads: Sequence[int] | None, strides: Sequence[int] | None
) -> Dims | None:
    """What a pool with this window made X of, without padding; None if there is no such image."""
    if len(shape) < 3:
        return None
    rank = len(shape) - 2
    kernel, steps = per_axis(kernel_shape, rank, "kernel_shape"), per_axis(strides, rank, "strides")
    begin, end = split_pads(pads, rank)
    sizes: list[Dim] = [
        (size - 1) * step - before - after + width
        for size, width, step, before, after in zip(shape[2:], kernel, steps, begin, end)
    ]
    return (*shape[:2], *sizes)


def claims_max_unpool(node: Node) -> bool:
    """A result of the natural shape: in others, what numbers count depends on data."""
    X, I = (required(value) for value in node.inputs[:2])
    natural = natural_shape(dims(X), *(operand(node, name) for name in ("kernel_shape", "pads", "strides")))
    if element_of(X) is None or element_of(I) != I64 or natural is None:
        return False
    wanted = content(node, "output_shape") if input_named(node, "output_shape") is not None else list(natural)
    return wanted == list(natural) and shape_of(node.outputs[0]) == natural


@lower("MaxUnpool", claims=claims_max_unpool)
def max_unpool(lowerer: Lowerer, node: Node) -> None:
    """Zeros, but for the elements of X at the places that I says."""
    X, I = (lowerer.contiguous(required(value)) for value in node.inputs[:2])
    lowerer.require_shape(I.shape, X.shape)
    target, type = lowerer.output(node.outputs[0]), raw(X.type)
    for size in target.shape[2:]:
        lowerer.require(dim.maximum(size, 0), size)
    places, pixels = dim.product(X.shape[2:]), dim.product(target.shape[2:])
    planes = X.shape[0] * X.shape[1]
    lowerer.call(
        unpool_kernel(lowerer.target, type),
        UnpoolArguments(
            x=X.place,
            places=I.place,
            target=target.place,
            given=places,
            pixels=pixels,
            status=lowerer.status(),
        ),
        planes,
        dim.maximum(1, dim.floordiv(PIECE_TAPS, dim.maximum(1, places * 4 + pixels))),
        traffic=planes * (places * (type.bytes + 8) + pixels * type.bytes),
    )


class UnpoolArguments(Arguments):
    x: Pointer
    places: Pointer
    target: Pointer
    given: Size
    """Elements of X that an image of one channel has."""
    pixels: Size
    """Of such an image of the result."""
    status: Pointer


@kernel("unpool", UnpoolArguments)
def unpool_kernel(f: KernelFunction, a: UnpoolArguments, type: Type) -> None:
    """Items are images of one channel. Numbers of pixels in other images are left to NumPy, for they may come in any order."""
    bad = f.variable(False, BOOL)

    def put(index: Value, first: Value, lanes: int) -> None:
        places = f.convert(f.load(a.places, index, I64, lanes) - first, U64)
        outside = places >= f.convert(a.pixels, U64)
        outside = outside if lanes == 1 else f.bitcast(outside, Type("uint", lanes)) != 0
        bad.set(bad.get() | outside)
        with f.if_(~outside):
            for lane in range(lanes):
                f.store(f.load(a.x, index + lane, type), a.target, f.load(a.places, index + lane, I64), type)

    with f.loop(f.begin, f.end) as item:
        fill_row(f, f.const(type, 0), f.address(a.target, item * a.pixels, type), a.pixels, type)
        begin, end = item * a.given, (item + 1) * a.given
        whole = begin + (a.given & -TOGETHER)
        for start, stop, lanes in ((begin, whole, TOGETHER), (whole, end, 1)):
            with f.loop(start, stop, lanes) as index:
                put(index, item * a.pixels, lanes)
    with f.if_(bad.get()):
        f.store(1, a.status, 0, I64)
