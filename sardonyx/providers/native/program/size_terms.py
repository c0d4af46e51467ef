"""Symbolic sizes as plain numbers and lists, which a file can hold: `sizes` makes Python source of them, `aot` stores them.

A size is a number or a list of terms, a term a list of a factor and atoms, an atom the number of a symbol or a list of a function's name
and its arguments: 2·n·n + min(m, 512) is [[2, 0, 0], [1, ["min", [[1, 1]], 512]]].
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

from sardonyx.ir import Dim, dim

SizeTerms = Any
"""int | list[list[int | list]]"""

_INFIX = {"floordiv": "//", "mod": "%"}
_FUNCTIONS: dict[str, Callable[..., Dim]] = {
    "floordiv": dim.floordiv,
    "mod": dim.mod,
    "min": dim.minimum,
    "max": dim.maximum,
    "broadcast": dim.broadcast,
}
MAX_DEPTH = 40
"""How deep functions may stand in each other."""


class BadSize(ValueError):
    """Something else than a size."""


def terms_of(size: Dim, symbols: Mapping[str, int], calls: dict[dim.Call, SizeTerms]) -> SizeTerms:
    """A size whose symbols have these numbers. Sizes that are given the same `calls` share what they have in common."""
    if isinstance(size, int):
        return int(size)
    return [
        [factor, *(_atom_terms(atom, symbols, calls) for atom, power in monomial for _ in range(power))]
        for monomial, factor in size.terms.items()
    ]


def _atom_terms(atom: dim.Atom, symbols: Mapping[str, int], calls: dict[dim.Call, SizeTerms]) -> SizeTerms:
    if isinstance(atom, dim.Symbol):
        return symbols[atom.name]
    terms = calls.get(atom)
    if terms is None:
        terms = calls[atom] = [atom.function, *(terms_of(argument, symbols, calls) for argument in atom.arguments)]
    return terms


class CallsTold:
    """Sizes for a file: a call that stands in many of them is told once, and a list of its number alone stands in its place."""

    def __init__(self) -> None:
        self.calls: list[SizeTerms] = []
        self._numbers: dict[int, int] = {}
        """By the identity of terms, as `terms_of` shares them."""

    def size(self, size: SizeTerms) -> SizeTerms:
        if type(size) is int:
            return size
        return [[factor, *(atom if type(atom) is int else [self._number(atom)] for atom in atoms)] for factor, *atoms in size]

    def _number(self, call: SizeTerms) -> int:
        number = self._numbers.get(id(call))
        if number is None:
            self.calls.append([call[0], *map(self.size, call[1:])])
            number = self._numbers[id(call)] = len(self.calls) - 1
        return number


class CallsRead:
    """Sizes out of a file as they were. Whether they are sizes at all is for others to see."""

    def __init__(self, calls: Iterable[Sequence[SizeTerms]]):
        self._calls: list[SizeTerms] = []
        self._depths: list[int] = []
        for function, *arguments in calls:
            self._depth = 1
            self._calls.append([function, *map(self.size, arguments)])
            self._depths.append(self._depth)

    def size(self, size: SizeTerms) -> SizeTerms:
        return size if type(size) is int else [[*map(self._atom, term)] for term in size]

    def _atom(self, atom: SizeTerms) -> SizeTerms:
        if type(atom) is int or len(atom) != 1:
            return atom
        (number,) = atom
        if type(number) is not int or not 0 <= number < len(self._calls):
            raise BadSize(f"there is no call {str(number)[:80]} before it")
        self._depth = max(self._depth, self._depths[number] + 1)
        if self._depth > MAX_DEPTH:
            raise BadSize("functions of sizes stand too deep in each other")
        return self._calls[number]


def depends(size: SizeTerms, symbols: Container[int], calls: dict[int, bool]) -> bool:
    """Whether a size depends on some symbols, given by their numbers. `calls` is what was found before, by the identity of terms."""
    if isinstance(size, int):
        return False
    return any(
        atom in symbols if isinstance(atom, int) else _call_depends(atom, symbols, calls)
        for _, *atoms in size
        for atom in atoms
    )


def _call_depends(call: SizeTerms, symbols: Container[int], calls: dict[int, bool]) -> bool:
    found = calls.get(id(call))
    if found is None:
        found = calls[id(call)] = any(depends(argument, symbols, calls) for argument in call[1:])
    return found


def summed(sizes: Iterable[SizeTerms]) -> SizeTerms:
    """The sum of some sizes."""
    factors: dict[str, int] = {}
    atoms: dict[str, list[SizeTerms]] = {}
    for factor, *rest in (term for size in sizes for term in ([[size]] if isinstance(size, int) else size)):
        key = repr(rest)
        factors[key] = factors.get(key, 0) + factor
        atoms[key] = rest
    return [[factor, *atoms[key]] for key, factor in factors.items() if factor] or 0


class Calls:
    """Calls of functions that stand in sources by names."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        """By their source. Each needs only those before it."""
        self._seen: dict[int, tuple[SizeTerms, str]] = {}
        """Names by the identity of terms, which stay for that."""

    def name(self, atom: SizeTerms, write: Callable[[SizeTerms], str]) -> str:
        """The name of a call, which is written at most once."""
        seen = self._seen.get(id(atom))
        if seen is None:
            seen = self._seen[id(atom)] = atom, self.names.setdefault(write(atom), f"c{len(self.names)}")
        return seen[1]


def source_of(size: SizeTerms, names: Sequence[str], depth: int = 0, calls: Calls | None = None) -> str:
    """A size as Python source in which symbols have these names. Nothing else can get into the text.

    With `calls`, calls of functions stand there by names, which are added.
    """
    if type(size) is int:
        return repr(size)
    terms = []
    for factor, atoms in _terms(size, depth):
        parts = [_atom_source(atom, names, depth, calls) for atom in atoms]
        terms.append("*".join([repr(factor), *parts]) if factor != 1 or not parts else "*".join(parts))
    return f"({' + '.join(terms)})"


def _atom_source(atom: SizeTerms, names: Sequence[str], depth: int, calls: Calls | None) -> str:
    if type(atom) is int:
        return names[_checked(atom, names)]

    def write(atom: SizeTerms) -> str:
        function, arguments = _call(atom)
        parts = [source_of(argument, names, depth + 1, calls) for argument in arguments]
        infix = _INFIX.get(function)
        return f"({infix.join(parts)})" if infix else f"{function}({', '.join(parts)})"

    return write(atom) if calls is None else calls.name(atom, write)


def dim_of(size: SizeTerms, names: Sequence[str], depth: int = 0) -> Dim:
    """A size over symbols of these names."""
    if type(size) is int:
        return size
    total: Dim = 0
    for factor, atoms in _terms(size, depth):
        product: Dim = factor
        for atom in atoms:
            product = product * _atom_dim(atom, names, depth)
        total = total + product
    return total


def _atom_dim(atom: SizeTerms, names: Sequence[str], depth: int) -> Dim:
    if type(atom) is int:
        return dim.symbol(names[_checked(atom, names)])
    function, arguments = _call(atom)
    return _FUNCTIONS[function](*(dim_of(argument, names, depth + 1) for argument in arguments))


def _terms(size: SizeTerms, depth: int) -> list[tuple[int, Sequence[SizeTerms]]]:
    if depth > MAX_DEPTH or type(size) is not list or not size:
        raise BadSize(f"{str(size)[:80]} is no size")
    if not all(type(term) is list and term and type(term[0]) is int for term in size):
        raise BadSize(f"{str(size)[:80]} is no sum")
    return [(term[0], term[1:]) for term in size]


def _checked(symbol: int, names: Sequence[str]) -> int:
    if not 0 <= symbol < len(names):
        raise BadSize(f"there is no symbol {symbol}")
    return symbol


def _call(atom: SizeTerms) -> tuple[str, Sequence[SizeTerms]]:
    if type(atom) is not list or len(atom) < 3 or type(atom[0]) is not str or atom[0] not in _FUNCTIONS:
        raise BadSize(f"{str(atom)[:80]} is no function of sizes")
    if atom[0] in _INFIX and len(atom) != 3:
        raise BadSize(f"{atom[0]} takes two sizes, not {len(atom) - 1}")
    return atom[0], atom[1:]
