"""The generator of random numbers in generated code: the Mersenne Twister (MT19937), and what NumPy's legacy generator makes of its words.

Matsumoto and Nishimura, "Mersenne Twister: a 623-dimensionally equidistributed uniform pseudo-random number generator", 1998. Words come
in blocks of 624, each made of the one before in whole vectors, so one thread is enough: numbers are the same for any number of them.
"""

from __future__ import annotations

from collections.abc import Callable

from sardonyx.compiler.builder import Value as Code
from sardonyx.compiler.math import log
from sardonyx.compiler.types import F64, I32, I64, U32, U64
from sardonyx.providers.native.program.arguments import Arguments, Number, Pointer, Size, when
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.random_state import DRAWN, DRAWN_NATIVELY, FIRST_FACTOR, GOLDEN, KEY, SECOND_FACTOR

WORDS, MIDDLE = 624, 397
"""How many words of the generator a word depends on at most, and the place of the second of three that it is made of."""
BLOCK = WORDS // 2
"""How many floats a block of words gives."""


class DrawArguments(Arguments):
    target: Pointer
    count: Size
    first: Number
    """What is added: the lower bound, or the mean."""
    factor: Number
    """The width of the range, or the standard deviation."""
    seed: Size | None = when(lambda has_seed: has_seed)
    seeds: Pointer | None = when(lambda has_seed: not has_seed)
    """The words of `random_state`, from which the next seed of the process is made."""


@kernel("random numbers", DrawArguments)
def draw_kernel(f: KernelFunction, a: DrawArguments, is_normal: bool, has_seed: bool) -> None:
    """One item: all numbers, in float64."""
    with f.loop(f.begin, f.end):
        twister = _Twister(f, _next_seed(f, a.seeds) if a.seed is None else f.convert(a.seed, U32))
        (_draw_normal if is_normal else _draw_uniform)(f, a, twister)


def _next_seed(f: KernelFunction, words: Pointer) -> Code:
    """What `random_state` makes of the key of the process and the count of seeds."""
    place = f.address(words, DRAWN_NATIVELY, U64)
    natively = f.emit(U64, f"atomicrmw add {place}, i64 1 seq_cst")
    mixed = f.load(words, KEY, U64) + (f.load(words, DRAWN, U64) + natively + 1) * GOLDEN
    mixed = (mixed ^ (mixed >> 30)) * FIRST_FACTOR
    mixed = (mixed ^ (mixed >> 27)) * SECOND_FACTOR
    return f.convert((mixed ^ (mixed >> 31)) >> 32, U32)


class _Twister:
    """The words of the generator: a block, and the next one behind it."""

    def __init__(self, f: KernelFunction, seed: Code):
        self.f = f
        self.words = f.stack(U32, 2 * WORDS)
        self.following = f.address(self.words, WORDS, U32)
        word = f.variable(seed)
        with f.loop(0, WORDS) as place:
            last = word.get()
            f.store(last, self.following, place, U32)
            word.set((last ^ (last >> 30)) * 1812433253 + f.convert(place + 1, U32))

    def next_block(self) -> None:
        """Let the next block be the one that `floats` reads."""
        f, lanes = self.f, self.f.lanes(U32)
        with f.loop(0, WORDS, lanes) as place:
            f.store(f.load(self.following, place, U32, lanes), self.words, place, U32)
        with f.loop(0, WORDS, lanes) as place:
            one, another, middle = (f.load(self.words, place + distance, U32, lanes) for distance in (0, 1, MIDDLE))
            joined = (one & 0x80000000) | (another & 0x7FFFFFFF)
            odd = f.select((another & 1) != 0, f.const(another.type, 0x9908B0DF), f.const(another.type, 0))
            f.store(middle ^ (joined >> 1) ^ odd, self.following, place, U32)

    def floats(self, place: Code | int, lanes: int) -> Code:
        """Floats from 0 to 1, 53 bits each: two words, the first one the upper half."""
        f = self.f
        word = f.load(self.following, place * 2, U32, 2 * lanes)
        word = word ^ (word >> 11)
        word = word ^ ((word << 7) & 0x9D2C5680)
        word = word ^ ((word << 15) & 0xEFC60000)
        word = word ^ (word >> 18)
        upper, lower = (f.shuffle(word, word, range(half, 2 * lanes, 2)) for half in (0, 1))
        with f.exact():
            return (_whole(f, upper >> 5) * 2.0**26 + _whole(f, lower >> 6)) * 2.0**-53


def _whole(f: KernelFunction, word: Code) -> Code:
    """Below 2^31, so that CPUs convert it as a signed number."""
    return f.convert(f.bitcast(word, I32.vector(word.type.lanes)), F64)


def _draw_uniform(f: KernelFunction, a: DrawArguments, twister: _Twister) -> None:
    lanes = f.lanes(F64)
    with f.loop(0, a.count, BLOCK) as done:
        twister.next_block()
        _store_scaled(f, a, done, f.minimum(a.count - done, BLOCK), lambda place: twister.floats(place, lanes))


def _draw_normal(f: KernelFunction, a: DrawArguments, twister: _Twister) -> None:
    """Marsaglia's polar method: points of a square, of which those in the unit circle give two numbers each, the second one first."""
    lanes, kept, squares, done = f.lanes(F64), f.stack(F64, BLOCK), f.stack(F64, BLOCK), f.variable(0, I64)
    with f.while_() as body:
        body.leave_if(done.get() >= a.count)
        twister.next_block()
        count = _keep_points(f, twister, kept, squares)

        def number(place: Code) -> Code:
            square = f.load(squares, place, F64, lanes)
            return f.load(kept, place, F64, lanes) * f.sqrt(log(square) * -2.0 / square)

        _store_scaled(f, a, done.get(), f.minimum(a.count - done.get(), count), number)
        done.set(done.get() + count)


def _keep_points(f: KernelFunction, twister: _Twister, kept: Code, squares: Code) -> Code:
    """Write the coordinates of the points in the circle, and beside each the square of the point's distance; how many there are."""
    count = f.variable(0, I64)
    with f.loop(0, BLOCK, 2) as place, f.exact():
        pair = twister.floats(place, 2) * 2.0 - 1.0
        first, second = f.extract(pair, 0), f.extract(pair, 1)
        square = first * first + second * second
        at = count.get()
        f.store(f.shuffle(pair, pair, [1, 0]), kept, at, F64)
        f.store(f.splat(square, 2), squares, at, F64)
        count.set(f.select((square < 1.0) & (square != 0.0), at + 2, at))
    return count.get()


def _store_scaled(f: KernelFunction, a: DrawArguments, done: Code, count: Code, number: Callable[[Code], Code]) -> None:
    lanes = f.lanes(F64)
    with f.loop(0, count, lanes) as place, f.exact():
        f.store(number(place) * a.factor + a.first, a.target, done + place, F64, remaining=count - place)
