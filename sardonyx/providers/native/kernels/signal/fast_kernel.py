"""The kernel of fast Fourier transforms: as many signals at a time as a vector has lanes, each in a lane of its own.

A signal is read into lanes, goes through one pass for each radix, and is written back from its lane. Passes are in place: what is read
comes into the order that lets the results be in theirs (decimation in time, see C. Van Loan, Computational Frameworks for the Fast Fourier
Transform, 1.3 and 2.3), and a signal takes no more memory than its numbers. A real signal of 2·n samples is taken for n complex ones, and
its spectrum untangled from theirs at the end (the same, 4.3).
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Sequence

import numpy as np

from sardonyx.compiler.builder import Value
from sardonyx.compiler.squares import transposed
from sardonyx.compiler.types import I32, I64, Type
from sardonyx.providers.native.kernels.reduction.passes import items
from sardonyx.providers.native.program.arguments import Arguments, Operands, Pointer, ScratchSlotArguments, Size, group, when
from sardonyx.providers.native.program.chain import Chain, ChainCode
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.startup.records import dataclass

RADICES = (4, 2, 3, 5, 7)
NEAR = 16
"""Groups of more numbers lie so far apart that what goes from one to the next soon meets the same places of the cache."""

Complex = tuple[Value, Value]
Writer = Callable[[Value, Sequence[Value], "Value | None"], None]


@dataclass(frozen=True)
class Transform:
    """What shapes the code."""

    type: Type
    """Of samples in memory."""
    radices: tuple[int, ...]
    is_real: bool
    """Whether signals are real, and half of their spectra is wanted; else both are complex."""
    inverse: bool = False
    has_window: bool = False

    @property
    def points(self) -> int:
        """Complex numbers that are transformed."""
        return math.prod(self.radices)

    @property
    def values(self) -> int:
        """How many numbers a signal has."""
        return 2 * self.points

    @property
    def results(self) -> int:
        """How many numbers a spectrum has."""
        return 2 * (self.points + 1) if self.is_real else 2 * self.points

    def scratch_values(self, lanes: int) -> int:
        """Elements of memory for signals or spectra in lanes, up to whole squares of them."""
        return -(-self.results // lanes) * lanes * lanes


def radices_of(points: int) -> tuple[int, ...] | None:
    """The factors of a number of points that there are passes for; None if there are others among them."""
    radices = []
    for radix in RADICES:
        while points % radix == 0:
            radices.append(radix)
            points //= radix
    return tuple(radices) if points == 1 else None


def order_of(transform: Transform) -> np.ndarray:
    """Where each complex number of a signal must stand before the first pass."""
    numbers, left = np.arange(transform.points), transform.points
    places = np.zeros_like(numbers)
    for radix in reversed(transform.radices):
        left //= radix
        places += numbers % radix * left
        numbers //= radix
    return places


def twiddles_of(transform: Transform) -> np.ndarray:
    """What operands of all passes are turned by, in the order in which the kernel reads it; then what untangles real spectra."""
    sign, done = (1 if transform.inverse else -1), 1
    parts = []
    for radix in transform.radices:
        turns = np.outer(np.arange(done), np.arange(1, radix)) / (done * radix)
        parts.append(turns.reshape(-1) * sign)
        done *= radix
    if transform.is_real:
        parts.append(-np.arange(transform.points // 2 + 1) / transform.values)
    angles = 2 * np.pi * np.concatenate([*parts, np.zeros(1)])
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1)


class FastArguments(Arguments):
    signals: Pointer
    batch_stride: Size
    signal_stride: Size
    count: Size
    """Signals of a batch."""
    groups: Size
    """Of as many of them as a vector has lanes."""
    window: Pointer | None = when(lambda transform: transform.has_window)
    """What samples are multiplied with."""
    twiddles: Pointer
    """As `twiddles_of` has them."""
    order: Pointer
    """As `order_of` has it, in int32."""
    scratch: Pointer
    scratch_slots: ScratchSlotArguments
    sink: Operands = group(lambda chain: chain.slots)


@kernel("fast transform", FastArguments)
def fast_kernel(f: KernelFunction, a: FastArguments, transform: Transform, chain: Chain) -> None:
    """Items are groups of signals of one batch."""
    lanes = f.lanes(transform.type)
    passes, epilogue = _Passes(f, a, transform), ChainCode(f, chain, a.sink)
    with items(f, [a.groups]) as (_, (batch, group)):
        first = group * lanes
        places = [f.minimum(first + lane, a.count - 1) * a.signal_stride for lane in range(lanes)]
        passes.read([f.address(a.signals, batch * a.batch_stride + place, transform.type) for place in places])
        passes.run()

        def write(column: Value, vectors: Sequence[Value], remaining: Value | None) -> None:
            for lane, vector in enumerate(vectors):
                with f.if_(first + lane < a.count):
                    epilogue.row([batch, first + lane]).emit(column, lanes, remaining, given=[vector])

        passes.write(write)


class _Passes:
    """The memory of a thread in which signals become spectra."""

    def __init__(self, f: KernelFunction, a: FastArguments, transform: Transform):
        self.f = f
        self.a = a
        self.transform = transform
        self.type = transform.type.computed
        self.lanes = f.lanes(transform.type)
        self.memory = f.address(a.scratch, f.scratch_slot(a.scratch_slots) * transform.scratch_values(self.lanes), self.type)

    # --- into lanes and out of them

    def read(self, signals: Sequence[Value]) -> None:
        """Bring the numbers of each signal into its lane, in the order of the first pass."""
        f, lanes, values = self.f, self.lanes, self.transform.values

        def square(column: Value, remaining: Value | None, count: int) -> None:
            rows = [f.load(signal, column, self.transform.type, lanes, remaining=remaining) for signal in signals]
            if self.a.window is not None:
                weights = f.load(self.a.window, column, self.transform.type, lanes, remaining=remaining)
                rows = [row * weights for row in rows]
            vectors = transposed(f, rows)
            for number in range(0, count, 2):
                place = f.convert(f.load(self.a.order, column // 2 + number // 2, I32), I64)
                self._store((vectors[number], vectors[number + 1]), place)

        whole = values - values % lanes
        with f.loop(0, whole, lanes) as column:
            square(column, None, lanes)
        if whole < values:
            square(f.const(I64, whole), f.const(I64, values - whole), values - whole)

    def write(self, do: Writer) -> None:
        """`do(column, vectors, remaining)` for squares of results: a vector for each signal."""
        f, lanes, results = self.f, self.lanes, self.transform.results

        def square(column: Value, remaining: Value | None) -> None:
            rows = [f.load(self.memory, (column + row) * lanes, self.type, lanes) for row in range(lanes)]
            if self.transform.inverse:
                rows = [row * (1 / self.transform.points) for row in rows]
            do(column, transposed(f, rows), remaining)

        whole = results - results % lanes
        with f.loop(0, whole, lanes) as column:
            square(column, None)
        if whole < results:
            square(f.const(I64, whole), f.const(I64, results - whole))

    # --- the transform

    def run(self) -> None:
        """All passes."""
        done, entry = 1, 0
        for radix in self.transform.radices:
            self._pass(radix, done, entry)
            entry += done * (radix - 1)
            done *= radix
        if self.transform.is_real:
            self._untangle(entry)

    def _pass(self, radix: int, done: int, entry: int) -> None:
        """Join transforms of `done` numbers, `radix` of them at a time. All groups of them have the same turns, which are kept for the next
        group where it is near; elsewhere numbers come in the order in which they lie, and the turns are read again.
        """
        f, whole = self.f, radix * done

        def join(group: Value, first: Value, turns: Sequence[Complex]) -> None:
            places = [first + group * whole + number * done for number in range(radix)]
            taken = [self._load(place) for place in places]
            turned = [taken[0], *(multiplied(*pair) for pair in zip(taken[1:], turns))] if turns else taken
            for value, place in zip(butterfly(turned, self.transform.inverse), places):
                self._store(value, place)

        def turns_of(place: Value) -> list[Complex]:
            first = place * (radix - 1) + entry
            return [self._turn(first + number) for number in range(radix - 1)] if done > 1 else []

        if whole > NEAR:
            with f.loop(0, self.transform.points // whole) as group, f.loop(0, done) as place:
                join(group, place, turns_of(place))
        else:
            with f.loop(0, done) as place:
                turns = turns_of(place)
                with f.loop(0, self.transform.points // whole) as group:
                    join(group, place, turns)

    def _untangle(self, entry: int) -> None:
        """The spectrum of a real signal from that of its even samples as real and its odd ones as imaginary parts."""
        f, points = self.f, self.transform.points
        with f.loop(0, points // 2 + 1) as k:
            other = points - k
            a = self._load(k)
            b = self._load(f.select(other == points, 0, other))  # the spectrum of the complex numbers repeats itself
            even = (a[0] + b[0]) * 0.5, (a[1] - b[1]) * 0.5
            odd = (a[1] + b[1]) * 0.5, (b[0] - a[0]) * 0.5
            turned = multiplied(odd, self._turn(k + entry))
            self._store((even[0] + turned[0], even[1] + turned[1]), k)
            self._store((even[0] - turned[0], turned[1] - even[1]), other)

    def _turn(self, entry: Value) -> Complex:
        real, imaginary = (self.f.load(self.a.twiddles, entry * 2 + part, self.type) for part in (0, 1))
        return self.f.splat(real, self.lanes), self.f.splat(imaginary, self.lanes)

    def _load(self, place: Value) -> Complex:
        real = self.f.address(self.memory, place * (2 * self.lanes), self.type)
        return self.f.load(real, 0, self.type, self.lanes), self.f.load(real, self.lanes, self.type, self.lanes)

    def _store(self, value: Complex, place: Value) -> None:
        for part, number in enumerate(value):
            self.f.store(number, self.memory, place * (2 * self.lanes) + part * self.lanes, self.type)


def multiplied(a: Complex, b: Complex) -> Complex:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _sum(a: Complex, b: Complex) -> Complex:
    return a[0] + b[0], a[1] + b[1]


def _difference(a: Complex, b: Complex) -> Complex:
    return a[0] - b[0], a[1] - b[1]


def _scaled(a: Complex, factor: float) -> Complex:
    return a[0] * factor, a[1] * factor


def _quarter(a: Complex, inverse: bool) -> Complex:
    """Turned by a quarter, in the transform's direction."""
    return (-a[1], a[0]) if inverse else (a[1], -a[0])


def butterfly(a: Sequence[Complex], inverse: bool) -> list[Complex]:
    """The transform of a few numbers."""
    if len(a) == 2:
        return [_sum(a[0], a[1]), _difference(a[0], a[1])]
    if len(a) == 4:
        sums, differences = [_sum(a[0], a[2]), _sum(a[1], a[3])], [_difference(a[0], a[2]), _difference(a[1], a[3])]
        turned = _quarter(differences[1], inverse)
        return [
            _sum(sums[0], sums[1]),
            _sum(differences[0], turned),
            _difference(sums[0], sums[1]),
            _difference(differences[0], turned),
        ]
    return _odd_butterfly(a, inverse)


def _odd_butterfly(a: Sequence[Complex], inverse: bool) -> list[Complex]:
    """Numbers from both ends go together: their turns are each other's mirror images."""
    radix, half = len(a), len(a) // 2
    sums = [_sum(a[j], a[radix - j]) for j in range(1, half + 1)]
    differences = [_difference(a[j], a[radix - j]) for j in range(1, half + 1)]
    first = a[0]
    for value in sums:
        first = _sum(first, value)
    results: list[Complex] = [first] * radix
    for k in range(1, half + 1):
        turns = [cmath.exp(-2j * cmath.pi * (j * k % radix) / radix) for j in range(1, half + 1)]
        even = a[0]
        for turn, value in zip(turns, sums):
            even = _sum(even, _scaled(value, turn.real))
        odd = _scaled(differences[0], -turns[0].imag)
        for turn, value in zip(turns[1:], differences[1:]):
            odd = _sum(odd, _scaled(value, -turn.imag))
        turned = _quarter(odd, inverse)
        results[k], results[radix - k] = _sum(even, turned), _difference(even, turned)
    return results
