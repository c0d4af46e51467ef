"""A step that looks whether sizes are equal where only a run can tell. Lowerings of products and recurrences add it."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.compiler.types import I64
from sardonyx.ir import Dim
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size, each
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer


def check_equal(lowerer: Lowerer, pairs: Sequence[tuple[Dim, Dim]]) -> None:
    """Have NumPy compute the program again, and complain, if the sizes of a pair differ."""
    sizes = [PairArguments(left=left, right=right) for left, right in pairs]
    lowerer.call(equality_kernel(lowerer.target, len(pairs)), EqualityArguments(pairs=sizes, status=lowerer.status()), 1)


class PairArguments(Arguments):
    left: Size
    right: Size


class EqualityArguments(Arguments):
    pairs: Sequence[PairArguments] = each(lambda count: count)
    status: Pointer


@kernel("equality", EqualityArguments)
def equality_kernel(f: KernelFunction, a: EqualityArguments, count: int) -> None:
    """Set the status if the two sizes of any pair differ."""
    for pair in a.pairs:
        with f.if_(pair.left != pair.right):
            f.store(1, a.status, 0, I64)
