"""Symbolic sizes as a compiled Python function: from the shapes of a cluster's inputs to every number that its program needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sardonyx.ir import Dim, TensorType, Value, dim

Shapes = tuple[tuple[int, ...], ...]


class UnboundSymbol(Exception):
    """A size depends on a symbol that no input's shape tells."""


class ShapeMismatch(Exception):
    """The shapes that came are not of the form that was compiled for."""


class Sizes:
    """Collects sizes while a program is made; `compile` gives the function that computes them all."""

    def __init__(self, inputs: Sequence[Value]):
        self._places: dict[str, tuple[int, int, int, int]] = {}
        """Symbol: input, axis, and what to subtract from and divide that size by."""
        self._checks: list[tuple[int, int, Dim]] = []
        self._caps: list[tuple[int, int, int]] = []
        """Sizes like min(512, n) that told n: input, axis, and what the size must be below for that."""
        self._ranks = [len(_shape(value)) for value in inputs]
        later: list[tuple[int, int, Dim]] = []
        for number, value in enumerate(inputs):
            for axis, size in enumerate(_shape(value)):
                if not isinstance(size, int) and size.symbol is not None and size.symbol.name not in self._places:
                    self._places[size.symbol.name] = (number, axis, 0, 1)
                else:
                    later.append((number, axis, size))
        for number, axis, size in later:
            self._solve(number, axis, size)
            self._checks.append((number, axis, size))
        self._numbers: dict[Dim, int] = {}
        self._conditions: list[tuple[Dim, Dim]] = []

    def _solve(self, number: int, axis: int, size: Dim) -> None:
        """Bind the one unknown symbol of a size like 2n + 1."""
        unknown = {symbol.name for symbol in dim.symbols(size)} - self._places.keys()
        if len(unknown) != 1 or isinstance(size, int):
            return
        (name,) = unknown
        if dim.is_capped(size, dim.symbol(name)):
            self._places[name] = (number, axis, 0, 1)
            self._caps += [(number, axis, cap) for cap in _caps(size)]
            return
        offset = dim.substitute(size, {name: 0})
        factor = dim.substitute(size, {name: 1}) - offset
        if not isinstance(offset, int) or not isinstance(factor, int) or factor <= 0:
            return
        if size == dim.symbol(name) * factor + offset:
            self._places[name] = (number, axis, offset, factor)

    def __call__(self, size: Dim) -> int:
        """The number under which a size will be found."""
        missing = {symbol.name for symbol in dim.symbols(size)} - self._places.keys()
        if missing:
            raise UnboundSymbol(f"no input's shape tells {', '.join(sorted(missing))}")
        return self._numbers.setdefault(size, len(self._numbers))

    def require(self, left: Dim, right: Dim) -> None:
        """Have shapes refused for which two sizes differ."""
        self(left)
        self(right)
        self._conditions.append((left, right))

    def knows(self, size: Dim) -> bool:
        return all(symbol.name in self._places for symbol in dim.symbols(size))

    def compile(self) -> Callable[[Shapes], list[int]]:
        """A function from the shapes of the inputs to the numbers, ShapeMismatch if they are of another form."""
        names = {symbol: f"s{index}" for index, symbol in enumerate(self._places)}
        lines = ["def sizes(shapes):"]
        lines.append(f"    if [len(shape) for shape in shapes] != {self._ranks!r}: raise ShapeMismatch(shapes)")
        for symbol, (number, axis, offset, factor) in self._places.items():
            lines.append(f"    {names[symbol]} = (shapes[{number}][{axis}] - {offset}) // {factor}")
        for number, axis, cap in self._caps:
            lines.append(f"    if shapes[{number}][{axis}] >= {cap}: raise ShapeMismatch(shapes)")
        for number, axis, size in self._checks:
            if self.knows(size):
                lines.append(f"    if shapes[{number}][{axis}] != {_source(size, names)}: raise ShapeMismatch(shapes)")
        for left, right in self._conditions:
            lines.append(f"    if {_source(left, names)} != {_source(right, names)}: raise ShapeMismatch(shapes)")
        lines.append(f"    return [{', '.join(_source(size, names) for size in self._numbers)}]")
        scope: dict[str, Any] = {"ShapeMismatch": ShapeMismatch}
        exec("\n".join(lines), scope)  # only numbers and our own names stand in the text
        return scope["sizes"]


def _shape(value: Value) -> tuple[Dim, ...]:
    assert isinstance(value.type, TensorType) and value.type.shape is not None
    return tuple(value.type.shape)


def _caps(size: dim.Expression) -> list[int]:
    """The numbers in a minimum."""
    atoms = [atom for monomial in size.terms for atom, _ in monomial]
    return [one for atom in atoms if isinstance(atom, dim.Call) for one in atom.arguments if isinstance(one, int)]


def _source(size: Dim, names: dict[str, str]) -> str:
    """A size as Python source."""
    if isinstance(size, int):
        return repr(int(size))
    terms = []
    for monomial, factor in size.terms.items():
        atoms = [_atom_source(atom, names) for atom, power in monomial for _ in range(power)]
        terms.append("*".join([repr(factor), *atoms]) if factor != 1 or not atoms else "*".join(atoms))
    return f"({' + '.join(terms)})"


def _atom_source(atom: dim.Atom, names: dict[str, str]) -> str:
    if isinstance(atom, dim.Symbol):
        return names[atom.name]
    arguments = [_source(argument, names) for argument in atom.arguments]
    infix = {"floordiv": "//", "mod": "%"}.get(atom.function)
    return f"({infix.join(arguments)})" if infix else f"{atom.function}({', '.join(arguments)})"
