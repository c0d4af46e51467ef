"""The interface between the runtime and whoever computes: a provider claims nodes, alone or fused, and turns them into callables."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx import settings
from sardonyx.dtypes import ElementType
from sardonyx.errors import CODED, Fail, InvalidArgument, KernelError, unforeseen
from sardonyx.errors import NotImplemented as NotImplementedByUs
from sardonyx.ir import Graph, Kind, Model, Node, SparseTensorType, TensorType, Value
from sardonyx.ops import checking
from sardonyx.ops.reading import attribute_value
from sardonyx.providers import memory_limit
from sardonyx.providers.kernel_table import BoundKernel, Kernel, KernelTable, UnsupportedAttribute, bind
from sardonyx.providers.matching import SCHEMAS, Arguments, OpId, StoredResolver, first_type
from sardonyx.providers.prepacking import Prepacking
from sardonyx.startup.records import dataclass, replace

logger = logging.getLogger("sardonyx.runtime")

Compiled = Callable[[Sequence[Any]], Sequence[Any]]
"""A compiled cluster: given the values of its inputs, it returns those of its outputs. One that offers more is a `StepCall`."""


@dataclass(frozen=True)
class Capability:
    """What a provider offers to take: one node for which it has a kernel, or several that it compiles into one call."""

    nodes: Sequence[Node]
    fused: bool = False
    name: str = "cluster"
    """What a fused step is called; the provider's name and a number are added."""
    witnesses: Sequence[Value] = ()
    """Inputs of the graph that a fused step is given beside what its nodes read, because their shapes tell sizes."""


@dataclass(frozen=True)
class Cluster:
    """A fused subgraph on its way to `compile`: nodes in order, values that enter, constants that they use, values that leave."""

    name: str
    nodes: Sequence[Node]
    inputs: Sequence[Value]
    outputs: Sequence[Value]
    constants: Sequence[Value] = ()
    """Initializers that the nodes use. They are not among the inputs: whoever compiles takes them as they are."""
    witnesses: Sequence[Value] = ()
    """The last of the inputs, whose shapes alone are needed."""


class CannotCompile(Exception):
    """A provider finds, while it compiles, that it cannot have what it claimed: the nodes are offered to the providers after it.

    `nodes` are those that are in the way, if it can tell; then only these are taken from it. `reasons` says why, one by one, where they
    have different ones. `again` says that it will claim the other nodes in another way, so that there may be nothing to take from it.
    `quiet` says that this is nothing to worry users with.
    """

    def __init__(
        self,
        message: str,
        nodes: Sequence[Node] = (),
        *,
        reasons: Mapping[Node, str] | None = None,
        again: bool = False,
        quiet: bool = False,
    ):
        super().__init__(message)
        self.reasons = dict.fromkeys(nodes, message) if reasons is None else dict(reasons)
        self.again = again
        self.quiet = quiet

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(self.reasons)


class ExecutionProvider:
    """Base of all providers. One that only has kernels needs `name` and `kernels`; one that compiles overrides two methods."""

    name = "ExecutionProvider"
    kernels = KernelTable("ExecutionProvider")
    device = "cpu"
    """Where the values of its steps lie. Between devices they are copied through `to_host` and `from_host`."""
    preferred_layout = "NCHW"
    """With "NHWC", convolutions and the like are moved to the domain com.ms.internal.nhwc for it, channels last."""
    standard_ops_only = False
    """Whether it wants the model in ONNX's own ops, without the fused ones that the optimizer makes from level "extended" on."""

    @property
    def public_name(self) -> str:
        """The name under which users know it: native code and NumPy together are the CPU's provider."""
        return self.name

    def __init__(self, options: Mapping[str, str] | None = None):
        self.options = dict(options or {})
        self._refuse_unknown_options()
        self.prepacking: Prepacking | None = None
        """The session's packed weights, for providers that compile."""
        self.custom_kernels: list[KernelTable] = []
        """Tables of the session's custom ops: asked before `kernels`, the latest first."""
        self.resolver: StoredResolver | None = None
        """Type strings that came with the session's model."""

    def _refuse_unknown_options(self) -> None:
        """Options of our own providers are declared; others check theirs."""
        declared = settings.PROVIDER_OPTIONS.get(self.public_name)
        if declared is None:
            return
        for name, value in self.options.items():
            if name not in declared:
                self._refuse_or_ignore(name, declared)
            elif not declared[name].takes(value):
                raise InvalidArgument(f"{self.public_name}: {declared[name].complaint(value)}")

    def _refuse_or_ignore(self, name: str, declared: settings.Table) -> None:
        """onnxruntime's CPU ignores all options, and programs hand it those of arenas; a misspelt one of ours is refused."""
        text = settings.refusal(self.public_name, "option", name, declared)
        if self.public_name != "CPUExecutionProvider" or settings.is_misspelt(name, declared):
            raise InvalidArgument(text)
        if self.name == self.public_name:  # native code, which has another name, would tell it again
            logger.warning("%s; it is ignored, as onnxruntime ignores it", text.partition(";")[0])

    @property
    def constant_limit(self) -> int | None:
        """How many bytes of constants it may take at most: the option "max_constant_bytes", which every provider has."""
        limit = self.options.get(settings.MAX_CONSTANT_BYTES)
        if limit is None:
            return None
        if not limit.isdecimal():
            raise InvalidArgument(f"{self.name}: {settings.MAX_CONSTANT_BYTES} must be a number of bytes, not {limit!r}")
        return int(limit)

    def get_capability(self, graph: Graph, nodes: Sequence[Node]) -> Iterable[Capability]:
        """What this provider would take of `nodes`, the ones of `graph` that are still free. By default each that has a kernel."""
        for node in nodes:
            if self.find_kernel(node) is not None:
                yield Capability([node])

    def reason(self, node: Node) -> str:
        """Why it did not claim a node that it was offered, for people; "" if there is nothing to say."""
        return ""

    def wants_channels_last(self, node: Node) -> bool:
        """Whether a node that depends on the layout shall be moved, for a provider that prefers NHWC."""
        return True

    def begin(self, model: Model, prepacking: Prepacking) -> None:
        """A session is about to prepare its model, and will keep packed weights in `prepacking`."""
        self.prepacking = prepacking

    def compile(self, cluster: Cluster) -> Compiled:
        """Turn a fused subgraph into one callable."""
        raise NotImplementedByUs(f"{self.name} claimed {cluster.name} as fused but does not compile")

    def find_kernel(self, node: Node) -> Kernel | None:
        """The kernel that fits a node's op, version and types."""
        signature, types = checking.signature_of(node), constraint_types(node, self.resolver)
        tables = (*reversed(self.custom_kernels), self.kernels)
        return next((kernel for table in tables if (kernel := table.find(signature, types)) is not None), None)

    def bind_kernel(self, node: Node) -> BoundKernel:
        """The node's kernel with its attributes fixed."""
        kernel = self.find_kernel(node)
        if kernel is None:
            raise missing_kernel(node)
        kernel = _within_memory(kernel, node)
        graphs = [name for name, attribute in node.attributes.items() if attribute.kind in (Kind.GRAPH, Kind.GRAPHS)]
        on_host = self.device == "cpu"  # values of another device are not NumPy's to cast
        try:
            return bind(
                kernel,
                checking.signature_of(node),
                {name: attribute_value(attribute.value) for name, attribute in node.attributes.items()},
                [None if value is None else element_type(value) for value in node.inputs],
                [element_type(value) if on_host else None for value in node.outputs],
                graphs,
            )
        except UnsupportedAttribute as error:
            raise NotImplementedByUs(f"{node}: {error}") from error
        except KernelError as error:
            raise error.kind(f"{node}: {error}") from error
        except CODED:
            raise
        except Exception as error:
            unforeseen(error, f"the attributes of {node}")

    def from_host(self, array: np.ndarray) -> Any:
        """Copy a tensor into the memory of this provider's device; the host's own by default."""
        return array

    def to_host(self, value: Any) -> Any:
        """Copy a tensor back."""
        return value


def _within_memory(kernel: Kernel, node: Node) -> Kernel:
    """The kernel, or one that refuses to run if a result is larger than all memory: other nodes may still be computed."""
    sizes = {value.name: _known_bytes(value) for value in node.outputs}
    if max(sizes.values(), default=0) <= memory_limit.largest_bytes():
        return kernel
    is_open = any(not isinstance(size, int) for value in node.outputs for size in getattr(value.type, "shape", None) or ())

    @functools.wraps(kernel.function)  # whoever asks for its parameters learns those of the kernel
    def refuse(**operands: Any) -> Any:
        if is_open and any(_may_empty(operand) for operand in operands.values()):
            return kernel.function(**operands)
        for name, size in sizes.items():
            memory_limit.require(size, f"output {name!r}")
        return None

    return replace(kernel, function=refuse, plain=False)


def _may_empty(operand: Any) -> bool:
    """Whether a result may have no elements because of this operand: it has none, or is asked for as many as a 0 in it says."""
    if isinstance(operand, (list, tuple)):
        return any(map(_may_empty, operand))
    return isinstance(operand, np.ndarray) and (operand.size == 0 or (operand.dtype.kind in "iu" and not operand.all()))


def _known_bytes(value: Value) -> int:
    """How many bytes a value takes at least, where sizes that inference does not know are one; 0 if that is all."""
    shape, dtype = getattr(value.type, "shape", None), element_type(value)
    if not shape or dtype is None:
        return 0
    return math.prod(size for size in shape if isinstance(size, int)) * dtype.numpy.itemsize


def missing_kernel(node: Node) -> Exception:
    """What to raise when no provider can compute a node."""
    signature = checking.signature_of(node)
    types = ", ".join(f"{value.name}: {value.type}" for value in node.inputs if value is not None)
    return NotImplementedByUs(
        f"Could not find an implementation for {node.op_id}({signature.since_version}) node with name '{node.name}' (inputs {types})"
    )


def element_type(value: Value) -> ElementType | None:
    """The element type of a tensor value, None for other kinds of values."""
    return value.type.dtype if isinstance(value.type, (TensorType, SparseTensorType)) else None


def constraint_types(node: Node, resolver: StoredResolver | None = None) -> dict[str, ElementType | None]:
    """The element type behind each type string of the node's op, by the first argument that exists; None for other than tensors.

    An op that `resolver` has nothing about was not in the model's file: the signature is asked.
    """
    signature = checking.signature_of(node)
    arguments = SCHEMAS.of(signature)
    if resolver is not None:
        stored = resolver.find(OpId(signature.domain, signature.name, signature.since_version))
        arguments = arguments if stored is None else _complete(stored, arguments, node)
    types = ((key, first_type(node, places)) for key, places in arguments.items())
    return {key: type.dtype if isinstance(type, (TensorType, SparseTensorType)) else None for key, type in types}


def _complete(stored: Arguments, needed: Arguments, node: Node) -> Arguments:
    missing = next((key for key in needed if key not in stored), None)
    if missing is not None:
        raise Fail(f"{node}: Failed to find the type string {missing!r} in the table that came with the model")
    return stored
