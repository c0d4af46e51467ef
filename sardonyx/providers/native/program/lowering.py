"""Turns the nodes of a cluster into a program. Elementwise nodes wait until a value is needed; then they become one loop together."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx.compiler.target import Target
from sardonyx.compiler.types import Type
from sardonyx.ir import Dim, Graph, Node, TensorType, Value, dim
from sardonyx.ops import checking
from sardonyx.providers.native.execution.digest import content_digest
from sardonyx.providers.native.kernels.elementwise import elementwise_step
from sardonyx.providers.native.kernels.linalg.nonzero import check_nonzero
from sardonyx.providers.native.kernels.shape.copying import copy_step
from sardonyx.providers.native.kernels.shape.interleaving import interleaved_rows
from sardonyx.providers.native.kernels.shape.joining import final_form, part_of
from sardonyx.providers.native.kernels.shape.transposing import transposed_step
from sardonyx.providers.native.program import budgets
from sardonyx.providers.native.program.arguments import Arguments
from sardonyx.providers.native.program.chain import Chain, Item, Load
from sardonyx.providers.native.program.composition import Composition
from sardonyx.providers.native.program.data_sizes import sizes_in
from sardonyx.providers.native.program.expression import MAX_OPERANDS, Expression, Operation, common_order, placed
from sardonyx.providers.native.program.kernel import DeclaredKernel
from sardonyx.providers.native.program.known import is_symbolic, known_sizes, sizes_step
from sardonyx.providers.native.program.refusals import Failure, LoweringFailed
from sardonyx.providers.native.program.scalars import find_scalar, trailing_axes
from sardonyx.providers.native.program.settling import Origin, SettleArguments, Settlement, settle_kernel
from sardonyx.providers.native.program.sizes import THREADS
from sardonyx.providers.native.program.steps import Argument, Buffer, Program, Step
from sardonyx.providers.native.program.streaming import streamed
from sardonyx.providers.native.program.table import lowering_of
from sardonyx.providers.native.program.values import dims, element_of, shape_of
from sardonyx.providers.native.program.views import (
    Dims,
    View,
    collapse,
    contiguous_strides,
    dense_order,
    dense_strides,
    grouped_shape,
    memory_order,
    permuted,
    regrouped,
)
from sardonyx.providers.native.program.weights import WeightMemory
from sardonyx.providers.prepacking import PackedFormat, Prepacking, Request
from sardonyx.providers.provider import CannotCompile, Cluster
from sardonyx.startup.records import dataclass, replace

MAPPED_BYTES = 1 << 20
"""Constants of at least so many bytes are read where the file has them, aligned or not. All our CPUs can read them so."""
SCOPED = ("_views", "joints", "packed_views", "_pending", "_held", "expansions", "_members", "_wanted", "_places", "_divisors")
"""What is another inside of a node's graph."""
PIECES_PER_THREAD = 4
"""Into how many pieces per thread a step is cut whose items a run tells, if its grain allows."""
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


class Lowerer:
    """Makes the program of one cluster. Lowerings of nodes get it to ask for views of values, and to add steps."""

    def __init__(
        self,
        cluster: Cluster,
        target: Target,
        threads: int = 1,
        options: Mapping[str, str] | None = None,
        prepacking: Prepacking | None = None,
    ):
        self.target = target
        self.budgets = budgets.of(target.caches)
        self.threads = threads
        """How many threads a run may have; a kernel's `worker` is below it."""
        self.options = dict(options or {})
        """The provider's."""
        self.joints: dict[Node, View] = {}
        """Results of Concat nodes whose parts are written right into them."""
        self.expansions: dict[Value, Any] = {}
        """Values that are computed by the one convolution that reads them, with what `conv.fused` needs to do so."""
        self.prepacking = prepacking or Prepacking()
        """The session's packed weights; lowerings ask `packed` for them."""
        self.packed_views: dict[Hashable, Any] = {}
        """Views of what steps pack in each run, for other steps that need the same."""
        self.weights = WeightMemory()
        self.cluster = cluster
        self.program = Program(cluster.name, cluster.inputs, cluster.outputs)
        self._views: dict[Value, View] = {}
        self._pending: dict[Value, Node] = {}
        self._held: dict[Value, set[Value]] = {}
        """Values of full size that wait in memory for a pending one."""
        self._absorbed: set[Node] = set()
        self._members = set(cluster.nodes)
        self._wanted = set(cluster.outputs)
        self._constants: dict[int, Buffer] = {}
        self._label = ""
        self._nodes: list[Node] = []
        """The nodes that are being lowered: one with a kernel, and those of chains before and behind it."""
        self._divisors: set[Value] = set()
        """Those that a step looks at."""
        self._compositions: list[Composition] = []
        self._origins: dict[Node, Node] = {}
        """The node of the cluster for which a composed one stands."""
        self._failures: list[Failure] = []
        for index, value in enumerate(cluster.inputs):
            self._views[value] = self._contiguous_view(value, Buffer(value.name, self._bytes(value), "input", index))
        self.sizes = sizes_in(cluster.inputs, cluster.nodes)
        self._places = {value: self._place_of(value, index) for index, value in enumerate(cluster.outputs)}
        """Where values are wanted."""

    def _place_of(self, value: Value, index: int) -> Buffer:
        """Where an output of the cluster is to be; in the arena if only a run tells how large it is."""
        if self.is_settled(*dims(value)):
            return self.program.loose.setdefault(index, Buffer(value.name, self._bytes(value)))
        return Buffer(value.name, self._bytes(value), "output", index)

    def is_settled(self, *sizes: Dim) -> bool:
        """Whether only a run tells some of these sizes."""
        return bool(self.sizes.data_sizes_in(sizes))

    def settle(self, sources: Sequence[tuple[str, Origin]]) -> None:
        """Add a step by which sizes become other sizes, or numbers in memory, for all steps behind it."""
        if not sources:
            return
        script = Buffer("script", 0, "constant", len(self.program.constants), np.empty(0, np.int64))
        self.program.constants.append(script)
        data = [source for _, source in sources if isinstance(source, Buffer)]
        arguments, steps, table = (
            Buffer(name, 0, "run", number) for number, name in enumerate(("arguments", "steps", "table"))
        )
        record = SettleArguments(
            script=script,
            arguments=arguments,
            steps=steps,
            table=table,
            pieces=THREADS * PIECES_PER_THREAD,
            status=self.status(),
            data=data,
        )
        self.call(settle_kernel(self.target, len(data)), record, 1)
        self.program.steps[-1].settles = Settlement(sources, script)

    def _bytes(self, value: Value) -> Dim:
        type, shape = element_of(value), shape_of(value)
        assert type is not None and shape is not None
        return dim.product(shape) * type.bytes

    def _contiguous_view(self, value: Value, buffer: Buffer) -> View:
        type, shape = element_of(value), shape_of(value)
        if type is None or shape is None:
            raise CannotCompile(f"{value.name} is {value.type}")
        return View(buffer, type, shape, contiguous_strides(shape))

    @functools.cached_property
    def bytes_touched(self) -> Dim:
        """How many bytes a run reads and writes at least: those of inputs, outputs and constants."""
        constants = {
            value: value.constant.nbytes for node in self._members for value in node.inputs if value and value.constant
        }
        return sum(map(self._bytes, (*self.cluster.inputs, *self.cluster.outputs)), start=sum(constants.values()))

    # --- through the cluster

    def lower(self) -> Program:
        """The program of all nodes. One pass finds every node that cannot be lowered: later nodes are lowered as if it had been."""
        try:
            return self._lower_all()
        finally:
            for composition in self._compositions:
                composition.discard()

    def _lower_all(self) -> Program:
        for node in self.cluster.nodes:
            self._nodes = [node]
            try:
                self._lower(node)
            except Exception as error:
                self._fail(error)
        for value in self.cluster.outputs:
            self._nodes = [node for node in [value.producer] if node is not None]
            try:
                self.deliver(value, self._places[value])
            except Exception as error:
                self._fail(error)
        if self._failures:
            raise LoweringFailed(self._failures)
        return self.program

    def _lower(self, node: Node) -> None:
        self._check_declared(node)
        if node in self._absorbed or is_symbolic(node):
            return
        if find_scalar(node) is not None:
            self._wait(node)
            return
        entry = lowering_of(node, checking.signature_of(node).since_version)
        if entry is None:
            raise CannotCompile("there is no native code for it")
        self._label = node.op_type
        entry.function(self, node)

    def lower_as(self, composition: Composition) -> None:
        """Lower the nodes that stand for another one; its outputs are theirs."""
        self._compositions.append(composition)
        node, pairs = composition.node, composition.outputs
        self._members.update(composition.nodes)
        self._origins |= dict.fromkeys(composition.nodes, self._origins.get(node, node))
        for output, result in pairs:
            self._wanted.add(result)
            if output in self._places:
                self._places.setdefault(result, self._places[output])
        for left, right in composition.equal_sizes:
            self.require(left, right)
        for part in composition.nodes:
            self._nodes = [node]
            self._lower(part)
        self._nodes = [node]
        for output, result in pairs:
            self._stand_for(output, result)

    def _stand_for(self, output: Value, result: Value) -> None:
        """Let an output be what a composed node made, in the sizes that it is known by."""
        view = self.view(result)
        for found, size in zip(view.shape, dims(output), strict=True):
            self.require(found, size)
        self._views[output] = replace(view, shape=dims(output))

    def _originals(self) -> tuple[Node, ...]:
        """The nodes of the cluster that are being lowered."""
        return tuple(dict.fromkeys(self._origins.get(node, node) for node in self._nodes))

    def _fail(self, error: Exception) -> None:
        """Note what could not be lowered, and go on as if another step had made it."""
        nodes = self._originals()
        self._failures.append(Failure(nodes, error))
        for value in (value for node in nodes for value in node.outputs):
            self._pending.pop(value, None)
            if value not in self._views and shape_of(value) is not None and element_of(value) is not None:
                self.output(value)

    def _wait(self, node: Node) -> None:
        """Postpone an elementwise node until its value is needed, unless that keeps too many other values in memory."""
        value, shape = node.outputs[0], shape_of(node.outputs[0])
        self._pending[value] = node
        held: set[Value] = set()
        for operand in node.inputs:
            if operand in self._pending:
                held |= self._held[operand]
            elif operand is not None and operand not in self.cluster.inputs and not operand.is_constant:
                held |= {operand} if shape_of(operand) == shape else set()
        self._held[value] = held
        if len(held) > MAX_HELD:
            self._compute(value)

    def _check_declared(self, node: Node) -> None:
        """Require that sizes which the model declares, and inference does not confirm, are true at run time: memory is planned for them."""
        for value in node.outputs:
            inferred = value.inferred
            if inferred is None or not isinstance(inferred, TensorType):
                continue
            shape = shape_of(value) or ()
            if inferred.shape is None or len(inferred.shape) != len(shape):
                raise CannotCompile(f"nobody knows whether {value.name} is {value.type}", quiet=True)
            for size, declared in zip(inferred.shape, shape):
                self.require(size, declared)

    def deliver(self, value: Value, place: Buffer) -> None:
        """Have a value in a buffer without gaps: one of a cluster's outputs, say."""
        view = self.view(value)
        if view.buffer is not place or not view.is_contiguous:
            self._label = "copy"
            self.copy(view, self._contiguous_view(value, place))

    @contextlib.contextmanager
    def inside(self, graph: Graph, places: Mapping[Value, Buffer]) -> Iterator[None]:
        """Lower nodes of a graph that a node has inside; `places` say where its outputs are wanted.

        The steps may run never or often. So what they read of the graphs around must be in memory before, and the steps behind do not
        know what they have left there.
        """
        scope = vars(self).copy()
        self._views, self.joints, self.packed_views = dict(self._views), dict(self.joints), dict(self.packed_views)
        self._pending, self._held, self.expansions, self._divisors = {}, {}, {}, set(self._divisors)
        self._members, self._wanted, self._places = set(graph.nodes), set(graph.outputs), dict(places)
        try:
            yield
        finally:
            for name in SCOPED:
                setattr(self, name, scope[name])
            self._nodes = self._nodes[:1]

    def lower_graph(self, graph: Graph) -> None:
        """Add the steps of a graph that the node at hand has inside. Whatever fails there is that node's fault."""
        outermost = self._nodes[0]
        for node in graph.nodes:
            self._nodes = [outermost]
            self._lower(node)
        self._nodes = [outermost]

    # --- what lowerings ask

    def view(self, value: Value) -> View:
        """How a value lies in memory. If it is pending, the step that computes it is added."""
        view = self._views.get(value)
        if view is not None:
            return view
        if value.constant is not None:
            return self._views.setdefault(value, self._contiguous_view(value, self.constant(value.constant.peek())))
        sizes = known_sizes(value)
        if sizes is not None:
            sizes_step(self, sizes, self.output(value))
            return self._views[value]
        self._compute(value)
        return self._views[value]

    def contiguous(self, value: Value) -> View:
        """A value without gaps, copied if it has some."""
        view = self.view(value)
        if view.is_contiguous:
            return view
        copied = self.output(value)
        self.copy(view, copied)
        return copied

    def can_pack(self, *values: Value | None) -> bool:
        """Whether values are constants that may be packed before runs."""
        return self.prepacking.enabled and all(value is None or value.is_constant for value in values)

    def packed(
        self,
        sources: Sequence[Value],
        format: PackedFormat,
        parameters: tuple[Hashable, ...],
        sizes: Sequence[int],
        pack: Callable[..., Sequence[np.ndarray]],
    ) -> list[Buffer]:
        """Constants in the order in which kernels read them: buffers of `sizes` bytes, which `pack` makes out of the sources' arrays.

        It does so only if nobody has before: see `prepacking`. `parameters` are all that the result depends on, beside the sources and
        the CPU's feature set.
        """
        return [self.constant(array) for array in self.packed_arrays(sources, format, parameters, sizes, pack)]

    def packed_arrays(
        self,
        sources: Sequence[Value],
        format: PackedFormat,
        parameters: tuple[Hashable, ...],
        sizes: Sequence[int],
        pack: Callable[..., Sequence[np.ndarray]],
    ) -> Sequence[np.ndarray]:
        """Packed weights that the lowering itself reads, and no kernel. Weights from a file come as bytes."""
        if not self.can_pack(*sources):
            raise CannotCompile("weights may not be packed before runs", quiet=True)
        tensors = [source.constant for source in sources if source.constant is not None]
        request = Request(tensors, format, parameters, self.target.name, sizes)
        return self.prepacking.packed(request, pack, content_digest)

    def table(self, array: np.ndarray) -> Buffer:
        """A constant that was computed from a node's attributes: sessions that share a container hold equal ones once."""
        return self.constant(self.prepacking.shared(np.ascontiguousarray(array), content_digest))

    def constant(self, array: np.ndarray) -> Buffer:
        """A buffer of fixed content: a weight as it is, or packed."""
        array = np.ascontiguousarray(array)
        if not array.flags.aligned and array.nbytes < MAPPED_BYTES:
            array = array.copy()
        buffer = self._constants.get(array.ctypes.data)
        if buffer is None or buffer.array is None or buffer.array.nbytes != array.nbytes:
            buffer = Buffer("constant", array.nbytes, "constant", len(self.program.constants), array)
            self.program.constants.append(buffer)
            self._constants[array.ctypes.data] = buffer
        return buffer

    def scratch(self, bytes: Dim) -> Buffer:
        """Memory in the arena, from the first to the last step that names it."""
        return Buffer("scratch", bytes)

    def status(self) -> Buffer:
        """A word (int64) that a kernel sets when data is not as it must be, an index out of bounds say.

        The run's results are then thrown away, and NumPy computes the cluster: it finds the same fault and says what is wrong.
        """
        return Buffer("status", 8, "status")

    def output(self, value: Value, order: Sequence[int] | None = None) -> View:
        """Where a node's output is to be written, without gaps; with `order` its axes lie so in memory, the outermost first."""
        if order is not None and list(order) != sorted(order):
            if value not in self._wanted:
                part = part_of(self, value, order, self._members)
                if part is not None:
                    self._views[value] = part
                    return part
            view = self._views[value] = self._dense_output(value, order)
            return view
        place = self._places.get(final_form(value, self._members, self._wanted))
        view = self._views[value] = self._contiguous_view(value, place or Buffer(value.name, self._bytes(value)))
        return view

    def _dense_output(self, value: Value, order: Sequence[int]) -> View:
        view = self._contiguous_view(value, Buffer(value.name, self._bytes(value)))
        return replace(view, strides=dense_strides(view.shape, order))

    def pending_node(self, value: Value) -> Node | None:
        """The elementwise node that makes a value which nobody has needed yet."""
        return self._pending.get(value)

    def will_lower(self, node: Node) -> bool:
        """Whether a node that is still to come will be lowered on its own."""
        return node in self._members and node not in self._absorbed

    def known_view(self, value: Value) -> View | None:
        """How a value lies in memory, if it is there already."""
        return self._views.get(value)

    def set_view(self, value: Value, view: View) -> None:
        """Let a node's output be a view of memory that is there already."""
        self._views[value] = view

    def call(
        self,
        kernel: DeclaredKernel,
        arguments: Arguments,
        items: Dim,
        grain: Dim = 1,
        *,
        flops: Dim = 0,
        traffic: Dim = 0,
        scratch: Sequence[Buffer] = (),
    ) -> None:
        """Add a step: a kernel with the record that it declares."""
        words = kernel.declaration.words(kernel.title, arguments)
        self.program.steps.append(Step(kernel, words, items, grain, self._label, flops, traffic, scratch, self._originals()))

    def copy(self, source: View, target: View) -> None:
        """Add a step that copies elements between views of one shape, converting them if the types differ."""
        if source.type == target.type:
            copy_step(self, source, target)
        else:
            self.combine([Load(source.type, ())], [source], target)

    def combine(self, items: Sequence[Item], views: Sequence[View], target: View) -> None:
        """Add the loop of a chain over the elements of a view: `views` are what its loads read, its last item is what is stored."""
        self._elementwise(target.shape, items, views, [(len(items) - 1, target)])

    def store(self, value: Value, target: View) -> None:
        """Put a value into a part of a larger buffer. A pending value that nobody else needs is computed right there."""
        if value not in self._pending or not self.is_private(value):
            self.copy(self.view(value), target)
            return
        expression = self._expression(value)
        self._finish(expression)
        self._label = "+".join([*(node.op_type for node in expression.nodes), self._label])
        self._views[value] = target  # who takes it a second time reads it there
        results = [(item, target if result is value else self.output(result)) for result, item in self._results(expression)]
        with self._lowering(expression.nodes):
            self._elementwise(expression.shape, expression.items, expression.views, results)

    def store_through(self, value: Value, operations: Sequence[Operation], target: View) -> None:
        """Have what operations make of a value in a view of its shape. It is computed on the way as in `store`."""
        is_computed = value in self._pending and self.is_private(value)
        expression = self._expression(value) if is_computed else Expression(self, dims(value))
        item = expression.numbers[value] if is_computed else expression.load(self.view(value))
        others = [(number, self.output(result)) for result, number in self._results(expression) if result is not value]
        self._finish(expression)
        self._label = "+".join([*(node.op_type for node in expression.nodes), self._label])
        for operation in operations:
            item = expression.operate(operation, item, target.type)
        with self._lowering([*expression.nodes, *self._nodes]):
            self._elementwise(expression.shape, expression.items, expression.views, [*others, (item, target)])

    def require(self, left: Dim, right: Dim) -> None:
        """Require two sizes to be equal. NumPy computes the cluster in runs where they differ."""
        if isinstance(left - right, int) and left != right:
            raise CannotCompile(f"the sizes {left} and {right} differ")
        if left != right:
            self.program.conditions.setdefault((left, right), self._originals())

    def require_nonzero(self, value: Value | None) -> None:
        """Have NumPy compute the cluster whenever a divisor that is computed holds a 0."""
        if value is not None and not value.is_constant and value not in self._divisors:
            self._divisors.add(value)
            check_nonzero(self, self.contiguous(value))

    def require_fit(self, size: Dim, wanted: Dim) -> Dim:
        """Require a size to be 1 or the wanted one, else NumPy computes the cluster; returns the size that kernels may assume."""
        if size == wanted or size == 1:
            return size
        if _is_alike(size, wanted):
            self.require(size, wanted)
            return wanted
        self.require((size - 1) * (size - wanted), 0)
        return size

    def broadcast(self, view: View, shape: Dims) -> View:
        """A view repeated to a shape, refused at run time if it does not fit."""
        surplus = max(len(view.shape) - len(shape), 0)
        if surplus:  # a bound of shape [1] for a scalar
            self.require(dim.product(view.shape[:surplus]), 1)
            view = replace(view, shape=view.shape[surplus:], strides=view.strides[surplus:])
        sizes = [self.require_fit(size, wanted) for size, wanted in zip(view.shape, shape[len(shape) - len(view.shape) :])]
        order = dense_order(view)
        if tuple(sizes) != view.shape and order is not None:
            view = replace(view, strides=dense_strides(sizes, order))
        return replace(view, shape=tuple(sizes)).broadcast(shape)

    # --- chains

    def source(self, value: Value, groups: Sequence[int], order: Sequence[int] | None = None) -> Source:
        """A kernel's operand, element by element, in a domain of as many axes as `groups` has numbers.

        Each number says how many axes of the value one axis of the domain stands for. A pending elementwise node whose value nobody
        else needs is computed on the fly. With `order` the groups count the axes in that order.
        """
        items: list[Item]
        node = self._pending.get(value)
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

    def _arranged(self, value: Value, order: Sequence[int]) -> View:
        """A value without gaps with its axes in this order in memory, copied if it lies otherwise."""
        view = self.view(value)
        strides = dense_strides(view.shape, order)
        if view.strides == strides:
            return view
        arranged = View(self.scratch(self._bytes(value)), view.type, view.shape, strides)
        self.copy(view, arranged)
        return arranged

    def is_private(self, value: Value) -> bool:
        """Whether one node alone needs a value."""
        return value not in self._wanted and len(value.users) == 1

    def _materialize(self, value: Value) -> None:
        if value not in self._views:
            self._compute(value)

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
            view = self._views[value] = self._dense_output(value, axes)
            strides = regrouped(shape, permuted(view.strides, axes), groups)
        assert strides is not None
        return view, strides

    def _absorb(self, expression: Expression, value: Value, groups: Sequence[int], axes: Sequence[int]) -> None:
        """Take elementwise nodes that follow `value` into the expression, as long as some fit."""
        shape = expression.shape
        pending = list(value.users)
        while pending:
            node = pending.pop(0)
            if (
                node in self._absorbed
                or node not in self._members
                or find_scalar(node) is None
                or node.outputs[0] in expression.numbers
            ):
                continue
            operands = [(one, trailing_axes(node, number)) for number, one in enumerate(node.inputs)]
            at_hand = (self._is_at_hand(one, trailing, expression, groups, axes) for one, trailing in operands)
            if dims(node.outputs[0]) != shape or not all(at_hand):
                continue
            if len(expression.views) + len(node.inputs) > MAX_OPERANDS:
                continue
            expression.apply(node)
            self._absorbed.add(node)
            self._nodes.append(node)
            pending += node.outputs[0].users

    def _is_at_hand(
        self, operand: Value | None, trailing: int, expression: Expression, groups: Sequence[int], axes: Sequence[int]
    ) -> bool:
        """Whether an operand, with so many axes behind its own, is in the expression already or can be read where the kernel runs."""
        if operand is None or operand in expression.numbers:
            return True
        if operand not in self._views and not operand.is_constant and operand not in self._pending:
            return False
        view = self.view(operand).with_axes_behind(trailing)
        strides = permuted(self.broadcast(view, expression.shape).strides, axes)
        return regrouped(permuted(expression.shape, axes), strides, groups) is not None

    def _results(self, expression: Expression) -> list[tuple[Value, int]]:
        """The values of an expression that somebody outside it needs, with the numbers of their items."""
        return [
            (value, number)
            for value, number in expression.made.items()
            if value in self._wanted or any(user not in expression.nodes for user in value.users)
        ]

    def _compute(self, value: Value) -> None:
        """Add the loop that computes a pending value, and with it those that it depends on and whose shape is the same."""
        if value not in self._pending:
            if not self._failures:
                raise CannotCompile(f"{value.name} is needed before it is computed")
            self.output(value)
            return
        expression = self._expression(value)
        self._finish(expression)
        self._label = "+".join(node.op_type for node in expression.nodes)
        needed = self._results(expression)
        order = None if any(result in self._wanted for result, _ in needed) else common_order(expression)
        results = [(item, self.output(result, order)) for result, item in needed]
        with self._lowering(expression.nodes):
            self._elementwise(expression.shape, expression.items, expression.views, results)

    def _expression(self, value: Value) -> Expression:
        """A pending value, and those that it depends on and whose shape is the same."""
        expression = Expression(self, dims(value))
        with self._lowering([self._pending[value]]):
            expression.add(value)
        return expression

    @contextlib.contextmanager
    def _lowering(self, nodes: Sequence[Node]) -> Iterator[None]:
        """Steps that are added meanwhile belong to these nodes, and so does a failure."""
        before, self._nodes = self._nodes, list(nodes)
        yield
        self._nodes = before

    def _finish(self, expression: Expression) -> None:
        for computed in expression.made:
            self._pending.pop(computed, None)

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


def _is_alike(size: Dim, wanted: Dim) -> bool:
    """Whether two sizes depend on the same symbols. Then they are probably equal, and not 1 and something else."""
    symbols = set(dim.symbols(size))
    return bool(symbols) and symbols == set(dim.symbols(wanted))
