"""Type and shape inference of Einsum, and the parsing of its equation, which kernels share. The driver calls `einsum`."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence

from sardonyx.errors import InferenceError
from sardonyx.ops.shapes import broadcast
from sardonyx.ops.table import infer

ELLIPSIS = "..."


@infer("Einsum")
def einsum(Inputs, equation):
    if any(operand.shape is None for operand in Inputs):
        return None
    labels, output = parse_equation(equation, [len(operand.shape) for operand in Inputs])
    sizes: dict[str, list] = {}
    for own, operand in zip(labels, Inputs, strict=True):
        for label, size in zip(own, operand.shape, strict=True):
            sizes.setdefault(label, []).append((size,))
    joined = {label: broadcast(*lengths)[0] for label, lengths in sizes.items()}
    return tuple(joined[label] for label in output)


def parse_equation(equation: str, ranks: Sequence[int]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Labels of every operand's axes and of the output's. The axes of an ellipsis are labelled by numbers."""
    words = equation.replace(" ", "")
    if not re.fullmatch(r"[A-Za-z.,]*(->[A-Za-z.]*)?", words):
        raise InferenceError(f"not an einsum equation: {equation!r}")
    left, arrow, right = words.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise InferenceError(f"{equation!r} has {len(terms)} terms for {len(ranks)} operands")
    labels = [_labels(term, rank, equation) for term, rank in zip(terms, ranks, strict=True)]
    hidden = max((tuple(filter(str.isdigit, own)) for own in labels), key=len)
    if arrow:
        output = _explicit_output(right, hidden, equation)
    else:
        counts = Counter(itertools.chain.from_iterable(labels))
        output = (*hidden, *sorted(label for label, count in counts.items() if count == 1 and not label.isdigit()))
    unknown = set(output).difference(*labels)
    if unknown or len(set(output)) != len(output):
        raise InferenceError(f"the output of {equation!r} repeats a label or has one that no operand has")
    return labels, output


def _labels(term: str, rank: int, equation: str) -> tuple[str, ...]:
    before, dots, after = term.partition(ELLIPSIS)
    hidden = rank - len(before) - len(after)
    if "." in before + after or hidden < 0 or (hidden and not dots):
        raise InferenceError(f"the term {term!r} of {equation!r} does not fit an operand of rank {rank}")
    # counted from the last axis of the ellipsis, so that ellipses of different length broadcast
    return (*before, *(str(position) for position in range(hidden - 1, -1, -1)), *after)


def _explicit_output(term: str, hidden: tuple[str, ...], equation: str) -> tuple[str, ...]:
    before, dots, after = term.partition(ELLIPSIS)
    if "." in before + after or (hidden and not dots):
        raise InferenceError(f"operands of {equation!r} have an ellipsis, its output has none or more than one")
    return (*before, *hidden, *after)
