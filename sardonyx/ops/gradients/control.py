"""Gradients of If, Loop and Scan. Graphs inside them are copied, and what the copy computes is differentiated in it.

A branch is computed again before its gradients. The way back through the rounds of Loop and Scan is a Scan that begins with the last
round: the node hands over what each round was given, from which a round is computed again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sardonyx.errors import Fail
from sardonyx.ir import Attribute, Graph, Node, TensorType, Value, edit
from sardonyx.ir.cloning import Cloner
from sardonyx.ops import checking
from sardonyx.ops.gradients.backward import mark_dependents
from sardonyx.ops.gradients.builder import TypedBuilder, is_differentiable
from sardonyx.ops.gradients.table import gradient
from sardonyx.startup.records import dataclass, field


@gradient("If")
def if_else(op, node, cond, walk, active, incoming):
    captured = [value for value in node.implicit_inputs() if value in active]
    branches = {name: _branch(op, node, name, walk, captured, incoming) for name in ("then_branch", "else_branch")}
    return list(zip(captured, _several(op.node("If", cond, outputs=len(captured), **branches)), strict=True))


def _branch(op, node, name, walk, captured, incoming):
    """What a branch sends to the values of outside that it uses; zeros if it does not use them."""
    copy = _Copy(op, node.attribute(name))
    seeds = [pair for pair in zip(copy.results, incoming, strict=False) if pair[1] is not None]
    found = copy.differentiate(walk, captured, seeds)
    return copy.finish(node, (), [found.get(value) or copy.op.zeros(value) for value in captured])


class _Copy:
    """A copy of a graph inside a node, to which its gradients are added."""

    def __init__(self, op: TypedBuilder, graph: Graph):
        self.graph = Cloner(value_name=op.unique).graph(graph)
        self.given, self.graph.inputs = list(self.graph.inputs), []
        self.results, self.graph.outputs = list(self.graph.outputs), []
        self.op = TypedBuilder(self.graph, op.infer, opsets=op.opsets, prefix=op.prefix)

    def differentiate(self, walk, sources, seeds):
        sums: dict[Value, Value] = {}
        for result, seed in seeds:
            if is_differentiable(result):
                sums[result] = self.op.Add(sums[result], seed) if result in sums else seed
        return walk(self.op, sources, list(self.graph.nodes), sums)

    def finish(self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]) -> Graph:
        """The graph with these ends, and without nodes that nobody needs."""
        for value in inputs:
            self.graph.add_input(value)
        self.graph.outputs = [self.op.Identity(value) for value in outputs]
        edit.remove_unused(self.graph)
        for inner in self.graph.all_nodes():
            if not checking.signature_of(inner).deterministic:
                raise Fail(
                    f"{node}: {inner} inside it draws random numbers, and gradients compute it again with others. "
                    f"Draw them outside of the {node.op_type}."
                )
        return self.graph


def _several(outputs):
    return outputs if isinstance(outputs, list) else [outputs]


# --- rounds


@dataclass
class _State:
    """What goes from round to round. `before` and `after` are an input and an output of the body."""

    initial: Value
    before: Value
    after: Value
    final: int
    """Its place among the node's outputs."""


@dataclass
class _Slices:
    """A tensor of which each round has a slice: given to the body, or made by it."""

    inner: Value
    outer: Value | None
    axis: int = 0
    direction: int = 0


@dataclass
class _Rounds:
    """Loop and Scan as one thing."""

    node: Node
    body: Graph
    states: list[_State]
    given: list[_Slices]
    made: list[_Slices]
    """In the order of the node's last outputs."""
    fixed: dict[Value, bool] = field(default_factory=dict)
    """Inputs of the body that are the same in all rounds."""


@gradient("Loop")
def loop(op, node, walk, active, incoming):
    body, initial = node.attribute("body"), node.inputs[2:]
    states = [
        _State(*parts, place)
        for place, parts in enumerate(zip(initial, body.inputs[2:], body.outputs[1 : 1 + len(initial)], strict=True))
    ]
    made = [_Slices(*parts) for parts in zip(body.outputs[1 + len(initial) :], incoming[len(initial) :])]
    number = _Slices(body.inputs[0], None)
    return _walk_back(op, walk, active, incoming, _Rounds(node, body, states, [number], made, {body.inputs[1]: True}))


@gradient("Scan", since=9)
def scan(op, node, walk, active, incoming, num_scan_inputs):
    body, count = node.attribute("body"), len(node.inputs) - num_scan_inputs
    states = [
        _State(*parts, place)
        for place, parts in enumerate(zip(node.inputs[:count], body.inputs[:count], body.outputs[:count], strict=True))
    ]
    given = _slices(node, "scan_input", body.inputs[count:], node.inputs[count:])
    made = _slices(node, "scan_output", body.outputs[count:], incoming[count:])
    return _walk_back(op, walk, active, incoming, _Rounds(node, body, states, given, made))


def _slices(node, kind, inner, outer):
    axes = node.attribute(f"{kind}_axes") or [0] * len(inner)
    directions = node.attribute(f"{kind}_directions") or [0] * len(inner)
    return [_Slices(*parts) for parts in zip(inner, outer, axes, directions, strict=False)]


def _walk_back(op, walk, active, incoming, rounds):
    node = rounds.node
    captured = [value for value in node.implicit_inputs() if value in active]
    states = _active_states(rounds, captured, active)
    copy = _Copy(op, rounds.body)
    inner = dict(zip((*rounds.body.inputs, *rounds.body.outputs), (*copy.given, *copy.results), strict=True))
    for value, content in rounds.fixed.items():
        _fix(copy, inner[value], content)
    wanted = [part for part in rounds.given if part.outer is not None and part.outer in active]
    coming = [Value(op.unique("state"), inner[state.after].type) for state in states]
    sums = [Value(op.unique("sum"), value.type) for value in captured]
    made = [part for part in rounds.made if part.outer is not None]
    slices = [Value(op.unique("slice"), inner[part.inner].type) for part in made]
    sources = [*captured, *(inner[part.inner] for part in wanted), *(inner[state.before] for state in states)]
    seeds = [*zip((inner[state.after] for state in states), coming), *zip((inner[part.inner] for part in made), slices)]
    found = copy.differentiate(walk, sources, seeds)
    results = [found.get(value) or copy.op.zeros(value) for value in sources[len(captured) :]]
    totals = [copy.op.Add(total, found[value]) if value in found else total for total, value in zip(sums, captured)]
    outputs = [*results[len(wanted) :], *totals, *results[: len(wanted)]]
    read = [*made, *_read_again(op, rounds, copy, inner, outputs)]
    copies = [*slices, *(inner[part.inner] for part in read[len(made) :])]
    body = copy.finish(node, [*coming, *sums, *copies], outputs)
    begin = [incoming[state.final] or op.zeros(op.result(node, state.final)) for state in states]
    parts = _several(
        op.node(
            "Scan",
            *begin,
            *(op.zeros(value) for value in captured),
            *(part.outer for part in read),
            outputs=len(outputs),
            body=body,
            num_scan_inputs=len(read),
            scan_input_axes=[part.axis for part in read],
            scan_input_directions=[1 - part.direction for part in read],
            scan_output_axes=[part.axis for part in wanted],
            scan_output_directions=[1 - part.direction for part in wanted],
        )
    )
    return list(zip([*(state.initial for state in states), *captured, *(part.outer for part in wanted)], parts, strict=True))


def _active_states(rounds, captured, active):
    """The states that depend on a value whose gradient is wanted, in any round."""
    marked = {*captured, *(part.inner for part in rounds.given if part.outer in active)}
    marked.update(state.before for state in rounds.states if state.initial in active)
    count = 0
    while count < len(marked):
        count = len(marked)
        mark_dependents(rounds.body.nodes, marked)
        marked.update(state.before for state in rounds.states if state.after in marked)
    states = [state for state in rounds.states if state.before in marked]
    for state in states:
        _check_sizes(rounds.node, state)
    return states


def _check_sizes(node, state):
    """Refuse a state that has other sizes in each round: such states cannot be handed over as one tensor."""
    types = [value.type for value in (state.initial, state.before, state.after)]
    if not all(isinstance(type, TensorType) and type.shape is not None and type == types[0] for type in types):
        raise Fail(
            f"{node}: there is no gradient for the state {state.before.name!r}, whose type or sizes may change from round to "
            f"round. Declare its sizes, or unroll the {node.op_type}."
        )


def _fix(copy, value, content):
    if value.uses:
        shape = getattr(value.type, "shape", None) or ()
        edit.replace_all_uses(value, copy.op.constant(np.full([1] * len(shape), content)))


def _read_again(op, rounds, copy, inner, outputs):
    """What rounds were given, as far as the way back reads it; states and numbers of rounds are handed over by the node from now on."""
    alive = _needed(copy, outputs)
    given = [part for part in rounds.given if inner[part.inner] in alive or part.outer is None]
    read = [
        _Slices(part.inner, part.outer or _handed_over(op, rounds, part.inner), part.axis, part.direction) for part in given
    ]
    for state in rounds.states:
        if inner[state.before] in alive:
            _check_sizes(rounds.node, state)
            read.append(_Slices(state.before, _handed_over(op, rounds, state.before)))
    return read


def _needed(copy, outputs):
    """The values that outputs of a copy depend on."""
    needed: set[Value] = set()
    stack = list(outputs)
    while stack:
        value = stack.pop()
        if value not in needed:
            needed.add(value)
            if value.producer is not None and value.graph is copy.graph:
                stack.extend(edit.operands(value.producer))
    return needed


def _handed_over(op, rounds, value):
    """Let the node return a value of each round, as its last output."""
    node, body = rounds.node, rounds.body
    writer = TypedBuilder(body, op.infer, opsets=op.opsets, prefix=op.prefix)
    body.outputs.append(writer.Identity(value))
    for name in ("scan_output_axes", "scan_output_directions"):
        if node.attribute(name):
            node.attributes[name] = Attribute.of([*node.attribute(name), 0])
    result = Value(op.unique(node.op_type))
    node.append_output(result)
    op.infer(node)
    return result
