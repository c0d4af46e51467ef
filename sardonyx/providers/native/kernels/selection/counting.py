"""NonZero and Compress: the places of what is not zero are counted, their number is settled, and then they are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx.compiler.builder import Value as Code
from sardonyx.compiler.types import BOOL, I64, Type
from sardonyx.ir import Dim, Node, Value, dim
from sardonyx.ops.reading import operand
from sardonyx.providers.native.kernels.indexing import take
from sardonyx.providers.native.kernels.selection.kernels import bits_of, lowest_bit
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size, each
from sardonyx.providers.native.program.computed_sizes import settle_shape
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import Buffer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, element_of, rank_of, required
from sardonyx.providers.native.program.views import View, contiguous_strides
from sardonyx.startup.records import dataclass, replace

BLOCK = 4096
"""Elements that are counted together."""


@dataclass(frozen=True)
class Counted:
    """What is known of a tensor once its elements that are not zero are counted."""

    source: View
    elements: Dim
    starts: Buffer
    """For each block, how many of the places come before it."""
    total: Buffer
    """How many there are."""


def count_nonzero(lowerer: Lowerer, source: View, elements: Dim) -> Counted:
    """Count those of the first elements of a view without gaps that are not zero."""
    blocks = dim.ceildiv(elements, BLOCK)
    starts, total = lowerer.scratch(blocks * I64.bytes), lowerer.scratch(I64.bytes)
    counting = CountArguments(source=source.place, elements=elements, counts=starts)
    traffic = elements * source.type.bytes
    lowerer.call(count_kernel(lowerer.target, source.type), counting, blocks, 16, flops=elements, traffic=traffic)
    accumulate(lowerer, starts, blocks, total)
    return Counted(source, elements, starts, total)


def accumulate(lowerer: Lowerer, counts: Buffer, length: Dim, total: Buffer) -> None:
    """Make counts into the sums of those before them."""
    lowerer.call(accumulate_kernel(lowerer.target), AccumulateArguments(counts=counts, length=length, total=total), 1)


def write_places(lowerer: Lowerer, counted: Counted, sizes: Sequence[Dim], target: Buffer | object, total: Dim) -> None:
    """Put the coordinates of what is not zero, in a tensor of these sizes, into [axes, total]."""
    lowerer.call(
        places_kernel(lowerer.target, counted.source.type, len(sizes)),
        PlacesArguments(
            source=counted.source.place,
            elements=counted.elements,
            starts=counted.starts,
            sizes=sizes[1:],
            target=target,
            total=total,
        ),
        dim.ceildiv(counted.elements, BLOCK),
        16,
        traffic=counted.elements * counted.source.type.bytes + total * len(sizes) * I64.bytes,
    )


def _is_counted(value: Value | None) -> bool:
    type = None if value is None else element_of(value)
    return type is not None and type.kind in ("bool", "int", "uint", "float")


@lower("NonZero", claims=lambda node: _is_counted(node.inputs[0]), settles=True)
def non_zero(lowerer: Lowerer, node: Node) -> None:
    """The coordinates of all elements that are not zero, axis by axis."""
    source, result = lowerer.contiguous(required(node.inputs[0])), node.outputs[0]
    counted = count_nonzero(lowerer, source, dim.product(source.shape))
    settle_shape(lowerer, result, [(1, counted.total)])
    target = lowerer.output(result)
    if source.shape:
        write_places(lowerer, counted, source.shape, target.place, target.shape[1])


def _claims_compress(node: Node) -> bool:
    return _is_counted(node.inputs[1]) and rank_of(required(node.inputs[1])) == 1 and rank_of(required(node.inputs[0])) > 0


@lower("Compress", claims=_claims_compress, settles=True)
def compress(lowerer: Lowerer, node: Node) -> None:
    """Slices along an axis, or elements, for which a condition holds."""
    value, condition = (required(one) for one in node.inputs)
    result, given = node.outputs[0], operand(node, "axis")
    if given is None:
        elements = dim.product(dims(value))
        data = replace(lowerer.contiguous(value), shape=(elements,), strides=(1,))
    else:
        data = lowerer.contiguous(value)
    axis = int(given or 0) % len(data.shape)
    looked_at = dim.minimum(data.shape[axis], dims(condition)[0])
    counted = count_nonzero(lowerer, lowerer.contiguous(condition), looked_at)
    settle_shape(lowerer, result, [(axis, counted.total)])
    total = dims(result)[axis]
    places = View(lowerer.scratch(total * I64.bytes), I64, (total,), contiguous_strides((total,)))
    write_places(lowerer, counted, [looked_at], places.place, total)
    take(lowerer, data, axis, places, 1, lowerer.output(result))


# --- kernels --------------------------------------------------------------------------------------------------------


class CountArguments(Arguments):
    source: Pointer
    elements: Size
    counts: Pointer


@kernel("count nonzero", CountArguments)
def count_kernel(f: KernelFunction, a: CountArguments, type: Type) -> None:
    """Items are blocks."""
    f.declare("declare i64 @llvm.ctpop.i64(i64)")
    with f.loop(f.begin, f.end) as block:
        total = f.variable(0, I64)

        def count(place: Code, bits: Code) -> None:
            total.set(total.get() + f.emit(I64, f"call i64 @llvm.ctpop.i64({bits})"))

        _go_through(f, a.source, a.elements, block, type, count)
        f.store(total.get(), a.counts, block, I64)


def _go_through(
    f: KernelFunction, source: Code, elements: Code, block: Code, type: Type, visit: Callable[[Code, Code], None]
) -> None:
    """Give the vectors of a block to `visit`: where each begins, and as bits which of its elements are not zero."""
    lanes = f.lanes(type)
    end = f.minimum((block + 1) * BLOCK, elements)
    with f.loop(block * BLOCK, end, lanes) as place:
        found = f.load(source, place, type, lanes, remaining=end - place)
        mask = found if type == BOOL else ~(found == 0)
        visit(place, bits_of(f, mask & f.first_lanes(end - place, lanes) if lanes > 1 else mask))


class AccumulateArguments(Arguments):
    counts: Pointer
    length: Size
    total: Pointer


@kernel("sums of counts", AccumulateArguments)
def accumulate_kernel(f: KernelFunction, a: AccumulateArguments) -> None:
    total = f.variable(0, I64)
    with f.loop(0, a.length) as place:
        count = f.load(a.counts, place, I64)
        f.store(total.get(), a.counts, place, I64)
        total.set(total.get() + count)
    f.store(total.get(), a.total, 0, I64)


class PlacesArguments(Arguments):
    source: Pointer
    elements: Size
    starts: Pointer
    sizes: Sequence[Size] = each(lambda rank: rank - 1)
    """Of all axes but the first."""
    target: Pointer
    total: Size


@kernel("places of nonzero", PlacesArguments)
def places_kernel(f: KernelFunction, a: PlacesArguments, type: Type, rank: int) -> None:
    """Items are blocks. Nothing is written beyond the end if somebody changes the data meanwhile."""
    with f.loop(f.begin, f.end) as block:
        number = f.variable(f.load(a.starts, block, I64))

        def write(place: Code, bits: Code) -> None:
            left = f.variable(bits)
            with f.while_() as body:
                rest = left.get()
                body.leave_if((rest == 0) | (number.get() >= a.total))
                position = place + lowest_bit(f, rest)
                for axis in range(rank - 1, 0, -1):
                    size = a.sizes[axis - 1]
                    f.store(position % size, a.target, a.total * axis + number.get(), I64)
                    position = position // size
                f.store(position, a.target, number.get(), I64)
                number.set(number.get() + 1)
                left.set(rest & (rest - 1))

        _go_through(f, a.source, a.elements, block, type, write)
