"""The interface between the runtime and whoever computes: a provider claims nodes, alone or fused, and turns them into callables."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx import settings
from sardonyx.dtypes import ElementType
from sardonyx.errors import InvalidArgument
from sardonyx.errors import NotImplemented as NotImplementedByUs
from sardonyx.ir import Graph, Model, Node, SparseTensorType, TensorType, Value
from sardonyx.providers.prepacking import Prepacking
from sardonyx.startup.records import dataclass

if TYPE_CHECKING:
    from sardonyx.providers.kernel_table import BoundKernel, Kernel, KernelTable
    from sardonyx.providers.matching import StoredResolver

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
    kernels: KernelTable | None = None
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
        from sardonyx.providers import kernel_search

        return kernel_search.find(self, node)

    def bind_kernel(self, node: Node) -> BoundKernel:
        """The node's kernel with its attributes fixed."""
        from sardonyx.providers import kernel_search

        return kernel_search.bound(self, node)

    def from_host(self, array: np.ndarray) -> Any:
        """Copy a tensor into the memory of this provider's device; the host's own by default."""
        return array

    def to_host(self, value: Any) -> Any:
        """Copy a tensor back."""
        return value


def element_type(value: Value) -> ElementType | None:
    """The element type of a tensor value, None for other kinds of values."""
    return value.type.dtype if isinstance(value.type, (TensorType, SparseTensorType)) else None
