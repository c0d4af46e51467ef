"""What every execution provider is made of: kernels, the table that matches them to nodes, and the provider itself.

A kernel is a plain function of arrays whose parameters are named after the op's operands in the spec, inputs and attributes alike.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx import dtypes
from sardonyx.dtypes import ElementType
from sardonyx.errors import InvalidGraph, KernelError
from sardonyx.ops.entries import NEWEST, Entry, Table
from sardonyx.ops.signatures import Signature
from sardonyx.providers import random_state
from sardonyx.providers.steps import NO_SHARING, FastPath, Pairs, Sharing, StepCall
from sardonyx.startup.parameters import Parameters
from sardonyx.startup.records import dataclass, replace

RUNTIME_PARAMETERS = frozenset({"out", "rng", "output_count", "output_types", "input_types", "domain_version"})
"""What a kernel may ask the runtime for by name, besides the op's operands."""

IGNORED_ATTRIBUTES = frozenset({"consumed_inputs"})
"""Hints of opset 1 that never changed a result."""


Joint = Callable[[Mapping[str, Any], Mapping[str, Any]], "FastPath | None"]


@dataclass(frozen=True)
class Kernel(Entry):
    """A function that computes one op in a range of versions for some types."""

    function: Callable[..., Any]
    constraints: Mapping[str, frozenset[ElementType]]
    widen: bool
    parameters: frozenset[str]
    defaulted: frozenset[str]
    """Parameters that have a default value."""
    takes_everything: bool
    sharing: Sharing = NO_SHARING
    plain: bool = False
    """Whether it looks up rather than computes, its inputs are its first parameters, and what it returns is new, or an alias that
    `sharing` tells of: then a run need not watch over it."""
    derived: tuple[tuple[str, Callable[..., Any]], ...] = ()
    """Parameters that a function of attributes gives, which is called once for each node."""
    joint: Mapping[str, Joint] = {}
    """By an op whose only result is this one's only input: what makes one fast path of both, given what is fixed of each of them."""

    def overlaps(self, other: Entry) -> bool:
        assert isinstance(other, Kernel)
        shared = self.constraints.keys() & other.constraints.keys()
        return super().overlaps(other) and all(self.constraints[name] & other.constraints[name] for name in shared)

    def __str__(self) -> str:
        return f"{super().__str__()} ({self.function.__module__}.{self.function.__name__})"


class KernelTable(Table[Kernel]):
    """The kernels of one provider. Functions enter it where they are defined, through the decorator `kernel`."""

    def kernel(
        self,
        *ops: str,
        domain: str = "",
        since: int = 1,
        until: int = NEWEST,
        widen: bool = False,
        alias: Pairs = (),
        view: Pairs = (),
        inplace: Pairs = (),
        plain: bool = False,
        derive: Mapping[str, Callable[..., Any]] | None = None,
        joint: Mapping[str, Joint] | None = None,
        **constraints: Collection[ElementType],
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Register a function as the kernel of `ops` for op versions `since`…`until`.

        `widen` computes narrow types (float16, bfloat16, float8, 4-bit…) in float32 or int32 and rounds the outputs once. `alias`,
        `view` and `inplace` are those of `Sharing`; a kernel that takes `out` may write it over any input of the same size. `plain` is
        that of `Kernel`, and so is `joint`. `derive` gives parameters by functions of attributes, which are called before a node's first
        run. The other keywords narrow a type constraint of the schema: `T=FLOATS`.
        """

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            asks = Parameters.of(function)
            narrowed = {name: frozenset(types) for name, types in constraints.items()}
            sharing, derived = Sharing(alias, view, inplace), tuple((derive or {}).items())
            makers = [Parameters.of(make) for _, make in derived]
            needed = asks.names.union(*(maker.names for maker in makers)) - {name for name, _ in derived}
            defaulted = asks.defaulted.union(*(maker.defaulted for maker in makers))
            for op in ops:
                entry = Kernel(
                    *(domain, op, since, until, function, narrowed, widen),
                    *(needed, defaulted, asks.takes_everything, sharing, plain, derived, joint or {}),
                )
                self.add(entry)
            return function

        return register

    def in_domain(self, domain: str) -> Callable[..., Callable[[Callable[..., Any]], Callable[..., Any]]]:
        """The decorator `kernel` for another domain than ONNX's own."""
        return lambda *ops, **keywords: self.kernel(*ops, domain=domain, **keywords)

    def find(self, signature: Signature, types: Mapping[str, ElementType | None]) -> Kernel | None:
        """The kernel for an op version whose type constraints are bound to these element types (None: not a tensor)."""
        for kernel in self.candidates(signature.domain, signature.name):
            if kernel.covers(signature.since_version) and all(
                types.get(name) is None or types[name] in allowed for name, allowed in kernel.constraints.items()
            ):
                return kernel
        return None


class UnsupportedAttribute(Exception):
    """A node sets an attribute that the kernel found for it does not know."""


def bind(
    kernel: Kernel,
    signature: Signature,
    attributes: Mapping[str, Any],
    input_types: Sequence[ElementType | None],
    output_types: Sequence[ElementType | None],
    graphs: Collection[str] = (),
) -> BoundKernel:
    """Fix all that does not depend on data: attributes, their defaults, operand names, casts."""
    slots = _operand_slots(kernel, signature, len(input_types))
    fixed = dict(_attribute_values(kernel, signature, attributes, graphs))
    supplied = {
        "out": None,
        "output_count": len(output_types),
        "output_types": tuple(output_types),
        "input_types": tuple(input_types),
        "domain_version": signature.since_version,
    }
    fixed.update((name, value) for name, value in supplied.items() if name in kernel.parameters and name not in fixed)
    seed = attributes.get("seed") if "rng" in kernel.parameters else None
    return BoundKernel(kernel, slots, fixed, input_types, tuple(output_types), seed)


@dataclass(frozen=True)
class Slot:
    """Where an operand comes from: one input, or for a variadic one all from `first` on."""

    name: str
    first: int
    variadic: bool
    has_default: bool
    """Whether the kernel's parameter has a default, which stands for an absent input."""


def _operand_slots(kernel: Kernel, signature: Signature, count: int) -> list[Slot]:
    slots = []
    for index, parameter in enumerate(signature.inputs):
        if parameter.variadic or index < count:
            name = signature.operand_names[index]
            slots.append(Slot(name, index, parameter.variadic, name in kernel.defaulted))
    unknown = [slot.name for slot in slots if slot.name not in kernel.parameters and not kernel.takes_everything]
    if unknown:
        raise UnsupportedAttribute(f"{kernel} does not take the input {unknown[0]!r}")
    return slots


def _attribute_values(
    kernel: Kernel, signature: Signature, attributes: Mapping[str, Any], graphs: Collection[str]
) -> Iterable[tuple[str, Any]]:
    for name, definition in signature.attributes.items():
        value = attributes.get(name, definition.default)
        if name in kernel.parameters or kernel.takes_everything:
            if value is not None and name not in graphs:
                yield name, value
            elif value is None and name in kernel.parameters - kernel.defaulted:
                raise KernelError(f"needs the attribute {name!r}", InvalidGraph)
        elif name in attributes and value != definition.default and name not in IGNORED_ATTRIBUTES and name != "seed":
            raise UnsupportedAttribute(f"{kernel} does not take the attribute {name!r}")


_NARROW = dtypes.WIDENED | dtypes.SUB_BYTE_INTS


class BoundKernel(StepCall):
    """A kernel with everything fixed but its inputs: call it with a list of them, get the tuple of outputs."""

    __slots__ = (
        *("kernel", "sharing", "takes_out", "is_random"),
        *("_slots", "_fixed", "_is_settled", "_output_types", "_seed", "_widens"),
    )

    def __init__(
        self,
        kernel: Kernel,
        slots: list[Slot],
        fixed: dict[str, Any],
        input_types: Sequence[ElementType | None],
        output_types: tuple[ElementType | None, ...],
        seed: float | None,
    ):
        self.kernel = kernel
        self._slots = slots
        self._fixed = fixed
        self._is_settled = not kernel.derived
        self._output_types = output_types
        self._seed = seed
        self.is_random = "rng" in kernel.parameters
        self._widens = kernel.widen and any(dtype is None or dtype in _NARROW for dtype in input_types)
        self.sharing = kernel.sharing
        if "out" in kernel.parameters:
            self.sharing = replace(kernel.sharing, inplace=tuple((index, 0) for index in range(len(input_types))))
        self.takes_out = "out" in kernel.parameters and not self._widens

    def __call__(
        self,
        inputs: Sequence[Any],
        bodies: Mapping[str, Callable[..., Any]] | None = None,
        out: np.ndarray | None = None,
    ) -> tuple[Any, ...]:
        if self._widens:
            inputs = [widened(value) for value in inputs]
        if not self._is_settled:
            self._settle()
        arguments = self._fixed.copy()
        for slot in self._slots:
            value = list(inputs[slot.first :]) if slot.variadic else inputs[slot.first]
            if value is not None or not slot.has_default:
                arguments[slot.name] = value
        if bodies:
            arguments.update(bodies)
        if self.is_random:
            arguments["rng"] = random_state.generator(self._seed)
        if out is not None:
            arguments["out"] = out
        result = self.kernel.function(**arguments)
        outputs = result if isinstance(result, tuple) else (result,)
        return tuple([conform(value, dtype) for value, dtype in zip(outputs, self._output_types, strict=False)])

    run_with_bodies = __call__

    def run_into(self, inputs: Sequence[Any], out: np.ndarray) -> tuple[Any, ...]:
        return self(inputs, None, out)

    def fast_path(self) -> FastPath | None:
        if not self.kernel.plain or self._widens:
            return None
        return self._look_up_all if self._slots[0].variadic else self._look_up

    def fast_path_into(self, reader: StepCall) -> FastPath | None:
        make = reader.kernel.joint.get(self.kernel.op) if isinstance(reader, BoundKernel) else None
        if make is None or not isinstance(reader, BoundKernel):
            return None
        for one in (self, reader):
            if not one._is_settled:
                one._settle()
        return make(self._fixed, reader._fixed)

    def _look_up(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """One run of a plain kernel."""
        if not self._is_settled:
            self._settle()
        result = self.kernel.function(*inputs, **self._fixed)
        if result.__class__ is tuple:
            return tuple(map(conform, result, self._output_types))
        return (conform(result, self._output_types[0]),)

    def _look_up_all(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The same for a kernel that takes any number of inputs as one list."""
        return self._look_up([inputs])

    def _settle(self) -> None:
        """Put what is derived from attributes in their place. Two threads may both do it."""
        fixed, derived = self._fixed, {}
        used: set[str] = set()
        for name, make in self.kernel.derived:
            wanted = Parameters.of(make).names
            derived[name] = make(**{parameter: fixed[parameter] for parameter in wanted if parameter in fixed})
            used.update(wanted)
        used -= Parameters.of(self.kernel.function).names
        self._fixed = {name: value for name, value in fixed.items() if name not in used} | derived
        self._is_settled = True


@functools.cache
def _wide_type(dtype: np.dtype) -> np.dtype | None:
    """The type in which arrays of a narrow type are computed; None for other types."""
    if dtype.kind not in "fV":
        return None
    element = dtypes.from_numpy(dtype)
    wide = np.float32 if element in dtypes.WIDENED else np.int32 if element in dtypes.SUB_BYTE_INTS else None
    return None if wide is None else np.dtype(wide)


def widened(value: Any) -> Any:
    """An array of a narrow type as float32 or int32, anything else as it is."""
    if isinstance(value, np.ndarray):
        wide = _wide_type(value.dtype)
        return value if wide is None else value.astype(wide)
    if isinstance(value, list):
        return [widened(item) for item in value]
    return value


def conform(value: Any, dtype: ElementType | None) -> Any:
    """What a kernel returned, as an array of the output's declared element type. Sequences, maps and None stay."""
    if value is None or dtype is None or isinstance(value, (list, dict)):
        return value
    if value.__class__ is np.ndarray and value.dtype is dtype.numpy:
        return value
    if not isinstance(value, (np.ndarray, np.generic)) and hasattr(value, "dense_shape"):
        return value
    array = np.asarray(value)
    if array.dtype == dtype.numpy:
        return array
    with np.errstate(over="ignore", invalid="ignore"):  # a narrower type overflows to infinity, as in C
        return converted(array, dtype.numpy)


def converted(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """An array as another type, by C's rules; uint32 is cut from int64, as NumPy itself does it in short arrays alone."""
    if dtype == np.uint32 and array.dtype.kind == "f":
        array = array.astype(np.int64)
    return array.astype(dtype)
