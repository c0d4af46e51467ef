"""Pools in rare forms, composed of other ops."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx import dtypes
from sardonyx.ir import Dim, Value, dim
from sardonyx.providers.native.kernels.pool.places import natural_shape
from sardonyx.providers.native.program.composition import Composer, compose
from sardonyx.providers.native.program.known import known_sizes
from sardonyx.providers.native.program.values import dims, rank_of
from sardonyx.providers.provider import CannotCompile


@compose("GlobalLpPool", widen=True)
def global_lp_pool(op: Composer, X: Value, p: int) -> Value:
    """Norms of any order but 0."""
    if p == 0 or rank_of(X) < 3:
        raise CannotCompile(f"p is {p}, and X has {rank_of(X)} axes", quiet=True)
    powers = op.Pow(op.Abs(X), op.number(p, X))
    total = op.ReduceSum(powers, op.constant(list(range(2, rank_of(X)))), keepdims=1)
    made: Value = op.Pow(total, op.number(1 / p, X))
    return made


@compose("MaxUnpool")
def max_unpool(
    op: Composer,
    X: Value,
    I: Value,
    output_shape: Value,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None,
    strides: Sequence[int] | None,
) -> Value:
    """Into another shape than the pool's own. Places count the pixels of its own shape if all are there, else those of the result."""
    natural, wanted = natural_shape(dims(X), kernel_shape, pads, strides), known_sizes(output_shape)
    if natural is None or wanted is None or len(wanted) != len(natural):
        raise CannotCompile("the shape of the result depends on data", quiet=True)
    op.require_shape(I, dims(X))
    for size in (*natural, *wanted):
        op.require(dim.maximum(size, 0), size)
    elements, places = (op.reshape(value, dim.product(dims(X))) for value in (X, I))
    beyond = op.cast_to(op.GreaterOrEqual(places, op.sizes(dim.product(natural))), dtypes.int32)
    is_natural = op.Equal(
        op.ReduceMax(op.Concat(beyond, op.reshape(op.number(0, beyond), 1), axis=0), op.constant([0])), op.number(0, beyond)
    )
    # a negative place, which would count from behind, is one beyond the last: it is refused as it must be
    places = op.Where(op.Less(places, op.constant([0])), op.constant([2**62]), places)
    nowhere = op.constant([0])
    own = _placed(op, elements, op.Where(is_natural, places, nowhere), natural)
    other = _placed(op, elements, op.Where(is_natural, nowhere, places), wanted)
    made: Value = op.Where(is_natural, _fitted(op, own, natural, wanted), other)
    return made


def _placed(op: Composer, elements: Value, places: Value, shape: Sequence[Dim]) -> Value:
    """Zeros of a shape, but for elements at places."""
    zeros = op.Expand(op.number(0, elements), op.sizes(dim.product(shape)))
    return op.reshape(op.ScatterElements(zeros, places, elements, axis=0), *shape)


def _fitted(op: Composer, values: Value, shape: Sequence[Dim], wanted: Sequence[Dim]) -> Value:
    """Values in the upper corner of zeros of another shape."""
    kept = [dim.minimum(size, new) for size, new in zip(shape, wanted)]
    axes, zeros = op.constant(list(range(len(shape)))), [0] * len(shape)
    corner = op.Slice(values, op.sizes(*zeros), op.sizes(*kept), axes)
    made: Value = op.Pad(corner, op.sizes(*zeros, *(new - size for size, new in zip(kept, wanted))))
    return made
