"""Which sizes the nodes of a cluster settle while they run. The provider asks here whether it may claim them, and lowerings settle them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sardonyx.ir import Dim, Node, Value, dim
from sardonyx.ops.checking import signature_of
from sardonyx.providers.native.program.known import is_symbolic, known_sizes
from sardonyx.providers.native.program.scalars import find_scalar
from sardonyx.providers.native.program.sizes import Sizes
from sardonyx.providers.native.program.table import lowering_of, may_settle
from sardonyx.providers.native.program.values import shape_of


def sizes_in(inputs: Sequence[Value], nodes: Sequence[Node]) -> Sizes:
    """What is known of the sizes in a cluster of nodes."""
    return Sizes(inputs, data_sizes_of(nodes), aliases_of(nodes))


def aliases_of(nodes: Iterable[Node]) -> dict[str, Dim]:
    """Names that the model declares for sizes of which inference says what they are."""
    found: dict[str, Dim] = {}
    for node in nodes:
        for value in node.outputs:
            inferred = getattr(value.inferred, "shape", None) or ()
            for size, declared in zip(inferred, shape_of(value) or ()):
                symbol = None if isinstance(declared, int) else declared.symbol
                if symbol is not None and symbol not in dim.symbols(size):
                    found.setdefault(symbol.name, size)
        for graph in node.subgraphs:
            found = aliases_of(graph.nodes) | found
    return found


def data_sizes_of(nodes: Iterable[Node]) -> list[str]:
    """Symbols that stand for sizes which these nodes, and those of graphs inside them, settle, unless shapes of inputs tell them."""
    return list(dict.fromkeys(name for node in nodes for name in _settled_by(node)))


def _settled_by(node: Node) -> Iterator[str]:
    for graph in node.subgraphs:
        yield from data_sizes_of(graph.nodes)
    if not may_settle(node):
        return
    entry = None if is_symbolic(node) or find_scalar(node) else lowering_of(node, signature_of(node).since_version)
    if entry is None or not entry.settles or entry.passes(node):
        return
    given = set(_symbols((*node.inputs, *node.implicit_inputs())))
    made = [*node.outputs, *(value for graph in node.subgraphs for value in graph.inputs)]
    yield from (symbol.name for symbol in _symbols(made) if symbol not in given)


def _symbols(values: Iterable[Value | None]) -> Iterator[dim.Symbol]:
    """The symbols in the shapes and the contents of values."""
    for value in filter(None, values):
        inferred = getattr(value.inferred, "shape", None) or ()
        for size in (*(shape_of(value) or ()), *inferred, *(known_sizes(value) or ())):
            yield from dim.symbols(size)
