"""Lowerings of sequences. A sequence that one node alone reads is changed where it lies, another one is copied before."""

from __future__ import annotations

from sardonyx.compiler.types import I64, Type
from sardonyx.ir import Dim, Node, Value, dim
from sardonyx.ops.reading import constant, input_named, operand
from sardonyx.providers.native.kernels.sequence.kernels import (
    CutArguments,
    EraseArguments,
    FindArguments,
    InsertArguments,
    JoinArguments,
    MeasureArguments,
    PartsArguments,
    TakeArguments,
    cut_kernel,
    erase_kernel,
    find_kernel,
    insert_kernel,
    join_kernel,
    measure_kernel,
    number_word,
    parts_kernel,
    row_words,
    take_kernel,
)
from sardonyx.providers.native.kernels.shape.copying import PIECE_BYTES, raw
from sardonyx.providers.native.program.computed_sizes import numbers_at, positions, settle_shape
from sardonyx.providers.native.program.held import HeldSequence, held_sequence
from sardonyx.providers.native.program.known import sizes_step
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import At, Buffer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, element_of, rank_of, required, stored, stored_in, tensors_in
from sardonyx.providers.native.program.views import View, contiguous_strides
from sardonyx.providers.provider import CannotCompile


def _is_sequence(value: Value | None) -> bool:
    return tensors_in(value) is not None


def _has_position(node: Node) -> bool:
    """Whether the position is a whole number, or left out."""
    position = input_named(node, "position")
    type = None if position is None else element_of(position)
    return _is_sequence(node.inputs[0]) and (
        position is None or (type is not None and type.is_integer and rank_of(position) <= 1)
    )


# --- what lowerings of control flow share ----------------------------------------------------------------------------


def copy_sequence(lowerer: Lowerer, source: HeldSequence, target: HeldSequence) -> None:
    """Copy a sequence into other memory."""
    target.room_for(source.count, source.total)
    lowerer.copy(source.elements, View(target.data, target.type, (source.total,), (1,)))
    if source.rank is not None:
        lowerer.copy(source.rows, View(target.table, I64, source.rows.shape, (1,)))


def own_sequence(lowerer: Lowerer, value: Value, node: Node) -> HeldSequence:
    """A sequence that a node may change: nobody else reads it, or it is a copy."""
    held = lowerer.sequence(value)
    if lowerer.is_private(value) and value.graph is node.graph and held.rank is not None:
        return held
    copy = held_sequence(held.type, held.rank, held.count, held.total)
    copy_sequence(lowerer, held, copy)
    return copy


def find_tensor(lowerer: Lowerer, held: HeldSequence, position: At | Buffer | None, type: Type | None) -> Buffer:
    """Look up where a tensor lies; the last one without a position."""
    row = lowerer.scratch(I64.bytes * row_words(held.rank))
    arguments = FindArguments(table=held.table, count=held.count, position=position, row=row, status=lowerer.status())
    lowerer.call(find_kernel(lowerer.target, type, held.rank), arguments, 1)
    return row


def take_tensor(lowerer: Lowerer, held: HeldSequence, row: Buffer, value: Value, target: View) -> None:
    """Let a value be a copy of the tensor that was found. Its sizes are settled before."""
    total, type = dim.product(dims(value)), raw(held.type)
    lowerer.call(
        take_kernel(lowerer.target, type),
        TakeArguments(data=held.data, row=row, target=target.place),
        total,
        PIECE_BYTES // type.bytes,
        traffic=2 * total * type.bytes,
    )


def settle_taken(lowerer: Lowerer, held: HeldSequence, row: Buffer, value: Value) -> None:
    """Let a value have the sizes of the tensor that was found."""
    settle_shape(lowerer, value, enumerate(numbers_at(At(row, I64.bytes), held.rank or 0)))


def append_tensor(lowerer: Lowerer, held: HeldSequence, view: View, number: At | None = None) -> HeldSequence:
    """Put a tensor behind all others, or in front of the one with a number; the memory stays the sequence's own."""
    rank = len(view.shape)
    count, total = held.count + 1, held.total + dim.product(view.shape)
    if held.rank is None:
        held = held_sequence(held.type, rank, count, total).with_sizes(held.count, held.total)
    if held.rank != rank:
        raise CannotCompile(f"a tensor of {rank} axes joins tensors of {held.rank}", quiet=True)
    grown = held.with_sizes(count, total)
    lowerer.copy(view, View(held.data, held.type, view.shape, contiguous_strides(view.shape), held.total))
    arguments = InsertArguments(table=held.table, count=held.count, number=number, start=held.total, sizes=view.shape)
    lowerer.call(insert_kernel(lowerer.target, rank, number is not None), arguments, 1)
    return grown


# --- making and changing ---------------------------------------------------------------------------------------------


@lower("SequenceEmpty", claims=lambda node: _is_sequence(node.outputs[0]), costly=False)
def sequence_empty(lowerer: Lowerer, node: Node) -> None:
    lowerer.set_sequence(node.outputs[0], _empty(node.outputs[0]))


def _empty(value: Value) -> HeldSequence:
    return held_sequence(stored_in(value), None, 0, 0)


@lower("SequenceConstruct", claims=lambda node: _is_sequence(node.outputs[0]), costly=False)
def sequence_construct(lowerer: Lowerer, node: Node) -> None:
    held = _empty(node.outputs[0])
    for value in node.inputs:
        held = append_tensor(lowerer, held, lowerer.view(required(value)))
    lowerer.set_sequence(node.outputs[0], held)


def _position(lowerer: Lowerer, node: Node) -> View | None:
    value = input_named(node, "position")
    if value is None:
        return None
    lowerer.require(dim.product(dims(value)), 1)
    return lowerer.view(value)


@lower("SequenceInsert", claims=lambda node: _has_position(node) and _is_sequence(node.outputs[0]))
def sequence_insert(lowerer: Lowerer, node: Node) -> None:
    sequence, tensor = (required(value) for value in node.inputs[:2])
    position, view = _position(lowerer, node), lowerer.view(tensor)
    number = None
    if position is not None:
        count = lowerer.sequence(sequence).count
        row = lowerer.scratch(I64.bytes * row_words(None))
        arguments = FindArguments(table=None, count=count, position=position.place, row=row, status=lowerer.status())
        lowerer.call(find_kernel(lowerer.target, position.type, None), arguments, 1)
        number = At(row, I64.bytes * number_word(None))
    held = own_sequence(lowerer, sequence, node)
    lowerer.set_sequence(node.outputs[0], append_tensor(lowerer, held, view, number))


@lower("SequenceErase", claims=_has_position, settles=True)
def sequence_erase(lowerer: Lowerer, node: Node) -> None:
    position = _position(lowerer, node)
    held = own_sequence(lowerer, required(node.inputs[0]), node)
    if held.rank is None:
        raise CannotCompile("there is no tensor to erase", quiet=True)
    row = find_tensor(lowerer, held, *_place_of(position))
    word = number_word(held.rank) + 1
    (elements,) = positions(lowerer, [At(row, I64.bytes * word)])
    arguments = EraseArguments(table=held.table, data=held.data, count=held.count, total=held.total, row=row)
    lowerer.call(erase_kernel(lowerer.target, raw(held.type), held.rank), arguments, 1)
    lowerer.set_sequence(node.outputs[0], held.with_sizes(held.count - 1, held.total - elements))


def _place_of(position: View | None) -> tuple[At | None, Type | None]:
    return (None, None) if position is None else (position.place, position.type)


# --- reading ---------------------------------------------------------------------------------------------------------


@lower("SequenceAt", claims=_has_position, settles=True)
def sequence_at(lowerer: Lowerer, node: Node) -> None:
    held, result = lowerer.sequence(required(node.inputs[0])), node.outputs[0]
    if held.rank != rank_of(result):
        raise CannotCompile(f"the tensors have {held.rank} axes and not {rank_of(result)}", quiet=True)
    row = find_tensor(lowerer, held, *_place_of(_position(lowerer, node)))
    settle_taken(lowerer, held, row, result)
    take_tensor(lowerer, held, row, result, lowerer.output(result))


@lower("SequenceLength", claims=lambda node: _is_sequence(node.inputs[0]))
def sequence_length(lowerer: Lowerer, node: Node) -> None:
    held = lowerer.sequence(required(node.inputs[0]))
    sizes_step(lowerer, [held.count], lowerer.output(node.outputs[0]))


# --- cutting and joining ---------------------------------------------------------------------------------------------


def _claims_split(node: Node) -> bool:
    split = input_named(node, "split")
    type = None if split is None else element_of(split)
    is_split = split is None or (type is not None and type.is_integer and rank_of(split) <= 1)
    return is_split and _is_sequence(node.outputs[0]) and rank_of(required(node.inputs[0])) > 0


@lower("SplitToSequence", claims=_claims_split, settles=True)
def split_to_sequence(lowerer: Lowerer, node: Node) -> None:
    value, split = required(node.inputs[0]), input_named(node, "split")
    shape = dims(value)
    axis = int(operand(node, "axis")) % len(shape)
    has_axis = split is not None or operand(node, "keepdims") != 0
    source = lowerer.contiguous(value)
    lengths = None if split is None else lowerer.contiguous(split)
    sizes = shape if has_axis else (*shape[:axis], *shape[axis + 1 :])
    held = held_sequence(source.type, len(sizes), _parts(lowerer, split, shape[axis]), dim.product(shape))
    offsets = lowerer.scratch(held.count * I64.bytes)
    outer, inner = dim.product(shape[:axis]), dim.product(shape[axis + 1 :])
    lowerer.call(
        cut_kernel(
            lowerer.target,
            None if lengths is None else lengths.type,
            split is not None and rank_of(split) == 1,
            len(sizes),
            axis if has_axis else None,
        ),
        CutArguments(
            size=shape[axis],
            split=None if lengths is None else lengths.place,
            step=outer * inner,
            sizes=sizes,
            table=held.table,
            offsets=offsets,
            count=held.count,
            status=lowerer.status(),
        ),
        1,
    )
    lowerer.call(
        join_kernel(lowerer.target, raw(held.type), len(sizes), axis if has_axis else None, False),
        JoinArguments(
            table=held.table,
            data=held.data,
            offsets=offsets,
            whole=source.place,
            outer=outer,
            size=shape[axis],
            inner=inner,
        ),
        held.count,
        traffic=2 * held.total * held.type.bytes,
    )
    lowerer.set_sequence(node.outputs[0], held)


def _parts(lowerer: Lowerer, split: Value | None, size: Dim) -> Dim:
    """How many parts an axis is cut into."""
    if split is None:
        return size
    if rank_of(split) == 1:
        return dims(split)[0]
    length = constant(split) if split.is_constant else None
    if length is not None and length.item() > 0:
        return dim.ceildiv(size, int(length.item()))
    view, parts = lowerer.view(split), lowerer.scratch(I64.bytes)
    arguments = PartsArguments(size=size, split=view.place, parts=parts, status=lowerer.status())
    lowerer.call(parts_kernel(lowerer.target, view.type), arguments, 1)
    (count,) = positions(lowerer, [parts])
    return count


@lower("ConcatFromSequence", claims=lambda node: _is_sequence(node.inputs[0]), settles=True)
def concat_from_sequence(lowerer: Lowerer, node: Node) -> None:
    held, result = lowerer.sequence(required(node.inputs[0])), node.outputs[0]
    is_new, rank = bool(operand(node, "new_axis")), rank_of(result)
    if held.rank is None or held.rank + is_new != rank:
        raise CannotCompile(f"tensors of {held.rank} axes do not make one of {rank}", quiet=True)
    axis = int(operand(node, "axis")) % rank
    offsets, sizes = lowerer.scratch(held.count * I64.bytes), lowerer.scratch(I64.bytes * rank)
    lowerer.call(
        measure_kernel(lowerer.target, held.rank, axis, is_new),
        MeasureArguments(table=held.table, count=held.count, offsets=offsets, sizes=sizes, status=lowerer.status()),
        1,
    )
    settle_shape(lowerer, result, enumerate(numbers_at(sizes, rank)))
    shape, target = dims(result), lowerer.output(result)
    lowerer.call(
        join_kernel(lowerer.target, raw(held.type), held.rank, None if is_new else axis, True),
        JoinArguments(
            table=held.table,
            data=held.data,
            offsets=offsets,
            whole=target.place,
            outer=dim.product(shape[:axis]),
            size=shape[axis],
            inner=dim.product(shape[axis + 1 :]),
        ),
        held.count,
        traffic=2 * held.total * stored(result).bytes,
    )
