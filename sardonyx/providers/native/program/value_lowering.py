"""Where values lie in memory: views of what is there, memory for what a kernel writes, copies. Lowerings ask for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sardonyx import dtypes
from sardonyx.compiler.types import Type
from sardonyx.ir import Dim, Node, Tensor, Value, dim
from sardonyx.providers.native.kernels.elementwise import elementwise_step
from sardonyx.providers.native.kernels.linalg.nonzero import check_nonzero
from sardonyx.providers.native.kernels.shape.copying import copy_step
from sardonyx.providers.native.kernels.shape.interleaving import interleaved_rows
from sardonyx.providers.native.kernels.shape.joining import final_form, part_of
from sardonyx.providers.native.kernels.shape.transposing import transposed_step
from sardonyx.providers.native.program.arguments import Pointer
from sardonyx.providers.native.program.building import ProgramBuilder
from sardonyx.providers.native.program.chain import Item, Load
from sardonyx.providers.native.program.expression import placed
from sardonyx.providers.native.program.held import HeldSequence
from sardonyx.providers.native.program.known import known_sizes, sizes_step
from sardonyx.providers.native.program.steps import Buffer
from sardonyx.providers.native.program.streaming import streamed
from sardonyx.providers.native.program.values import bytes_of, dims
from sardonyx.providers.native.program.views import (
    Dims,
    View,
    collapse,
    contiguous_strides,
    contiguous_view,
    dense_strides,
    memory_order,
    permuted,
)
from sardonyx.providers.provider import CannotCompile
from sardonyx.startup.properties import cached_property
from sardonyx.startup.records import replace

MAX_CONSTANT_ZEROS = 1 << 20
"""Bytes of zeros that a program may hold: a size that a model's attribute tells may be any."""


class ValueLowerer(ProgramBuilder):
    """Knows where the values of a cluster lie."""

    def compute(self, value: Value) -> None:
        """Add the steps that make a value which no step has made yet."""
        raise NotImplementedError

    @cached_property
    def bytes_touched(self) -> Dim:
        """How many bytes a run reads and writes at least: those of inputs, outputs and constants."""
        constants = {
            value: value.constant.nbytes for node in self.scope.members for value in node.inputs if value and value.constant
        }
        return sum(map(bytes_of, (*self.cluster.inputs, *self.cluster.outputs)), start=sum(constants.values()))

    def view(self, value: Value) -> View:
        """How a value lies in memory. If it is pending, the step that computes it is added."""
        view = self.scope.views.get(value)
        if view is not None:
            return view
        if value.constant is not None:
            return self.scope.views.setdefault(value, contiguous_view(value, self.constant(self._content(value.constant))))
        sizes = known_sizes(value)
        if sizes is not None:
            sizes_step(self, sizes, self.output(value))
            return self.scope.views[value]
        self.compute(value)
        return self.scope.views[value]

    def _content(self, constant: Tensor) -> np.ndarray:
        """The elements of a constant, strings as references."""
        content = constant.peek()
        return content if constant.dtype is not dtypes.string else self.text_constants.references(content.reshape(-1).tolist())

    def contiguous(self, value: Value) -> View:
        """A value without gaps, copied if it has some."""
        view = self.view(value)
        if view.is_contiguous:
            return view
        copied = self.output(value)
        self.copy(view, copied)
        return copied

    def deliver(self, value: Value, place: Buffer) -> None:
        """Have a value in a buffer without gaps: one of a cluster's outputs, say."""
        view = self.view(value)
        if view.buffer is not place or not view.is_contiguous:
            with self._lowering(self._nodes, "copy"):
                self.copy(view, contiguous_view(value, place))

    def known_view(self, value: Value) -> View | None:
        """How a value lies in memory, if it is there already."""
        return self.scope.views.get(value)

    def sequence(self, value: Value) -> HeldSequence:
        """Where a sequence lies."""
        held = self.scope.sequences.get(value)
        if held is None:
            raise CannotCompile(f"no step of the program makes {value.name}", quiet=True)
        return held

    def set_sequence(self, value: Value, held: HeldSequence) -> None:
        """Let a node's output be a sequence that is there already."""
        self.scope.sequences[value] = held

    def set_view(self, value: Value, view: View) -> None:
        """Let a node's output be a view of memory that is there already."""
        self.scope.views[value] = view

    def pending_node(self, value: Value) -> Node | None:
        """The elementwise node that makes a value which nobody has needed yet."""
        return self.scope.pending.get(value)

    def will_lower(self, node: Node) -> bool:
        """Whether a node that is still to come will be lowered on its own."""
        return node in self.scope.members and node not in self.scope.absorbed

    def is_private(self, value: Value) -> bool:
        """Whether one node alone needs a value."""
        return value not in self.scope.wanted and len(value.users) == 1

    def output(self, value: Value, order: Sequence[int] | None = None) -> View:
        """Where a node's output is to be written, without gaps; with `order` its axes lie so in memory, the outermost first."""
        if order is not None and list(order) != sorted(order):
            if value not in self.scope.wanted:
                part = part_of(self, value, order, self.scope.members)
                if part is not None:
                    self.scope.views[value] = part
                    return part
            view = self.scope.views[value] = self._dense_output(value, order)
            return view
        place = self._place_of(final_form(value, self.scope.members, self.scope.wanted), bytes_of(value))
        view = self.scope.views[value] = contiguous_view(value, place or Buffer(value.name, bytes_of(value)))
        return view

    def _place_of(self, value: Value, size: Dim) -> Buffer | None:
        """The place of a cluster's output, if so many bytes fit into it: sizes that a run settles later do not tell how many do."""
        place = self.scope.places.get(value)
        return None if place is not None and self.is_settled(*dims(value)) and bytes_of(value) != size else place

    def _dense_output(self, value: Value, order: Sequence[int]) -> View:
        view = contiguous_view(value, Buffer(value.name, bytes_of(value)))
        return replace(view, strides=dense_strides(view.shape, order))

    def _arranged(self, value: Value, order: Sequence[int]) -> View:
        """A value without gaps with its axes in this order in memory, copied if it lies otherwise."""
        view = self.view(value)
        strides = dense_strides(view.shape, order)
        if view.strides == strides:
            return view
        arranged = View(self.scratch(bytes_of(value)), view.type, view.shape, strides)
        self.copy(view, arranged)
        return arranged

    def copy(self, source: View, target: View) -> None:
        """Add a step that copies elements between views of one shape, converting them if the types differ."""
        if source.type == target.type:
            copy_step(self, source, target)
        else:
            self.combine([Load(source.type, ())], [source], target)

    def zeros(self, count: Dim, type: Type) -> Pointer:
        """Memory with so many zeros: a constant, or filled in each run if only that tells how many, or if they are many."""
        dtype = np.dtype(f"{'f' if type.is_float else 'i'}{type.bytes}")
        if isinstance(count, int) and count * type.bytes <= MAX_CONSTANT_ZEROS:
            return self.constant(np.zeros(count, dtype))
        zeros, zero = self.scratch(count * type.bytes), self.constant(np.zeros(1, dtype))
        self.copy(View(zero, type, (count,), (0,)), View(zeros, type, (count,), (1,)))
        return zeros

    def combine(self, items: Sequence[Item], views: Sequence[View], target: View) -> None:
        """Add the loop of a chain over the elements of a view: `views` are what its loads read, its last item is what is stored."""
        self._elementwise(target.shape, items, views, [(len(items) - 1, target)])

    def _elementwise(
        self, shape: Dims, items: Sequence[Item], views: Sequence[View], results: Sequence[tuple[int, View]]
    ) -> None:
        targets = [view for _, view in results]
        axes = memory_order(targets[0]) or range(len(shape))
        steps = [permuted(self.broadcast(view, shape).strides, axes) for view in (*views, *targets)]
        domain, strides = collapse(permuted(shape, axes), steps)
        if transposed_step(self, domain, items, views, results, strides):
            return
        untangled = [self._untangled(view, shape, axes, domain, steps) for view, steps in zip(views, strides)]
        if untangled != list(views):
            self._elementwise(shape, items, untangled, results)
            return
        chain, arguments = placed(
            len(domain), items, views, strides[: len(views)], [item for item, _ in results], targets, strides[len(views) :]
        )
        elementwise_step(self, domain, streamed(self, chain, targets), arguments)

    def _untangled(self, view: View, shape: Dims, axes: Sequence[int], domain: Dims, strides: Dims) -> View:
        """The operand of a loop, copied into the order of the loop where a fast copy can do that."""
        if 0 in strides or interleaved_rows(domain, strides, contiguous_strides(domain)) is None:
            return view
        copied = View(self.scratch(dim.product(shape) * view.type.bytes), view.type, shape, dense_strides(shape, axes))
        copy_step(self, view, copied)
        return copied

    def require_nonzero(self, value: Value | None) -> None:
        """Have NumPy compute the cluster whenever a divisor that is computed holds a 0."""
        if value is not None and not value.is_constant and value not in self.scope.divisors:
            self.scope.divisors.add(value)
            check_nonzero(self, self.contiguous(value))
