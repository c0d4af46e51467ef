"""The provider: claims maximal clusters of what it can lower, and compiles each into a program of machine code."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sardonyx.compiler.jit import jit
from sardonyx.compiler.pool import available_threads, pool
from sardonyx.errors import is_strict
from sardonyx.ir import Dim, Graph, Model, Node, Value
from sardonyx.ir.edit import all_graphs
from sardonyx.ops import checking
from sardonyx.providers.clustering import maximal_clusters
from sardonyx.providers.cpu.provider import CPUExecutionProvider
from sardonyx.providers.native.batches import batch_of
from sardonyx.providers.native.compiled import CompiledProgram
from sardonyx.providers.native.digest import content_digest
from sardonyx.providers.native.image.suppression import Suppression, claims_suppression
from sardonyx.providers.native.image.suppression_kernel import suppress_kernel
from sardonyx.providers.native.known import is_symbolic, known_sizes
from sardonyx.providers.native.layout import Layout, Tables
from sardonyx.providers.native.lowering import Lowerer
from sardonyx.providers.native.placing import tabulate
from sardonyx.providers.native.program import Program
from sardonyx.providers.native.scalars import find_scalar
from sardonyx.providers.native.sizes import Sizes, UnboundSymbol
from sardonyx.providers.native.table import lowering_of
from sardonyx.providers.native.values import is_plain, shape_of
from sardonyx.providers.prepacking import Prepacking
from sardonyx.providers.provider import CannotCompile, Capability, Cluster, Compiled, ExecutionProvider

SEPARATE_ROUNDS = 8
"""How often nodes of unknown sizes are left out by themselves, before all that depend on them are."""


class NativeExecutionProvider(ExecutionProvider):
    """Machine code for the host's CPU. `intra_op_num_threads` is how many threads a run may use, 0 for all there are."""

    name = "NativeExecutionProvider"
    public_name = "CPUExecutionProvider"

    def __init__(self, options: Mapping[str, str] | None = None, threads: int = 0, spinning: bool = True):
        super().__init__(options)
        self.jit = jit()
        workers = pool()
        self.threads = workers.ensure(threads or available_threads())
        if not spinning:
            workers.sleep_at_once()

    def begin(self, model: Model, prepacking: Prepacking) -> None:
        super().begin(model, prepacking)
        tensors = [value.constant for graph in all_graphs(model.graph) for value in graph.initializers.values()]
        prepacking.check_ahead([one for one in tensors if one is not None], self.jit.target.name, content_digest)

    def get_capability(self, graph: Graph, nodes: Sequence[Node]) -> Iterable[Capability]:
        alone = [Capability([node], fused=True, name="suppression") for node in nodes if claims_suppression(node)]
        return [*self._clusters(graph, nodes), *alone]

    def _clusters(self, graph: Graph, nodes: Sequence[Node]) -> list[Capability]:
        able = {node for node in nodes if self.can_lower(node)}
        rounds = 0
        while able:
            clusters = maximal_clusters(graph, nodes, able.__contains__)
            unbound = [node for cluster in clusters for node in _unbound(cluster)]
            if not unbound:
                return [Capability(cluster, fused=True) for cluster in clusters if any(map(_is_costly, cluster))]
            # what follows a node whose sizes only its data tells can be a cluster that reads them off its input
            rounds += 1
            able -= set(_first_of(unbound) if rounds <= SEPARATE_ROUNDS else unbound)
        return []

    def can_lower(self, node: Node) -> bool:
        """Whether there is generated code for a node with its types and shapes."""
        if next(node.subgraphs, None) is not None or not all(map(is_plain, (*node.inputs, *node.outputs))):
            return False
        if is_symbolic(node):
            return True
        if find_scalar(node) is not None:
            return True
        entry = lowering_of(node, checking.signature_of(node).since_version)
        return entry is not None and (not entry.packs or self.prepacking is None or self.prepacking.enabled)

    def compile(self, cluster: Cluster) -> Compiled:
        if len(cluster.nodes) == 1 and claims_suppression(cluster.nodes[0]):
            return Suppression(cluster, self.jit.addresses([suppress_kernel(self.jit.target)])[0], self.threads)
        try:
            program = Lowerer(cluster, self.jit.target, self.threads, self.options, self.prepacking).lower()
            sizes = Sizes(cluster.inputs)
            for step in program.steps:
                if not all(map(sizes.knows, step.sizes())):
                    raise CannotCompile("a size depends on data", [] if step.node is None else [step.node], quiet=True)
            program.batch = batch_of(cluster, program.constant_bytes)
            return self._compiled(program, tabulate(program, sizes), Interpreted(cluster))
        except CannotCompile:
            raise
        except UnboundSymbol as error:
            raise CannotCompile(str(error), quiet=True) from error
        except Exception as error:
            if is_strict():
                raise
            raise CannotCompile(f"{type(error).__name__}: {error}") from error  # a fault of ours; NumPy computes the nodes

    def _compiled(self, program: Program, tables: Tables, fallback: Interpreted) -> CompiledProgram:
        constants = [buffer.array for buffer in program.constants]
        addresses = [array.ctypes.data for array in constants if array is not None]
        assert len(addresses) == len(constants)
        layout = Layout(tables, self.jit.addresses(program.kernels), addresses, constants, self.threads)
        labels = [(step.label, step.kernel.title) for step in program.steps]
        return CompiledProgram(layout, labels, fallback, program, self.jit)


def _unbound(cluster: Sequence[Node]) -> list[Node]:
    """Nodes with sizes that the shapes of the cluster's inputs do not tell."""
    made = {value for node in cluster for value in node.outputs}
    used = (value for node in cluster for value in node.inputs if value is not None)
    sizes = Sizes(list(dict.fromkeys(value for value in used if value not in made and not value.is_constant)))
    return [node for node in cluster if not all(map(sizes.knows, _sizes_of(node)))]


def _first_of(nodes: Sequence[Node]) -> list[Node]:
    """Those that depend on no other of them."""
    members = set(nodes)
    return [node for node in nodes if not any(value and value.producer in members for value in node.inputs)]


def _sizes_of(node: Node) -> Iterator[Dim]:
    for value in node.outputs:
        yield from shape_of(value) or ()
        yield from known_sizes(value) or ()
        yield from getattr(value.inferred, "shape", None) or ()
    for value in filter(None, node.inputs):
        yield from known_sizes(value) or ()


def _is_costly(node: Node) -> bool:
    if is_symbolic(node):
        return False
    entry = None if find_scalar(node) else lowering_of(node, checking.signature_of(node).since_version)
    return entry is None or entry.costly


class Interpreted:
    """A cluster computed node by node in NumPy: for shapes of another form than the model says."""

    def __init__(self, cluster: Cluster):
        self._cluster = cluster

    @functools.cached_property
    def _steps(self) -> list[tuple[Node, Any]]:
        provider = CPUExecutionProvider()
        return [(node, provider.bind_kernel(node)) for node in self._cluster.nodes]

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        found: dict[Value, Any] = dict(zip(self._cluster.inputs, inputs))
        for node, kernel in self._steps:
            given = [None if one is None else found[one] if one in found else _constant(one) for one in node.inputs]
            found.update(zip(node.outputs, kernel(given)))
        return [found[value] for value in self._cluster.outputs]


def _constant(value: Value) -> Any:
    assert value.constant is not None
    return value.constant.numpy()
