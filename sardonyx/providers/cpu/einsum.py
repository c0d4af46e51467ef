"""Einsum in NumPy: operands are contracted two at a time, each step one batched matrix product. The CPU table calls it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from sardonyx.errors import InferenceError, InvalidArgument, KernelError
from sardonyx.ops.einsum import parse_equation
from sardonyx.providers.cpu.linalg import product
from sardonyx.providers.cpu.shape import braced
from sardonyx.providers.cpu.table import cpu

Term = tuple[np.ndarray, tuple[str, ...]]
"""An operand and the labels of its axes."""


@cpu.kernel("Einsum", widen=True)
def einsum(Inputs, equation):
    try:
        labels, output = parse_equation(equation, [operand.ndim for operand in Inputs])
    except InferenceError as error:
        raise KernelError(str(error), InvalidArgument) from error
    sizes = _sizes(labels, [operand.shape for operand in Inputs])
    terms = [_without_ones(operand, own, sizes) for operand, own in zip(Inputs, labels, strict=True)]
    while len(terms) > 1:
        left, right = _cheapest_pair(terms, output, sizes)
        others = [term for index, term in enumerate(terms) if index not in (left, right)]
        kept = set(output).union(*(own for _, own in others))
        terms = [*others, _contract(terms[left], terms[right], kept)]
    array, own = _reduce(*terms[0], set(output))
    return array.transpose([own.index(label) for label in output])


def _sizes(labels, shapes) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for own, shape in zip(labels, shapes, strict=True):
        for label, size in zip(own, shape, strict=True):
            if sizes.get(label, 1) == 1:
                sizes[label] = size
            elif size not in (1, sizes[label]):
                raise KernelError(
                    f"Einsum operands could not be broadcast together: axis {label!r} has sizes {sizes[label]} and {size}, "
                    f"the shapes are {', '.join(braced(shape) for shape in shapes)}",
                    InvalidArgument,
                )
    return sizes


def _without_ones(array, labels, sizes) -> Term:
    """Drop the axes of size 1 that broadcast, and take the diagonal where a label is repeated."""
    keep = [size == sizes[label] for label, size in zip(labels, array.shape, strict=True)]
    array = array.reshape([size for size, kept in zip(array.shape, keep, strict=True) if kept])
    labels = tuple(label for label, kept in zip(labels, keep, strict=True) if kept)
    distinct = tuple(dict.fromkeys(labels))
    if distinct != labels:
        numbers = {label: number for number, label in enumerate(distinct)}
        array = np.einsum(array, [numbers[label] for label in labels], list(range(len(distinct))))
    return array, distinct


def _reduce(array, labels, kept) -> Term:
    """Sum over the labels that nobody needs any more."""
    axes = tuple(axis for axis, label in enumerate(labels) if label not in kept)
    if axes:
        array = array.sum(axis=axes, dtype=array.dtype)
    return array, tuple(label for label in labels if label in kept)


def _cheapest_pair(terms: Sequence[Term], output, sizes) -> tuple[int, int]:
    """The two operands whose contraction makes the smallest array; of equals the first."""

    def result_size(pair: tuple[int, int]) -> int:
        needed = set(output).union(*(own for index, (_, own) in enumerate(terms) if index not in pair))
        return math.prod(sizes[label] for label in needed & (set(terms[pair[0]][1]) | set(terms[pair[1]][1])))

    return min(itertools.combinations(range(len(terms)), 2), key=result_size)


def _contract(left: Term, right: Term, kept) -> Term:
    """Multiply two operands and sum over the labels that both have and nobody else needs: batch x rows x columns."""
    A, own_A = _reduce(*left, kept.union(right[1]))
    B, own_B = _reduce(*right, kept.union(left[1]))
    shared = [label for label in own_A if label in own_B]
    batch = [label for label in shared if label in kept]
    summed = [label for label in shared if label not in kept]
    rows = [label for label in own_A if label not in shared]
    columns = [label for label in own_B if label not in shared]
    sizes = dict(zip(own_A, A.shape, strict=True)) | dict(zip(own_B, B.shape, strict=True))

    def grouped(array, own, *groups):
        order = [own.index(label) for group in groups for label in group]
        return array.transpose(order).reshape([math.prod(sizes[label] for label in group) for group in groups])

    joined = product(grouped(A, own_A, batch, rows, summed), grouped(B, own_B, batch, summed, columns))
    labels = (*batch, *rows, *columns)
    return joined.reshape([sizes[label] for label in labels]), labels
