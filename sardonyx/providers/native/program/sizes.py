"""Symbolic sizes as a compiled Python function: from the shapes of a cluster's inputs to every number that its program needs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from sardonyx.ir import Dim, Value, dim
from sardonyx.providers.native.program.arguments import ScratchSlotArguments
from sardonyx.providers.native.program.size_terms import Calls, SizeTerms, dim_of, source_of, terms_of
from sardonyx.providers.native.program.values import dims
from sardonyx.startup.records import dataclass

THREADS_NAME = "?threads"
THREADS = dim.symbol(THREADS_NAME)
"""How many threads a run may have: a size like others, so that one program serves any number of them."""


@dataclass(frozen=True)
class ScratchSlots:
    """The scratch slots of a step: one for each piece that can run at the same time. A piece has at least `grain` of the items."""

    items: Dim
    grain: Dim = 1

    @property
    def pieces(self) -> Dim:
        return dim.ceildiv(self.items, self.grain)

    @property
    def count(self) -> Dim:
        return dim.minimum(self.pieces, THREADS)

    @property
    def arguments(self) -> ScratchSlotArguments:
        return ScratchSlotArguments(pieces=self.pieces, grain=self.grain, threads=THREADS)


MAX_ALIASES = 8
"""How often a name may stand for another one."""

Shapes = tuple[tuple[int, ...], ...]


class UnboundSymbol(Exception):
    """A size depends on a symbol that no input's shape tells."""


class ShapeMismatch(Exception):
    """The shapes of a run contradict those that the program was compiled for."""

    def __init__(self, expected: str, shapes: Shapes):
        super().__init__(f"{expected}, but the inputs have the shapes {', '.join(map(str, map(list, shapes)))}")


class Sizes:
    """Collects sizes while a program is made; `compile` gives the function that computes them all."""

    def __init__(self, inputs: Sequence[Value], data_sizes: Iterable[str] = (), aliases: Mapping[str, Dim] | None = None):
        self._aliases: Mapping[str, Dim] = {}
        """Names that a model gives to sizes which it does not otherwise tell, and what these are."""
        self.data_sizes: list[str] = []
        """Symbols that runs settle."""
        self._places: dict[str, tuple[int, int, int, int]] = {}
        """Symbol: input, axis, and what to subtract from and divide that size by."""
        self._checks: list[tuple[int, int, Dim]] = []
        self._caps: list[tuple[int, int, int]] = []
        """Sizes like min(512, n) that told n: input, axis, and what the size must be below for that."""
        self._ranks = [len(dims(value)) for value in inputs]
        later: list[tuple[int, int, Dim]] = []
        for number, value in enumerate(inputs):
            for axis, size in enumerate(dims(value)):
                if not isinstance(size, int) and size.symbol is not None and size.symbol.name not in self._places:
                    self._places[size.symbol.name] = (number, axis, 0, 1)
                else:
                    later.append((number, axis, size))
        for number, axis, size in later:
            self._solve(number, axis, size)
            self._checks.append((number, axis, size))
        self.data_sizes = [name for name in data_sizes if name not in self._places]
        told = {*self._places, *self.data_sizes}
        self._aliases = {name: size for name, size in (aliases or {}).items() if name not in told}
        self._named: list[tuple[dim.Expression, str]] = []
        """Sizes of inputs from which the symbols in them cannot be told: each is a symbol by itself, which stands in for them."""
        for number, axis, size in later:
            self._name(number, axis, size)
        self._numbers: dict[Dim, int] = {}
        self._known: dict[Dim, bool] = {}
        self._conditions: list[tuple[Dim, Dim]] = []

    def _solve(self, number: int, axis: int, size: Dim) -> None:
        """Bind the one unknown symbol of a size like 2n + 1."""
        unknown = self._unknown(size)
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

    def _name(self, number: int, axis: int, size: Dim) -> None:
        if self._unknown(self.told(size)) and not isinstance(size, int):
            name = f"?size {number} {axis}"
            self._named.append((size, name))
            self._places[name] = (number, axis, 0, 1)

    def add_data_size(self) -> dim.Expression:
        """A symbol that runs settle and no value's shape has: a position, say."""
        size = dim.fresh()
        assert size.symbol is not None
        self.data_sizes.append(size.symbol.name)
        return size

    def told(self, size: Dim) -> Dim:
        """A size in symbols that shapes or runs tell, as far as it can be said in them."""
        for _ in range(MAX_ALIASES if self._aliases else 0):
            if self._unknown(size).isdisjoint(self._aliases):
                break
            size = dim.substitute(size, self._aliases)
        for whole, name in self._named:
            if self._unknown(size):
                size = dim.with_name(size, whole, name)
        return size

    def _unknown(self, size: Dim) -> set[str]:
        return {symbol.name for symbol in dim.symbols(size)} - self._places.keys() - {THREADS_NAME, *self.data_sizes}

    def untold(self, sizes: Iterable[Dim]) -> set[str]:
        """The symbols in some sizes that no input's shape tells by itself."""
        return set().union(*(self._unknown(size) for size in sizes)) - self._aliases.keys()

    def __call__(self, size: Dim) -> int:
        """The number of a size, by which steps refer to it."""
        number = self._numbers.get(size)
        if number is None:
            if not self.knows(size):
                raise UnboundSymbol(f"no input's shape tells {', '.join(sorted(self._unknown(size)))}")
            number = self._numbers[size] = len(self._numbers)
        return number

    def depending(self, names: Collection[str]) -> list[tuple[dim.Expression, int]]:
        """The sizes that were asked for and depend on some symbols, with their numbers."""
        return [(size, number) for size, number in self._numbers.items() if self._depends(size, names)]  # type: ignore[misc]

    def _depends(self, size: Dim, names: Collection[str]) -> bool:
        return any(symbol.name in names for symbol in dim.symbols(self.told(size)))

    def data_sizes_in(self, given: Iterable[Dim]) -> set[str]:
        """Those of the symbols in some sizes that a run settles."""
        return {symbol.name for size in given for symbol in dim.symbols(self.told(size))} & {*self.data_sizes}

    def require(self, left: Dim, right: Dim) -> None:
        """Refuse shapes for which two sizes differ."""
        self(left)
        self(right)
        self._conditions.append((left, right))

    def knows(self, size: Dim) -> bool:
        if isinstance(size, int):
            return True
        is_known = self._known.get(size)
        if is_known is None:
            is_known = self._known[size] = not self._unknown(self.told(size))
        return is_known

    def rules(self) -> SizeRules:
        """The rules by which all collected sizes are computed."""
        symbols = {name: number for number, name in enumerate([*self._places, *self.data_sizes, THREADS_NAME])}
        calls: dict[dim.Call, SizeTerms] = {}

        def terms(size: Dim) -> SizeTerms:
            return terms_of(self.told(size), symbols, calls)

        checks = [(number, axis, terms(size)) for number, axis, size in self._checks if self.knows(size)]
        conditions = [(terms(left), terms(right)) for left, right in self._conditions]
        numbers = [terms(size) for size in self._numbers]
        places = list(self._places.values())
        names = [*self._places, *self.data_sizes]
        return SizeRules(names, self._ranks, places, self._caps, checks, conditions, numbers)

    def compile(self) -> SizeFunction:
        return self.rules().function()


SizeFunction = Callable[..., list[int]]
"""(shapes of the inputs, number of threads, capacities) -> sizes; ShapeMismatch if the shapes are of another form."""


@dataclass(frozen=True)
class SizeRules:
    """How sizes are computed from the shapes of inputs: plain lists, which `aot` stores."""

    symbols: Sequence[str]
    """Names: of those that `places` tell, then of those that a run settles. The number of threads is the symbol after them."""
    ranks: Sequence[int]
    places: Sequence[Sequence[int]]
    """Of each symbol: input, axis, and what to subtract from and divide that size by."""
    caps: Sequence[Sequence[int]]
    """Input, axis, and what that size must be below."""
    checks: Sequence[tuple[int, int, SizeTerms]]
    """Input, axis, and what that size must be."""
    conditions: Sequence[tuple[SizeTerms, SizeTerms]]
    """Sizes that must be equal."""
    numbers: Sequence[SizeTerms]
    """The sizes that are wanted."""

    def function(self) -> SizeFunction:
        """Python code that computes them."""
        names = [*(f"s{number}" for number in range(len(self.symbols))), "threads"]
        lines = ["def sizes(shapes, threads=1, capacities=()):"]
        ranks = list(self.ranks)
        lines.append(f"    if [len(shape) for shape in shapes] != {ranks!r}: {_refusal(f'the ranks must be {ranks}')}")
        for name, (number, axis, offset, factor) in zip(names, self.places):
            lines.append(f"    {name} = (shapes[{number}][{axis}] - {offset}) // {factor}")
        lines += [f"    {name} = capacities[{number}]" for number, name in enumerate(names[len(self.places) : -1])]
        for number, axis, cap in self.caps:
            expected = f"axis {axis} of input {number} must be below {cap}"
            lines.append(f"    if shapes[{number}][{axis}] >= {cap}: {_refusal(expected)}")
        for number, axis, size in self.checks:
            expected = f"axis {axis} of input {number} must be {self._text(size)}"
            lines.append(f"    if shapes[{number}][{axis}] != {source_of(size, names)}: {_refusal(expected)}")
        for left, right in self.conditions:
            expected = self._equality(left, right)
            lines.append(f"    if {source_of(left, names)} != {source_of(right, names)}: {_refusal(expected)}")
        calls = Calls()
        numbers = [source_of(size, names, calls=calls) for size in self.numbers]
        lines += [f"    {name} = {text}" for text, name in calls.names.items()]
        lines.append(f"    return [{', '.join(numbers)}]")
        scope: dict[str, Any] = {"ShapeMismatch": ShapeMismatch, "broadcast": dim.broadcast_of}
        exec("\n".join(lines), scope)  # only numbers, our own names and quoted text stand there
        return scope.pop("sizes")  # where it stood, it would hold itself

    def _equality(self, left: SizeTerms, right: SizeTerms) -> str:
        """What must hold, in words where the formula has names that users do not know, or is that of broadcasting."""
        text = f"{self._text(left)} must be {self._text(right)}"
        if "?" not in text and "broadcast" not in text:
            return text
        sizes = [dim_of(size, [*self.symbols, "threads"]) for size in (left, right)]
        names = sorted({symbol.name for size in sizes for symbol in dim.symbols(size) if not symbol.name.startswith("?")})
        return (
            f"the sizes {' and '.join(names)} must go together" if len(names) > 1 else "sizes of inner values must go together"
        )

    def _text(self, size: SizeTerms) -> str:
        """A size in the model's own names."""
        return str(dim_of(size, [*self.symbols, "threads"]))


def _refusal(expected: str) -> str:
    return f"raise ShapeMismatch({expected!r}, shapes)"


def _caps(size: dim.Expression) -> list[int]:
    """The numbers in a minimum."""
    atoms = [atom for monomial in size.terms for atom, _ in monomial]
    return [
        argument for atom in atoms if isinstance(atom, dim.Call) for argument in atom.arguments if isinstance(argument, int)
    ]
