"""Transposes pushed through other nodes until the fewest and smallest are left: onnxruntime's TransposeOptimizer.

Inverse pairs cancel, constants are stored transposed, a Transpose that moves nothing but axes of size 1 is a Reshape. The search
(`transpose_search.py`) chooses orders of axes; here a graph is written as chosen.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from sardonyx.ir import Graph, Node, TensorType, Value, edit
from sardonyx.ops.builder import Builder
from sardonyx.ops.inference import refined, same_kind
from sardonyx.optimizer.passes.transpose_axes import (
    Layout,
    compose,
    identity,
    inverse,
    permuted,
    placed,
    reshape_target,
)
from sardonyx.optimizer.passes.transpose_handlers import Turned
from sardonyx.optimizer.passes.transpose_search import Layouts, Movable, is_better, search
from sardonyx.optimizer.rewriting import Rewriting

NAME = "TransposeOptimizer"


def optimize_transposes(graph: Graph, rewriting: Rewriting) -> bool:
    """Let nodes work in the orders of axes that need the least transposing."""
    layouts = Layouts(graph)
    if not layouts.views:
        return False
    for region in layouts.regions():
        search(region)
    if not is_better(layouts.total(), layouts.paid):
        return False
    _Writer(graph, layouts, rewriting).write()
    return True


class _Writer:
    """Writes a graph in the layouts chosen, node by node from the front."""

    def __init__(self, graph: Graph, layouts: Layouts, rewriting: Rewriting):
        self.graph = graph
        self.layouts = layouts
        self.rewriting = rewriting
        self.made: dict[Value, Value] = {}
        """Held values that are made anew, in another layout."""
        self.available: dict[tuple[Value, Layout], Value] = {}
        self.similar: dict[tuple[Value, Hashable], Layout] = {}
        """The first layout of its essence that is available."""
        self.removed: list[Node] = []

    def write(self) -> None:
        for node in list(self.graph.nodes):
            movable = self.layouts.movable.get(node)
            if node.outputs[0] in self.layouts.views:
                self._keep_or_drop(node)
            elif movable is not None and movable.order != identity(movable.freedom.units):
                self._turn(movable)
            else:
                self._rewire(node)
        for output in list(self.graph.outputs):
            new = self._wanted(output, None)
            if new is not output:
                edit.replace_all_uses(output, new)
        for node in reversed(self.removed):
            self.graph.remove(node)

    def _keep_or_drop(self, node: Node) -> None:
        """A Transpose stays if somebody wants what it makes, its operand is there, and nothing like its result is."""
        (data,), (output,) = node.inputs, node.outputs
        assert data is not None
        root, layout = self.layouts.views[output]
        operand = self._find(*self.layouts.resolve(data))
        wanted = layout in self.layouts.held[root].wanted and not root.is_constant
        if wanted and operand is not None and self._similar(root, layout) is None:
            node.set_input(0, operand)
            self._remember(root, layout, output)
        else:
            self.removed.append(node)
            self.rewriting.journal.add(NAME, node)

    def _remember(self, root: Value, layout: Layout, value: Value) -> None:
        self.available[root, layout] = value
        self.similar.setdefault((root, self.layouts.held[root].essence(layout)), layout)

    def _similar(self, root: Value, layout: Layout) -> Layout | None:
        """A layout that is there already, from which a Reshape leads to this one."""
        held = self.layouts.held[root]
        key = held.essence(layout)
        return held.made if held.essence(held.made) == key else self.similar.get((root, key))

    def _find(self, root: Value, layout: Layout) -> Value | None:
        """A held value in some layout, if it is there already."""
        held = self.layouts.held.get(root)
        if held is None or layout == held.made:
            return self.made.get(root, root)
        return self.available.get((root, layout))

    def _wanted(self, value: Value, before: Node | None) -> Value:
        """What stands for a value of the old graph, made in front of `before` if it is not there yet."""
        root, layout = self.layouts.resolve(value)
        return self._get(root, layout, before)

    def _get(self, root: Value, layout: Layout, before: Node | None) -> Value:
        value = self._find(root, layout)
        if value is None:
            value = self._transposed(root, layout, before)
            self._remember(root, layout, value)
        return value

    def _transposed(self, root: Value, layout: Layout, before: Node | None) -> Value:
        held = self.layouts.held[root]
        op = self._builder(before, root.name)
        if root.is_constant and root.constant is not None:
            return op.constant(np.ascontiguousarray(np.transpose(root.constant.numpy(), layout)))
        similar = self._similar(root, layout)
        source = self._find(root, held.made if similar is None else similar)
        assert source is not None
        if similar is None:
            result: Value = op.Transpose(source, perm=compose(inverse(held.made), layout))
        else:
            result = op.Reshape(source, shape=reshape_target(permuted(held.shape, similar), permuted(held.shape, layout)))
        self._infer(op)
        self._describe(result, root, layout)
        return result

    def _turn(self, movable: Movable) -> None:
        node, freedom = movable.node, movable.freedom
        inputs: list[Value | None] = []
        for value, port in zip(node.inputs, freedom.inputs, strict=True):
            if value is None or port is None:
                inputs.append(None if value is None else self._wanted(value, node))
            else:
                root, view = self.layouts.resolve(value)
                inputs.append(self._get(root, compose(view, placed(port, movable.order)), node))
        op = self._builder(node, node.name or node.outputs[0].name)
        outputs = freedom.rebuild(Turned(op, node, movable.order, inputs))
        self._infer(op)
        for old, new, port in zip(node.outputs, outputs, freedom.outputs, strict=False):
            self._describe(new, old, identity(0) if port is None else placed(port, movable.order))
            if old.name:
                self._replace(old, new, moves=port is not None)
        self.removed.append(node)
        self.rewriting.journal.add(NAME, node)

    def _replace(self, old: Value, new: Value, moves: bool) -> None:
        if moves:
            self.made[old] = new
        else:
            edit.replace_all_uses(old, new)

    def _rewire(self, node: Node) -> None:
        for position, value in enumerate(node.inputs):
            if value is not None and self._has_moved(value):
                node.set_input(position, self._wanted(value, node))
        for value in node.implicit_inputs():
            if self._has_moved(value):
                new = self._wanted(value, node)
                for user, position in list(value.uses):
                    if user.graph is not self.graph:
                        user.set_input(position, new)

    def _has_moved(self, value: Value) -> bool:
        return value in self.layouts.views or value in self.made

    def _builder(self, before: Node | None, prefix: str) -> Builder:
        version = {"": before.version} if before is not None and not before.domain else {}
        return Builder(self.graph, before, {**self.rewriting.model.opsets, **version}, prefix or NAME)

    def _infer(self, op: Builder) -> None:
        for node in op.made:
            self.rewriting.driver.node(node)

    def _describe(self, new: Value, old: Value, layout: Layout) -> None:
        """What was known of a shape is known of the transposed one; a rule before may have let inference find more now."""
        if isinstance(old.type, TensorType) and old.type.shape is not None and len(layout) == len(old.type.shape):
            turned = old.type.with_shape(permuted(old.type.shape, layout))
            knows_more = new.type is not None and same_kind(turned, new.type)
            new.type = (refined(turned, new.type) if knows_more else None) or turned  # type: ignore[arg-type]
