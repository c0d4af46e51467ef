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
    told_length,
)
from sardonyx.providers.native.kernels.attention.views import heads_shape, heads_view, size_of
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size, when
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import At
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import element_of, may_equal, shape_of
from sardonyx.providers.native.program.views import View
from sardonyx.startup.records import dataclass

PIECE_ELEMENTS = 8192
"""How many elements are worth handing to another thread."""


@dataclass(frozen=True)
class RotaryForm:
    """What shapes the code."""

    source: Type
    target: Type
    angle: Type
    size: int
    width: int
    """How many elements of a head are turned; the others stay."""
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
    lowerer: Lowerer, source: View, target: View, angles: Angles, *, width: int, interleaved: bool, when: Dim = 1
) -> None:
    """Add the step that turns the heads of `source`, (batch, heads, sequence, size)."""
    batch, heads, length = source.shape[:3]
    size = size_of(source)
    form = RotaryForm(source.type, target.type, angles.type, size, width, interleaved, angles.form, angles.lengths)
    lowerer.call(
        rotary_kernel(lowerer.target, form),
        RotaryArguments(
            source=tensor_arguments(source),
            target=tensor_arguments(target),
            heads=heads,
            length=length,
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
    with f.loop(f.begin, f.end) as item:
        batch, token = item // a.length, item % a.length
        position = _position(f, a, form, item, batch, token)
        inside = (position >= 0) & (position < a.rows)
        with f.if_(~inside):
            f.store(1, a.status, 0, I64)
        with f.if_(inside):
            angles = [f.address(table, position * (form.width // 2), form.angle) for table in (a.cos, a.sin)]
            with f.loop(0, a.heads) as head:
                _turn(f, form, source.at(batch, head, token), target.at(batch, head, token), angles)


def _position(f: KernelFunction, a: RotaryArguments, form: RotaryForm, item: Code, batch: Code, token: Code) -> Code:
    """Which row of the cosines and sines is a token's."""
    if form.positions == "none":
        return item
    if a.lengths is not None and form.lengths is not None:
        return (told_length(f, a.lengths, form.lengths, batch) - a.length) * a.lengths.from_length + token
    assert a.positions is not None
    return f.load(a.positions, item, I64) if form.positions == "given" else f.load(a.positions, 0, I64) + token


def _turn(f: KernelFunction, form: RotaryForm, source: Code, target: Code, angles: Sequence[Code]) -> None:
    half = form.width // 2

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
        value = f.load(source, h + form.width, form.source, lanes, remaining=remaining)
        f.store(value, target, h + form.width, form.target, remaining=remaining)

    lanes = f.lanes(form.source)
    along(f, half, lanes, turn)
    along(f, form.size - form.width, lanes, keep)


# --- the ops


def _claims(node: Node, input: Value, cos: Value, sin: Value, positions: Value | None, types: tuple[Type, ...]) -> bool:
    shape = _rotary_shape(node, input, cos)
    angles = shape_of(cos)
    if element_of(input) not in types or shape is None or angles is None or angles != shape_of(sin):
        return False
    batch, _, length, size = shape
    width = node.attribute("rotary_embedding_dim") or size
    if not isinstance(size, int) or not isinstance(width, int) or width % 2 or width > size or angles[-1] != width // 2:
        return False
    if positions is None:
        return len(angles) == 3 and may_equal(angles[0], batch) and may_equal(angles[1], length)
    sizes = shape_of(positions) or ()
    return len(angles) == 2 and (len(sizes) == 1 or (len(sizes) == 2 and all(map(may_equal, sizes, (batch, length)))))


def _rotary_shape(node: Node, input: Value, cos: Value) -> tuple[Dim, ...] | None:
    """(batch, heads, sequence, size) of the input."""
    return heads_shape(input, _heads(node, input, cos))


def _heads(node: Node, input: Value, cos: Value) -> int | None:
    heads = node.attribute("num_heads")
    shape, angles = shape_of(input) or (), shape_of(cos) or ()
    if heads or len(shape) == 4:
        return heads
    if node.attribute("rotary_embedding_dim") or not shape or not angles:
        return None
    hidden, half = shape[-1], angles[-1]
    return hidden // (2 * half) if isinstance(hidden, int) and isinstance(half, int) and half else None


def _rotate(lowerer: Lowerer, node: Node, input: Value, cos: Value, sin: Value, positions: Value | None) -> None:
    heads = _heads(node, input, cos)
    source = heads_view(lowerer, input, heads)
    batch, _, length = source.shape[:3]
    size = size_of(source)
    target = heads_view(lowerer, node.outputs[0], heads, lowerer.output(node.outputs[0]))
    cosines, sines = lowerer.contiguous(cos), lowerer.contiguous(sin)
    form, places = "none", None
    if positions is None:
        lowerer.require_shape(cosines.shape[:2], (batch, length))
    else:
        tokens = lowerer.contiguous(positions)
        form, places = "first" if len(tokens.shape) == 1 else "given", tokens.place
        lowerer.require_shape(tokens.shape, (1,) if form == "first" else (batch, length))
    angles = Angles(cosines.place, sines.place, cosines.type, dim.product(cosines.shape[:-1]), form, places)
    width = node.attribute("rotary_embedding_dim") or size
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
