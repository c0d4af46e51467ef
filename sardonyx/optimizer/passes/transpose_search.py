"""Which nodes should work in which order of axes so that the least is transposed: the search behind `transpose.py`.

All Transposes of a graph are taken out of it: what they make is a *view*, a value in another layout. A held value is then made in one
layout and wanted in some, and each difference costs one Transpose. Nodes with a freedom choose the order in which they work; any
choice computes the same, so the search may try what it likes and keeps what is better: fewer Transposes of fewer bytes,
never more of either.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

from sardonyx.ir import Graph, Node, Shape, Value, edit
from sardonyx.ops.reading import operand
from sardonyx.optimizer.passes.transpose_axes import (
    Layout,
    Order,
    Port,
    compose,
    essence,
    estimated_bytes,
    identity,
    inverse,
    order_for,
    placed,
)
from sardonyx.optimizer.passes.transpose_handlers import Freedom, freedom_of
from sardonyx.optimizer.values import rank_of, shape_of
from sardonyx.startup.records import dataclass, field

MAX_ROUNDS = 3
"""How often both directions are explored while that helps."""
MAX_SWEEPS = 4
MAX_CANDIDATES = 6
SMALL_CONSTANT = 1024
"""A constant of so few bytes may be stored in as many layouts as are wanted."""

Cost = tuple[int, int]
"""How many Transposes, and of how many bytes in all."""


def is_better(cost: Cost, than: Cost) -> bool:
    """Whether one cost is smaller in something and larger in nothing."""
    return cost != than and is_no_worse(cost, than)


def is_no_worse(cost: Cost, than: Cost) -> bool:
    return cost[0] <= than[0] and cost[1] <= than[1]


def _sum(costs: Iterable[Cost]) -> Cost:
    count = size = 0
    for cost in costs:
        count, size = count + cost[0], size + cost[1]
    return count, size


@dataclass(eq=False)
class Held:
    """A value that no Transpose made: the layout in which it is made, and how often which layouts of it are wanted."""

    value: Value
    shape: Shape
    made: Layout
    wanted: dict[Layout, int]
    size: int
    _essences: dict[Layout, Hashable] = field(default_factory=dict)
    _cost: Cost | None = None

    def cost(self) -> Cost:
        if self._cost is None:
            self._cost = self._reckoned()
        return self._cost

    def _reckoned(self) -> Cost:
        if self.is_in_place:
            return 0, 0
        if self.value.is_constant:
            return 0, self.size * (len(self.wanted) - 1) if self.size > SMALL_CONSTANT else 0
        kinds = {self.essence(layout) for layout in self.wanted}
        count = len(kinds) - (self.essence(self.made) in kinds)
        return count, count * self.size

    def essence(self, layout: Layout) -> Hashable:
        """Layouts of the same essence cost no Transpose when one of them is there."""
        if layout not in self._essences:
            self._essences[layout] = essence(self.shape, layout)
        return self._essences[layout]

    def make(self, layout: Layout) -> None:
        """Have the value made in a layout."""
        self.made, self._cost = layout, None

    def want(self, layout: Layout, times: int = 1) -> None:
        """Count wishes for a layout up or down."""
        self._cost = None
        count = self.wanted.get(layout, 0) + times
        if count:
            self.wanted[layout] = count
        else:
            del self.wanted[layout]

    @property
    def is_in_place(self) -> bool:
        """Whether nobody wants another layout than the one made."""
        return len(self.wanted) <= 1 and (not self.wanted or self.made in self.wanted)


@dataclass(eq=False)
class Movable:
    """A node with a freedom: its ports among the held values, and the order chosen for it."""

    node: Node
    freedom: Freedom
    order: Order
    inputs: list[tuple[Held, Layout, Port]] = field(default_factory=list)
    """Held value, the view of it that the node uses, the port."""
    outputs: list[tuple[Held, Port]] = field(default_factory=list)
    around: list[Held] = field(default_factory=list)
    """All held values that the node makes or uses."""

    def turn(self, order: Order) -> None:
        """Work in another order from now on."""
        for held, view, port in self.inputs:
            held.want(compose(view, placed(port, self.order)), -1)
            held.want(compose(view, placed(port, order)))
        for held, port in self.outputs:
            held.make(placed(port, order))
        self.order = order

    def cost(self) -> Cost:
        """What is transposed around the node."""
        return _sum(held.cost() for held in self.around)

    def connect(self, inputs: list[tuple[Held, Layout, Port]], outputs: list[tuple[Held, Port]]) -> None:
        self.inputs, self.outputs = inputs, outputs
        self.around = list(dict.fromkeys([*(held for held, _, _ in inputs), *(held for held, _ in outputs)]))


class Layouts:
    """The layouts of one graph's values, as far as Transposes touch them, and the nodes that may choose theirs."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.pinned = _outputs_of_inner_graphs(graph)
        self.views: dict[Value, tuple[Value, Layout]] = {}
        """What Transposes make: of which value, in which layout."""
        self.held: dict[Value, Held] = {}
        self.movable: dict[Node, Movable] = {}
        self._views_of: dict[Value, list[Value]] = {}
        self._position: dict[Node, int] = {}
        self._fixed: set[Node] = set()
        self.paid = (0, 0)
        """What the Transposes of the graph cost as it is."""
        for position, node in enumerate(graph.nodes):
            self._position[node] = position
            if is_transpose(node) and node.outputs[0] not in self.pinned:
                self._take_out(node)

    def _take_out(self, node: Node) -> None:
        (data,), (output,) = node.inputs, node.outputs
        assert data is not None
        root, view = self.resolve(data)
        self.views[output] = root, compose(view, perm_of(node))
        self._views_of.setdefault(root, []).append(output)
        self.paid = self.paid[0] + 1, self.paid[1] + estimated_bytes(root)

    def resolve(self, value: Value) -> tuple[Value, Layout]:
        """The held value that a value is a view of."""
        return self.views.get(value) or (value, identity(rank_of(value) or 0))

    def total(self) -> Cost:
        return _sum(held.cost() for held in self.held.values())

    def regions(self) -> Iterator[list[Movable]]:
        """Groups of movable nodes around Transposes, connected through values; those far from any Transpose are left out."""
        for root in list(self._views_of):
            if root not in self.held:
                nodes = self._explore(root)
                yield sorted(nodes, key=lambda movable: self._position[movable.node])

    def _explore(self, root: Value) -> list[Movable]:
        region: list[Movable] = []
        ports: list[tuple[list[tuple[Value, Layout, Port]], list[tuple[Value, Port]]]] = []
        waiting = [root]
        while waiting:
            value = waiting.pop()
            if value in self.held:
                continue
            self._hold(value)
            if value.is_constant:
                continue  # a constant that two share does not connect them
            for node in self._neighbours(value):
                movable = self._look_at(node)
                if movable is not None:
                    inputs, outputs = self._inputs(node, movable.freedom), self._outputs(node, movable.freedom)
                    region.append(movable)
                    ports.append((inputs, outputs))
                    waiting.extend(value for value, _, _ in inputs)
                    waiting.extend(value for value, _ in outputs)
        for movable, (inputs, outputs) in zip(region, ports, strict=True):
            movable.connect(
                [(self.held[value], view, port) for value, view, port in inputs],
                [(self.held[value], port) for value, port in outputs],
            )
        return region

    def _hold(self, value: Value) -> None:
        shape = shape_of(value)
        assert shape is not None
        wanted: dict[Layout, int] = {}
        for view in (value, *self._views_of.get(value, ())):
            _, layout = self.resolve(view)
            uses = sum(node.outputs[0] not in self.views for node, _ in view.uses) + view.is_graph_output
            if uses:
                wanted[layout] = wanted.get(layout, 0) + uses
        self.held[value] = Held(value, shape, identity(len(shape)), wanted, estimated_bytes(value))

    def _neighbours(self, value: Value) -> Iterator[Node]:
        if value.producer is not None and value.graph is self.graph:
            yield value.producer
        for view in (value, *self._views_of.get(value, ())):
            yield from (node for node, _ in view.uses if node.graph is self.graph)

    def _look_at(self, node: Node) -> Movable | None:
        """A node seen for the first time, if it is movable."""
        if node in self.movable or node in self._fixed or node.outputs[0] in self.views:
            return None
        freedom = None if any(output in self.pinned for output in node.outputs) else freedom_of(node)
        if freedom is None or not self._fits(node, freedom):
            self._fixed.add(node)
            return None
        self.movable[node] = Movable(node, freedom, identity(freedom.units))
        return self.movable[node]

    def _fits(self, node: Node, freedom: Freedom) -> bool:
        """Whether the tensors have the axes that the ports speak of."""
        ports = [(value, port) for value, port in zip(node.inputs, freedom.inputs, strict=True) if value is not None and port]
        ports += self._outputs(node, freedom)
        return all(rank_of(value) == sum(map(len, port)) for value, port in ports)

    def _inputs(self, node: Node, freedom: Freedom) -> list[tuple[Value, Layout, Port]]:
        pairs = zip(node.inputs, freedom.inputs, strict=True)
        return [(*self.resolve(value), port) for value, port in pairs if value is not None and port is not None]

    def _outputs(self, node: Node, freedom: Freedom) -> list[tuple[Value, Port]]:
        pairs = zip(node.outputs, freedom.outputs, strict=False)
        return [(value, port) for value, port in pairs if value.name and port is not None]


def is_transpose(node: Node) -> bool:
    return (
        node.op_type == "Transpose" and not node.domain and node.inputs[0] is not None and rank_of(node.inputs[0]) is not None
    )


def perm_of(node: Node) -> Layout:
    """The permutation of a Transpose; without one it turns the axes around."""
    perm = operand(node, "perm")
    assert node.inputs[0] is not None
    return tuple(perm) if perm else identity(rank_of(node.inputs[0]) or 0)[::-1]


def _outputs_of_inner_graphs(graph: Graph) -> set[Value]:
    """Values of this graph that graphs inside it return as they are."""
    inner = (inner_graph for node in graph.nodes for body in node.subgraphs for inner_graph in edit.all_graphs(body))
    return {value for inner_graph in inner for value in inner_graph.outputs if value.graph is graph}


# --- the search -----------------------------------------------------------------------------------------------------


def search(region: Sequence[Movable]) -> None:
    """Choose orders for the nodes of a region: explore in both directions, settle, keep what is better."""
    held = list(dict.fromkeys(essence for node in region for essence in node.around))
    _settle(region)
    kept = [node.order for node in region]
    best = _sum(essence.cost() for essence in held)
    for _ in range(MAX_ROUNDS):
        improved = False
        for explore in (_sink, _hoist):
            if best == (0, 0):
                return
            explore(region)
            _settle(region)
            cost = _sum(essence.cost() for essence in held)
            if is_better(cost, best):
                best, kept, improved = cost, [node.order for node in region], True
            else:
                _restore(region, kept)
        if not improved:
            return


def _restore(region: Sequence[Movable], orders: Sequence[Order]) -> None:
    for node, order in zip(region, orders, strict=True):
        if node.order != order:
            node.turn(order)


def _sink(region: Sequence[Movable]) -> None:
    """Let every node take its operands as they are made, so that Transposes move behind it, whatever that costs at first."""
    for node in region:
        _take_best(node, _as_made(node))


def _hoist(region: Sequence[Movable]) -> None:
    """Let every node make its results as they are wanted, from the end."""
    for node in reversed(region):
        _take_best(node, _as_wanted(node))


def _as_made(node: Movable) -> Iterator[Order]:
    for held, view, port in node.inputs:
        if compose(view, placed(port, node.order)) != held.made and not held.value.is_constant:
            yield from _possible(node, port, compose(inverse(view), held.made))


def _as_wanted(node: Movable) -> Iterator[Order]:
    for held, port in node.outputs:
        for layout in held.wanted:
            if layout != held.made:
                yield from _possible(node, port, layout)


def _possible(node: Movable, port: Port, layout: Layout) -> Iterator[Order]:
    order = order_for(port, layout)
    if order is not None and order != node.order and node.freedom.allows(order):
        yield order


def _take_best(
    node: Movable, orders: Iterable[Order], accepts: Callable[[Cost, Cost], bool] = lambda after, before: True
) -> bool:
    """Turn a node to the cheapest of some orders that is accepted; whether it was turned."""
    choices = list(dict.fromkeys(orders))[:MAX_CANDIDATES]
    if not choices:
        return False
    old, before = node.order, node.cost()
    best, chosen = before, old
    for order in choices:
        node.turn(order)
        cost = node.cost()
        if accepts(cost, before) and (chosen == old or cost < best):
            best, chosen = cost, order
    if node.order != chosen:
        node.turn(chosen)
    return chosen != old


def _settle(region: Sequence[Movable]) -> None:
    """Turn single nodes while that is better, then turn back those for which it is no worse."""
    for _ in range(MAX_SWEEPS):
        turned = False
        for nodes in (region, reversed(region)):
            for node in nodes:
                for held in node.around:
                    if not held.is_in_place:
                        turned = _take_best(node, _nearby(node), is_better) or turned
                        break
        if not turned:
            break
    for nodes in (reversed(region), region):
        for node in nodes:
            home = identity(node.freedom.units)
            if node.order != home:
                _take_best(node, (home,), is_no_worse)


def _nearby(node: Movable) -> Iterator[Order]:
    """Orders in which some operand or result is as a neighbour has it."""
    for held, view, port in node.inputs:
        for layout in dict.fromkeys((held.made, *held.wanted)):
            yield from _possible(node, port, compose(inverse(view), layout))
    for held, port in node.outputs:
        for layout in held.wanted:
            yield from _possible(node, port, layout)
