"""From the gradient of a result back to the gradients of what it depends on, node by node, each once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from sardonyx.errors import Fail
from sardonyx.ir import Node, Value
from sardonyx.ops.gradients.arguments import NodeArguments
from sardonyx.ops.gradients.builder import TypedBuilder, is_differentiable
from sardonyx.ops.gradients.table import gradients

Expand = Callable[[Node], Sequence[Node]]
"""Replaces a node by the body of its op; returns the new nodes in order, none if the op has no body."""


class Backward:
    """One walk. `sources` are the values whose gradients are wanted."""

    def __init__(self, op: TypedBuilder, sources: Collection[Value], expand: Expand):
        self.op = op
        self._sources = set(sources)
        self._active: set[Value] = set(sources)
        """The values that depend on a source."""
        self._expand = expand
        self._parts: dict[Value, list[Value]] = {}
        """Of each value, gradients that its users have sent so far."""

    def run(self, nodes: Iterable[Node], seeds: Mapping[Value, Value]) -> dict[Value, Value]:
        """Gradients of the sources that some result depends on. `nodes` stand in order; `seeds` has the gradients of results."""
        waiting = list(nodes)
        self._follow(waiting)
        for value, seed in seeds.items():
            self._send(value, seed)
        while waiting:
            waiting.extend(self._visit(waiting.pop()))
        found = {value: self._gradient(value) for value in self._sources}
        return {value: gradient for value, gradient in found.items() if gradient is not None}

    def _follow(self, nodes: Iterable[Node]) -> None:
        """Mark what depends on a source."""
        mark_dependents(nodes, self._active)

    def _send(self, value: Value, gradient: Value) -> None:
        self._parts.setdefault(value, []).append(gradient)

    def _gradient(self, value: Value) -> Value | None:
        """The sum of what came."""
        parts = self._parts.get(value)
        if not parts:
            return None
        if len(parts) > 1:
            parts[:] = [self.op.Sum(*parts)]
        return parts[0]

    def _visit(self, node: Node) -> Sequence[Node]:
        """Send gradients to a node's inputs, or return the nodes of its body, which are visited in its place."""
        if not any(value in self._parts for value in node.outputs):
            return ()
        if not any(value in self._active for value in (*node.inputs, *node.implicit_inputs())):
            return ()
        function = gradients.function_of(node)
        if function is None:
            body = self._expand(node)
            if not body:
                raise self._unknown(node)
            self._follow(body)
            return body
        for value, gradient in self._apply(node, function):
            if value in self._active:
                self._send(value, gradient)
        return ()

    def _unknown(self, node: Node) -> Fail:
        value = next(value for value in (*node.inputs, *node.implicit_inputs()) if value in self._active)
        return Fail(
            f"{node}: there is no gradient for {node.op_id}, through which the result depends on {value.name!r}. "
            f"Freeze what lies before it, use other ops, or register a gradient of the op."
        )

    def _apply(self, node: Node, function: Callable[..., Any]) -> list[tuple[Value, Value]]:
        incoming = [self._gradient(value) for value in node.outputs]
        written = len(self.op.made)

        def through(*results: Value | None) -> list[tuple[Value, Value]]:
            return self._through(node, incoming, self.op.made[written:], results)

        special = {"incoming": incoming, "active": self._active, "walk": self._walk_inside, "through": through}
        arguments = NodeArguments(self.op, node, incoming, self._active, special)
        result = arguments.call(function)
        if isinstance(result, list):
            return result
        named = result if isinstance(result, dict) else {arguments.signature.operand_names[0]: result}
        return [pair for name, part in named.items() for pair in arguments.pairs(name, part)]

    def _walk_inside(
        self, op: TypedBuilder, sources: Collection[Value], nodes: Iterable[Node], seeds: Mapping[Value, Value]
    ) -> dict[Value, Value]:
        """A walk through nodes that stand for one: those of graphs inside it, or those that its op is written in."""
        return Backward(op, sources, self._expand).run(nodes, seeds)

    def _through(
        self, node: Node, incoming: Sequence[Value | None], nodes: Sequence[Node], results: Sequence[Value | None]
    ) -> list[tuple[Value, Value]]:
        """Gradients of a node's inputs, through nodes that compute the same. `results` stand for its outputs, None if none does."""
        seeds: dict[Value, Value] = {}
        for output, result, gradient in zip(node.outputs, results, incoming, strict=False):
            if gradient is not None:
                if result is None:
                    raise Fail(f"{node}: there is no gradient of its output {output.name!r}")
                seeds[result] = gradient
        sources = [value for value in node.inputs if value is not None and value in self._active]
        return list(self._walk_inside(self.op, sources, nodes, seeds).items())


def mark_dependents(nodes: Iterable[Node], active: set[Value]) -> None:
    """Add to `active` what nodes compute of its values, as far as it carries gradients."""
    for node in nodes:
        if any(value in active for value in (*node.inputs, *node.implicit_inputs())):
            active.update(value for value in node.outputs if is_differentiable(value))
