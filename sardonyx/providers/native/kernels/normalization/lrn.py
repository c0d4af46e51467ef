"""LRN: each element divided by a power of the squares around it in neighbouring channels."""

from __future__ import annotations

from sardonyx.compiler.builder import Value
from sardonyx.compiler.powers import pow
from sardonyx.compiler.types import I64, Type
from sardonyx.ir import Node, dim
from sardonyx.ops.reading import operand
from sardonyx.providers.native.kernels.conv.form import last_order
from sardonyx.providers.native.kernels.reduction.domain import is_float, row_grain
from sardonyx.providers.native.kernels.reduction.passes import items, sweep
from sardonyx.providers.native.kernels.shape.copying import fill_row
from sardonyx.providers.native.kernels.shape.walking import runs
from sardonyx.providers.native.program.arguments import Arguments, Number, Operands, Size, group
from sardonyx.providers.native.program.chain import Chain, ChainCode, ChainRow
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, required
from sardonyx.startup.records import dataclass

BLOCK = 1024
"""Channels whose squares are held at once."""
WIDEST = 256
"""How many channels are added where vectors run along these."""


@dataclass(frozen=True)
class Neighbours:
    """What shapes the code."""

    type: Type
    beta: float
    by_roots: bool


LARGEST = 1 << 32
"""More neighbours than a channel can have."""
ROOTS = (0.5, 0.75)
"""Powers that are square roots."""


def _claims(node: Node) -> bool:
    return is_float(node) and len(dims(required(node.inputs[0]))) >= 3 and int(operand(node, "size")) >= 1


def _by_roots(node: Node) -> bool:
    """Whether square roots do. Where a base may be -inf or -0, they give something else than the power."""
    alpha, beta, bias = (float(operand(node, name)) for name in ("alpha", "beta", "bias"))
    return beta in ROOTS and alpha >= 0 and bias >= 0


@lower("LRN", claims=_claims)
def lrn(lowerer: Lowerer, node: Node) -> None:
    """Vectors run along the channels where these lie in a row, else along the pixels of each channel."""
    X = required(node.inputs[0])
    view = lowerer.view(X)
    rank, size = len(view.shape), int(operand(node, "size"))
    pixels = dim.product(view.shape[2:])
    along_channels = view.strides[1] == 1 and view.strides[-1] != 1 and size <= WIDEST
    order = last_order(rank) if along_channels else None
    groups = (1, rank - 2, 1) if along_channels else (1, 1, rank - 2)
    source, sink = lowerer.source(X, groups, order), lowerer.sink(node, groups, order=order)
    form = Neighbours(view.type.computed, float(operand(node, "beta")), _by_roots(node))
    kernel = lrn_kernel if along_channels else lrn_planes_kernel
    lowerer.call(
        kernel(lowerer.target, form, source.chain, sink.chain),
        LrnArguments(
            size=min(size, LARGEST),
            alpha=float(operand(node, "alpha")) / size,
            bias=float(operand(node, "bias")),
            channels=view.shape[1],
            pixels=pixels,
            source=source.arguments,
            sink=sink.arguments,
        ),
        view.shape[0] * (pixels if along_channels else view.shape[1]),
        row_grain((view.shape[1] if along_channels else pixels) * 4),
        flops=dim.product(view.shape) * (min(size, WIDEST) + 20),
        traffic=dim.product(view.shape) * 2 * view.type.bytes,
    )


class LrnArguments(Arguments):
    size: Size
    """Channels whose squares are added."""
    alpha: Number
    """Divided by the size."""
    bias: Number
    channels: Size
    pixels: Size
    source: Operands = group(lambda source: source.slots)
    sink: Operands = group(lambda sink: sink.slots)


class _Code:
    """What both kernels have in common."""

    def __init__(self, f: KernelFunction, a: LrnArguments, form: Neighbours, source: Chain, sink: Chain):
        self.f = f
        self.form = form
        self.lanes = f.lanes(form.type)
        self.alpha, self.bias = f.convert(a.alpha, form.type), f.convert(a.bias, form.type)
        self.read, self.write = ChainCode(f, source, a.source), ChainCode(f, sink, a.sink)
        self.before, self.after = (a.size - 1) // 2, a.size // 2

    def finished(self, x: Value, total: Value) -> Value:
        f, beta = self.f, self.form.beta
        base = total * f.splat(self.alpha, self.lanes) + f.splat(self.bias, self.lanes)
        if not self.form.by_roots:
            return x / pow(base, f.const(base.type, beta))
        root = f.sqrt(base)
        return x / (root if beta == 0.5 else root * f.sqrt(root))


@kernel("neighbouring channels", LrnArguments)
def lrn_kernel(f: KernelFunction, a: LrnArguments, form: Neighbours, source: Chain, sink: Chain) -> None:
    """Channels lie in a row. Items are pixels."""
    code = _Code(f, a, form, source, sink)
    type, lanes = form.type, code.lanes
    squares = f.stack(type, BLOCK + WIDEST + 2 * lanes)
    zero = f.const(type, 0)

    def run(outer: list[Value], column: Value, count: Value) -> None:
        with f.loop(column, column + count) as pixel:
            row, target = code.read.row([outer[0], pixel]), code.write.row([outer[0], pixel])
            with f.loop(0, a.channels, BLOCK) as start:
                block(row, target, start, f.minimum(start + BLOCK, a.channels))

    def block(row: ChainRow, target: ChainRow, start: Value, stop: Value) -> None:
        origin = start - code.before
        low, high = f.maximum(origin, 0), f.minimum(stop + code.after, a.channels)
        fill_row(f, zero, squares, low - origin, type)
        fill_row(f, zero, f.address(squares, high - origin, type), stop + code.after - high, type)

        def square(copy: int, column: Value, remaining: Value | None) -> None:
            x = row.lanewise(column, lanes, remaining)
            f.store(x * x, squares, column - origin, type, remaining=remaining)

        sweep(f, low, high, lanes, 2, square)

        def finish(copy: int, column: Value, remaining: Value | None) -> None:
            total = f.variable(f.const(type.vector(lanes), 0))
            with f.loop(0, a.size) as tap:
                total.set(total.get() + f.load(squares, column - start + tap, type, lanes))
            x = row.lanewise(column, lanes, remaining)
            target.emit(column, lanes, remaining, given=[code.finished(x, total.get())])

        sweep(f, start, stop, lanes, 1, finish)

    runs(f, [a.pixels], run)  # type: ignore[arg-type]


@kernel("neighbouring planes", LrnArguments)
def lrn_planes_kernel(f: KernelFunction, a: LrnArguments, form: Neighbours, source: Chain, sink: Chain) -> None:
    """Items are channels; vectors run along their pixels."""
    code = _Code(f, a, form, source, sink)
    lanes = code.lanes
    with items(f, [a.channels]) as (_, (image, channel)):
        row, target = code.read.row([image, channel]), code.write.row([image, channel])
        low = f.maximum(channel - code.before, 0)
        high = f.minimum(channel + code.after + 1, a.channels)

        def finish(copy: int, column: Value, remaining: Value | None) -> None:
            total = f.variable(f.const(form.type.vector(lanes), 0))
            with f.loop(low, high) as other:
                x = code.read.row([image, other]).lanewise(column, lanes, remaining)
                total.set(total.get() + x * x)
            x = row.lanewise(column, lanes, remaining)
            target.emit(column, lanes, remaining, given=[code.finished(x, total.get())])

        sweep(f, f.const(I64, 0), a.pixels, lanes, 1, finish)
