"""GatherBlockQuantized: rows of a table of few bits, dequantized while they are taken.

The result is made of rows that lie without gaps in the table too. Where blocks go along the last axis, a row is cut into them; else each
element of a row has a scale of its own, and scales lie in rows as well. An index beyond the table gives a row of zeros.
"""

from __future__ import annotations

import numpy as np

from sardonyx.compiler.builder import Value as Code
from sardonyx.compiler.small_types import can_decode, decoded
from sardonyx.compiler.types import F32, I32, U8, Type
from sardonyx.ir import Dim, Node, Value, dim
from sardonyx.ops.reading import inputs_named, operand
from sardonyx.providers.native.kernels.indexing import load_index
from sardonyx.providers.native.kernels.shape.copying import PIECE_BYTES
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size, when
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import Argument
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, fixed, required, shape_of, stored
from sardonyx.providers.native.program.views import Dims
from sardonyx.startup.records import dataclass

LANES = 16
INSIDE, BEHIND, SAME, BEFORE = "inside", "behind", "same", "before"
"""Where blocks go: along rows, along an axis between the one that is gathered and the last, along that axis, along one before it."""


@dataclass(frozen=True)
class Form:
    data: Type
    bits: int
    """Of a code."""
    zero: str
    """Zero points: "none", "middle" of the codes' range, "given"."""
    blocks: str
    scale: Type
    index: Type
    output: Type

    @property
    def in_byte(self) -> int:
        """Codes that share a byte."""
        return 8 // self.bits


class TakeArguments(Arguments):
    data: Pointer
    indices: Pointer
    scales: Pointer
    zeros: Pointer | None = when(lambda form: form.zero == "given")
    target: Pointer
    count: Size
    """How many indices there are."""
    axis_size: Size
    rows: Size
    """Of a slice that is gathered."""
    width: Size
    """Elements of a row."""
    length: Size
    """Of the axis along which blocks go."""
    between: Size
    """How many slices there are between that axis and the one that is gathered."""
    block: Size
    blocks: Size


@dataclass(frozen=True)
class _Axes:
    """What a node says of its axes."""

    shape: Dims
    """Of the table, in codes."""
    gather: int
    quantize: int
    block: Dim

    @property
    def length(self) -> Dim:
        return self.shape[self.quantize]

    @property
    def blocks(self) -> str:
        if self.quantize <= self.gather:
            return SAME if self.quantize == self.gather else BEFORE
        return INSIDE if self.quantize == len(self.shape) - 1 else BEHIND

    @property
    def scales(self) -> Dims:
        """The shape of scales."""
        return (*self.shape[: self.quantize], dim.ceildiv(self.length, self.block), *self.shape[self.quantize + 1 :])

    @property
    def rows(self) -> Dim:
        last = {INSIDE: len(self.shape) - 1, BEHIND: self.quantize + 1}.get(self.blocks, self.gather + 1)
        return dim.product(self.shape[self.gather + 1 : last])

    @property
    def between(self) -> Dim:
        first, last = sorted((self.gather, self.quantize))
        return dim.product(self.shape[first + 1 : last])


def _bits(node: Node) -> int:
    """Of a code; other types than uint8 have a byte for each."""
    return int(operand(node, "bits")) if stored(required(node.inputs[0])) == U8 else 8


def _axes(node: Node) -> _Axes:
    packed = dims(required(node.inputs[0]))
    shape = (*packed[:-1], packed[-1] * (8 // _bits(node)))
    gather, quantize = (int(operand(node, name)) % len(shape) for name in ("gather_axis", "quantize_axis"))
    return _Axes(shape, gather, quantize, int(operand(node, "block_size")) or dim.maximum(shape[quantize], 1))


def _claims(node: Node) -> bool:
    """Scales and zero points for each block, and codes that begin at whole bytes."""
    data, _, scales, zeros = inputs_named(node, "data", "indices", "scales", "zero_points")
    shape, rank = shape_of(required(data)), len(shape_of(required(data)) or ())
    if not shape or not all(-rank <= int(operand(node, name)) < rank for name in ("gather_axis", "quantize_axis")):
        return False
    bits, size = _bits(node), int(operand(node, "block_size"))
    if bits not in (2, 4, 8) or size < 0 or (zeros is not None and stored(required(data)).format.startswith("float")):
        return False
    axes = _axes(node)
    if bits < 8 and (axes.gather in (rank - 1, axes.quantize) or size % (8 // bits)):
        return False
    fits = _may_be(shape_of(required(scales)), axes.scales, can_spread=required(scales).constant is not None)
    return fits and (zeros is None or _may_be(shape_of(zeros), _packed(axes.scales, bits)))


def _packed(shape: Dims, bits: int) -> Dims:
    return (*shape[:-1], dim.ceildiv(shape[-1], 8 // bits))


def _may_be(shape: Dims | None, wanted: Dims, can_spread: bool = False) -> bool:
    """Whether no two known sizes differ, but for those of 1 that a constant is spread from."""
    if shape is None or len(shape) != len(wanted):
        return False
    pairs = zip(shape, wanted)
    return all(
        found == other
        or not isinstance(found, int)
        or (can_spread and found == 1 and isinstance(other, int))
        or (not can_spread and not isinstance(other, int))
        for found, other in pairs
    )


@lower("GatherBlockQuantized", domain="com.microsoft", claims=_claims)
def gather_block_quantized(lowerer: Lowerer, node: Node) -> None:
    data, indices, scales, zeros = inputs_named(node, "data", "indices", "scales", "zero_points")
    axes, table, places = _axes(node), lowerer.contiguous(required(data)), lowerer.contiguous(required(indices))
    zero = "given" if zeros is not None else "middle" if table.type == U8 else "none"
    output = lowerer.output(node.outputs[0])
    form = Form(table.type, _bits(node), zero, axes.blocks, stored(required(scales)), places.type, output.type)
    width = dim.floordiv(dim.product(axes.shape[axes.gather + 1 :]), dim.maximum(axes.rows, 1))
    outer, count = dim.product(axes.shape[: axes.gather]), dim.product(places.shape)
    lowerer.call(
        take_kernel(lowerer.target, form),
        TakeArguments(
            data=table.place,
            indices=places.place,
            scales=_spread(lowerer, required(scales), axes.scales),
            zeros=None if zeros is None else _spread(lowerer, zeros, _packed(axes.scales, form.bits)),
            target=output.place,
            count=count,
            axis_size=axes.shape[axes.gather],
            rows=axes.rows,
            width=width,
            length=axes.length,
            between=axes.between,
            block=axes.block,
            blocks=axes.scales[axes.quantize],
        ),
        outer * count * axes.rows,
        dim.maximum(1, dim.floordiv(PIECE_BYTES // F32.bytes, dim.maximum(1, width))),
        traffic=outer * count * axes.rows * width * (1 + output.type.bytes),
    )


def _spread(lowerer: Lowerer, value: Value, shape: Dims) -> Argument:
    """Scales or zero points for each block; a constant may have one for all indices of an axis."""
    if dims(value) != shape and value.constant is not None:
        sizes = [fixed(size, "a size of scales") for size in shape]
        return lowerer.table(np.ascontiguousarray(np.broadcast_to(value.constant.numpy(), sizes)))
    lowerer.require_shape(dims(value), shape)
    return lowerer.contiguous(value).place


@kernel("gather blocks", TakeArguments)
def take_kernel(f: KernelFunction, a: TakeArguments, form: Form) -> None:
    """Items are rows of the result."""
    with f.loop(f.begin, f.end) as item:
        slice, row = item // a.rows, item % a.rows
        given, outer = load_index(f, a.indices, slice % a.count, form.index), slice // a.count
        index = f.select(given < 0, given + a.axis_size, given)
        target = f.address(a.target, item * a.width, form.output)
        with f.if_else((index >= 0) & (index < a.axis_size)) as otherwise:
            place = (outer * a.axis_size + index) * a.rows + row
            codes = f.address(a.data, place * (a.width // form.in_byte), U8)
            if form.blocks == INSIDE:
                _row_of_blocks(f, a, form, codes, place, target)
            else:
                _row(f, a, form, codes, _scale_row(a, form, outer, index, row), target)
            otherwise()
            with f.loop(0, a.width, LANES) as first:
                f.store(f.const(F32.vector(LANES), 0), target, first, form.output, remaining=a.width - first)


def _scale_row(a: TakeArguments, form: Form, outer: Code, index: Code, row: Code) -> Code:
    """Which row of scales belongs to a row of codes."""
    if form.blocks == BEHIND:
        slice = (outer * a.axis_size + index) * a.between + row // a.length
        return slice * a.blocks + (row % a.length) // a.block
    if form.blocks == SAME:
        return outer * a.blocks + index // a.block
    inner = a.length * a.between
    slice, place = outer // inner, outer % inner
    block = (place // a.between) // a.block
    return ((slice * a.blocks + block) * a.between + place % a.between) * a.axis_size + index


def _row(f: KernelFunction, a: TakeArguments, form: Form, codes: Code, number: Code, target: Code) -> None:
    """A row whose elements have a scale each."""
    scales = f.address(a.scales, number * a.width, form.scale)
    zeros = None if a.zeros is None else f.address(a.zeros, number * (a.width // form.in_byte), U8)
    with f.loop(0, a.width, LANES) as first:
        remaining = a.width - first
        zero = None if zeros is None else _codes(f, form, zeros, first, remaining)
        scale = f.load(scales, first, form.scale, LANES, remaining=remaining)
        numbers = _codes(f, form, codes, first, remaining)
        f.store(_real(f, form, numbers, zero) * scale, target, first, form.output, remaining=remaining)


def _row_of_blocks(f: KernelFunction, a: TakeArguments, form: Form, codes: Code, number: Code, target: Code) -> None:
    """A row that is cut into blocks."""
    scales = f.address(a.scales, number * a.blocks, form.scale)
    zero_bytes = (a.blocks + (form.in_byte - 1)) // form.in_byte
    zeros = None if a.zeros is None else f.address(a.zeros, number * zero_bytes, U8)
    with f.loop(0, a.blocks) as block:
        scale = f.splat(f.load(scales, block, form.scale), LANES)
        zero = None if zeros is None else f.splat(_code(f, form, zeros, block), LANES)
        end = f.minimum((block + 1) * a.block, a.width)
        with f.loop(block * a.block, end, LANES) as first:
            remaining = end - first
            numbers = _codes(f, form, codes, first, remaining)
            f.store(_real(f, form, numbers, zero) * scale, target, first, form.output, remaining=remaining)


def _code(f: KernelFunction, form: Form, place: Code, number: Code) -> Code:
    """One code, in 32 bits."""
    if form.in_byte == 1:
        return _number(f, form, f.load(place, number, form.data))
    byte = f.convert(f.load(place, number // form.in_byte, U8), I32)
    return (byte >> f.convert((number % form.in_byte) * form.bits, I32)) & ((1 << form.bits) - 1)


def _codes(f: KernelFunction, form: Form, place: Code, first: Code, remaining: Code) -> Code:
    """Codes from a multiple of those in a byte on: int32, or float32 for small floats."""
    if form.in_byte == 1:
        return _number(f, form, f.load(place, first, form.data, LANES, remaining=remaining))
    count = LANES // form.in_byte
    left = (remaining + (form.in_byte - 1)) // form.in_byte
    bytes = f.load(place, first // form.in_byte, U8, count, remaining=left)
    spread = f.convert(f.shuffle(bytes, bytes, [lane // form.in_byte for lane in range(LANES)]), I32)
    shifts = f.constants(I32, [lane % form.in_byte * form.bits for lane in range(LANES)])
    return (spread >> shifts) & ((1 << form.bits) - 1)


def _number(f: KernelFunction, form: Form, code: Code) -> Code:
    return decoded(code) if can_decode(form.data) else f.convert(code, I32)


def _real(f: KernelFunction, form: Form, numbers: Code, zero: Code | None) -> Code:
    """Codes less their zero point as float32."""
    if zero is not None:
        return f.convert(numbers - zero, F32)
    shift = 1 << (form.bits - 1)
    return f.convert(numbers - shift if form.zero == "middle" else numbers, F32)
