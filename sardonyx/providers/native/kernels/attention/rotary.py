"""Rotary position embeddings: pairs of a head's elements turned by angles that depend on the position.

GroupQueryAttention has them inside and calls `rotary_step`.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.compiler.builder import Value as Code
from sardonyx.compiler.types import BF16, F16, F32, I64, Type
from sardonyx.ir import Dim, Node, Value, dim
from sardonyx.ops.reading import inputs_named
from sardonyx.providers.native.kernels.attention.cache import along
from sardonyx.providers.native.kernels.attention.form import ANYWHERE, Bounds
from sardonyx.providers.native.kernels.attention.operands import (
    LengthArguments,
    Tensor,
    TensorArguments,
    length_arguments,
    tensor_arguments,
    told,
    told_length,
)
from sardonyx.providers.native.kernels.attention.views import heads_shape, rows_view, with_heads_apart
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size, when
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import At
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, element_of, may_equal, shape_of
from sardonyx.providers.native.program.views import Dims, View
from sardonyx.startup.records import dataclass

PIECE_ELEMENTS = 8192
"""How many elements are worth handing to another thread."""


@dataclass(frozen=True)
class RotaryForm:
    """What shapes the code."""

    source: Type
    target: Type
    angle: Type
    size: int | None
    """Of a head; None if a run tells it."""
    width: int | None
    """How many elements of a head are turned; the others stay. None if a run tells it."""
    interleaved: bool
    positions: str
    """given: one for each token; first: the others follow it; none: angles come for each token; lengths: they end with the batch's."""
    lengths: Type | None = None


@dataclass(frozen=True)
class Angles:
    """Cosines and sines, (positions, width/2) without gaps, and where the tokens' positions come from."""

    cos: At
    sin: At
    type: Type
    rows: Dim
    form: str
    positions: At | None = None
    bounds: Bounds = ANYWHERE
    lengths: Type | None = None


def rotary_step(
    lowerer: Lowerer, source: View, target: View, angles: Angles, *, width: Dim, interleaved: bool, when: Dim = 1
) -> None:
    """Add the step that turns the heads of `source`, (batch, heads, sequence, size), up to `width`, which is even."""
    batch, heads, length, size = source.shape
    lowerer.require(dim.minimum(width, size), width)
    known, turned = (number if isinstance(number, int) else None for number in (size, width))
    form = RotaryForm(source.type, target.type, angles.type, known, turned, interleaved, angles.form, angles.lengths)
    lowerer.call(
        rotary_kernel(lowerer.target, form),
        RotaryArguments(
            source=tensor_arguments(source),
            target=tensor_arguments(target),
            heads=heads,
            length=length,
            size=size if form.size is None else None,
            half=dim.floordiv(width, 2) if form.width is None else None,
            cos=angles.cos,
            sin=angles.sin,
            rows=angles.rows,
            status=lowerer.status(),
            positions=angles.positions,
            lengths=length_arguments(angles.bounds) if angles.form == "lengths" else None,
        ),
        batch * length * when,
        dim.maximum(1, dim.floordiv(PIECE_ELEMENTS, dim.maximum(1, heads * size))),
        traffic=2 * dim.product(source.shape) * source.type.bytes,
    )


class RotaryArguments(Arguments):
    source: TensorArguments
    target: TensorArguments
    heads: Size
    length: Size
    """Tokens of a batch."""
    size: Size | None = when(lambda form: form.size is None)
    half: Size | None = when(lambda form: form.width is None)
    """Pairs that are turned."""
    cos: Pointer
    sin: Pointer
    rows: Size
    """Of cosines and sines."""
    status: Pointer
    positions: Pointer | None = when(lambda form: form.positions in ("given", "first"))
    lengths: LengthArguments | None = when(lambda form: form.positions == "lengths")


@kernel("rotary embedding", RotaryArguments)
def rotary_kernel(f: KernelFunction, a: RotaryArguments, form: RotaryForm) -> None:
    """Items are tokens: all heads of one are turned by the same angles."""
    source, target = Tensor(f, a.source, form.source), Tensor(f, a.target, form.target)
    half, size = told(None if form.width is None else form.width // 2, a.half), told(form.size, a.size)
    with f.loop(f.begin, f.end) as item:
        batch, token = item // a.length, item % a.length
        position = _position(f, a, form, item, batch, token)
        inside = (position >= 0) & (position < a.rows)
        with f.if_(~inside):
            f.store(1, a.status, 0, I64)
        with f.if_(inside):
            angles = [f.address(table, position * half, form.angle) for table in (a.cos, a.sin)]
            with f.loop(0, a.heads) as head:
                _turn(f, form, source.at(batch, head, token), target.at(batch, head, token), angles, half, size)


def _position(f: KernelFunction, a: RotaryArguments, form: RotaryForm, item: Code, batch: Code, token: Code) -> Code:
    """Which row of the cosines and sines is a token's."""
    if form.positions == "none":
        return item
    if a.lengths is not None and form.lengths is not None:
        return (told_length(f, a.lengths, form.lengths, batch) - a.length) * a.lengths.from_length + token
    assert a.positions is not None
    return f.load(a.positions, item, I64) if form.positions == "given" else f.load(a.positions, 0, I64) + token


def _turn(
    f: KernelFunction,
    form: RotaryForm,
    source: Code,
    target: Code,
    angles: Sequence[Code],
    half: Code | int,
    size: Code | int,
) -> None:
    def turn(h: Code, lanes: int, remaining: Code | None) -> None:
        cos, sin = (f.load(table, h, form.angle, lanes, remaining=remaining) for table in angles)
        real, imaginary = pairs(h, lanes, remaining)
        first, second = cos * real - sin * imaginary, sin * real + cos * imaginary
        if not form.interleaved:
            f.store(first, target, h, form.target, remaining=remaining)
            f.store(second, target, h + half, form.target, remaining=remaining)
            return
        for part in range(2):
            mixed = f.shuffle(first, second, [part * lanes // 2 + i // 2 + i % 2 * lanes for i in range(lanes)])
            left = None if remaining is None else remaining * 2 - part * lanes
            f.store(mixed, target, h * 2 + part * lanes, form.target, remaining=left)

    def pairs(h: Code, lanes: int, remaining: Code | None) -> tuple[Code, Code]:
        if not form.interleaved:
            return (
                f.load(source, h, form.source, lanes, remaining=remaining),
                f.load(source, h + half, form.source, lanes, remaining=remaining),
            )
        lefts = [None if remaining is None else remaining * 2 - part * lanes for part in range(2)]
        a, b = (f.load(source, h * 2 + n * lanes, form.source, lanes, remaining=left) for n, left in enumerate(lefts))
        return f.shuffle(a, b, range(0, 2 * lanes, 2)), f.shuffle(a, b, range(1, 2 * lanes, 2))

    def keep(h: Code, lanes: int, remaining: Code | None) -> None:
        value = f.load(source, h + half * 2, form.source, lanes, remaining=remaining)
        f.store(value, target, h + half * 2, form.target, remaining=remaining)

    lanes = f.lanes(form.source)
    along(f, half, lanes, turn)
    along(f, size - half * 2, lanes, keep)


# --- the ops


def _claims(node: Node, input: Value, cos: Value, sin: Value, positions: Value | None, types: tuple[Type, ...]) -> bool:
    shape = _rotary_shape(node, input, cos)
    angles = shape_of(cos)
    other = shape_of(sin)
    if element_of(input) not in types or shape is None or not angles or other is None or len(angles) != len(other):
        return False
    batch, _, length, size = shape
    width = node.attribute("rotary_embedding_dim") or size
    if not all(map(may_equal, angles, other)) or not may_equal(width, 2 * angles[-1]) or not can_turn(size, width):
        return False
    if positions is None:
        return len(angles) == 3 and may_equal(angles[0], batch) and may_equal(angles[1], length)
    sizes = shape_of(positions) or ()
    return len(angles) == 2 and (len(sizes) == 1 or (len(sizes) == 2 and all(map(may_equal, sizes, (batch, length)))))


def can_turn(size: Dim, width: Dim) -> bool:
    """Whether so many elements of a head may be turned, as far as the sizes are known."""
    if isinstance(width, int) and width % 2:
        return False
    return not isinstance(size - width, int) or size - width >= 0  # type: ignore[operator]


def _rotary_shape(node: Node, input: Value, cos: Value) -> Dims | None:
    """(batch, heads, sequence, size) of the input; what sizes do not tell the angles do."""
    shape, heads, width = shape_of(input), node.attribute("num_heads"), node.attribute("rotary_embedding_dim")
    turned = 2 * (shape_of(cos) or (0,))[-1]
    apart = heads_shape(input, heads)
    if apart is not None:
        return apart if width or isinstance(apart[3], int) else (*apart[:3], turned)
    if heads or width or shape is None or len(shape) != 3 or turned == 0:
        return None
    batch, length, hidden = shape
    heads = dim.floordiv(hidden, dim.maximum(1, turned))
    return None if heads == 0 else (batch, heads, length, turned)


def _heads_of(lowerer: Lowerer, view: View, shape: Dims) -> View:
    """A tensor as (batch, heads, sequence, size)."""
    if len(view.shape) == 3:
        return with_heads_apart(lowerer, view, shape[1], shape[3])
    return lowerer.narrowed(view, 3, shape[3]) if isinstance(shape[3], int) else view


def _rotate(lowerer: Lowerer, node: Node, input: Value, cos: Value, sin: Value, positions: Value | None) -> None:
    shape = _rotary_shape(node, input, cos)
    assert shape is not None
    if len(dims(input)) == 3:
        lowerer.require(dim.maximum(1, shape[1]), shape[1])
    source = _heads_of(lowerer, rows_view(lowerer, input), shape)
    target = _heads_of(lowerer, lowerer.output(node.outputs[0]), shape)
    batch, _, length, size = source.shape
    cosines, sines = lowerer.contiguous(cos), lowerer.contiguous(sin)
    lowerer.require_shape(cosines.shape, sines.shape)
    form, places = "none", None
    if positions is None:
        lowerer.require_shape(cosines.shape[:2], (batch, length))
    else:
        tokens = lowerer.contiguous(positions)
        form, places = "first" if len(tokens.shape) == 1 else "given", tokens.place
        lowerer.require_shape(tokens.shape, (1,) if form == "first" else (batch, length))
    angles = Angles(cosines.place, sines.place, cosines.type, dim.product(cosines.shape[:-1]), form, places)
    width = node.attribute("rotary_embedding_dim") or size
    lowerer.require(width, 2 * cosines.shape[-1])
    rotary_step(lowerer, source, target, angles, width=width, interleaved=bool(node.attribute("interleaved")))


def _claims_contrib(node: Node) -> bool:
    input, positions, cos, sin = inputs_named(node, "input", "position_ids", "cos_cache", "sin_cache")
    return bool(input and positions and cos and sin) and _claims(node, input, cos, sin, positions, (F32, F16, BF16))  # type: ignore[arg-type]


@lower("RotaryEmbedding", domain="com.microsoft", claims=_claims_contrib)
def rotary_embedding(lowerer: Lowerer, node: Node) -> None:
    """With angles of every position in a cache."""
    input, positions, cos, sin = inputs_named(node, "input", "position_ids", "cos_cache", "sin_cache")
    assert input is not None and positions is not None and cos is not None and sin is not None
    _rotate(lowerer, node, input, cos, sin, positions)


def _claims_standard(node: Node) -> bool:
    input, cos, sin, positions = inputs_named(node, "X", "cos_cache", "sin_cache", "position_ids")
    if not (input and cos and sin) or (len(shape_of(input) or ()) == 3 and not node.attribute("num_heads")):
        return False
    return _claims(node, input, cos, sin, positions, (F32, F16, BF16)) and (
        positions is None or len(shape_of(positions) or ()) == 2
    )


@lower("RotaryEmbedding", claims=_claims_standard)
def standard_rotary_embedding(lowerer: Lowerer, node: Node) -> None:
    """With angles of every position in a cache, or of each token."""
    input, cos, sin, positions = inputs_named(node, "X", "cos_cache", "sin_cache", "position_ids")
    assert input is not None and cos is not None and sin is not None
    _rotate(lowerer, node, input, cos, sin, positions)
