"""The provider: claims maximal clusters of what it can lower, and compiles each into a program of machine code."""

from __future__ import annotations

import functools
import logging
import os
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence

from sardonyx import settings
from sardonyx.compiler.jit import Kernel, jit
from sardonyx.compiler.pool import available_threads, pool
from sardonyx.errors import is_strict
from sardonyx.ir import Dim, Graph, Model, Node, Value, described
from sardonyx.ir.dim import Expression
from sardonyx.ir.edit import all_graphs
from sardonyx.ops import checking
from sardonyx.providers.clustering import maximal_clusters
from sardonyx.providers.native.execution.argument_table import ArgumentTable, Tables
from sardonyx.providers.native.execution.compiled import CompiledProgram
from sardonyx.providers.native.execution.digest import content_digest
from sardonyx.providers.native.execution.interpreted import Interpreted
from sardonyx.providers.native.execution.placing import tabulate
from sardonyx.providers.native.execution.texts import CAN_HOLD_TEXTS, TextProgram
from sardonyx.providers.native.program.batches import batch_of
from sardonyx.providers.native.program.data_sizes import sizes_in
from sardonyx.providers.native.program.known import is_symbolic, known_sizes
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.refusals import Failure, LoweringFailed, reason_of
from sardonyx.providers.native.program.scalars import find_scalar
from sardonyx.providers.native.program.sizes import Sizes
from sardonyx.providers.native.program.steps import Program
from sardonyx.providers.native.program.table import has_lowering, lowering_of, may_pass
from sardonyx.providers.native.program.texts import ProgramTexts
from sardonyx.providers.native.program.values import dims, has_texts, is_held, is_plain, is_text, shape_of
from sardonyx.providers.prepacking import Prepacking
from sardonyx.providers.provider import CannotCompile, Capability, Cluster, Compiled, ExecutionProvider
from sardonyx.startup import later

logger = logging.getLogger("sardonyx.runtime")

LARGEST_IN_A_HURRY = 512 << 20
"""How many bytes of constants a program may have to be compiled in a hurry: others run for long, and slow code even longer."""
SEPARATE_ROUNDS = 8
"""How often nodes of unknown sizes are left out by themselves, before all that depend on them are."""


class NativeExecutionProvider(ExecutionProvider):
    """Machine code for the host's CPU. `intra_op_num_threads` is how many threads a run may use, 0 for all there are."""

    name = "NativeExecutionProvider"
    public_name = "CPUExecutionProvider"

    def __init__(self, options: Mapping[str, str] | None = None, threads: int = 0, spinning: bool = True):
        super().__init__(options)
        self.jit = jit()
        self._apart: set[Node] = set()
        """Nodes that can be compiled, but not together with those around them: each is a cluster of its own."""
        self._left: dict[Node, str] = {}
        """Nodes that have native code and are left out all the same, and why."""
        workers = pool()
        self.threads = workers.ensure(threads or available_threads())
        if not spinning:
            workers.sleep_at_once()

    def begin(self, model: Model, prepacking: Prepacking) -> None:
        super().begin(model, prepacking)
        tensors = [value.constant for graph in all_graphs(model.graph) for value in graph.initializers.values()]
        prepacking.check_ahead([tensor for tensor in tensors if tensor is not None], self.jit.target.name, content_digest)

    def get_capability(self, graph: Graph, nodes: Sequence[Node]) -> Iterable[Capability]:
        apart = [_capability(graph, [node]) for node in nodes if node in self._apart]
        return [*self._clusters(graph, nodes), *apart]

    def _clusters(self, graph: Graph, nodes: Sequence[Node]) -> list[Capability]:
        able = {node for node in nodes if node not in self._apart and self.can_lower(node)}
        rounds = 0
        while able:
            clusters = maximal_clusters(graph, nodes, able.__contains__)
            crossing = {node: value for cluster in clusters for node, value in _crossing(graph, cluster)}
            if crossing:
                self._left |= {node: f"{value.name} is {described(value.type)}" for node, value in crossing.items()}
                able -= crossing.keys()
                continue
            unbound = [node for cluster in clusters for node in _unbound(graph, cluster)]
            if not unbound:
                return [_capability(graph, cluster) for cluster in clusters if self._is_worth(cluster)]
            # what follows a node whose sizes only its data tells can be a cluster that reads them off its input
            rounds += 1
            left = _first_of(unbound) if rounds <= SEPARATE_ROUNDS else unbound
            self._left |= dict.fromkeys(left, "sizes that it makes depend on data")
            able -= set(left)
        return []

    def _is_worth(self, cluster: Sequence[Node]) -> bool:
        is_worth = any(map(_is_costly, cluster))
        if not is_worth:
            self._left |= dict.fromkeys(cluster, "nothing is computed here, shapes and views alone are quicker without")
        return is_worth

    def can_lower(self, node: Node) -> bool:
        """Whether there is generated code for a node with its types and shapes."""
        return self._obstacle(node) is None

    def _obstacle(self, node: Node) -> str | None:
        """Why there is no generated code for a node; None if there is."""
        try:
            return self._first_obstacle(node)
        except Exception as error:
            if is_strict():
                raise
            return reason_of(error)

    def _first_obstacle(self, node: Node) -> str | None:
        foreign = next((value for value in (*node.inputs, *node.outputs, *_handed(node)) if not is_held(value)), None)
        if foreign is not None:
            return f"{foreign.name} is {described(foreign.type)}"
        if has_texts(node) and not CAN_HOLD_TEXTS:
            return "this interpreter has other strings than generated code reads"
        if is_symbolic(node) or find_scalar(node) is not None:
            return None
        entry = lowering_of(node, checking.signature_of(node).since_version)
        if entry is None:
            limits = " with these types, attributes and shapes" if has_lowering(node) else ""
            return f"there is no native code for {node.op_type}{limits}"
        if entry.packs and self.prepacking is not None and not self.prepacking.enabled:
            return "weights may not be packed before runs"
        inner = ((one, self._obstacle(one)) for graph in node.subgraphs for one in graph.nodes)
        return next((f"{one} inside: {obstacle}" for one, obstacle in inner if obstacle is not None), None)

    def reason(self, node: Node) -> str:
        return self._obstacle(node) or self._left.get(node, "")

    def compile(self, cluster: Cluster) -> Compiled:
        try:
            return self._compile(cluster)
        except LoweringFailed as failed:
            for failure in failed.failures:
                if failure.is_fatal or (not failure.is_expected and is_strict()):
                    raise failure.error from None
            failed.forget_frames()
            raise self._refusal(cluster, failed.failures) from failed

    def _compile(self, cluster: Cluster) -> CompiledProgram:
        lowerer = Lowerer(cluster, self.jit.target, self.threads, self.options, self.prepacking)
        program, sizes = lowerer.lower(), lowerer.sizes
        unknown = list(_unknown_sizes(program, sizes))
        if unknown:
            raise LoweringFailed(unknown)
        try:
            has_parts = program.texts is None and not sizes.data_sizes
            program.batch = batch_of(cluster, program.constant_bytes) if has_parts else None
            return self._compiled(program, tabulate(program, sizes), Interpreted(cluster))
        except Exception as error:
            raise LoweringFailed(self._failing_kernels(program) or [Failure((), error)]) from error

    def _failing_kernels(self, program: Program) -> list[Failure]:
        """The steps whose code cannot be written or compiled."""
        faults: dict[int, Exception] = {}
        for step in program.steps:
            try:
                self.jit.addresses([step.kernel])
            except Exception as error:
                faults[id(step.kernel)] = error
        return [Failure(step.nodes, faults[id(step.kernel)]) for step in program.steps if id(step.kernel) in faults]

    def _refusal(self, cluster: Cluster, failures: Sequence[Failure]) -> CannotCompile:
        """Which nodes cannot be had: those that cannot be compiled alone either. Where all can, the first becomes a cluster of its own."""
        reasons: dict[Node, str] = {}
        apart: set[Node] = set()
        for failure in failures:
            if len(cluster.nodes) == 1:
                reasons[cluster.nodes[0]] = failure.reason
                continue
            nodes = _members(cluster, failure.nodes) or [self._culprit(cluster.nodes)]
            guilty = {node: fault for node in nodes if (fault := self._fault_alone(node, failure.reason))}
            reasons |= guilty
            if not guilty:
                apart.update(nodes if find_scalar(nodes[0]) is not None else nodes[:1])
                logger.info("%s is compiled apart from its neighbours: %s", nodes[0], failure.reason)
        self._apart |= apart
        message = "; ".join(dict.fromkeys(failure.reason for failure in failures))
        is_quiet = all(failure.is_quiet for failure in failures)
        return CannotCompile(message, reasons=reasons, again=bool(apart), quiet=is_quiet)

    def _fault_alone(self, node: Node, reason: str) -> str:
        """Why a node cannot be a cluster of its own, "" if it can. One that takes or gives sequences never can: its own fault is told."""
        return self._fault_of([node]) if all(map(is_plain, (*node.inputs, *node.implicit_inputs(), *node.outputs))) else reason

    def _culprit(self, nodes: Sequence[Node]) -> Node:
        """The node with which a cluster begins to fail, where nothing else tells."""
        good, bad = 0, len(nodes)
        while bad - good > 1:
            middle = (good + bad) // 2
            if self._fault_of(nodes[:middle]):
                bad = middle
            else:
                good = middle
        return nodes[bad - 1]

    def _fault_of(self, nodes: Sequence[Node]) -> str:
        """Why some nodes cannot be compiled as a cluster of their own; "" if they can."""
        members = set(nodes)
        outputs = [value for node in nodes for value in node.outputs]
        graph = nodes[0].graph
        results = set(graph.outputs) if graph is not None else set()
        leaving = [value for value in outputs if value in results or any(user not in members for user in value.users)]
        inputs = _entering(nodes)
        try:
            inputs += _witnesses(graph, nodes, inputs) if graph is not None else []
            self._compile(Cluster(f"{self.name}_trial", nodes, inputs, leaving or outputs[-1:]))
        except LoweringFailed as failed:
            failed.forget_frames()
            return failed.failures[0].reason
        except CannotCompile as error:  # a sequence comes from outside of these nodes
            return str(error)
        return ""

    def _compiled(self, program: Program, tables: Tables, fallback: Interpreted) -> CompiledProgram:
        constants = [buffer.array for buffer in program.constants]
        addresses = [array.ctypes.data for array in constants if array is not None]
        assert len(addresses) == len(constants)
        functions, hurried = (
            self.jit.load_in_a_hurry(program.kernels) if self._hurries(program) else (self.jit.load(program.kernels), [])
        )
        argument_table = ArgumentTable(tables, functions.addresses, addresses, (constants, functions), self.threads)
        compiled = self._with_texts(program, argument_table, fallback)
        if hurried:
            compiled.awaits_code = True
            work = functools.partial(_compile_well, weakref.ref(compiled), hurried)
            later.put_off(f"kernels of {id(compiled)}", work, in_children=True)
        return compiled

    def _hurries(self, program: Program) -> bool:
        is_wanted = settings.HURRY.is_on(os.environ) and settings.CPU_HURRY.is_on(self.options)
        return is_wanted and program.constant_bytes <= LARGEST_IN_A_HURRY

    def _with_texts(self, program: Program, argument_table: ArgumentTable, fallback: Interpreted) -> CompiledProgram:
        labels = [(step.label, step.kernel.title) for step in program.steps]
        if program.texts is None:
            return CompiledProgram(argument_table, labels, fallback, program, self.jit)
        inputs, outputs = (
            [place for place, value in enumerate(values) if is_text(value)] for values in (program.inputs, program.outputs)
        )
        texts = ProgramTexts(program.texts, inputs, outputs)
        return TextProgram(texts, argument_table, labels, fallback, program, self.jit, alone=lambda: fallback.alone)


def _compile_well(reference: weakref.ref[CompiledProgram], hurried: Sequence[Kernel]) -> None:
    """Put the best code of a program in place of code that was compiled in a hurry."""
    compiled = reference()
    if compiled is None or compiled.program is None or compiled.jit is None:
        for kernel in hurried:
            kernel.forget_text()  # nobody runs it
        return
    if later.is_ending() and compiled.jit.cache.folder is None:
        return  # nobody would find it
    try:
        functions = compiled.jit.improved(compiled.program.kernels, later.is_time)
        if functions is None:
            return
        compiled.use(functions.addresses, functions)
    except Exception as error:  # what it has works
        if is_strict():
            raise
        logger.warning("A program goes on with slow code, for LLVM cannot compile it well: %s", error)
    compiled.awaits_code = False


def _members(cluster: Cluster, nodes: Sequence[Node]) -> list[Node]:
    """The nodes of a cluster that these are, or inside of which they stand."""
    members = set(cluster.nodes)
    found: dict[Node, None] = {}
    for node in nodes:
        while node not in members and node.graph is not None and node.graph.parent is not None:
            node = node.graph.parent
        found[node] = None
    return list(found)


def _unknown_sizes(program: Program, sizes: Sizes) -> Iterator[Failure]:
    """Steps, conditions and outputs with sizes that the shapes of the inputs do not tell."""
    needed = [(step.nodes, step.sizes()) for step in program.steps]
    needed += [(nodes, iter(pair)) for pair, nodes in program.conditions.items()]
    needed += [([value.producer] if value.producer else [], iter(dims(value))) for value in program.outputs]
    for nodes, needed_sizes in needed:
        unknown = next((size for size in needed_sizes if not sizes.knows(size)), None)
        if unknown is not None:
            yield Failure(nodes, CannotCompile(f"the size {unknown} depends on data", quiet=True))


def _capability(graph: Graph, nodes: Sequence[Node]) -> Capability:
    return Capability(nodes, fused=True, witnesses=_witnesses(graph, nodes, _entering(nodes)))


def _unbound(graph: Graph, cluster: Sequence[Node]) -> list[Node]:
    """Nodes with sizes that neither the shapes of the cluster's inputs tell nor those of the graph's."""
    inputs = _entering(cluster)
    sizes = sizes_in([*inputs, *_witnesses(graph, cluster, inputs)], cluster)
    return [node for node in cluster if not _is_passed_on(node) and not all(map(sizes.knows, _sizes_of(node)))]


def _crossing(graph: Graph, cluster: Sequence[Node]) -> Iterator[tuple[Node, Value]]:
    """Nodes that take a sequence or an optional value from outside of a cluster, or give one: programs take and give tensors alone."""
    members, results = set(cluster), set(graph.outputs)
    made = {value for node in cluster for value in node.outputs}
    for node in cluster:
        read = [value for value in (*node.inputs, *node.implicit_inputs()) if value is not None and value not in made]
        read += [value for value in node.outputs if value in results or not members.issuperset(_users(value, graph))]
        foreign = next((value for value in read if not is_plain(value)), None)
        if foreign is not None:
            yield node, foreign


def _users(value: Value, graph: Graph) -> Iterator[Node]:
    """The nodes of a graph that use a value, themselves or inside of them."""
    for user in value.users:
        while user.graph is not graph and user.graph is not None and user.graph.parent is not None:
            user = user.graph.parent
        yield user


def _is_passed_on(node: Node) -> bool:
    """Whether nobody has to know how large what a node makes is."""
    entry = lowering_of(node, checking.signature_of(node).since_version) if may_pass(node) else None
    return entry is not None and entry.passes(node)


def _entering(nodes: Sequence[Node]) -> list[Value]:
    made = {value for node in nodes for value in node.outputs}
    used = dict.fromkeys(value for node in nodes for value in (*node.inputs, *node.implicit_inputs()) if value is not None)
    return [value for value in used if value not in made and not value.is_constant]


def _handed(node: Node) -> Iterator[Value]:
    """What graphs inside a node are given, and give."""
    for graph in node.subgraphs:
        yield from graph.inputs
        yield from graph.outputs


def _witnesses(graph: Graph, nodes: Sequence[Node], inputs: Sequence[Value]) -> list[Value]:
    """Inputs of the graph whose shapes tell what those of a cluster's inputs do not: how long a sequence is, not only past and sequence."""
    sizes = [*(size for value in inputs for size in dims(value)), *(size for node in nodes for size in _sizes_of(node))]
    untold = sizes_in(inputs, nodes).untold(sizes)
    witnesses: list[Value] = []
    for value in graph.inputs if untold else ():
        symbols = {size.symbol.name for size in shape_of(value) or () if isinstance(size, Expression) and size.symbol}
        if not untold.isdisjoint(symbols) and is_plain(value) and not value.is_constant and value not in inputs:
            witnesses.append(value)
            untold -= symbols
    return witnesses


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
    for graph in node.subgraphs:
        for value in graph.inputs:
            yield from shape_of(value) or ()
        for inner in graph.nodes:
            yield from _sizes_of(inner)


def _is_costly(node: Node) -> bool:
    if is_symbolic(node):
        return False
    entry = None if find_scalar(node) else lowering_of(node, checking.signature_of(node).since_version)
    return entry is None or entry.costly
