"""The provider of a session that runs a context model: it takes what the native provider had when the model was compiled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from sardonyx import dtypes
from sardonyx.compiler.pool import available_threads, pool
from sardonyx.errors import Fail
from sardonyx.ir import Graph, Node, TensorType, Value
from sardonyx.providers.native.aot.opening import Context, is_context
from sardonyx.providers.native.execution.argument_table import ArgumentTable
from sardonyx.providers.native.execution.compiled import CompiledProgram
from sardonyx.providers.provider import Capability, Cluster, Compiled, ExecutionProvider


class SourceNeeded(Exception):
    """A program cannot compute what it was given: only the model that it was compiled from can say what comes out, or what is wrong."""


class ContextExecutionProvider(ExecutionProvider):
    """Runs programs that were compiled before."""

    name = "NativeExecutionProvider"
    public_name = "CPUExecutionProvider"

    def __init__(self, context: Context, options: Mapping[str, str] | None = None, threads: int = 0, spinning: bool = True):
        super().__init__(options)
        self.context = context
        workers = pool()
        self.threads = workers.ensure(threads or available_threads())
        if not spinning:
            workers.sleep_at_once()

    def get_capability(self, graph: Graph, nodes: Sequence[Node]) -> Iterable[Capability]:
        return [Capability([node], fused=True, name="context") for node in nodes if is_context(node)]

    def compile(self, cluster: Cluster) -> Compiled:
        (node,) = cluster.nodes
        context, program = self.context, self.context.programs[node.attribute("partition_name")]
        argument_table = ArgumentTable(program.tables, context.kernels, context.constants, context.kept, self.threads)
        if list(cluster.inputs) != list(node.inputs) or list(cluster.outputs) != list(node.outputs):
            raise Fail(f"{node}: its inputs must differ and not be constant, and all its outputs must be used")
        strings = [] if program.texts is None else program.texts.inputs
        if strings != [place for place, value in enumerate(cluster.inputs) if _is_text(value)]:
            raise Fail(f"{node}: other inputs are strings than its program was compiled for")
        if program.texts is None:
            return CompiledProgram(argument_table, program.labels, _no_fallback)
        from sardonyx.providers.native.execution.texts import TextProgram

        return TextProgram(program.texts, argument_table, program.labels, _no_fallback)


def _is_text(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype is dtypes.string


def _no_fallback(inputs: Sequence[Any]) -> NoReturn:
    shapes = ", ".join(str(list(array.shape)) for array in inputs)
    raise SourceNeeded(f"the compiled program does not take this data (shapes {shapes})")
