"""How a kernel of generated code is written: a Python function that emits it, cached by what shapes it.

    class DoubleArguments(Arguments):
        source: Pointer
        target: Pointer

    @kernel("double", DoubleArguments)
    def double_kernel(f: KernelFunction, a: DoubleArguments, type: Type) -> None:
        for i, remaining in f.vectors(f.begin, f.end, type):
            f.store(f.load(a.source, i, …) * 2, a.target, i, …)

    lowerer.call(double_kernel(target, F32), DoubleArguments(source=x, target=y), items=count, grain=4096)

The record declares once what the kernel is given: see `arguments`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from sardonyx.compiler.builder import Function, Value
from sardonyx.compiler.jit import PLACEHOLDER, Kernel, TextKey, key_of
from sardonyx.compiler.target import Target
from sardonyx.compiler.types import I64, PTR, Type
from sardonyx.providers.native.program.arguments import Arguments, Declaration, ScratchSlotArguments, Slot, declare

P = ParamSpec("P")
A = TypeVar("A", bound=Arguments)


class KernelFunction(Function):
    """A function `void (args, begin, end, worker)` that does the items from `begin` to `end`."""

    def __init__(self, target: Target):
        super().__init__([("args", PTR), ("begin", I64), ("end", I64), ("worker", I64)], target=target)
        self.target: Target = target
        self._slots = 0

    @property
    def begin(self) -> Value:
        return self["begin"]  # made each time: values hold the function, which would stay if it held them

    @property
    def end(self) -> Value:
        return self["end"]

    @property
    def worker(self) -> Value:
        return self["worker"]

    def _next(self, type: Type) -> Value:
        self._slots += 1
        return self.load(self["args"], self._slots - 1, type)

    def arguments(self, declaration: Declaration) -> Any:
        """The record of what the kernel is given."""
        return declaration.read(self._next)

    def words(self, slots: Sequence[Slot]) -> list[Value]:
        """The next arguments, of these kinds."""
        return [self._next(slot.kind.type) for slot in slots]

    def scratch_slot(self, slots: ScratchSlotArguments) -> Value:
        """The number of this call's scratch slot: that of its thread, or that of its piece if there are fewer pieces than threads."""
        return self.select(slots.pieces > slots.threads, self.worker, self.begin // slots.grain)

    def lanes(self, type: Type) -> int:
        return self.target.lanes(type)


KEPT = 1024
"""How many kernels of one kind are remembered."""


class DeclaredKernel(Kernel):
    """A kernel that says what it is to be given."""

    def __init__(
        self,
        title: str,
        text: Callable[[], str],
        about: Callable[[], str],
        key: TextKey | None,
        declaration: Declaration,
        for_target: Callable[[Target], DeclaredKernel],
    ):
        super().__init__(title, text, about, key)
        self.declaration = declaration
        self.for_target = for_target
        """Gives the same kernel, with the same parameters, for another target."""


def kernel(
    title: str, record: type[A]
) -> Callable[[Callable[Concatenate[KernelFunction, A, P], None]], Callable[Concatenate[Target, P], DeclaredKernel]]:
    """Make a function that emits code into one that returns the kernel for a target, the same one for equal parameters.

    Code is emitted when somebody asks for its text: hardly ever, once the cache has what became of it. So it must depend on the parameters
    and the sources alone.
    """

    def decorate(emit: Callable[Concatenate[KernelFunction, A, P], None]) -> Callable[Concatenate[Target, P], DeclaredKernel]:
        names = emit.__code__.co_varnames[2 : emit.__code__.co_argcount]
        defaults = dict(zip(reversed(names), reversed(emit.__defaults__ or ())))

        @functools.lru_cache(maxsize=KEPT)
        def make(target: Target, *parameters: Any, **keywords: Any) -> DeclaredKernel:
            declaration = declare(record, {**defaults, **dict(zip(names, parameters)), **keywords})
            seen = target.seen_by_code

            def text() -> str:
                f = KernelFunction(seen)
                emit(f, f.arguments(declaration), *parameters, **keywords)
                return f.text(PLACEHOLDER)

            def about() -> str:
                return "; ".join([*map(str, parameters), *(f"{name} {value}" for name, value in keywords.items())])

            key = key_of(emit, seen, parameters, keywords, [(slot.name, slot.kind.name) for slot in declaration.slots()])
            return DeclaredKernel(title, text, about, key, declaration, lambda other: make(other, *parameters, **keywords))

        return functools.wraps(emit)(make)  # type: ignore[return-value]

    return decorate
