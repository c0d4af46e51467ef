"""How elementwise nodes become chains. They wait until a value is needed; then they are one loop together, or a part of a kernel."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.compiler.types import Type
from sardonyx.ir import Node, Value, dim, edit
from sardonyx.providers.native.program.chain import Chain, Item, Load
from sardonyx.providers.native.program.expression import MAX_OPERANDS, Expression, Operation, common_order, placed
from sardonyx.providers.native.program.scalars import find_scalar, trailing_axes
from sardonyx.providers.native.program.scope import Delayed
from sardonyx.providers.native.program.steps import Argument
from sardonyx.providers.native.program.value_lowering import ValueLowerer
from sardonyx.providers.native.program.values import dims, shape_of
from sardonyx.providers.native.program.views import (
    Dims,
    View,
    dense_order,
    dense_strides,
    grouped_shape,
    memory_order,
    permuted,
    regrouped,
)
from sardonyx.providers.provider import CannotCompile
from sardonyx.startup.records import dataclass

MAX_HELD = 4
"""How many values of full size may wait in memory for a pending one, as the terms of a long sum do."""


@dataclass(frozen=True)
class Sink:
    """Where a kernel's result goes: through a chain of scalar operations that followed, into one or more buffers.

    `arguments` are a group of the kernel's record: `sink: Operands = group(lambda sink: sink.slots)`. The kernel makes
    `ChainCode(f, sink, a.sink)` of them, and for each row of the domain calls
    `code.row(outer).emit(column, lanes, remaining, given=[value])`.
    """

    shape: Dims
    """The sizes of the domain's axes, as the kernel asked for them."""
    chain: Chain
    arguments: Sequence[Argument]
    results: Sequence[Value] = ()
    """What the chain's stores write, where the lowerer made it."""


@dataclass(frozen=True)
class Source:
    """Where a kernel's operand comes from: a chain without stores, whose last item is the element.

    Its rows give elements by `lanewise`, or by `counted` to a kernel that adds up lanes itself.
    """

    chain: Chain
    arguments: Sequence[Argument]


class ChainLowerer(ValueLowerer):
    """Makes chains of elementwise nodes."""

    def _wait(self, node: Node) -> None:
        """Postpone an elementwise node until its value is needed, unless that keeps too many other values in memory."""
        value, shape = node.outputs[0], shape_of(node.outputs[0])
        self.scope.pending[value] = node
        held: set[Value] = set()
        for operand in node.inputs:
            if operand in self.scope.pending:
                held |= self.scope.held[operand]
            elif operand is not None and operand not in self.cluster.inputs and not operand.is_constant:
                held |= {operand} if shape_of(operand) == shape else set()
        self.scope.held[value] = held
        if len(held) > MAX_HELD:
            self.compute(value)

    def delay(self, value: Value, source: Value, operations: Sequence[Operation]) -> None:
        """Let operations make a value of another one, of its shape, where it is read; at once if several nodes read it."""
        self.scope.delayed[value] = Delayed(source, operations)
        if not self.is_private(value):
            self.compute(value)

    def store(self, value: Value, target: View) -> None:
        """Put a value into a part of a larger buffer. A pending value that nobody else needs is computed right there."""
        if value not in self.scope.pending or not self.is_private(value):
            view = self.view(value)
            if view != target:  # it may have been computed right there
                self.copy(view, target)
            return
        expression = self._expression(value)
        self._finish(expression)
        self.scope.views[value] = target  # who takes it a second time reads it there
        results = [(item, target if result is value else self.output(result)) for result, item in self._results(expression)]
        with self._lowering(expression.nodes, _label(expression, self._label)):
            self._elementwise(expression.shape, expression.items, expression.views, results)

    def store_through(self, value: Value, operations: Sequence[Operation], target: View) -> None:
        """Have what operations make of a value in a view of its shape. It is computed on the way as in `store`."""
        delayed = self.scope.delayed.get(value)
        if delayed is not None:
            self.store_through(delayed.source, [*delayed.operations, *operations], target)
            return
        is_computed = value in self.scope.pending and self.is_private(value)
        expression = self._expression(value) if is_computed else Expression(self, dims(value))
        item = expression.numbers[value] if is_computed else expression.load(self.view(value))
        others = [(number, self.output(result)) for result, number in self._results(expression) if result is not value]
        self._finish(expression)
        for operation in operations:
            item = expression.operate(operation, item, target.type)
        with self._lowering([*expression.nodes, *self._nodes], _label(expression, self._label)):
            self._elementwise(expression.shape, expression.items, expression.views, [*others, (item, target)])

    def source(self, value: Value, groups: Sequence[int], order: Sequence[int] | None = None) -> Source:
        """A kernel's operand, element by element, in a domain of as many axes as `groups` has numbers.

        Each number says how many axes of the value one axis of the domain stands for. A pending elementwise node whose value nobody
        else needs is computed on the fly. With `order` the groups count the axes in that order.
        """
        items: list[Item]
        node = self.scope.pending.get(value)
        if node is None or not self.is_private(value):
            views, items = [self.view(value)], [Load(self.view(value).type, ())]
        else:
            expression = self._expression(value)
            self._nodes += expression.nodes
            # all of it stays pending: somebody else may need a part, and we the whole if the operands do not fit the domain
            views, items = expression.views, expression.items
        axes = range(len(dims(value))) if order is None else order
        shape = permuted(dims(value), axes)
        strides = [regrouped(shape, permuted(self.broadcast(view, dims(value)).strides, axes), groups) for view in views]
        if any(steps is None for steps in strides):
            self._materialize(value)
            view = self.contiguous(value) if order is None else self._arranged(value, order)
            views, items, strides = [view], [Load(view.type, ())], [regrouped(shape, permuted(view.strides, axes), groups)]
        return Source(*placed(len(groups), items, views, [steps for steps in strides if steps is not None], [], [], []))

    def memory_order(self, value: Value) -> tuple[int, ...] | None:
        """The axes in the order in which what `source` reads for a value lies in memory; None if its parts lie differently."""
        if value in self.scope.pending and self.is_private(value):
            return common_order(self._expression(value))
        return memory_order(self.view(value))

    def sink(
        self,
        node: Node,
        groups: Sequence[int],
        output: int = 0,
        operations: Sequence[Operation] = (),
        order: Sequence[int] | None = None,
        given: Type | None = None,
    ) -> Sink:
        """Where a node's output goes. Elementwise nodes that follow are taken along, if all else that they need is there.

        `groups` says how many axes of the output each axis of the kernel's domain stands for: (2, 1) for rows and columns of a
        tensor with three axes. `operations` make the output out of what the kernel computes. With `order` the results lie in memory
        with their axes so (channels last, say), and `groups` counts the axes in that order. `given` is the type of what the kernel
        computes, if `operations` make another one of it.
        """
        value = node.outputs[output]
        shape = dims(value)
        axes = range(len(shape)) if order is None else order
        expression = Expression(self, shape)
        expression.give(value, operations, given)
        self._absorb(expression, value, groups, axes)
        results = self._results(expression)
        loaded = [self._loaded(view, shape, groups, axes) for view in expression.views]
        stored = [self._stored(result, order, groups, axes) for result, _ in results]
        chain, arguments = placed(
            len(groups),
            expression.items,
            [view for view, _ in loaded],
            [strides for _, strides in loaded],
            [item for _, item in results],
            [view for view, _ in stored],
            [strides for _, strides in stored],
        )
        return Sink(grouped_shape(permuted(shape, axes), groups), chain, arguments, [result for result, _ in results])

    def sink_into(self, target: View, operations: Sequence[Operation]) -> Sink:
        """Where what a kernel computes goes through operations into memory that is no node's output.

        The axes of the target are those of the kernel's domain, and so are those of views among the operands.
        """
        expression = Expression(self, target.shape)
        result = expression.made_of(target.type, operations, target.type)
        strides = [self.broadcast(view, target.shape).strides for view in expression.views]
        chain, arguments = placed(
            len(target.shape), expression.items, expression.views, strides, [result], [target], [target.strides]
        )
        return Sink(target.shape, chain, arguments)

    def _loaded(self, view: View, shape: Dims, groups: Sequence[int], axes: Sequence[int]) -> tuple[View, Dims]:
        """What a kernel's chain reads, and its strides in the kernel's domain: a copy of full size where it does not step evenly there."""
        whole = self.broadcast(view, shape)
        strides = regrouped(permuted(shape, axes), permuted(whole.strides, axes), groups)
        if strides is None:
            buffer = self.scratch(dim.product(shape) * view.type.bytes)
            view = View(buffer, view.type, shape, dense_strides(shape, axes))
            self.copy(whole, view)
            strides = regrouped(permuted(shape, axes), permuted(view.strides, axes), groups)
        assert strides is not None  # of what lies without gaps in the order of the domain
        return view, strides

    def _stored(
        self, value: Value, order: Sequence[int] | None, groups: Sequence[int], axes: Sequence[int]
    ) -> tuple[View, Dims]:
        """Where a kernel's chain stores a value, and the strides in the kernel's domain."""
        view = self.output(value, order)
        shape = permuted(view.shape, axes)
        strides = regrouped(shape, permuted(view.strides, axes), groups)
        if strides is None:  # a part of a larger tensor: memory of its own, from which it is copied there
            view = self.scope.views[value] = self._dense_output(value, axes)
            strides = regrouped(shape, permuted(view.strides, axes), groups)
        assert strides is not None
        return view, strides

    def _absorb(self, expression: Expression, value: Value, groups: Sequence[int], axes: Sequence[int]) -> None:
        """Take elementwise nodes that follow `value` into the expression, as long as some fit."""
        shape = expression.shape
        is_later = value.producer is not None and edit.LATER in value.producer.metadata
        pending = list(value.users)
        while pending:
            node = pending.pop(0)
            entry = find_scalar(node)
            if (
                node in self.scope.absorbed
                or node not in self.scope.members
                or entry is None
                or node.outputs[0] in expression.numbers
                or (edit.LATER in node.metadata) != is_later
            ):
                continue
            operands = [(one, trailing_axes(entry, node, number)) for number, one in enumerate(node.inputs)]
            at_hand = (self._is_at_hand(one, trailing, expression, groups, axes) for one, trailing in operands)
            if dims(node.outputs[0]) != shape or not all(at_hand):
                continue
            if len(expression.views) + len(node.inputs) > MAX_OPERANDS:
                continue
            expression.apply(node)
            self.scope.absorbed.add(node)
            self._nodes.append(node)
            pending += node.outputs[0].users

    def _is_at_hand(
        self, operand: Value | None, trailing: int, expression: Expression, groups: Sequence[int], axes: Sequence[int]
    ) -> bool:
        """Whether an operand, with so many axes behind its own, is in the expression already or can be read where the kernel runs."""
        if operand is None or operand in expression.numbers:
            return True
        if operand not in self.scope.views and not operand.is_constant and operand not in self.scope.pending:
            return False
        view = self.view(operand).with_axes_behind(trailing)
        strides = permuted(self.broadcast(view, expression.shape).strides, axes)
        return regrouped(permuted(expression.shape, axes), strides, groups) is not None

    def _results(self, expression: Expression) -> list[tuple[Value, int]]:
        """The values of an expression that somebody outside it needs, with the numbers of their items."""
        return [
            (value, number)
            for value, number in expression.made.items()
            if value in self.scope.wanted or any(user not in expression.nodes for user in value.users)
        ]

    def compute(self, value: Value) -> None:
        """Add the loop that computes a pending value, and with it those that it depends on and whose shape is the same."""
        delayed = self.scope.delayed.pop(value, None)
        if delayed is not None:
            target = self.output(value, dense_order(self.view(delayed.source)))
            self.store_through(delayed.source, delayed.operations, target)
            return
        if value not in self.scope.pending:
            if not self._failures:
                raise CannotCompile(f"{value.name} is needed before it is computed")
            self.output(value)
            return
        expression = self._expression(value)
        self._finish(expression)
        needed = self._results(expression)
        order = None if any(result in self.scope.wanted for result, _ in needed) else common_order(expression)
        results = [(item, self.output(result, order)) for result, item in needed]
        with self._lowering(expression.nodes, _label(expression)):
            self._elementwise(expression.shape, expression.items, expression.views, results)

    def _expression(self, value: Value) -> Expression:
        """A pending value, and those that it depends on and whose shape is the same."""
        expression = Expression(self, dims(value))
        with self._lowering([self.scope.pending[value]]):
            expression.add(value)
        return expression

    def _finish(self, expression: Expression) -> None:
        for computed in expression.made:
            self.scope.pending.pop(computed, None)

    def _materialize(self, value: Value) -> None:
        if value not in self.scope.views:
            self.compute(value)


def _label(expression: Expression, *into: str) -> str:
    """What profiles call a loop: its ops, and that whose operand it writes."""
    return "+".join([*(node.op_type for node in expression.nodes), *into])
