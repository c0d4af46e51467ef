"""Rules for ops that QNN has and that gain nothing on CPUs. No level of our optimizer has them; QNN's fusions run them."""

from __future__ import annotations

from sardonyx.ir import Value
from sardonyx.ops.builder import Builder
from sardonyx.optimizer.rewrite import Answer, rule, skip
from sardonyx.optimizer.values import rank_of, scalar, shape_of

EPSILON = 1e-12
"""What divisors are raised to at least: next to nothing, which LpNormalization has no word for."""


@rule(
    "Div(x, Expand(Clip(ReduceL2<axes=axes, keepdims=1>(x), least), _))",
    "Div(x, Clip(ReduceL2<axes=axes, keepdims=1>(x), least))",
)
def lp_normalization(op: Builder, x: Value, axes: list[int], least: Value) -> Answer:
    """x over the root of the sum of its squares along the last axis."""
    rank, bound = rank_of(x), scalar(least)
    if rank is None or list(axes) not in ([-1], [rank - 1]):
        return skip("it is not over the last axis")
    if bound is None or not 0 < bound <= 10 * EPSILON:
        return skip("the least divisor is more than next to nothing")
    return op.LpNormalization(x, p=2, axis=-1)


@rule(
    "first = Reshape(x, _); second = Reshape(Transpose<perm=[0, 1, 2, 4, 3, 5]>(first), _);"
    " third = Reshape(Transpose<perm=[0, 1, 3, 2]>(second), _); Reshape(Transpose<perm=[0, 2, 1, 3, 4]>(third), _)"
)
def space_to_depth(op: Builder, x: Value, first: Value, second: Value, third: Value) -> Answer:
    """Blocks of pixels become channels, as early YOLOs write it."""
    whole, cut = shape_of(x), shape_of(first)
    if whole is None or cut is None or len(whole) != 4 or len(cut) != 6 or not isinstance(cut[3], int):
        return skip("its sizes are not known")
    batch, channels, rows, block, columns, _ = cut
    steps = (
        (first, (whole[0], whole[1], rows, block, columns, block)),
        (second, (batch, channels, _product(rows, columns), block * block)),
        (third, (batch, channels, block * block, rows, columns)),
    )
    if any(shape_of(value) != sizes for value, sizes in steps):
        return skip("it does not cut the picture into squares")
    return op.SpaceToDepth(x, blocksize=block)


def _product(rows: object, columns: object) -> int | None:
    return rows * columns if isinstance(rows, int) and isinstance(columns, int) else None
