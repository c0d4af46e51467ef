"""How a kernel of generated code is written: a Python function that emits it, cached by what shapes it.

    @kernel("double")
    def double_kernel(f: KernelFunction, type: Type) -> None:
        source, target = f.pointer(), f.pointer()
        for i, remaining in f.vectors(f.begin, f.end, type): …

    lowerer.call(double_kernel(target, F32), [x, y], items=count, grain=4096)

The function asks for its arguments in the order in which `call` gives them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec

from sardonyx.compiler.builder import Function, Value
from sardonyx.compiler.jit import PLACEHOLDER, Kernel, key_of
from sardonyx.compiler.target import Target
from sardonyx.compiler.types import F64, I64, PTR, Type

P = ParamSpec("P")


class KernelFunction(Function):
    """A function `void (args, begin, end, worker)` that does the items from `begin` to `end`."""

    def __init__(self, target: Target):
        super().__init__([("args", PTR), ("begin", I64), ("end", I64), ("worker", I64)], target=target)
        self.target: Target = target
        self.begin, self.end, self.worker = self["begin"], self["end"], self["worker"]
        self._slots = 0

    def _next(self, type: Type) -> Value:
        self._slots += 1
        return self.load(self["args"], self._slots - 1, type)

    def pointer(self) -> Value:
        """The next argument: where a buffer lies."""
        return self._next(PTR)

    def size(self) -> Value:
        """The next argument: a size, a stride or another whole number."""
        return self._next(I64)

    def number(self, type: Type = F64) -> Value:
        """The next argument: a float that `call` was given, as `type`."""
        return self.convert(self._next(F64), type)

    def room(self) -> Value:
        """Which of a step's rooms of scratch memory belongs to this call: the thread's, or that of the piece if there are fewer of those.
        The next arguments are those of `Rooms`.
        """
        pieces, grain, threads = self.size(), self.size(), self.size()
        return self.select(pieces > threads, self.worker, self.begin // grain)

    def lanes(self, type: Type) -> int:
        return self.target.lanes(type)


KEPT = 1024
"""How many kernels of one kind are remembered."""


def kernel(title: str) -> Callable[[Callable[Concatenate[KernelFunction, P], None]], Callable[Concatenate[Target, P], Kernel]]:
    """Make a function that emits code into one that returns the kernel for a target, the same one for equal arguments.

    Code is emitted when somebody asks for its text: hardly ever, once the cache has what became of it. So it must depend on the arguments
    and the sources alone.
    """

    def decorate(emit: Callable[Concatenate[KernelFunction, P], None]) -> Callable[Concatenate[Target, P], Kernel]:
        @functools.lru_cache(maxsize=KEPT)
        def make(target: Target, *arguments: Any, **keywords: Any) -> Kernel:
            def text() -> str:
                f = KernelFunction(target)
                emit(f, *arguments, **keywords)
                return f.text(PLACEHOLDER)

            def about() -> str:
                return "; ".join([*map(str, arguments), *(f"{name} {value}" for name, value in keywords.items())])

            return Kernel(title, text, about, key_of(emit, target, arguments, keywords))

        return functools.wraps(emit)(make)  # type: ignore[return-value]

    return decorate
