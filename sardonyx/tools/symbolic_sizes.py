"""Symbolic sizes as `symbolic_shape_infer` shows them: merged where nodes want them equal, named, and written as sympy writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction

from sardonyx.ir import Node, TensorType, Value, dim
from sardonyx.ir.dim import Call, Dim, Expression, Symbol
from sardonyx.ir.types import OptionalType, SequenceType, SparseTensorType, Type
from sardonyx.ops.facts import Operands
from sardonyx.ops.reading import operand
from sardonyx.ops.table import facts_of

MAX_ROUNDS = 16
"""How often sizes are merged: each round may show others that are equal."""
NAMES = {"min": "Min", "max": "Max", "broadcast": "Max", "mod": "Mod"}
"""The calls of sympy. An axis to which others are broadcast is the largest of them, where none is empty."""


def resized(type: Type | None, change: Callable[[Dim], Dim]) -> Type | None:
    """The type with each of its sizes changed."""
    match type:
        case TensorType(dtype, shape):
            return TensorType(dtype, None if shape is None else tuple(map(change, shape)))
        case SparseTensorType(dtype, shape):
            return SparseTensorType(dtype, None if shape is None else tuple(map(change, shape)))
        case SequenceType(element):
            return SequenceType(resized(element, change) or element)
        case OptionalType(element):
            return OptionalType(resized(element, change) or element)
    return type


# --- sizes that are one


def merged(types: Mapping[Value, Type | None], nodes: Iterable[Node]) -> dict[Value, Type | None]:
    """The types in which sizes are one that nodes can only take if they are equal. An axis of 1 is supposed to be written as 1."""
    nodes, current = list(nodes), dict(types)
    for _ in range(MAX_ROUNDS):
        names = _representatives(pair for node in nodes for pair in _equal_sizes(node, current))
        if not names:
            break

        def change(size: Dim, names: dict[Dim, Dim] = names) -> Dim:
            return dim.rewritten(size, lambda part: names.get(part, part))

        current = {value: resized(type, change) for value, type in current.items()}
    return current


def _equal_sizes(node: Node, types: Mapping[Value, Type | None]) -> Iterator[tuple[Expression, Expression]]:
    """Pairs of symbolic sizes that a node wants to be equal and that are not written alike."""
    inputs = [types.get(value) if value is not None else None for value in node.inputs]
    shapes = [type.shape for type in inputs if isinstance(type, TensorType) and type.shape is not None]
    if len(shapes) < len(node.inputs):
        return
    if facts_of(node).elementwise is Operands.ALL:
        yield from _columns(shapes)
    elif node.op_type == "Concat" and len({len(shape) for shape in shapes}) == 1:
        axis = operand(node, "axis") % max(len(shapes[0]), 1)
        yield from _columns([shape[:axis] + shape[axis + 1 :] for shape in shapes])
    elif node.op_type == "MatMul" and all(len(shape) > 1 for shape in shapes):
        yield from _columns([shape[:-2] for shape in shapes])
        yield from _columns([shapes[0][-1:], shapes[1][-2:-1]])


def _columns(shapes: list[tuple[Dim, ...]]) -> Iterator[tuple[Expression, Expression]]:
    rank = max(map(len, shapes), default=0)
    for column in zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True):
        sizes = [size for size in column if isinstance(size, Expression)]
        yield from ((sizes[0], other) for other in sizes[1:] if other != sizes[0])


def _representatives(pairs: Iterable[tuple[Expression, Expression]]) -> dict[Dim, Dim]:
    """What stands for each size that equals another: a symbol of the model before others, and the shorter of two."""
    groups: dict[Expression, list[Expression]] = {}
    for pair in pairs:
        group = [member for size in pair for member in groups.get(size, [size])]
        group = list(dict.fromkeys(group))
        groups.update(dict.fromkeys(group, group))
    chosen: dict[Dim, Dim] = {}
    for size, group in groups.items():
        best = min(group, key=_preference)
        if best != size:
            chosen[size] = best
    return chosen


def _preference(size: Expression) -> tuple[bool, bool, int, str]:
    symbol = size.symbol
    return symbol is None, dim.is_anonymous(size), len(str(size)), str(size)


# --- sizes of at least 1


def simplified(size: Dim) -> Dim:
    """The size where every symbol is 1 or more: the larger of 0 and n - 1 is n - 1."""
    return dim.rewritten(size, _decided)


def _decided(size: Dim) -> Dim:
    call = size.call if isinstance(size, Expression) else None
    if call is None or call.function not in ("min", "max"):
        return size
    kept: list[Dim] = []
    for argument in call.arguments:
        if not any(_beats(call.function, other, argument) for other in kept):
            kept = [other for other in kept if not _beats(call.function, argument, other)] + [argument]
    return (dim.minimum if call.function == "min" else dim.maximum)(*kept)


def _beats(function: str, one: Dim, other: Dim) -> bool:
    difference = other - one if function == "min" else one - other
    one_more = {symbol.name: dim.symbol(symbol.name) + 1 for symbol in dim.symbols(difference)}
    return dim.is_nonnegative(dim.substitute(difference, one_more))


# --- texts


def written(size: Dim, names: Mapping[str, str]) -> Dim:
    """A size that a model can hold: a number, or one symbol whose name is the expression. Unknown sizes have `names` or none."""
    if isinstance(size, int):
        return size
    symbol = size.symbol
    if symbol is not None and symbol.name not in names:
        return size
    return dim.symbol(_sum_text(size, 1, names))


def _sum_text(size: Dim, divisor: int, names: Mapping[str, str]) -> str:
    if isinstance(size, int):
        return str(Fraction(size, divisor))
    terms = [_term_text(monomial, Fraction(factor, divisor), names) for monomial, factor in size.terms.items()]
    return " + ".join(terms).replace("+ -", "- ")


def _term_text(monomial: dim.Monomial, factor: Fraction, names: Mapping[str, str]) -> str:
    atoms = sorted(_atom_text(atom, names) + (f"**{power}" if power > 1 else "") for atom, power in monomial)
    if not atoms:
        return str(factor)
    sign = {1: "", -1: "-"}.get(factor.numerator, f"{factor.numerator}*")
    return sign + "*".join(atoms) + (f"/{factor.denominator}" if factor.denominator > 1 else "")


def _atom_text(atom: Symbol | Call, names: Mapping[str, str]) -> str:
    if isinstance(atom, Symbol):
        return names.get(atom.name, atom.name)
    if atom.function == "floordiv":
        dividend, divisor = atom.arguments
        if isinstance(divisor, int):
            return f"floor({_sum_text(dividend, divisor, names)})"
        return f"floor(({_sum_text(dividend, 1, names)})/({_sum_text(divisor, 1, names)}))"
    return f"{NAMES[atom.function]}({', '.join(_sum_text(argument, 1, names) for argument in atom.arguments)})"
