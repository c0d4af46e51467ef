"""An elementwise expression being collected over one shape: from nodes and the values that they read to a chain. The lowerer does it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Union

from sardonyx.compiler.types import Type
from sardonyx.ir import Node, Value, dim
from sardonyx.providers.native.program.chain import Apply, Chain, Given, Item, Load, Number, Store, pattern, stride_arguments
from sardonyx.providers.native.program.scalars import find_scalar, scalar_attributes, trailing_axes
from sardonyx.providers.native.program.steps import Argument
from sardonyx.providers.native.program.values import dims, element_of
from sardonyx.providers.native.program.views import Dims, View, memory_order
from sardonyx.providers.scalars.table import Scalar, name_of, newest_scalar
from sardonyx.startup.records import dataclass

if TYPE_CHECKING:
    from sardonyx.providers.native.program.chain_lowering import ChainLowerer

MAX_OPERANDS = 24
"""How many buffers one loop may read and write: beyond that addresses no longer fit into registers."""


@dataclass(frozen=True)
class Operation:
    """An elementwise op, applied to what a kernel computes before it counts as the node's output.

    It is that of the op's newest version that has the attributes.
    """

    op: Union[str, Scalar]
    """An op of the table, or a function that is none."""
    operands: Sequence[Union[Value, View, float, Operation, None]]
    """None stands for what the kernel computes, or for the result of the operation before."""
    attributes: tuple[tuple[str, Any], ...] = ()
    domain: str = ""
    type: Type | None = None
    """Of its result; that of the node's output if it is not told."""


class Expression:
    """A chain being collected over one shape."""

    def __init__(self, lowerer: ChainLowerer, shape: Dims):
        self.lowerer = lowerer
        self.shape = shape
        self.items: list[Item] = []
        self.views: list[View] = []
        """What the loads read, in their order."""
        self.numbers: dict[Value, int] = {}
        self._spread: dict[tuple[Value, int], int] = {}
        """The numbers of what was loaded with axes behind its own."""
        self.made: dict[Value, int] = {}
        """Values that are computed here."""
        self.nodes: list[Node] = []

    def _new(self, value: Value | None, item: Item) -> int:
        self.items.append(item)
        if value is not None:
            self.numbers[value] = len(self.items) - 1
        return len(self.items) - 1

    def give(self, value: Value, operations: Sequence[Operation] = (), given: Type | None = None) -> None:
        """Begin with a value that the kernel around makes, up to some operations; `given` is the type of what it makes, if another."""
        type = element_of(value)
        assert type is not None
        self.numbers[value] = self.made[value] = self.made_of(given or type, operations, type)

    def made_of(self, given: Type, operations: Sequence[Operation], type: Type) -> int:
        """The number of what operations make of a value that the kernel around gives; results are of `type` if they do not say."""
        number = self._new(None, Given(given))
        for operation in operations:
            number = self.operate(operation, number, type)
        return number

    def operate(self, operation: Operation, before: int, type: Type) -> int:
        """The number of an operation's result; `before` is what the kernel made, or the operation before."""
        inputs = []
        for operand in operation.operands:
            if operand is None:
                inputs.append(before)
            elif isinstance(operand, Operation):
                inputs.append(self.operate(operand, before, type))
            elif isinstance(operand, Value):
                self.lowerer.view(operand)
                inputs.append(self.add(operand))
            elif isinstance(operand, View):
                inputs.append(self.load(operand))
            else:
                inputs.append(self._new(None, Number(operation.type or type, repr(operand))))
        entry = (
            operation.op
            if isinstance(operation.op, Scalar)
            else newest_scalar(operation.op, operation.domain, dict(operation.attributes))
        )
        return self._new(None, Apply(name_of(entry), tuple(inputs), operation.type or type, operation.attributes))

    def load(self, view: View) -> int:
        """The number of the item that a view's elements are."""
        self.views.append(view)
        return self._new(None, Load(view.type, ()))

    def add(self, value: Value, trailing: int = 0, varies: bool = False) -> int:
        """The number of the item that a value is: computed here if it is pending and has this shape, else loaded.

        It is loaded with so many axes of size 1 behind its own. A constant of one element is a part of the code, unless it varies:
        then only the whole number 0 is, a zero point that costs nothing.
        """
        if trailing or (varies and (found := _number_of(value)) is not None and found.value != "0"):
            return self._add_spread(value, trailing)
        if value in self.numbers:
            return self.numbers[value]
        node = self.lowerer.pending_node(value)
        if node is not None and dims(value) == self.shape and len(self.views) < MAX_OPERANDS:
            return self.apply(node)
        number = _number_of(value)
        if number is not None:
            return self._new(value, number)
        view = self.lowerer.view(value)
        self.views.append(view)
        return self._new(value, Load(view.type, ()))

    def _add_spread(self, value: Value, trailing: int) -> int:
        if (value, trailing) not in self._spread:
            self._spread[value, trailing] = self.load(self.lowerer.view(value).with_axes_behind(trailing))
        return self._spread[value, trailing]

    def apply(self, node: Node) -> int:
        entry = find_scalar(node)
        type = element_of(node.outputs[0])
        assert entry is not None and type is not None
        if entry.divisor is not None:
            self.lowerer.require_nonzero(node.inputs[entry.divisor])
        inputs = tuple(
            -1 if value is None else self.add(value, trailing_axes(entry, node, number), entry.varies)
            for number, value in enumerate(node.inputs)
        )
        self.nodes.append(node)
        number = self._new(node.outputs[0], Apply(name_of(entry), inputs, type, scalar_attributes(node, entry)))
        self.made[node.outputs[0]] = number
        return number


def _number_of(value: Value) -> Number | None:
    """A constant of one element as a number in the code."""
    type = element_of(value)
    if not value.is_constant or value.constant is None or type is None or type.kind == "bits" or dim.product(dims(value)) != 1:
        return None
    number = value.constant.numpy().reshape(()).item()
    if isinstance(number, float) and number != number:
        return None
    return Number(type, repr(int(number) if isinstance(number, bool) else float(number) if type.is_float else number))


def common_order(expression: Expression) -> tuple[int, ...] | None:
    """The order in memory of what an expression reads, if all operands of the full shape have the same: its results get it too."""
    orders = {
        memory_order(view) for view in expression.views if view.shape == expression.shape and view.buffer.kind != "constant"
    }
    return orders.pop() if len(orders) == 1 else None


def placed(
    rank: int,
    items: Sequence[Item],
    views: Sequence[View],
    strides: Sequence[Dims],
    results: Sequence[int],
    targets: Sequence[View],
    stored: Sequence[Dims],
) -> tuple[Chain, list[Argument]]:
    """A chain with the strides of its loads and stores, and the arguments that it asks for."""
    rest = iter(strides)
    placed = tuple(Load(item.type, pattern(next(rest))) if isinstance(item, Load) else item for item in items)
    stores = tuple(Store(item, view.type, pattern(steps)) for item, view, steps in zip(results, targets, stored))
    arguments: list[Argument] = []
    for view, steps in zip((*views, *targets), (*strides, *stored)):
        arguments += stride_arguments(view, steps)
    return Chain(rank, placed, stores), arguments
