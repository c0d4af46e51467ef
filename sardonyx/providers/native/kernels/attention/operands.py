"""What the attention kernels are given: records for one attention and for tensors of heads, and the code that reads them.

`tile` serves many queries, `rows` a few; both have what is common to them here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sardonyx.compiler.builder import Value
from sardonyx.compiler.math import tanh
from sardonyx.compiler.types import F64, I32, I64, Type
from sardonyx.providers.native.kernels.attention.form import Attention, Bounds, Form, Mask
from sardonyx.providers.native.program.arguments import Arguments, Number, Pointer, Size, each, when
from sardonyx.providers.native.program.kernel import KernelFunction
from sardonyx.providers.native.program.views import View


class TensorArguments(Arguments):
    """A tensor of heads, (batch, heads, rows, size); elements of a row lie side by side."""

    place: Pointer
    batch_stride: Size
    head_stride: Size
    row_stride: Size


def tensor_arguments(view: View) -> TensorArguments:
    batch, head, row, _ = view.strides
    return TensorArguments(place=view.place, batch_stride=batch, head_stride=head, row_stride=row)


class LengthArguments(Arguments):
    """How many keys each batch has: see `Bounds`."""

    place: Pointer
    more: Size
    from_length: Size


def length_arguments(bounds: Bounds) -> LengthArguments:
    assert bounds.lengths is not None
    return LengthArguments(place=bounds.lengths, more=bounds.more, from_length=bounds.from_length)


class WindowArguments(Arguments):
    """Which keys a query sees, by its position: see `Bounds`."""

    offset: Size
    left: Size
    right: Size


class AttentionArguments(Arguments):
    query: TensorArguments
    key: TensorArguments
    value: TensorArguments
    output: TensorArguments
    batch: Size
    heads: Size
    key_heads: Size
    queries: Size
    keys: Size
    size: Size | None = when(lambda form: form.size is None)
    value_size: Size | None = when(lambda form: form.value_size is None)
    by_root: Size | None = when(lambda form: form.size is None)
    """1 if the scale is to be divided by the square root of the size."""
    scale: Number
    masks: Sequence[TensorArguments] = each(lambda form: len(form.masks))
    """Their rows are queries, or blocks of queries; where all queries share a row, its stride does not count."""
    ranges: Pointer | None = when(lambda form: form.ranges)
    """For each batch the end, then for each the start."""
    filter_value: Number | None = when(lambda form: form.has_filter)
    window: WindowArguments | None = when(lambda form: form.bounded)
    lengths: LengthArguments | None = when(lambda form: form.lengths is not None)
    cap: Number | None = when(lambda form: form.capped)
    sink: Pointer | None = when(lambda form: form.sink is not None)


def attention_arguments(attention: Attention) -> AttentionArguments:
    form, bounds = attention.form, attention.bounds
    return AttentionArguments(
        query=tensor_arguments(attention.query),
        key=tensor_arguments(attention.key),
        value=tensor_arguments(attention.value),
        output=tensor_arguments(attention.output),
        batch=attention.query.shape[0],
        heads=attention.query.shape[1],
        key_heads=attention.key.shape[1],
        queries=attention.queries,
        keys=attention.keys,
        size=attention.query.shape[3] if form.size is None else None,
        value_size=attention.value.shape[3] if form.value_size is None else None,
        by_root=int(attention.scale is None) if form.size is None else None,
        scale=_scale(attention),
        masks=[tensor_arguments(view) for view in attention.masks],
        ranges=attention.ranges,
        filter_value=attention.filter_value if form.has_filter else None,
        window=WindowArguments(offset=bounds.offset, left=bounds.left, right=bounds.right) if form.bounded else None,
        lengths=None if form.lengths is None else length_arguments(bounds),
        cap=attention.cap if form.capped else None,
        sink=attention.sink,
    )


def _scale(attention: Attention) -> float:
    if attention.scale is not None:
        return attention.scale
    return float(attention.form.size or 1) ** -0.5


class Tensor:
    """A tensor of heads inside a kernel."""

    def __init__(self, f: KernelFunction, a: TensorArguments, type: Type):
        self.f = f
        self.a = a
        self.type = type

    def at(self, *indices: Value) -> Value:
        """Where a batch's head begins, or a row of it."""
        offset = indices[0] * self.a.batch_stride
        for index, stride in zip(indices[1:], (self.a.head_stride, self.a.row_stride)):
            offset = offset + index * stride
        return self.f.address(self.a.place, offset, self.type)

    def row(self, head: Value, index: Value) -> Value:
        """Where a row begins, in the head that begins at `head`."""
        return self.f.address(head, index * self.a.row_stride, self.type)

    def is_apart(self, other: Tensor) -> Value:
        """Whether another tensor lies elsewhere; two that do not are the same."""
        return self.f.as_number(self.a.place) != self.f.as_number(other.a.place)


def told(known: int | None, argument: Value | None) -> Value | int:
    """A size that is known before, or else among the arguments."""
    size = argument if known is None else known
    assert size is not None
    return size


def scale_of(f: KernelFunction, a: Any) -> Value:
    """What products are multiplied with: `scale`, divided by the root of `size` if `by_root` is among the arguments and 1."""
    if a.by_root is None:
        return a.scale
    return a.scale / f.sqrt(f.convert(f.select(a.by_root != 0, a.size, 1), F64))


def told_length(f: KernelFunction, a: LengthArguments, type: Type, batch: Value) -> Value:
    """How many keys a batch says that it has."""
    return f.convert(f.load(a.place, batch, type), I64) + a.more


class AttentionCode:
    """An attention being emitted, with its operands."""

    def __init__(self, f: KernelFunction, a: AttentionArguments, form: Form):
        self.f = f
        self.a = a
        self.form = form
        self.query, self.key = Tensor(f, a.query, form.query), Tensor(f, a.key, form.key)
        self.value, self.output = Tensor(f, a.value, form.value), Tensor(f, a.output, form.output)
        self.masks = [Tensor(f, tensor, mask.type) for tensor, mask in zip(a.masks, form.masks)]
        self.size, self.value_size = told(form.size, a.size), told(form.value_size, a.value_size)
        self.scale = f.convert(scale_of(f, a), form.computed)
        self.filter_value = None if a.filter_value is None else f.convert(a.filter_value, form.computed)
        self.cap = None if a.cap is None else f.convert(a.cap, form.computed)

    def key_count(self, batch: Value) -> Value:
        """How many keys a batch has, never more than there are."""
        if self.a.lengths is None or self.form.lengths is None:
            return self.a.keys
        f = self.f
        return f.minimum(f.maximum(told_length(f, self.a.lengths, self.form.lengths, batch), 0), self.a.keys)

    def first_position(self, count: Value) -> Value:
        """Where the first query of a batch with so many keys stands among them."""
        assert self.a.window is not None
        if self.a.lengths is None:
            return self.a.window.offset
        return self.a.window.offset + (count - self.a.queries) * self.a.lengths.from_length

    def range_of(self, batch: Value) -> tuple[Value | None, Value]:
        """The first key and the one behind the last that get no filter value."""
        assert self.a.ranges is not None
        f = self.f
        end = f.load(self.a.ranges, batch, I32)
        return (f.load(self.a.ranges, batch + self.a.batch, I32) if self.form.ranges == 2 else None), end

    def sink_score(self, head: Value) -> Value | None:
        """The score of nothing."""
        if self.a.sink is None or self.form.sink is None:
            return None
        return self.f.convert(self.f.load(self.a.sink, head, self.form.sink), self.form.computed)

    def capped(self, score: Value) -> Value:
        if self.cap is None:
            return score
        return tanh(score / self.cap) * self.cap

    def filtered(self, outside: Value) -> Value:
        """What scores of keys outside of the range get added, and others not."""
        assert self.filter_value is not None
        return self.f.select(outside, self.filter_value, 0.0)

    def mask_values(self, mask: Mask, raw: Value) -> Value:
        return mask_values(mask, raw, self.form.computed, self.filter_value)

    def masked(self, mask: Mask, score: Value, number: Value) -> Value:
        """A score with a mask's number."""
        f = self.f
        total = score + number
        if mask.type.kind == "bool" or mask.is_final:
            return f.select(f.as_value(number, score.type) == -math.inf, f.const(score.type, -math.inf), total)
        return total


def mask_values(mask: Mask, raw: Value, real: Type, filter_value: Value | None) -> Value:
    """What was loaded of a mask as numbers to add."""
    f, wide = raw.f, real.vector(raw.type.lanes)
    if mask.type.kind == "bool":
        return f.select(raw, f.const(wide, 0.0), f.const(wide, -math.inf))
    if mask.type.is_integer:
        assert filter_value is not None
        return f.select(raw > 0, f.const(wide, 0.0), f.as_value(filter_value, wide))
    return f.convert(raw, wide)
