"""The kernels of NonMaxSuppression; `suppression` lowers it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sardonyx.compiler.builder import Value as Code
from sardonyx.compiler.types import BOOL, F32, I32, I64, Type
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size, when
from sardonyx.providers.native.program.kernel import KernelFunction, kernel


class SidesArguments(Arguments):
    boxes: Pointer
    total: Size
    sides: Pointer
    """[5, total]: left, low, right and high sides of all boxes, and their areas."""
    status: Pointer


@kernel("sides of boxes", SidesArguments)
def sides_kernel(f: KernelFunction, a: SidesArguments, is_centered: bool) -> None:
    """Items are boxes: two corners, or center and extent. What is not finite is left to NumPy."""
    with f.exact(), f.loop(f.begin, f.end) as box:
        x, y, z, w = (f.load(a.boxes, box * 4 + number, F32) for number in range(4))
        is_finite = f.const(BOOL, True)
        for coordinate in (x, y, z, w):
            is_finite = is_finite & (f.abs(coordinate) < math.inf)
        with f.if_(~is_finite):
            f.store(1, a.status, 0, I64)
        if is_centered:
            half = (z / 2.0, w / 2.0)
            sides = [x - half[0], y - half[1], x + half[0], y + half[1]]
        else:
            sides = [f.minimum(x, z), f.minimum(y, w), f.maximum(x, z), f.maximum(y, w)]
        area = (sides[2] - sides[0]) * (sides[3] - sides[1])
        for number, side in enumerate((*sides, area)):
            f.store(side, a.sides, a.total * number + box, F32)


class CheckArguments(Arguments):
    overlap: Pointer
    status: Pointer


@kernel("check of overlap", CheckArguments)
def check_kernel(f: KernelFunction, a: CheckArguments) -> None:
    """A part of a whole must be between 0 and 1."""
    overlap = f.load(a.overlap, 0, F32)
    with f.if_(~((overlap >= 0.0) & (overlap <= 1.0))):
        f.store(1, a.status, 0, I64)


class LimitArguments(Arguments):
    most: Pointer
    count: Size
    target: Pointer


@kernel("limit of boxes", LimitArguments)
def limit_kernel(f: KernelFunction, a: LimitArguments) -> None:
    """No more than there are."""
    f.store(f.maximum(f.minimum(f.load(a.most, 0, I64), a.count), 0), a.target, 0, I64)


class SuppressArguments(Arguments):
    sides: Pointer
    """See `SidesArguments`."""
    scores: Pointer
    images: Size
    labels: Size
    """How many classes there are."""
    count: Size
    """Boxes of an image."""
    limit: Size
    """How many boxes of a class are kept at most."""
    overlap: Pointer | None = when(lambda has_overlap: has_overlap)
    """What boxes may share with one that is kept, as a part of their union; 0 if it is not given."""
    threshold: Pointer | None = when(lambda has_threshold: has_threshold)
    """Boxes with lower scores, or this one, are left out."""
    heap: Pointer
    chosen: Pointer
    """Scratch memory, [classes of images, 5, limit], for the sides of boxes that are kept."""
    kept: Pointer
    counts: Pointer
    """How many boxes are kept, for each class of each image."""
    status: Pointer


@kernel("suppress", SuppressArguments)
def suppress_kernel(f: KernelFunction, a: SuppressArguments, has_overlap: bool, has_threshold: bool) -> None:
    """Items are classes of images. Boxes come by their scores; one is kept if it overlaps none of those that were kept too much."""
    overlap = f.const(F32, 0.0) if a.overlap is None else f.load(a.overlap, 0, F32)
    with f.exact(), f.loop(f.begin, f.end) as item:
        planes = [f.address(a.sides, (a.images * number + item // a.labels) * a.count, F32) for number in range(5)]
        chosen = [f.address(a.chosen, (item * 5 + number) * a.limit, F32) for number in range(5)]
        result = f.address(a.kept, item * a.limit, I64)
        heap = f.address(a.heap, item * a.count, I64)
        left = f.variable(_filled(f, a, heap, f.address(a.scores, item * a.count, F32)))
        number = f.variable(0, I64)
        with f.while_() as body:
            body.leave_if((left.get() <= 0) | (number.get() >= a.limit))
            box = f.load(heap, 0, I64) & 0xFFFFFFFF
            left.set(left.get() - 1)
            _sink_down(f, heap, f.const(I64, 0), f.load(heap, left.get(), I64), left.get())
            sides = [f.load(plane, box, F32) for plane in planes]
            with f.if_(_is_free(f, sides, chosen, number.get(), overlap)):
                f.store(box, result, number.get(), I64)
                for value, plane in zip(sides, chosen):
                    f.store(value, plane, number.get(), F32)
                number.set(number.get() + 1)
        f.store(number.get(), a.counts, item, I64)


def _is_free(f: KernelFunction, sides: Sequence[Code], chosen: Sequence[Code], count: Code, overlap: Code) -> Code:
    """Whether a box overlaps none of the first `count` that were kept."""
    lanes = f.lanes(F32)
    is_free, start = f.variable(True, BOOL), f.variable(0, I64)
    with f.while_() as others:
        others.leave_if((start.get() >= count) | ~is_free.get())
        is_free.set(~_overlaps(f, sides, chosen, start.get(), count - start.get(), overlap, lanes))
        start.set(start.get() + lanes)
    return is_free.get()


def _filled(f: KernelFunction, a: SuppressArguments, words: Code, scores: Code) -> Code:
    """Fill a heap, and say how many boxes are in it. The smallest word is the box of the highest score, of equal ones the first.

    Without a threshold all boxes are candidates: a score that is no number, or below all, is left to NumPy.
    """
    total = f.variable(0, I64)
    threshold = f.const(F32, -math.inf) if a.threshold is None else f.load(a.threshold, 0, F32)
    with f.loop(0, a.count) as box:
        score = f.load(scores, box, F32)
        if a.threshold is None:
            with f.if_(~(score > threshold)):
                f.store(1, a.status, 0, I64)
        with f.if_(score > threshold):
            bits = f.bitcast(score + 0.0, I32)  # -0 becomes 0, from which it would differ
            falling = ~(bits ^ ((bits >> 31) & 0x7FFFFFFF))
            f.store((f.convert(falling, I64) << 32) | box, words, total.get(), I64)
            total.set(total.get() + 1)
    size = total.get()
    half = size // 2
    with f.loop(0, half) as number:
        place = half - 1 - number
        _sink_down(f, words, place, f.load(words, place, I64), size)
    return size


def _sink_down(f: KernelFunction, words: Code, place: Code, word: Code, size: Code) -> None:
    """Put a word where no smaller one lies below it, from `place` on."""
    here = f.variable(place)
    with f.while_() as body:
        below = here.get() * 2 + 1
        body.leave_if(below >= size)
        other = f.minimum(below + 1, size - 1)
        a, b = f.load(words, below, I64), f.load(words, other, I64)
        body.leave_if(f.minimum(a, b) >= word)
        f.store(f.minimum(a, b), words, here.get(), I64)
        here.set(f.select(b < a, other, below))
    f.store(word, words, here.get(), I64)


def _overlaps(
    f: KernelFunction, mine: Sequence[Code], chosen: Sequence[Code], start: Code, remaining: Code, overlap: Code, lanes: int
) -> Code:
    """Whether a box shares too much with one of a vector of others. Boxes without area overlap nothing."""
    a, b, c, d, size = (f.splat(value, lanes) for value in mine)
    left, low, right, high, area = (f.load(plane, start, F32, lanes, remaining=remaining) for plane in chosen)
    wide = f.maximum(f.minimum(c, right) - f.maximum(a, left), 0.0)
    shared = wide * f.maximum(f.minimum(d, high) - f.maximum(b, low), 0.0)
    real = (size > 0.0) & (area > 0.0)
    union = f.select(real, size + area - shared, 1.0)
    overlapping = real & (shared / union > f.splat(overlap, lanes))
    return f.bitcast(overlapping, Type("uint", lanes)) != 0


class KeptArguments(Arguments):
    kept: Pointer
    starts: Pointer
    """How many boxes come before those of a class."""
    rows: Size
    total: Size
    labels: Size
    limit: Size
    target: Pointer


@kernel("kept boxes", KeptArguments)
def kept_kernel(f: KernelFunction, a: KeptArguments) -> None:
    """Image, class and number of each box that is kept. Items are classes of images."""
    with f.loop(f.begin, f.end) as item:
        start, end = f.load(a.starts, item, I64), f.variable(a.total)
        with f.if_(item + 1 < a.rows):
            end.set(f.load(a.starts, item + 1, I64))
        with f.loop(0, end.get() - start) as number:
            row = f.address(a.target, (start + number) * 3, I64)
            f.store(item // a.labels, row, 0, I64)
            f.store(item % a.labels, row, 1, I64)
            f.store(f.load(a.kept, item * a.limit + number, I64), row, 2, I64)
