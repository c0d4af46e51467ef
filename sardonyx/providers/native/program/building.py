"""Adds steps, constants and conditions to a program, and knows for which nodes. Lowerers are made of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

import numpy as np

from sardonyx.compiler.target import Target
from sardonyx.ir import Dim, Node, Value, dim
from sardonyx.providers.native.execution.digest import content_digest
from sardonyx.providers.native.program import budgets
from sardonyx.providers.native.program.arguments import Arguments
from sardonyx.providers.native.program.data_sizes import sizes_in
from sardonyx.providers.native.program.kernel import DeclaredKernel
from sardonyx.providers.native.program.refusals import Failure
from sardonyx.providers.native.program.scope import outermost
from sardonyx.providers.native.program.settled import SEEDS
from sardonyx.providers.native.program.settling import Origin, SettleArguments, Settlement, data_of, settle_kernel
from sardonyx.providers.native.program.sizes import THREADS
from sardonyx.providers.native.program.steps import Buffer, Program, Step
from sardonyx.providers.native.program.texts import TextConstants
from sardonyx.providers.native.program.values import is_text
from sardonyx.providers.native.program.views import Dims, View, dense_order, dense_strides
from sardonyx.providers.native.program.weights import WeightMemory
from sardonyx.providers.prepacking import PackedFormat, Prepacking, Request
from sardonyx.providers.provider import CannotCompile, Cluster
from sardonyx.startup.records import replace

MAPPED_BYTES = 1 << 20
"""Constants of at least so many bytes are read where the file has them, aligned or not. All our CPUs can read them so."""
PIECES_PER_THREAD = 4
"""Into how many pieces per thread a step is cut whose items a run tells, if its grain allows."""


class ProgramBuilder:
    """A program while it is made."""

    def __init__(
        self,
        cluster: Cluster,
        target: Target,
        threads: int = 1,
        options: Mapping[str, str] | None = None,
        prepacking: Prepacking | None = None,
    ):
        self.target = target
        self.budgets = budgets.of(target.caches)
        self.threads = threads
        """How many threads a run may have; a kernel's `worker` is below it."""
        self.options = dict(options or {})
        """The provider's."""
        self.prepacking = prepacking or Prepacking()
        """The session's packed weights; lowerings ask `packed` for them."""
        self.weights = WeightMemory()
        self.cluster = cluster
        self.program = Program(cluster.name, cluster.inputs, cluster.outputs)
        if any(map(is_text, (*cluster.inputs, *cluster.outputs))):
            self.program.texts = TextConstants()
        self.sizes = sizes_in(cluster.inputs, cluster.nodes)
        self.settled: set[str] = set()
        """Sizes that steps settle, as far as they were added."""
        self.scope = outermost(self.program, cluster.nodes, self.sizes)
        self._constants: dict[int, Buffer] = {}
        self._label = ""
        self._nodes: list[Node] = []
        """The nodes that are being lowered: one with a kernel, and those of chains before and behind it."""
        self._origins: dict[Node, Node] = {}
        """The node of the cluster for which a composed one stands."""
        self._failures: list[Failure] = []

    def settle(self, sources: Sequence[tuple[str, Origin]]) -> None:
        """Add a step by which sizes become other sizes, or numbers in memory, for all steps behind it."""
        if not sources:
            return
        script = Buffer("script", 0, "constant", len(self.program.constants), np.empty(0, np.int64))
        self.program.constants.append(script)
        data = data_of(sources)
        self.settled.update(name for name, _ in sources)
        arguments, steps, table = (
            Buffer(name, 0, "run", number) for number, name in enumerate(("arguments", "steps", "table"))
        )
        record = SettleArguments(
            script=script,
            arguments=arguments,
            steps=steps,
            table=table,
            pieces=THREADS * PIECES_PER_THREAD,
            status=self.status(),
            data=data,
        )
        self.call(settle_kernel(self.target, len(data)), record, 1)
        self.program.steps[-1].settles = Settlement(sources, script)

    def is_settled(self, *sizes: Dim) -> bool:
        """Whether only a run tells some of these sizes."""
        return bool(self.sizes.data_sizes_in(sizes))

    # --- memory

    def constant(self, array: np.ndarray) -> Buffer:
        """A buffer of fixed content: a weight as it is, or packed."""
        array = np.ascontiguousarray(array)
        if not array.flags.aligned and array.nbytes < MAPPED_BYTES:
            array = array.copy()
        buffer = self._constants.get(array.ctypes.data)
        if buffer is None or buffer.array is None or buffer.array.nbytes != array.nbytes:
            buffer = Buffer("constant", array.nbytes, "constant", len(self.program.constants), array)
            self.program.constants.append(buffer)
            self._constants[array.ctypes.data] = buffer
        return buffer

    def table(self, array: np.ndarray) -> Buffer:
        """A constant that was computed from a node's attributes: sessions that share a container hold equal ones once."""
        return self.constant(self.prepacking.shared(np.ascontiguousarray(array), content_digest))

    def can_pack(self, *values: Value | None) -> bool:
        """Whether values are constants that may be packed before runs."""
        return self.prepacking.enabled and all(value is None or value.is_constant for value in values)

    def packed(
        self,
        sources: Sequence[Value],
        format: PackedFormat,
        parameters: tuple[Hashable, ...],
        sizes: Sequence[int],
        pack: Callable[..., Sequence[np.ndarray]],
    ) -> list[Buffer]:
        """Constants in the order in which kernels read them: buffers of `sizes` bytes, which `pack` makes out of the sources' arrays.

        It does so only if nobody has before: see `prepacking`. `parameters` are all that the result depends on, beside the sources and
        the CPU's feature set.
        """
        return [self.constant(array) for array in self.packed_arrays(sources, format, parameters, sizes, pack)]

    def packed_arrays(
        self,
        sources: Sequence[Value],
        format: PackedFormat,
        parameters: tuple[Hashable, ...],
        sizes: Sequence[int],
        pack: Callable[..., Sequence[np.ndarray]],
    ) -> Sequence[np.ndarray]:
        """Packed weights that the lowering itself reads, and no kernel. Weights from a file come as bytes."""
        if not self.can_pack(*sources):
            raise CannotCompile("weights may not be packed before runs", quiet=True)
        tensors = [source.constant for source in sources if source.constant is not None]
        request = Request(tensors, format, parameters, self.target.name, sizes)
        return self.prepacking.packed(request, pack, content_digest)

    def scratch(self, bytes: Dim) -> Buffer:
        """Memory in the arena, from the first to the last step that names it."""
        return Buffer("scratch", bytes)

    @property
    def text_constants(self) -> TextConstants:
        """The constant strings of the program."""
        if self.program.texts is None:
            self.program.texts = TextConstants()
        return self.program.texts

    def text_memory(self) -> Buffer:
        """The words of the memory in which the strings of a run lie: see `compiler.texts`."""
        assert self.text_constants is not None
        return Buffer("texts", 0, "texts")

    def status(self) -> Buffer:
        """A word (int64) that a kernel sets when data is not as it must be, an index out of bounds say.

        The run's results are then thrown away, and NumPy computes the cluster: it finds the same fault and says what is wrong.
        """
        return Buffer("status", 8, "status")

    def seeds(self) -> Buffer:
        """The words of `random_state`, of which a kernel makes the next seed of the process."""
        return Buffer("seeds", 0, "run", SEEDS)

    # --- steps

    def call(
        self,
        kernel: DeclaredKernel,
        arguments: Arguments,
        items: Dim,
        grain: Dim = 1,
        *,
        flops: Dim = 0,
        traffic: Dim = 0,
        scratch: Sequence[Buffer] = (),
    ) -> None:
        """Add a step: a kernel with the record that it declares."""
        words = kernel.declaration.words(kernel.title, arguments)
        self.program.steps.append(Step(kernel, words, items, grain, self._label, flops, traffic, scratch, self._originals()))

    def _originals(self) -> tuple[Node, ...]:
        """The nodes of the cluster that are being lowered."""
        return tuple(dict.fromkeys(self._origins.get(node, node) for node in self._nodes))

    @contextlib.contextmanager
    def _lowering(self, nodes: Sequence[Node], label: str | None = None) -> Iterator[None]:
        """Steps that are added meanwhile belong to these nodes, and so does a failure; profiles call them `label`."""
        before = self._nodes, self._label
        self._nodes, self._label = list(nodes), self._label if label is None else label
        yield
        self._nodes, self._label = before

    # --- conditions

    def require(self, left: Dim, right: Dim) -> None:
        """Require two sizes to be equal. NumPy computes the cluster in runs where they differ."""
        if isinstance(left - right, int) and left != right:
            raise CannotCompile(f"the sizes {left} and {right} differ")
        if left != right:
            self.program.conditions.setdefault((left, right), self._originals())

    def require_shape(self, shape: Dims, wanted: Dims) -> None:
        """The same for all sizes of two shapes; the number of their axes is known."""
        if len(shape) != len(wanted):
            raise CannotCompile(f"a shape has {len(shape)} axes instead of {len(wanted)}", quiet=True)
        for size, other in zip(shape, wanted):
            self.require(size, other)

    def require_fit(self, size: Dim, wanted: Dim) -> Dim:
        """Require a size to be 1 or the wanted one, else NumPy computes the cluster; returns the size that kernels may assume."""
        if size == wanted or size == 1:
            return size
        if _is_alike(size, wanted):
            self.require(size, wanted)
            return wanted
        self.require((size - 1) * (size - wanted), 0)
        return size

    def narrowed(self, view: View, axis: int, size: Dim) -> View:
        """A view with an open size that must be this one; if not, NumPy computes the cluster."""
        self.require(view.shape[axis], size)
        known = {symbol.name: size for symbol in [getattr(view.shape[axis], "symbol", None)] if symbol is not None}
        shape = tuple(size if n == axis else dim.substitute(other, known) for n, other in enumerate(view.shape))
        strides = tuple(dim.substitute(stride, known) for stride in view.strides)
        return replace(view, shape=shape, strides=strides, offset=dim.substitute(view.offset, known))

    def broadcast(self, view: View, shape: Dims) -> View:
        """A view repeated to a shape, refused at run time if it does not fit."""
        surplus = max(len(view.shape) - len(shape), 0)
        if surplus:  # a bound of shape [1] for a scalar
            self.require(dim.product(view.shape[:surplus]), 1)
            view = replace(view, shape=view.shape[surplus:], strides=view.strides[surplus:])
        sizes = [self.require_fit(size, wanted) for size, wanted in zip(view.shape, shape[len(shape) - len(view.shape) :])]
        order = dense_order(view)
        if tuple(sizes) != view.shape and order is not None:
            view = replace(view, strides=dense_strides(sizes, order))
        return replace(view, shape=tuple(sizes)).broadcast(shape)


def _is_alike(size: Dim, wanted: Dim) -> bool:
    """Whether two sizes depend on the same symbols. Then they are probably equal, and not 1 and something else."""
    symbols = set(dim.symbols(size))
    return bool(symbols) and symbols == set(dim.symbols(wanted))
