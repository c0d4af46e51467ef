"""Einsum of more than two operands that sums: two at a time, those first whose product is smallest."""

from __future__ import annotations

import itertools
import string
from collections.abc import Sequence

from sardonyx.ir import Value
from sardonyx.ops.einsum import parse_equation
from sardonyx.providers.native.kernels.linalg.einsum import Labels
from sardonyx.providers.native.program.composition import Composer, compose
from sardonyx.providers.native.program.values import dims, rank_of
from sardonyx.providers.provider import CannotCompile

SUPPOSED_SIZE = 64
"""What a size counts that is known in a run only."""


@compose("Einsum", claims=lambda node: len(node.inputs) > 2, widen=True)
def einsum(op: Composer, Inputs: Sequence[Value], equation: str) -> Value:
    labels, output = parse_equation(equation, [rank_of(value) for value in Inputs])
    letters = dict(zip(dict.fromkeys(label for own in labels for label in own), string.ascii_letters))
    terms = [(value, tuple(letters.get(label, "") for label in own)) for value, own in zip(Inputs, labels)]
    if not all(letter for _, own in terms for letter in own):
        raise CannotCompile("the equation has more labels than there are letters", quiet=True)
    result = tuple(letters[label] for label in output)
    while len(terms) > 2:
        first, second = min(itertools.combinations(terms, 2), key=lambda pair: _cost(pair, _kept(terms, pair, result)))
        kept = _kept(terms, (first, second), result)
        rest = [term for term in terms if term is not first and term is not second]
        terms = [*rest, (_contracted(op, (first, second), kept), kept)]
    return _contracted(op, terms, result)


Term = tuple[Value, Labels]


def _kept(terms: Sequence[Term], pair: Sequence[Term], output: Labels) -> Labels:
    """The labels of a pair that somebody else needs."""
    others = {label for term in terms if all(term is not one for one in pair) for label in term[1]} | set(output)
    return tuple(dict.fromkeys(label for _, labels in pair for label in labels if label in others))


def _cost(pair: Sequence[Term], kept: Labels) -> int:
    """How large their product is."""
    total = 1
    for label in kept:
        sizes = [size for value, labels in pair for one, size in zip(labels, dims(value)) if one == label]
        total *= max(size if isinstance(size, int) else SUPPOSED_SIZE for size in sizes)
    return total


def _contracted(op: Composer, terms: Sequence[Term], kept: Labels) -> Value:
    equation = f"{','.join(''.join(labels) for _, labels in terms)}->{''.join(kept)}"
    made: Value = op.Einsum(*(value for value, _ in terms), equation=equation)
    return made
