"""An elementwise expression being collected over one shape: from nodes and the values that they read to a chain. The lowerer does it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Union

from sardonyx.compiler.types import Type
from sardonyx.ir import Node, Value, dim
from sardonyx.providers.native.program.chain import Apply, Chain, Given, Item, Load, Number, Store, pattern, stride_arguments
from sardonyx.providers.native.program.scalars import find_scalar, scalar_attributes
from sardonyx.providers.native.program.steps import Argument
from sardonyx.providers.native.program.values import dims, element_of
from sardonyx.providers.native.program.views import Dims, View, memory_order
from sardonyx.providers.scalars.table import name_of, newest_scalar
from sardonyx.startup.records import dataclass

if TYPE_CHECKING:
    from sardonyx.providers.native.program.lowering import Lowerer

MAX_OPERANDS = 24
"""How many buffers one loop may read and write: beyond that addresses no longer fit into registers."""


@dataclass(frozen=True)
class Operation:
    """An elementwise op, applied to what a kernel computes before it counts as the node's output.

    It is that of the op's newest version that has the attributes.
    """

    op_type: str
    operands: Sequence[Union[Value, float, Operation, None]]
    """None stands for what the kernel computes, or for the result of the operation before."""
    attributes: tuple[tuple[str, Any], ...] = ()
    domain: str = ""


class Expression:
    """A chain being collected over one shape."""

    def __init__(self, lowerer: Lowerer, shape: Dims):
        self.lowerer = lowerer
        self.shape = shape
        self.items: list[Item] = []
        self.views: list[View] = []
        """What the loads read, in their order."""
        self.numbers: dict[Value, int] = {}
        self.made: dict[Value, int] = {}
        """Values that are computed here."""
        self.nodes: list[Node] = []

    def _new(self, value: Value | None, item: Item) -> int:
        self.items.append(item)
        if value is not None:
            self.numbers[value] = len(self.items) - 1
        return len(self.items) - 1

    def give(self, value: Value, operations: Sequence[Operation] = ()) -> None:
        """Begin with a value that the surrounding kernel makes, and apply some operations to it."""
        type = element_of(value)
        assert type is not None
        number = self._new(None, Given(type))
        for operation in operations:
            number = self._operate(operation, number, type)
        self.numbers[value] = self.made[value] = number

    def _operate(self, operation: Operation, before: int, type: Type) -> int:
        """The number of an operation's result; `before` is what the kernel made, or the operation before."""
        inputs = []
        for operand in operation.operands:
            if operand is None:
                inputs.append(before)
            elif isinstance(operand, Operation):
                inputs.append(self._operate(operand, before, type))
            elif isinstance(operand, Value):
                self.lowerer.view(operand)
                inputs.append(self.add(operand))
            else:
                inputs.append(self._new(None, Number(type, repr(operand))))
        entry = newest_scalar(operation.op_type, operation.domain, dict(operation.attributes))
        return self._new(None, Apply(name_of(entry), tuple(inputs), type, operation.attributes))

    def add(self, value: Value) -> int:
        """The number of a value's item. The value is computed here if it is pending and has this shape; else it is loaded."""
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

    def apply(self, node: Node) -> int:
        entry = find_scalar(node)
        type = element_of(node.outputs[0])
        assert entry is not None and type is not None
        inputs = tuple(-1 if value is None else self.add(value) for value in node.inputs)
        self.nodes.append(node)
        number = self._new(node.outputs[0], Apply(name_of(entry), inputs, type, scalar_attributes(node, entry)))
        self.made[node.outputs[0]] = number
        return number


def _number_of(value: Value) -> Number | None:
    """A constant of one element as a number in the code."""
    type = element_of(value)
    if not value.is_constant or value.constant is None or type is None or dim.product(dims(value)) != 1:
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
