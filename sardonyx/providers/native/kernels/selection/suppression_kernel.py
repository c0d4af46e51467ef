"""The kernel of NonMaxSuppression; `suppression` runs it."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.compiler.builder import Value as Code
from sardonyx.compiler.types import BOOL, F32, I32, I64, Type
from sardonyx.providers.native.kernels.selection.suppression import SuppressArguments
from sardonyx.providers.native.program.kernel import KernelFunction, kernel


@kernel("suppress", SuppressArguments)
def suppress_kernel(f: KernelFunction, a: SuppressArguments) -> None:
    """Items are classes of images. Boxes come by their scores; one is kept if it overlaps none of those that were kept too much."""
    overlap, threshold = f.convert(a.overlap, F32), f.convert(a.threshold, F32)
    with f.exact(), f.loop(f.begin, f.end) as item:
        planes = [f.address(a.sides, (a.images * number + item // a.labels) * a.count, F32) for number in range(5)]
        chosen = [f.address(a.chosen, (item * 5 + number) * a.limit, F32) for number in range(5)]
        result = f.address(a.kept, item * a.limit, I64)
        heap = f.address(a.heap, item * a.count, I64)
        left = f.variable(_filled(f, heap, f.address(a.scores, item * a.count, F32), a.count, threshold))
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


def _filled(f: KernelFunction, words: Code, scores: Code, count: Code, threshold: Code) -> Code:
    """Fill a heap, and say how many boxes are in it. The smallest word is the box of the highest score, of equal ones the first."""
    total = f.variable(0, I64)
    with f.loop(0, count) as box:
        score = f.load(scores, box, F32)
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
