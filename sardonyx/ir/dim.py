"""Sizes that may be symbolic: a `Dim` is an int or an `Expression` over named symbols in one normal form.

Equal expressions are equal in the sense of `==` and `hash`. Inference makes them, plans and compiled code evaluate them.
An expression is a polynomial whose atoms are symbols and the calls floordiv, mod, min, max and broadcast. Symbols stand for sizes, so
they are never negative.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import EllipsisType
from typing import Any, TypeGuard, Union

Dim = Union[int, "Expression"]
Monomial = tuple[tuple["Atom", int], ...]
"""Product of atoms with their powers, sorted; the empty product is 1."""

MAX_TERMS = 64
"""Beyond this a polynomial is replaced by a fresh symbol: hostile shape arithmetic must not grow without bound."""

MAX_ATOMS = 32
"""The same for the atoms of one product."""

MAX_CALLS = 2048
"""The same for the calls inside of a call, each as often as it is written: what holds itself twice doubles with each op."""

_fresh_numbers = itertools.count(1)


class Symbol:
    """A named unknown size. One whose name begins with `?` has no name in the model."""

    __slots__ = ("name", "_key")

    bound = 0
    """What it is never below."""

    def __init__(self, name: str):
        self.name = name
        self._key = (0, name)

    @property
    def is_anonymous(self) -> bool:
        return self.name.startswith("?")

    @property
    def mark(self) -> str | None:
        """What a model has in place of a name."""
        return (self.name.partition(" ")[2] or None) if self.is_anonymous else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Symbol) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[object, ...]:
        return Symbol, (self.name,)

    def evaluate(self, bindings: Mapping[str, int]) -> int:
        return bindings[self.name]

    def substitute(self, bindings: Mapping[str, Dim]) -> Dim:
        return bindings.get(self.name, _of_atom(self))

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        return (self,)


class Call:
    """floordiv, mod, min, max or broadcast of expressions that could not be simplified."""

    __slots__ = ("function", "arguments", "symbols", "calls", "_key", "_hash", "_bound")

    def __init__(self, function: str, arguments: tuple[Dim, ...]):
        self.function = function
        self.arguments = arguments
        self.calls = 1 + _calls_in(arguments)
        self.symbols = tuple(dict.fromkeys(symbol for argument in arguments for symbol in symbols(argument)))
        self._key = (1, self._text())  # it stands inside of others, so what is asked for often is found once
        self._hash = hash((function, arguments))
        self._bound: int | EllipsisType | None = ...

    @property
    def bound(self) -> int | None:
        """A number that it is never below; None if none is known."""
        if self._bound is ...:
            self._bound = _call_bound(self)
        return self._bound

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Call) and self.function == other.function and self.arguments == other.arguments

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return self._key[1]

    def _text(self) -> str:
        if self.function == "floordiv":
            return "//".join(_bracketed(argument) for argument in self.arguments)
        if self.function == "mod":
            return "%".join(_bracketed(argument) for argument in self.arguments)
        return f"{self.function}({', '.join(map(str, self.arguments))})"

    def __reduce__(self) -> tuple[object, ...]:
        return Call, (self.function, self.arguments)

    def evaluate(self, bindings: Mapping[str, int]) -> int:
        return _COMPUTE[self.function](*(evaluate(argument, bindings) for argument in self.arguments))

    def substitute(self, bindings: Mapping[str, Dim]) -> Dim:
        return _MAKE[self.function](*(substitute(argument, bindings) for argument in self.arguments))


Atom = Union[Symbol, Call]


def _calls_in(dims: Iterable[Dim]) -> int:
    """How many calls are written in some sizes."""
    terms = (monomial for size in dims if isinstance(size, Expression) for monomial in size.terms)
    return sum(atom.calls for monomial in terms for atom, _ in monomial if isinstance(atom, Call))


def _call(function: str, arguments: tuple[Dim, ...]) -> Dim:
    return fresh() if _calls_in(arguments) > MAX_CALLS else _of_atom(Call(function, arguments))


def _bracketed(dim: Dim) -> str:
    text = str(dim)
    return text if text.isalnum() else f"({text})"


class Expression:
    """A polynomial over atoms with integer coefficients, never a constant (that is an int)."""

    __slots__ = ("terms", "_hash")

    def __init__(self, terms: Mapping[Monomial, int]):
        self.terms = terms
        self._hash: int | None = None

    def __add__(self, other: Dim) -> Dim:
        if not isinstance(other, (int, Expression)):
            return NotImplemented
        if isinstance(other, int) and other == 0:
            return self
        return _sum(self, other)

    def __mul__(self, other: Dim) -> Dim:
        if not isinstance(other, (int, Expression)):
            return NotImplemented
        if not isinstance(other, int):
            return _product(self, other)
        if other == 0 or other == 1:
            return self if other else 0
        return _scaled(self, other)

    def __neg__(self) -> Dim:
        return _scaled(self, -1)

    def __sub__(self, other: Dim) -> Dim:
        return self + -other

    def __rsub__(self, other: int) -> Dim:
        return -self + other

    __radd__ = __add__
    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return floordiv(self, other)

    def __rfloordiv__(self, other: int) -> Dim:
        return floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return mod(self, other)

    def __rmod__(self, other: int) -> Dim:
        return mod(other, self)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Expression) and self.terms == other.terms)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __bool__(self) -> bool:
        raise TypeError(f"whether the symbolic size {self} is zero is not known")

    def __str__(self) -> str:
        parts = [_term_text(monomial, factor) for monomial, factor in self.terms.items()]
        return "+".join(parts).replace("+-", "-")

    def __repr__(self) -> str:
        return f"<{self}>"

    def __reduce__(self) -> tuple[object, ...]:
        return Expression, (dict(self.terms),)

    @property
    def symbol(self) -> Symbol | None:
        """The symbol, if this expression is one and nothing more."""
        atom = _sole_atom(self)
        return atom if isinstance(atom, Symbol) else None

    @property
    def call(self) -> Call | None:
        """The call, if this expression is one and nothing more."""
        atom = _sole_atom(self)
        return atom if isinstance(atom, Call) else None


def _sole_atom(dim: Dim) -> Atom | None:
    """The atom, if `dim` is one and nothing more."""
    if isinstance(dim, Expression) and len(dim.terms) == 1:
        ((monomial, factor),) = dim.terms.items()
        if factor == 1 and len(monomial) == 1 and monomial[0][1] == 1:
            return monomial[0][0]
    return None


def _term_text(monomial: Monomial, factor: int) -> str:
    atoms = [_bracketed_atom(atom) for atom, power in monomial for _ in range(power)]
    if not atoms:
        return str(factor)
    sign = {1: "", -1: "-"}.get(factor)
    return (f"{factor}*" if sign is None else sign) + "*".join(atoms)


def _bracketed_atom(atom: Atom) -> str:
    return f"({atom})" if isinstance(atom, Call) and atom.function in ("floordiv", "mod") else str(atom)


def _terms(dim: Dim) -> Mapping[Monomial, int]:
    return dim.terms if isinstance(dim, Expression) else {(): int(dim)}


# the layers of a model ask for the same sums, products and quotients again and again


@functools.lru_cache(maxsize=4096)
def _sum(left: Expression, right: Dim) -> Dim:
    terms = dict(left.terms)
    for monomial, factor in _terms(right).items():
        terms[monomial] = terms.get(monomial, 0) + factor
    return _normal(terms)


@functools.lru_cache(maxsize=4096)
def _scaled(dim: Expression, factor: int) -> Expression:
    return Expression({monomial: coefficient * factor for monomial, coefficient in dim.terms.items()})


@functools.lru_cache(maxsize=4096)
def _product(left: Expression, right: Expression) -> Dim:
    terms: dict[Monomial, int] = {}
    for (mine, a), (theirs, b) in itertools.product(left.terms.items(), right.terms.items()):
        monomial = _times(mine, theirs)
        terms[monomial] = terms.get(monomial, 0) + a * b
    return _normal(terms)


def _normal(terms: Mapping[Monomial, int]) -> Dim:
    kept = {monomial: factor for monomial, factor in terms.items() if factor}
    if not kept:
        return 0
    if len(kept) == 1 and () in kept:
        return kept[()]
    if len(kept) > MAX_TERMS or max(map(len, kept)) > MAX_ATOMS:
        return fresh()
    return Expression(kept if len(kept) == 1 else dict(sorted(kept.items(), key=_term_order)))


def _term_order(term: tuple[Monomial, int]) -> tuple[int, list[tuple[tuple[int, str], int]]]:
    monomial = term[0]
    return (-sum(power for _, power in monomial), [(atom._key, power) for atom, power in monomial])


def _times(left: Monomial, right: Monomial) -> Monomial:
    if not left or not right:
        return left or right
    powers: dict[Atom, int] = dict(left)
    for atom, power in right:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: item[0]._key))


def _of_atom(atom: Atom) -> Expression:
    return Expression({((atom, 1),): 1})


@functools.lru_cache(maxsize=4096)
def symbol(name: str) -> Expression:
    """The size called `name`; the same name is the same size everywhere in a model."""
    return _of_atom(Symbol(name))


def named(name: str) -> Expression:
    """A size by what a model calls it. A mark like ? or -1 is no name: wherever it stands it is another unknown size."""
    if name != "-1" and any(letter.isalnum() or letter == "_" for letter in name):
        return symbol(name)
    return _of_atom(Symbol(f"?{next(_fresh_numbers)} {name}")) if name else fresh()


def fresh() -> Expression:
    """A size about which nothing is known, different from all others."""
    return _of_atom(Symbol(f"?{next(_fresh_numbers)}"))


def is_anonymous(dim: Dim) -> bool:
    """Whether `dim` is one symbol without a name in the model."""
    if isinstance(dim, int):
        return False
    symbol = dim.symbol
    return symbol is not None and symbol.is_anonymous


def floordiv(a: Dim, b: Dim) -> Dim:
    """Quotient rounded down; parts of `a` that `b` divides leave the division."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b else fresh()
    if isinstance(b, int) and b in (0, 1, -1):
        return fresh() if b == 0 else a * b
    return _quotient(a, b)


@functools.lru_cache(maxsize=4096)
def _quotient(a: Dim, b: Dim) -> Dim:
    whole, rest = _divide(a, b)
    if isinstance(rest, int) and rest == 0:
        return whole
    if isinstance(b, int) and isinstance(rest, int):
        return whole + rest // b
    return whole + _call("floordiv", (rest, b))


def _divide(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    """a = whole * b + rest, moving into `whole` each term that `b`, if it is one term, divides."""
    divisor = _terms(b)
    if a == b:
        return 1, 0
    if len(divisor) != 1:
        return 0, a
    ((by, factor),) = divisor.items()
    whole: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, coefficient in _terms(a).items():
        quotient = _over(monomial, by)
        if quotient is not None and coefficient % factor == 0:
            whole[quotient] = coefficient // factor
        else:
            rest[monomial] = coefficient
    return _normal(whole), _normal(rest)


def _over(monomial: Monomial, by: Monomial) -> Monomial | None:
    powers = dict(monomial)
    for atom, power in by:
        powers[atom] = powers.get(atom, 0) - power
        if powers[atom] < 0:
            return None
    return tuple((atom, power) for atom, power in powers.items() if power)


def mod(a: Dim, b: Dim) -> Dim:
    """Rest of the division rounded down."""
    if isinstance(a, int) and isinstance(b, int):
        return a % b if b else fresh()
    if isinstance(b, int) and b in (0, 1, -1):
        return fresh() if b == 0 else 0
    return _remainder(a, b)


@functools.lru_cache(maxsize=4096)
def _remainder(a: Dim, b: Dim) -> Dim:
    _, rest = _divide(a, b)
    if isinstance(rest, int) and (rest == 0 or isinstance(b, int)):
        return rest % b if isinstance(b, int) else 0
    return _call("mod", (rest, b))


def ceildiv(a: Dim, b: Dim) -> Dim:
    """Quotient rounded up."""
    return -floordiv(-a, b)


def minimum(*dims: Dim) -> Dim:
    """The smallest of some sizes."""
    return min(dims) if all(isinstance(size, int) for size in dims) else _extreme("min", dims)  # type: ignore[type-var]


def maximum(*dims: Dim) -> Dim:
    """The largest of some sizes."""
    return max(dims) if all(isinstance(size, int) for size in dims) else _extreme("max", dims)  # type: ignore[type-var]


@functools.lru_cache(maxsize=4096)
def _extreme(function: str, dims: tuple[Dim, ...]) -> Dim:
    """The layers of a model ask for the same again and again."""
    kept: list[Dim] = []
    for dim in _flattened(function, dims):
        beaten = [other for other in kept if _beats(function, dim, other)]
        if not any(_beats(function, other, dim) for other in kept if other not in beaten):
            kept = [other for other in kept if other not in beaten] + [dim]
    if len(kept) == 1:
        return kept[0]
    return _call(function, tuple(sorted(kept, key=str)))


def _flattened(function: str, dims: Iterable[Dim]) -> Iterable[Dim]:
    """The arguments, with those of an inner call of the same function in its place."""
    for dim in dims:
        call = _sole_atom(dim)
        if isinstance(call, Call) and call.function == function:
            yield from call.arguments
        else:
            yield dim


def broadcast(*dims: Dim) -> Dim:
    """The size of an axis for which operands have these, any of which may be the 1 that stands for all.

    One that is a number other than 1 is the size: the others must be it, or 1.
    """
    kept: list[Dim] = []
    for dim in _flattened("broadcast", dims):
        if dim != 1 and dim not in kept:
            kept.append(dim)
    number = next((dim for dim in kept if isinstance(dim, int)), None)
    if number is not None or len(kept) < 2:
        return number if number is not None else kept[0] if kept else 1
    return _call("broadcast", tuple(sorted(kept, key=str)))


def broadcast_of(*sizes: int) -> int:
    """The same of numbers."""
    return next((size for size in sizes if size != 1), 1)


def _beats(function: str, a: Dim, b: Dim) -> bool:
    """Whether `a` makes `b` superfluous in a minimum or maximum."""
    return is_nonnegative(b - a) if function == "min" else is_nonnegative(a - b)


def is_nonnegative(dim: Dim) -> bool:
    """Whether `dim` is certainly 0 or more, as far as its terms show."""
    least = lower_bound(dim)
    return least is not None and least >= 0


def lower_bound(dim: Dim) -> int | None:
    """A number that `dim` is never below, as far as its terms show; None if they show none.

    Each atom is written as its own bound and what it has more. Where no term of that is subtracted, what is left at 0 is the bound:
    a * b + a + b is not below -1 if neither factor is.
    """
    terms = _terms(dim)
    bounds = {atom: atom.bound for monomial in terms for atom, _ in monomial}
    is_plain = all(bound == 0 for bound in bounds.values())
    surpluses: Mapping[Any, int] | None = terms if is_plain else _in_surpluses(terms, bounds)
    if surpluses is None or any(factor < 0 for monomial, factor in surpluses.items() if monomial):
        return None
    return surpluses.get((), 0)


def _in_surpluses(terms: Mapping[Monomial, int], bounds: Mapping[Atom, int | None]) -> dict[tuple[Atom, ...], int] | None:
    """A polynomial in what its atoms are above their bounds, as factors of products; None if it is too long, or a bound is not known."""
    found: dict[tuple[Atom, ...], int] = {}
    for monomial, factor in terms.items():
        parts: dict[tuple[Atom, ...], int] = {(): factor}
        for atom in (atom for atom, power in monomial for _ in range(power)):
            bound = bounds[atom]
            if bound is None or len(parts) > MAX_TERMS:
                return None
            rest = {product: bound * part for product, part in parts.items()} if bound else {}
            parts = _added(rest, {(*product, atom): part for product, part in parts.items()})
        found = _added(found, parts)
    return found


def _added(left: dict[tuple[Atom, ...], int], right: Mapping[tuple[Atom, ...], int]) -> dict[tuple[Atom, ...], int]:
    for product, part in right.items():
        left[product] = left.get(product, 0) + part
    return left


def _all_nonnegative(bounds: Sequence[int | None]) -> TypeGuard[Sequence[int]]:
    return all(bound is not None and bound >= 0 for bound in bounds)


def is_positive(dim: Dim) -> bool:
    """Whether `dim` is certainly 1 or more."""
    return is_nonnegative(dim - 1)


def common_factor(dim: Dim) -> int:
    """A number that `dim` is certainly a multiple of, the largest that its terms show."""
    return math.gcd(*_terms(dim).values())


def is_capped(dim: Dim, by: Dim) -> bool:
    """Whether `dim` is `by`, or a positive number where that is less: min(512, n) for n."""
    atom = _sole_atom(dim)
    if not isinstance(atom, Call) or atom.function != "min" or by not in atom.arguments:
        return dim == by
    return all(isinstance(size, int) and size >= 1 for size in atom.arguments if size != by)


def _call_bound(call: Call) -> int | None:
    bounds = [lower_bound(argument) for argument in call.arguments]
    divisor = call.arguments[-1]
    if call.function == "max":
        return max((bound for bound in bounds if bound is not None), default=None)
    if call.function == "min":
        return None if None in bounds else min(bound for bound in bounds if bound is not None)
    if call.function == "floordiv" and isinstance(divisor, int) and divisor > 0:
        return None if bounds[0] is None else bounds[0] // divisor
    is_whole = call.function == "mod" and isinstance(divisor, int) and divisor > 0
    return 0 if is_whole or _all_nonnegative(bounds) else None


def evaluate(dim: Dim, bindings: Mapping[str, int]) -> int:
    """The number that `dim` is when the symbols have these values; KeyError for a symbol without one."""
    if isinstance(dim, int):
        return dim
    total = 0
    for monomial, factor in dim.terms.items():
        for atom, power in monomial:
            factor *= atom.evaluate(bindings) ** power
        total += factor
    return total


SUPPOSED_SIZE = 64
"""What a symbolic size is taken for where plans are compared before any size is known."""


class _Supposed(dict[str, int]):
    def __missing__(self, name: str) -> int:
        return SUPPOSED_SIZE


def supposed(dim: Dim) -> int:
    """A size as a number when nothing is known of its symbols; never below 0."""
    return max(evaluate(dim, _Supposed()), 0)


def substitute(dim: Dim, bindings: Mapping[str, Dim]) -> Dim:
    """`dim` with some symbols replaced."""
    if isinstance(dim, int):
        return dim
    total: Dim = 0
    for monomial, factor in dim.terms.items():
        product: Dim = factor
        for atom, power in monomial:
            for _ in range(power):
                product = product * atom.substitute(bindings)
        total = total + product
    return total


def rewritten(dim: Dim, change: Callable[[Dim], Dim]) -> Dim:
    """What `change` makes of `dim`, after it has changed all sizes inside, from the innermost out."""
    if isinstance(dim, int):
        return change(dim)
    total: Dim = 0
    for monomial, factor in dim.terms.items():
        product: Dim = factor
        for atom, power in monomial:
            whole: Dim = _of_atom(atom)
            if isinstance(atom, Call):
                whole = _MAKE[atom.function](*(rewritten(argument, change) for argument in atom.arguments))
            whole = change(whole)
            for _ in range(power):
                product = product * whole
        total = total + product
    return change(total)


def with_name(dim: Dim, whole: Expression, name: str) -> Dim:
    """`dim`, where the size `whole` has a name: one of its terms is the name less the other terms, wherever it is a factor.

    3·a·b + 3·a is 3·n where a·b + a is called n.
    """
    replaced = _replaced_term(whole, name)
    return dim if replaced is None else _with_term(dim, *replaced)


@functools.lru_cache(maxsize=4096)
def _replaced_term(whole: Expression, name: str) -> tuple[Monomial, int, Dim] | None:
    """A term of `whole`, its factor, and what stands for both, such that nothing is left of `whole` but its name."""
    called = symbol(name)
    for monomial, factor in whole.terms.items():
        rest = whole - Expression({monomial: factor})
        if monomial and _with_term(whole, monomial, factor, called - rest) == called:
            return monomial, factor, called - rest
    return None


def _with_term(dim: Dim, term: Monomial, factor: int, value: Dim) -> Dim:
    """`dim`, where factor·term has this value."""
    if isinstance(dim, int):
        return dim
    total: Dim = 0
    for monomial, coefficient in dim.terms.items():
        product: Dim = 1
        rest = _over(monomial, term)
        while rest is not None and coefficient % factor == 0:
            monomial, coefficient, product = rest, coefficient // factor, product * value
            rest = _over(monomial, term)
        for atom, power in monomial:
            replaced: Dim = _of_atom(atom)
            if isinstance(atom, Call):
                replaced = _MAKE[atom.function](*(_with_term(argument, term, factor, value) for argument in atom.arguments))
            for _ in range(power):
                product = product * replaced
        total = total + product * coefficient
    return total


def symbols(dim: Dim) -> Sequence[Symbol]:
    """All symbols in `dim`; one may be there more than once."""
    if not isinstance(dim, Expression):
        return ()
    return [symbol for monomial in dim.terms for atom, _ in monomial for symbol in atom.symbols]


def product(dims: Iterable[Dim]) -> Dim:
    """How many elements a shape has."""
    total: Dim = 1
    for dim in dims:
        total = total * dim
    return total


_COMPUTE: dict[str, Callable[..., int]] = {
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "min": min,
    "max": max,
    "broadcast": broadcast_of,
}
_MAKE: dict[str, Callable[..., Dim]] = {
    "floordiv": floordiv,
    "mod": mod,
    "min": minimum,
    "max": maximum,
    "broadcast": broadcast,
}
