"""What the attention kernels have in common: the form of an attention, which shapes code, and the operands that come at run time.

`attention_tile` serves many queries, `attention_rows` a few; `attention` calls both with the arguments that `Attention.arguments` lists.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sardonyx.compiler.builder import Value
from sardonyx.compiler.math import LOG2_E, exp, polynomial, tanh
from sardonyx.compiler.types import I32, I64, U32, Type
from sardonyx.ir import Dim
from sardonyx.providers.native.kernel import KernelFunction
from sardonyx.providers.native.program import Argument, At
from sardonyx.providers.native.views import View
from sardonyx.records import dataclass

ENDLESS = 1 << 40
"""How far a query sees that sees everything."""


@dataclass(frozen=True)
class Mask:
    """Numbers added to scores (floats), keys that are seen (bool), or keys whose scores get no filter value (integers above 0)."""

    type: Type
    per_query: bool
    is_final: bool = False
    """Whether -inf hides a key even where its score is not a number."""


@dataclass(frozen=True)
class Form:
    """What of an attention shapes its code; all sizes but those of a head's vectors come at run time."""

    query: Type
    key: Type
    value: Type
    output: Type
    size: int
    value_size: int
    masks: tuple[Mask, ...] = ()
    ranges: int = 0
    """1: keys from an end on, by batch, get the filter value; 2: those before a start too."""
    bounded: bool = False
    """Whether a query sees only keys in some range around its position, or of its batch's length."""
    lengths: Type | None = None
    """The type of the numbers that tell for each batch how many keys there are."""
    capped: bool = False
    sink: Type | None = None
    """The type of the scores of nothing, one for each head."""
    empty_is_zero: bool = False
    """Whether the result is 0, not NaN, for a query that sees no key."""
    ragged: bool = False
    """Whether the lengths also tell how many rows of the past each batch has, so that new ones follow these."""

    @property
    def computed(self) -> Type:
        return self.query.computed


@dataclass(frozen=True)
class Bounds:
    """Query q of a batch stands at position `offset` + q among the keys and sees those from `left` before it to `right` behind it."""

    offset: Dim = 0
    left: Dim = ENDLESS
    right: Dim = ENDLESS
    lengths: At | None = None
    """How many keys each batch has, less `more`."""
    more: Dim = 0
    from_length: Dim = 0
    """1 if the last query of a batch stands at its last key, 0 if `offset` counts."""


ANYWHERE = Bounds()


@dataclass(frozen=True)
class Attention:
    """All operands of one attention. Views are (batch, heads, sequence, size); their innermost stride is 1."""

    form: Form
    query: View
    key: View
    value: View
    output: View
    keys: Dim
    """How many keys there are, those of the past included."""
    scale: float
    masks: Sequence[View] = ()
    ranges: At | None = None
    filter_value: float = 0.0
    bounds: Bounds = ANYWHERE
    cap: float = 0.0
    sink: At | None = None
    past: tuple[View, View] | None = None
    """Keys and values that come before `key` and `value`."""
    present: tuple[View | None, View | None] = (None, None)
    """Where all keys and all values are wanted."""

    @property
    def queries(self) -> Dim:
        return self.query.shape[2]

    def arguments(self) -> list[Argument]:
        """In the order in which `Operands` asks for them."""
        form, found = self.form, list[Argument]()
        for view in (self.query, self.key, self.value, self.output):
            found += [view.place, *view.strides[:3]]
        found += [self.query.shape[1], self.key.shape[1], self.queries, self.keys, self.query.shape[0], self.scale]
        for mask, view in zip(form.masks, self.masks):
            found += [view.place, *view.strides[: 3 if mask.per_query else 2]]
        if form.ranges:
            assert self.ranges is not None
            found.append(self.ranges)
        if form.ranges or any(mask.type.is_integer for mask in form.masks):
            found.append(self.filter_value)
        if form.bounded:
            found += [self.bounds.offset, self.bounds.left, self.bounds.right]
        if form.lengths is not None:
            assert self.bounds.lengths is not None
            found += [self.bounds.lengths, self.bounds.more, self.bounds.from_length]
        if form.capped:
            found.append(self.cap)
        if form.sink is not None:
            assert self.sink is not None
            found.append(self.sink)
        return found


class Tensor:
    """An operand with strides for batch, head and row, inside a kernel."""

    def __init__(self, f: KernelFunction, type: Type, axes: int = 3):
        self.f = f
        self.type = type
        self.pointer = f.pointer()
        self.strides = [f.size() for _ in range(axes)]

    def at(self, *indices: Value) -> Value:
        offset = indices[0] * self.strides[0]
        for index, stride in zip(indices[1:], self.strides[1:]):
            offset = offset + index * stride
        return self.f.address(self.pointer, offset, self.type)

    def row(self, head: Value, index: Value) -> Value:
        """Where a row begins, in the head that begins at `head`."""
        return self.f.address(head, index * self.strides[2], self.type)

    def is_apart(self, other: Tensor) -> Value:
        """Whether another tensor lies elsewhere; two that do not are the same."""
        return self.f.as_number(self.pointer) != self.f.as_number(other.pointer)


class Operands:
    """The arguments of a kernel, as `Attention.arguments` lists them."""

    def __init__(self, f: KernelFunction, form: Form):
        self.f = f
        self.form = form
        real = form.computed
        self.query, self.key, self.value, self.output = (
            Tensor(f, type) for type in (form.query, form.key, form.value, form.output)
        )
        self.heads, self.key_heads, self.queries, self.keys, self.batch = (f.size() for _ in range(5))
        self.scale = f.number(real)
        self.masks = [Tensor(f, mask.type, 3 if mask.per_query else 2) for mask in form.masks]
        self.ranges = f.pointer() if form.ranges else None
        has_filter = form.ranges or any(mask.type.is_integer for mask in form.masks)
        self.filter_value = f.number(real) if has_filter else None
        self.offset, self.left, self.right = (f.size() if form.bounded else None for _ in range(3))
        self.lengths = f.pointer() if form.lengths is not None else None
        self.more, self.from_length = (f.size() if form.lengths is not None else None for _ in range(2))
        self.cap = f.number(real) if form.capped else None
        self.sink = f.pointer() if form.sink is not None else None

    def key_count(self, batch: Value) -> Value:
        """How many keys a batch has, never more than there are."""
        if self.lengths is None or self.form.lengths is None:
            return self.keys
        assert self.more is not None
        f = self.f
        told = f.convert(f.load(self.lengths, batch, self.form.lengths), I64) + self.more
        return f.minimum(f.maximum(told, 0), self.keys)

    def first_position(self, count: Value) -> Value:
        """Where the first query of a batch with so many keys stands among them."""
        assert self.offset is not None
        if self.from_length is None:
            return self.offset
        return self.offset + (count - self.queries) * self.from_length

    def range_of(self, batch: Value) -> tuple[Value | None, Value]:
        """The first key and the one behind the last that get no filter value."""
        assert self.ranges is not None
        f = self.f
        end = f.load(self.ranges, batch, I32)
        return (f.load(self.ranges, batch + self.batch, I32) if self.form.ranges == 2 else None), end

    def capped(self, score: Value) -> Value:
        if self.cap is None:
            return score
        return tanh(score / self.cap) * self.cap

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


_POWER_NEAR = (0.001326472731307149, 0.009671512991189957, 0.05550733581185341, 0.24022242426872253, 0.6931470036506653, 1.0)
"""2^r for |r| up to 1/2, within 1e-7, and 1 at 0."""
_POWER_ABOVE = (0.0018775766948238015, 0.008989340625703335, 0.05582631751894951, 0.24015361070632935, 0.6931530833244324, 1.0)
"""2^r for r from 0 to 1, within 2e-7."""
_SHIFTER = 1.5 * 2.0**23
"""Added to a small float32, it leaves the nearest integer in the low bits of the sum."""


def weight(x: Value) -> Value:
    """e^x for a score less the largest one: x is not above 0. It need not be right where it is too small to count beside 1."""
    f = x.f
    if x.type.bits == 64:
        return exp(x)
    power = x * LOG2_E
    if f.target is not None and f.target.name == "avx512" and x.type.lanes == 16:
        return _power_of_two(power)
    # the bits of 2^-127 are those of 0; a product, unlike a sum of bits, keeps any NaN
    power = f.maximum(-127.0, power)
    with f.exact():
        shifted = power + _SHIFTER
        rest = power - (shifted - _SHIFTER)
    bits = (f.bitcast(shifted, U32.vector(x.type.lanes)) << 23) + (127 << 23)
    return polynomial(rest, _POWER_NEAR) * f.bitcast(bits, x.type)


def _power_of_two(x: Value) -> Value:
    """2^x with two instructions of AVX-512, what is left above a whole number and scaling by one, right at -inf too."""
    f, wide = x.f, x.type
    reduce, scale = "llvm.x86.avx512.mask.reduce.ps.512", "llvm.x86.avx512.mask.scalef.ps.512"
    f.declare(f"declare {wide} @{reduce}({wide}, i32, {wide}, i16, i32)")
    f.declare(f"declare {wide} @{scale}({wide}, {wide}, {wide}, i16, i32)")
    rest = f.emit(wide, f"call {wide} @{reduce}({x}, i32 9, {x}, i16 -1, i32 4)")
    power = polynomial(rest, _POWER_ABOVE)
    return f.emit(wide, f"call {wide} @{scale}({power}, {x}, {power}, i16 -1, i32 4)")


def transposed(f: KernelFunction, rows: Sequence[Value]) -> list[Value]:
    """As many vectors as they have lanes, with rows and lanes exchanged.

    First inside pieces of 16 bytes, then whole pieces: these are the shuffles that CPUs have as one instruction.
    """
    lanes, piece = len(rows), max(1, 128 // rows[0].type.bits)
    groups = [_transposed_pieces(f, rows[start : start + piece]) for start in range(0, lanes, piece)]
    found = [_gathered_pieces(f, [group[column] for group in groups], piece) for column in range(piece)]
    return [found[column % piece][column // piece] for column in range(lanes)]


def _transposed_pieces(f: KernelFunction, rows: Sequence[Value]) -> list[Value]:
    """As many vectors as elements are in a piece: in each piece, column i of the rows in vector i."""
    if len(rows) == 2:
        return [_interleaved(f, rows[0], rows[1], 2, side, 1) for side in range(2)]
    halves = [[_interleaved(f, rows[i], rows[i + 1], 4, side, 1) for side in range(2)] for i in (0, 2)]
    return [_interleaved(f, halves[0][column // 2], halves[1][column // 2], 4, column % 2, 2) for column in range(4)]


def _interleaved(f: KernelFunction, a: Value, b: Value, piece: int, side: int, width: int) -> Value:
    """In each piece the elements of one half of a's and b's piece, `width` of them by turns."""
    lanes, half = a.type.lanes, piece // 2
    turns = [
        start + side * half + offset + extra + other * lanes
        for start in range(0, lanes, piece)
        for offset in range(0, half, width)
        for other in range(2)
        for extra in range(width)
    ]
    return f.shuffle(a, b, turns)


def _gathered_pieces(f: KernelFunction, vectors: Sequence[Value], piece: int) -> list[Value]:
    """Vector i has the pieces i of all, in their order."""
    if len(vectors) == 1:
        return [vectors[0]]
    lanes = vectors[0].type.lanes
    sides = []
    for side in range(2):
        chosen = [start + one for start in range(side * piece, 2 * lanes, 2 * piece) for one in range(piece)]
        joined = [f.shuffle(vectors[i], vectors[i + 1], chosen) for i in range(0, len(vectors), 2)]
        sides.append(_gathered_pieces(f, joined, piece))
    return [one for pair in zip(*sides) for one in pair]
