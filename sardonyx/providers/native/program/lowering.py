"""Turns the nodes of a cluster into a program, and with them the graphs inside nodes and the nodes that stand for composed ones."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from sardonyx.ir import Graph, Node, TensorType, Value, edit
from sardonyx.ops import checking
from sardonyx.providers.native.program.chain_lowering import ChainLowerer
from sardonyx.providers.native.program.composition import Composition
from sardonyx.providers.native.program.known import is_symbolic
from sardonyx.providers.native.program.refusals import Failure, LoweringFailed
from sardonyx.providers.native.program.scalars import find_scalar
from sardonyx.providers.native.program.steps import Buffer, Program
from sardonyx.providers.native.program.table import lowering_of
from sardonyx.providers.native.program.values import dims, element_of, shape_of
from sardonyx.providers.native.program.views import contiguous_view
from sardonyx.providers.provider import CannotCompile
from sardonyx.startup.records import replace


class Lowerer(ChainLowerer):
    """Makes the program of one cluster. Lowerings of nodes get it to ask for views of values, and to add steps."""

    def lower(self) -> Program:
        """The program of all nodes. One pass finds every node that cannot be lowered: later nodes are lowered as if it had been."""
        try:
            return self._lower_all()
        finally:
            edit.discard(self._origins)

    def _lower_all(self) -> Program:
        for node in self.cluster.nodes:
            self._nodes = [node]
            try:
                self._lower(node)
                self._deliver_finished(node)
            except Exception as error:
                self._fail(error)
        for value in self.cluster.outputs:
            self._nodes = [node for node in [value.producer] if node is not None]
            try:
                self.deliver(value, self.scope.places[value])
            except Exception as error:
                self._fail(error)
        if self._failures:
            raise LoweringFailed(self._failures)
        return self.program

    def _deliver_finished(self, node: Node) -> None:
        """Copy results that only the caller reads as soon as they are there: what they are copied from is free then, and still cached."""
        for value in node.outputs:
            if value in self.scope.places and value in self.scope.views and not value.users:
                self.deliver(value, self.scope.places[value])
                self.scope.views[value] = contiguous_view(value, self.scope.places[value])

    def _lower(self, node: Node) -> None:
        self._check_declared(node)
        if node in self.scope.absorbed or is_symbolic(node):
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
        node, pairs = composition.node, composition.outputs
        self.scope.members.update(composition.nodes)
        self._origins |= dict.fromkeys(composition.nodes, self._origins.get(node, node))
        for output, result in pairs:
            self.scope.wanted.add(result)
            if output in self.scope.places:
                self.scope.places.setdefault(result, self.scope.places[output])
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
        self.require_shape(view.shape, dims(output))
        self.scope.views[output] = replace(view, shape=dims(output))

    def _fail(self, error: Exception) -> None:
        """Note what could not be lowered, and go on as if another step had made it."""
        nodes = self._originals()
        self._failures.append(Failure(nodes, error))
        for value in (value for node in nodes for value in node.outputs):
            self.scope.pending.pop(value, None)
            if value not in self.scope.views and shape_of(value) is not None and element_of(value) is not None:
                self.output(value)

    def _check_declared(self, node: Node) -> None:
        """Require that sizes which the model declares, and inference does not confirm, are true at run time: memory is planned for them."""
        for value in node.outputs:
            inferred = value.inferred
            if inferred is None or not isinstance(inferred, TensorType):
                continue
            shape = shape_of(value) or ()
            if inferred.shape is None and node.op_type == "If":
                continue  # its lowering compares what each branch gives
            if inferred.shape is None or len(inferred.shape) != len(shape):
                raise CannotCompile(f"nobody knows whether {value.name} is {value.type}", quiet=True)
            for size, declared in zip(inferred.shape, shape):
                self.require(size, declared)

    @contextlib.contextmanager
    def inside(self, graph: Graph, places: Mapping[Value, Buffer]) -> Iterator[None]:
        """Lower nodes of a graph that a node has inside; `places` say where its outputs are wanted.

        The steps may run never or often. So what they read of the graphs around must be in memory before, and the steps behind do not
        know what they have left there.
        """
        outer = self.scope
        self.scope = outer.inner(graph, places)
        try:
            yield
        finally:
            self.scope = outer
            self._nodes = self._nodes[:1]

    def lower_graph(self, graph: Graph) -> None:
        """Add the steps of a graph that the node at hand has inside. Whatever fails there is that node's fault."""
        outermost = self._nodes[0]
        for node in graph.nodes:
            self._nodes = [outermost]
            self._lower(node)
        self._nodes = [outermost]
