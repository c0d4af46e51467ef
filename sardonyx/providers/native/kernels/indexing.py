"""Ops that take or put elements at positions given as data. A position out of bounds is told through the program's status word."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from sardonyx.compiler.builder import Value as Code
from sardonyx.compiler.types import BOOL, I64, U64, Type
from sardonyx.ir import Dim, Node, Value, dim
from sardonyx.ops.reading import operand, word
from sardonyx.providers.native.kernels.shape.copying import PIECE_BYTES, copy_row, raw
from sardonyx.providers.native.kernels.shape.views import axis_of
from sardonyx.providers.native.kernels.shape.walking import StridedTensor, address_of, runs
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size, each
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, element_of, rank_of
from sardonyx.providers.native.program.views import Dims, View, collapse, contiguous_strides, permuted, regrouped


def _operands(node: Node) -> list[Value]:
    return [value for value in node.inputs if value is not None]


def _type_of(value: Value) -> Type:
    type = element_of(value)
    assert type is not None
    return type


def _with_groups(lowerer: Lowerer, value: Value, groups: Sequence[int]) -> tuple[View, Sequence[Dim]]:
    """A view of a value, copied if need be, and its strides along groups of its axes."""
    view = lowerer.view(value)
    strides = regrouped(view.shape, view.strides, groups)
    if strides is None:
        view = lowerer.contiguous(value)
        strides = regrouped(view.shape, view.strides, groups)
    assert strides is not None
    return view, strides


VECTOR = 8
"""How many indices are looked at together where they lie in a row."""


class Bounds:
    """Makes positions of indices inside a kernel, and remembers whether one was out of bounds."""

    def __init__(self, f: KernelFunction, status: Code):
        self.f = f
        self._status = status
        self._bad = f.variable(False, BOOL)

    @contextlib.contextmanager
    def inside(self, size: Code) -> Iterator[None]:
        """What is done only if an axis is not empty. If it is, every index is out of bounds."""
        self._bad.set(self._bad.get() | (size == 0))
        with self.f.if_(size > 0):
            yield

    def position(self, index: Code, size: Code) -> Code:
        """Where an index points in an axis of `size`, counted from its front; 0 for one out of bounds."""
        f = self.f
        position = f.select(index < 0, index + size, index)
        outside = f.convert(position, U64) >= f.convert(size, U64)
        some = outside if outside.type.lanes == 1 else f.bitcast(outside, Type("uint", outside.type.lanes)) != 0
        self._bad.set(self._bad.get() | some)
        return f.select(outside, 0, position)

    def tell(self) -> None:
        """Set the program's status word if there was one; at the end of the kernel."""
        with self.f.if_(self._bad.get()):
            self.f.store(1, self._status, 0, I64)


def load_index(f: KernelFunction, pointer: Code, place: Code, type: Type, lanes: int = 1) -> Code:
    return f.convert(f.load(pointer, place, type, lanes), I64)


def _grain(inner: Dim, type: Type) -> Dim:
    """How many rows of `inner` elements are worth handing to another thread."""
    return dim.maximum(1, dim.floordiv(PIECE_BYTES // type.bytes, dim.maximum(1, inner)))


# --- Gather ---------------------------------------------------------------------------------------------------------


@lower("Gather")
def gather(lowerer: Lowerer, node: Node) -> None:
    """Slices of `data` along an axis, at the positions in `indices`."""
    data, indices = _operands(node)
    axis = axis_of(node, rank_of(data))
    source, strides = _with_groups(lowerer, data, (axis, 1, rank_of(data) - axis - 1))
    places, (step,) = _with_groups(lowerer, indices, (rank_of(indices),))
    if dim.product(dims(data)[axis + 1 :]) != 1 and strides[2] != 1:
        source = lowerer.contiguous(data)
    take(lowerer, source, axis, places, step, lowerer.output(node.outputs[0]))


def take(lowerer: Lowerer, source: View, axis: int, places: View, step: Dim, target: View) -> None:
    """Add the step that takes slices along an axis, at positions that lie `step` apart from each other."""
    shape = source.shape
    strides = regrouped(shape, source.strides, (axis, 1, len(shape) - axis - 1))
    assert strides is not None
    outer, count, inner = dim.product(shape[:axis]), dim.product(places.shape), dim.product(shape[axis + 1 :])
    rows, type = outer * count, raw(source.type)
    by_row = not (isinstance(inner, int) and inner == 1)
    lowerer.call(
        gather_kernel(lowerer.target, type, places.type, by_row),
        GatherArguments(
            source=source.place,
            outer_stride=strides[0],
            axis_stride=strides[1],
            indices=places.place,
            index_stride=step,
            target=target.place,
            outer=outer,
            count=count,
            axis_size=shape[axis],
            inner=inner,
            status=lowerer.status(),
        ),
        dim.maximum(outer, 1) * count,  # indices into nothing are looked at, too
        _grain(inner, type),
        traffic=2 * rows * inner * type.bytes,
    )


class GatherArguments(Arguments):
    source: Pointer
    outer_stride: Size
    axis_stride: Size
    indices: Pointer
    index_stride: Size
    target: Pointer
    outer: Size
    """How many slices there are before the axis."""
    count: Size
    """How many indices there are."""
    axis_size: Size
    inner: Size
    """Elements in a row."""
    status: Pointer


@kernel("gather", GatherArguments)
def gather_kernel(f: KernelFunction, a: GatherArguments, type: Type, index_type: Type, by_row: bool) -> None:
    """Items are rows of the result, of `inner` elements each: one if not `by_row`."""
    bounds, has_data = Bounds(f, a.status), (a.axis_size > 0) & (a.outer > 0)
    outer, column = f.variable(f.begin // a.count), f.variable(f.begin % a.count)
    with f.loop(f.begin, f.end) as item:
        index = bounds.position(load_index(f, a.indices, column.get() * a.index_stride, index_type), a.axis_size)
        row = f.address(a.source, outer.get() * a.outer_stride + index * a.axis_stride, type)
        with f.if_(has_data):
            if by_row:
                copy_row(f, row, f.address(a.target, item * a.inner, type), a.inner, type)
            else:
                f.store(f.load(row, 0, type), a.target, item, type)
        column.set(column.get() + 1)
        with f.if_(column.get() >= a.count):
            column.set(0)
            outer.set(outer.get() + 1)
    bounds.tell()


# --- GatherElements and ScatterElements -----------------------------------------------------------------------------


def _check_bounds(lowerer: Lowerer, indices: Dims, data: Dims, axis: int) -> None:
    """Along all axes but the one that is indexed, there must not be more indices than data."""
    for position, (count, size) in enumerate(zip(indices, data)):
        if position != axis:
            lowerer.require(dim.minimum(count, size), count)


def _kind(stride: Dim) -> str:
    """A stride, as far as it shapes the code."""
    return str(stride) if isinstance(stride, int) and stride in (0, 1) else "n"


def _without(strides: Dims, axis: int) -> Dims:
    """Strides of an operand that does not move along an axis."""
    return (*strides[:axis], 0, *strides[axis + 1 :])


def _are_elementwise(node: Node) -> bool:
    return rank_of(_operands(node)[0]) >= 1


@lower("GatherElements", claims=_are_elementwise)
def gather_elements(lowerer: Lowerer, node: Node) -> None:
    """For each element of `indices` one of `data`, taken from the same place but for the axis."""
    data, indices = _operands(node)
    axis = axis_of(node, rank_of(data))
    source, places = lowerer.view(data), lowerer.view(indices)
    target, type = lowerer.output(node.outputs[0]), raw(source.type)
    _check_bounds(lowerer, places.shape, source.shape, axis)
    sizes, strides = collapse(places.shape, [_without(source.strides, axis), places.strides, target.strides])
    total = dim.product(sizes)
    kinds = "".join(map(_kind, (*(steps[-1] for steps in strides), source.strides[axis])))
    lowerer.call(
        gather_elements_kernel(lowerer.target, type, _type_of(indices), len(sizes), kinds),
        GatherElementsArguments(
            sizes=sizes[1:],
            source=StridedTensor(place=source.place, strides=strides[0]),
            indices=StridedTensor(place=places.place, strides=strides[1]),
            target=StridedTensor(place=target.place, strides=strides[2]),
            axis_stride=source.strides[axis],
            axis_size=source.shape[axis],
            status=lowerer.status(),
        ),
        total,
        PIECE_BYTES // type.bytes // 4,
        traffic=total * (2 * type.bytes + _type_of(indices).bytes),
    )


class GatherElementsArguments(Arguments):
    sizes: Sequence[Size] = each(lambda rank: rank - 1)
    """Of all axes of indices but the first."""
    source: StridedTensor
    """It does not move along the axis that is indexed."""
    indices: StridedTensor
    target: StridedTensor
    axis_stride: Size
    axis_size: Size
    status: Pointer


@kernel("gather elements", GatherElementsArguments)
def gather_elements_kernel(
    f: KernelFunction, a: GatherElementsArguments, type: Type, index_type: Type, rank: int, kinds: str
) -> None:
    """Items are indices. `kinds` says how data, indices and result are stepped through along a row, and data along the axis."""
    bounds = Bounds(f, a.status)
    strides = (a.source.strides[-1], a.indices.strides[-1], a.target.strides[-1], a.axis_stride)
    data_step, index_step, result_step, axis_step = (
        stride if kind == "n" else f.const(I64, int(kind)) for kind, stride in zip(kinds, strides)
    )

    def run(outer: Sequence[Code], column: Code, count: Code) -> None:
        here = [*outer, column]
        data, target = (address_of(f, tensor, here, type) for tensor in (a.source, a.target))
        indices = address_of(f, a.indices, here, index_type)
        whole = (count // VECTOR) * VECTOR if kinds[1:3] == "11" else f.const(I64, 0)
        with f.loop(0, whole, VECTOR) as index:
            positions = bounds.position(load_index(f, indices, index, index_type, VECTOR), a.axis_size)
            moved = (f.iota(I64, VECTOR) + f.splat(index, VECTOR)) * f.splat(data_step, VECTOR)
            f.store(f.gather(data, positions * axis_step + moved, type), target, index, type)
        with f.loop(whole, count) as index:
            position = bounds.position(load_index(f, indices, index * index_step, index_type), a.axis_size)
            f.store(f.load(data, position * axis_step + index * data_step, type), target, index * result_step, type)

    with bounds.inside(a.axis_size):
        if rank == 1:
            run([], f.begin, f.end - f.begin)
        else:
            runs(f, a.sizes, run)
    bounds.tell()


REDUCTIONS = ("none", "add", "mul", "min", "max")


def _reduction_of(node: Node) -> str:
    return word(node, "reduction", "none")


def _claims_scatter(node: Node) -> bool:
    """Complex numbers are moved, but not joined."""
    type, reduction = _type_of(_operands(node)[0]), _reduction_of(node)
    is_joined = type.is_number or type.kind == "bool"
    return rank_of(_operands(node)[0]) >= 1 and reduction in REDUCTIONS and (reduction == "none" or is_joined)


def _joined(f: KernelFunction, reduction: str, old: Code, new: Code) -> Code:
    """Two elements as one. A NaN among them is the result of min and max; of booleans the sum is what is true of one of them."""
    if old.type.kind == "bool":
        return old | new if reduction in ("add", "max") else old & new
    if reduction in ("add", "mul"):
        return f.binary(reduction, old, new)
    least = f.minimum(old, new) if reduction == "min" else f.maximum(old, new)
    return f.select(f.is_nan(old), old, least) if old.type.is_float else least


def _stored_types(updates: View, target: View, reduction: str) -> tuple[Type, Type]:
    """How updates and results lie in memory: as mere bits if nothing is computed."""
    return (raw(updates.type), raw(target.type)) if reduction == "none" else (updates.type, target.type)


def _put(f: KernelFunction, reduction: str, new: Code, target: Code, place: Code, type: Type) -> None:
    f.store(new if reduction == "none" else _joined(f, reduction, f.load(target, place, type), new), target, place, type)


def _copied_data(lowerer: Lowerer, node: Node) -> View:
    """The result, with `data` in it. Narrow floats that are joined stand in float32 until all are."""
    source = lowerer.view(_operands(node)[0])
    target = _place_of(lowerer, node) if _reduction_of(node) != "none" and source.type.is_narrow_float else None
    target = target or lowerer.output(node.outputs[0])
    lowerer.copy(source, target)
    return target


def _place_of(lowerer: Lowerer, node: Node) -> View:
    """Memory for the result in the type that it is computed in."""
    shape, type = dims(node.outputs[0]), _type_of(node.outputs[0]).computed
    return View(lowerer.scratch(dim.product(shape) * type.bytes), type, shape, contiguous_strides(shape))


def _deliver(lowerer: Lowerer, node: Node, target: View) -> None:
    """Round what was joined in float32."""
    if target.type != _type_of(node.outputs[0]):
        lowerer.copy(target, lowerer.output(node.outputs[0]))


@lower("ScatterElements", "Scatter", claims=_claims_scatter, text=True)
def scatter_elements(lowerer: Lowerer, node: Node) -> None:
    """`data` with each element of `updates` put in or joined at the same place but for the axis."""
    data, indices, updates = _operands(node)
    axis, reduction = axis_of(node, rank_of(data)), _reduction_of(node)
    for left, right in zip(dims(indices), dims(updates), strict=True):
        lowerer.require(left, right)
    places, new = lowerer.view(indices), lowerer.view(updates)
    target = _copied_data(lowerer, node)
    source, type = _stored_types(new, target, reduction)
    _check_bounds(lowerer, places.shape, target.shape, axis)
    rest = [position for position in range(rank_of(data)) if position != axis]
    views = (target, places, new)
    sizes, strides = collapse(permuted(places.shape, rest), [permuted(view.strides, rest) for view in views])
    # what is put along the axis stays in its order, so threads share all else
    others = dim.product(sizes)
    lowerer.call(
        scatter_elements_kernel(lowerer.target, source, type, _type_of(indices), len(sizes), reduction),
        ScatterElementsArguments(
            length=places.shape[axis],
            sizes=sizes[1:],
            target=StridedTensor(place=target.place, strides=strides[0]),
            indices=StridedTensor(place=places.place, strides=strides[1]),
            updates=StridedTensor(place=new.place, strides=strides[2]),
            index_stride=places.strides[axis],
            update_stride=new.strides[axis],
            axis_stride=target.strides[axis],
            axis_size=target.shape[axis],
            status=lowerer.status(),
        ),
        others,
        _grain(places.shape[axis] * 4, type),
        traffic=others * places.shape[axis] * (2 * type.bytes + _type_of(indices).bytes),
    )
    _deliver(lowerer, node, target)


class ScatterElementsArguments(Arguments):
    length: Size
    """How many indices there are along the axis."""
    sizes: Sequence[Size] = each(lambda rank: rank - 1)
    """Of all other axes but the first."""
    target: StridedTensor
    indices: StridedTensor
    updates: StridedTensor
    index_stride: Size
    """Along the axis, as that of updates."""
    update_stride: Size
    axis_stride: Size
    """Of the target, as the size."""
    axis_size: Size
    status: Pointer


@kernel("scatter elements", ScatterElementsArguments)
def scatter_elements_kernel(
    f: KernelFunction,
    a: ScatterElementsArguments,
    source: Type,
    type: Type,
    index_type: Type,
    rank: int,
    reduction: str,
) -> None:
    """Items are places along the axes that are not indexed, of which there are `rank`."""
    bounds = Bounds(f, a.status)

    def run(outer: Sequence[Code], column: Code, count: Code) -> None:
        here = [*outer, column]
        target = address_of(f, a.target, here, type)
        first_index, first_update = address_of(f, a.indices, here, index_type), address_of(f, a.updates, here, source)
        with f.loop(0, a.length) as along:
            indices = f.address(first_index, along * a.index_stride, index_type)
            updates = f.address(first_update, along * a.update_stride, source)
            with f.loop(0, count) as index:
                position = bounds.position(load_index(f, indices, index * a.indices.strides[-1], index_type), a.axis_size)
                with f.if_(a.axis_size > 0):
                    new = f.load(updates, index * a.updates.strides[-1], source)
                    _put(f, reduction, new, target, position * a.axis_stride + index * a.target.strides[-1], type)

    if rank == 1:
        run([], f.begin, f.end - f.begin)
    else:
        runs(f, a.sizes, run)
    bounds.tell()


# --- GatherND and ScatterND -----------------------------------------------------------------------------------------


def _tuple_length(indices: Value) -> int | None:
    shape = dims(indices)
    return shape[-1] if shape and isinstance(shape[-1], int) else None


def _claims_tuples(node: Node) -> bool:
    data, indices = _operands(node)[:2]
    length = _tuple_length(indices)
    return length is not None and int(operand(node, "batch_dims") or 0) + length <= rank_of(data)


@lower("GatherND", claims=_claims_tuples)
@lower("GatherND", domain="com.microsoft", claims=_claims_tuples)
def gather_nd(lowerer: Lowerer, node: Node) -> None:
    """Slices of `data`, each at the position that a tuple of indices says."""
    data, indices = _operands(node)
    batch_dims, length = int(operand(node, "batch_dims") or 0), _tuple_length(indices)
    assert length is not None
    source, places = lowerer.contiguous(data), lowerer.contiguous(indices)
    shape = source.shape
    lowerer.require_shape(places.shape[:batch_dims], shape[:batch_dims])
    target, type = lowerer.output(node.outputs[0]), raw(source.type)
    inner = dim.product(shape[batch_dims + length :])
    rows = dim.product(places.shape[:-1])
    indexed = shape[batch_dims : batch_dims + length]
    per_batch = dim.product(places.shape[batch_dims:-1])
    lowerer.call(
        gather_nd_kernel(lowerer.target, type, _type_of(indices), length),
        GatherSlicesArguments(
            source=source.place,
            indices=places.place,
            target=target.place,
            sizes=indexed,
            per_batch=dim.maximum(1, per_batch),
            inner=inner,
            status=lowerer.status(),
        ),
        rows,
        _grain(inner, type),
        traffic=2 * rows * inner * type.bytes,
    )


def _tuple_position(f: KernelFunction, indices: Code, item: Code, sizes: Sequence[Code], type: Type, bounds: Bounds) -> Code:
    """A tuple of indices as one number."""
    position = f.const(I64, 0)
    for part, size in enumerate(sizes):
        index = load_index(f, indices, item * len(sizes) + part, type)
        position = position * size + bounds.position(index, size)
    return position


def _product(f: KernelFunction, sizes: Sequence[Code]) -> Code:
    total = f.const(I64, 1)
    for size in sizes:
        total = total * size
    return total


class GatherSlicesArguments(Arguments):
    source: Pointer
    indices: Pointer
    target: Pointer
    sizes: Sequence[Size] = each(lambda length: length)
    """Of the axes that are indexed."""
    per_batch: Size
    """How many tuples belong to an entry of the batch."""
    inner: Size
    """Elements in a slice."""
    status: Pointer


@kernel("gather slices", GatherSlicesArguments)
def gather_nd_kernel(f: KernelFunction, a: GatherSlicesArguments, type: Type, index_type: Type, length: int) -> None:
    """Items are tuples of indices."""
    bounds, slices = Bounds(f, a.status), _product(f, a.sizes)
    with f.loop(f.begin, f.end) as item:
        position = _tuple_position(f, a.indices, item, a.sizes, index_type, bounds) + (item // a.per_batch) * slices
        with f.if_(slices > 0):
            source, target = f.address(a.source, position * a.inner, type), f.address(a.target, item * a.inner, type)
            copy_row(f, source, target, a.inner, type)
    bounds.tell()


def _claims_scatter_tuples(node: Node) -> bool:
    if not _claims_scatter(node) or not _claims_tuples(node):
        return False
    data, indices, updates = _operands(node)
    length = _tuple_length(indices)
    return length is not None and rank_of(updates) == rank_of(indices) - 1 + rank_of(data) - length


@lower("ScatterND", claims=_claims_scatter_tuples, text=True)
def scatter_nd(lowerer: Lowerer, node: Node) -> None:
    """`data` with slices put in or joined, each at the position that a tuple of indices says."""
    data, indices, updates = _operands(node)
    length, reduction = _tuple_length(indices), _reduction_of(node)
    assert length is not None
    places, new = lowerer.contiguous(indices), lowerer.contiguous(updates)
    shape = dims(data)
    lowerer.require_shape(new.shape, (*places.shape[:-1], *shape[length:]))
    target = _copied_data(lowerer, node)
    source, type = _stored_types(new, target, reduction)
    inner, rows = dim.product(shape[length:]), dim.product(places.shape[:-1])
    # slices are put one after the other, so threads share what is inside of them
    lowerer.call(
        scatter_nd_kernel(lowerer.target, source, type, _type_of(indices), length, reduction),
        ScatterSlicesArguments(
            target=target.place,
            indices=places.place,
            updates=new.place,
            sizes=shape[:length],
            rows=rows,
            inner=inner,
            status=lowerer.status(),
        ),
        dim.maximum(inner, 1),  # indices are looked at where slices are empty, too
        dim.maximum(16, _grain(rows * 2, type)),
        traffic=2 * rows * inner * type.bytes,
    )
    _deliver(lowerer, node, target)


class ScatterSlicesArguments(Arguments):
    target: Pointer
    indices: Pointer
    updates: Pointer
    sizes: Sequence[Size] = each(lambda length: length)
    """Of the axes that are indexed."""
    rows: Size
    """How many tuples of indices there are."""
    inner: Size
    """Elements in a slice."""
    status: Pointer


@kernel("scatter slices", ScatterSlicesArguments)
def scatter_nd_kernel(
    f: KernelFunction,
    a: ScatterSlicesArguments,
    source: Type,
    type: Type,
    index_type: Type,
    length: int,
    reduction: str,
) -> None:
    """Items are elements of a slice: those from `begin` to `end` of every slice are put."""
    bounds, slices = Bounds(f, a.status), _product(f, a.sizes)
    lanes, count = f.lanes(type), f.minimum(f.end, a.inner) - f.begin
    whole = (count // lanes) * lanes
    with f.loop(0, a.rows) as item:
        position = _tuple_position(f, a.indices, item, a.sizes, index_type, bounds)
        with f.if_(slices > 0):
            updates = f.address(a.updates, item * a.inner + f.begin, source)
            target = f.address(a.target, position * a.inner + f.begin, type)
            with f.loop(0, whole, lanes) as index:
                _put_vector(f, reduction, f.load(updates, index, source, lanes), target, index, type)
            with f.loop(whole, count) as index:
                _put_vector(f, reduction, f.load(updates, index, source), target, index, type)
    bounds.tell()


def _put_vector(f: KernelFunction, reduction: str, new: Code, target: Code, index: Code, type: Type) -> None:
    if reduction != "none":
        new = _joined(f, reduction, f.load(target, index, type, new.type.lanes), new)
    f.store(new, target, index, type)
