"""Values whose content the shapes tell: what is left of a model's shape arithmetic. They are stored only where somebody reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sardonyx.compiler.types import I64, Type, of_elements
from sardonyx.ir import Dim, Node, Tensor, TensorType, Value
from sardonyx.ir.dim import Expression
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size, each
from sardonyx.providers.native.program.kernel import KernelFunction, kernel

if TYPE_CHECKING:
    from sardonyx.providers.native.program.building import ProgramBuilder
    from sardonyx.providers.native.program.views import View

MAX_SIZES = 64
"""Longer contents are computed like any other value."""


def known_sizes(value: Value) -> list[Dim] | None:
    """The content of an integer tensor, flat, if inference has followed it; None if it depends on data."""
    content = value.constant if value.is_constant else value.known
    if content is None or content.size > MAX_SIZES or not isinstance(value.type, TensorType):
        return None
    type = of_elements(value.type.dtype)
    if type is None or not type.is_integer:
        return None
    array = content.numpy() if isinstance(content, Tensor) else content
    items = array.reshape(-1).tolist()
    return items if all(isinstance(item, (int, Expression)) for item in items) else None


def is_symbolic(node: Node) -> bool:
    """Whether all that a node makes is known without computing it."""
    return bool(node.outputs) and all(known_sizes(value) is not None for value in node.outputs)


def sizes_step(lowerer: ProgramBuilder, sizes: Sequence[Dim], target: View) -> None:
    """Add the step that stores sizes."""
    lowerer.call(sizes_kernel(lowerer.target, target.type, len(sizes)), SizesArguments(target=target.place, sizes=sizes), 1)


class SizesArguments(Arguments):
    target: Pointer
    sizes: Sequence[Size] = each(lambda count: count)


@kernel("sizes", SizesArguments)
def sizes_kernel(f: KernelFunction, a: SizesArguments, type: Type, count: int) -> None:
    """Numbers among the arguments as a tensor."""
    for index, size in enumerate(a.sizes):
        f.store(f.convert(size, type), a.target, f.const(I64, index), type)
