"""Kernels of Fourier transforms whose length a run tells, or that are long: one signal after the other, in float64.

A length of small factors is transformed by a pass for each of them, after which results are in order (G. Stockham; see C. Van Loan,
Computational Frameworks for the Fast Fourier Transform, 1.7). Any other is a convolution with a chirp, exp(iπn²/N), for which a power of
two serves that is at least 2·N - 1 (L. Bluestein; the same, 4.2). Real and imaginary parts lie apart, `room` numbers from each other.
"""

from __future__ import annotations

import math

from sardonyx.compiler.builder import Value
from sardonyx.compiler.trigonometry import cos, sin
from sardonyx.compiler.types import BOOL, F64, I64, Type
from sardonyx.ir import Dim
from sardonyx.providers.native.kernels.reduction.passes import items
from sardonyx.providers.native.kernels.signal.fast_kernel import RADICES, Complex, butterfly, multiplied
from sardonyx.providers.native.program.arguments import Arguments, Operands, Pointer, ScratchSlotArguments, Size, group, when
from sardonyx.providers.native.program.chain import Chain, ChainCode
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.startup.records import dataclass

ROOM = 4
"""Times the length: more numbers than the power of two has that serves for it."""
SLACK = 64
"""Numbers behind the memory of a signal that a vector may reach."""


def memory_of(room: Dim) -> Dim:
    """How many numbers of memory a signal takes while it is transformed."""
    return 4 * room + SLACK


def _points_for(f: KernelFunction, length: Value) -> tuple[Value, Value]:
    """How many numbers are transformed for signals of a length, and whether these are theirs."""
    rest = f.variable(length)
    for radix in sorted(RADICES):
        with f.while_() as body:
            body.leave_if((rest.get() % radix != 0) | (rest.get() == 0))
            rest.set(rest.get() // radix)
    is_exact = rest.get() == 1
    return f.select(is_exact, length, _power_from(f, length * 2 - 1)), is_exact


def _power_from(f: KernelFunction, least: Value) -> Value:
    """The first power of two that is not less."""
    power = f.variable(1, I64)
    with f.while_() as body:
        body.leave_if(power.get() >= least)
        power.set(power.get() * 2)
    return power.get()


# --- tables ---------------------------------------------------------------------------------------------------------


class TurnArguments(Arguments):
    target: Pointer
    room: Size
    length: Size


@kernel("turns", TurnArguments)
def turns_kernel(f: KernelFunction, a: TurnArguments, is_chirp: bool) -> None:
    """What numbers are turned by: exp(-2πin/M) for the passes, or exp(-πin²/N). Items are numbers, some of which are not needed."""
    lanes = f.lanes(F64)
    points, is_exact = _points_for(f, a.length)
    end = f.minimum(f.end, f.select(is_exact, 0, a.length) if is_chirp else points)
    circle = a.length * 2 if is_chirp else points
    step = -2 * math.pi / f.convert(circle, F64)
    with f.loop(f.begin, end, lanes) as first:
        number = f.iota(I64, lanes) + f.splat(first, lanes)
        number = number * number % f.splat(circle, lanes) if is_chirp else number
        angle = f.convert(number, F64) * f.splat(step, lanes)
        for part, turn in enumerate((cos(angle), sin(angle))):
            f.store(turn, a.target, part * a.room + first, F64, remaining=end - first)


class FilterArguments(Arguments):
    chirp: Pointer
    turns: Pointer
    room: Size
    length: Size
    memory: Pointer
    target: Pointer


@kernel("spectrum of a chirp", FilterArguments)
def filter_kernel(f: KernelFunction, a: FilterArguments) -> None:
    """What spectra of signals are multiplied with, if their length has large factors. There is one item."""
    points, is_exact = _points_for(f, a.length)
    passes = _Passes(f, a.memory, a.turns, a.room, points)
    with f.loop(f.begin, f.end), f.if_(~is_exact):
        passes.clear()
        with f.loop(0, a.length) as number:
            real, imaginary = (f.load(a.chirp, part * a.room + number, F64) for part in (0, 1))
            passes.put((real, -imaginary), number)
            with f.if_(number > 0):
                passes.put((real, -imaginary), points - number)
        place = passes.run()
        with f.loop(0, points, passes.lanes) as first:
            for part, vector in enumerate(passes.load(place, first, points - first)):
                f.store(vector, a.target, part * a.room + first, F64, remaining=points - first)


class _Passes:
    """Memory of twice as many complex numbers as there is room for: what is transformed goes from one half to the other and back."""

    def __init__(self, f: KernelFunction, memory: Value, turns: Value, room: Value, points: Value):
        self.f = f
        self.memory = memory
        self.turns = turns
        self.room = room
        self.points = points
        self.lanes = f.lanes(F64)

    def clear(self) -> None:
        """Zeros for all numbers of the first half."""
        f, zero = self.f, self.f.const(F64.vector(self.lanes), 0.0)
        with f.loop(0, self.points, self.lanes) as first:
            self.store((zero, zero), f.const(I64, 0), first, self.points - first)

    def put(self, value: Complex, number: Value) -> None:
        """One number into the first half."""
        for part, one in enumerate(value):
            self.f.store(one, self.memory, part * self.room + number, F64)

    def load(self, place: Value, first: Value, remaining: Value) -> Complex:
        real, imaginary = (
            self.f.load(self.memory, place + part * self.room + first, F64, self.lanes, remaining=remaining) for part in (0, 1)
        )
        return real, imaginary

    def store(self, value: Complex, place: Value, first: Value, remaining: Value) -> None:
        for part, vector in enumerate(value):
            self.f.store(vector, self.memory, place + part * self.room + first, F64, remaining=remaining)

    def run(self) -> Value:
        """The transform of what is in the first half; returns where it lies."""
        f = self.f
        place, done = f.variable(0, I64), f.variable(1, I64)
        with f.while_() as body:
            left = self.points // done.get()
            body.leave_if(left <= 1)
            other, before = self.room * 2 - place.get(), done.get()
            for radix in RADICES:
                with f.if_((done.get() == before) & (left % radix == 0)):
                    with f.if_else((before == 1) & (left >= radix * self.lanes)) as otherwise:
                        self._first_pass(radix, left // radix, place.get(), other)
                        otherwise()
                        self._pass(radix, before, left // radix, place.get(), other)
                    done.set(before * radix)
            place.set(other)
        return place.get()

    def _pass(self, radix: int, done: Value, count: Value, source: Value, target: Value) -> None:
        """Join numbers that lie `count` groups of `done` apart; the results of each group follow each other."""
        f = self.f
        with f.loop(0, count) as group:
            turns = [self._turn(group * done * number) for number in range(1, radix)]
            with f.loop(0, done, self.lanes) as first:
                remaining = done - first
                taken = [self.load(source, (group + number * count) * done + first, remaining) for number in range(radix)]
                joined = butterfly(taken, inverse=False)
                turned = [joined[0], *(multiplied(*pair) for pair in zip(joined[1:], turns))]
                for number, value in enumerate(turned):
                    self.store(value, target, (group * radix + number) * done + first, remaining)

    def _first_pass(self, radix: int, count: Value, source: Value, target: Value) -> None:
        """The same for groups of one number each, of which vectors take several; the last ones overlap those before."""
        f, lanes = self.f, self.lanes
        with f.loop(0, count, lanes) as start:
            first = f.minimum(start, count - lanes)
            groups = f.iota(I64, lanes) + f.splat(first, lanes)
            taken = [self.load(source, number * count + first, count - first) for number in range(radix)]
            for number, value in enumerate(butterfly(taken, inverse=False)):
                if number:
                    turns = [f.gather(f.address(self.turns, part * self.room, F64), groups * number, F64) for part in (0, 1)]
                    value = multiplied(value, (turns[0], turns[1]))
                for part, vector in enumerate(value):
                    f.scatter(vector, f.address(self.memory, target + part * self.room + number, F64), groups * radix, F64)

    def _turn(self, number: Value) -> Complex:
        real, imaginary = (self.f.load(self.turns, part * self.room + number, F64) for part in (0, 1))
        return self.f.splat(real, self.lanes), self.f.splat(imaginary, self.lanes)


# --- signals --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spectra:
    """What shapes the code."""

    type: Type
    """Of samples in memory."""
    inverse: bool = False
    from_half: bool = False
    """Whether signals are halves of spectra, of which real ones are made."""
    has_window: bool = False


class SpectraArguments(Arguments):
    signals: Pointer
    batch_stride: Size
    signal_stride: Size
    count: Size
    """Signals of a batch."""
    samples: Size
    """Of a signal; zeros follow where the transform is longer."""
    parts: Size
    """Numbers of a sample: 1, or 2 for complex ones."""
    length: Size
    results: Size
    """How many of the spectrum are wanted."""
    window: Pointer | None = when(lambda spectra: spectra.has_window)
    turns: Pointer
    chirp: Pointer
    filter: Pointer
    room: Size
    scratch: Pointer
    scratch_slots: ScratchSlotArguments
    sink: Operands = group(lambda chain: chain.slots)


@kernel("transform", SpectraArguments)
def spectra_kernel(f: KernelFunction, a: SpectraArguments, spectra: Spectra, chain: Chain) -> None:
    """Items are signals."""
    epilogue, lanes = ChainCode(f, chain, a.sink), f.lanes(spectra.type.computed)
    memory = f.address(a.scratch, f.scratch_slot(a.scratch_slots) * (a.room * 4 + SLACK), F64)
    points, is_exact = _points_for(f, a.length)
    code = _Signals(f, a, spectra, _Passes(f, memory, a.turns, a.room, points), is_exact)
    parts = 1 if spectra.from_half else 2
    with items(f, [a.count]) as (_, (batch, number)):
        code.read(f.address(a.signals, batch * a.batch_stride + number * a.signal_stride, spectra.type))
        place = code.transformed()
        code.gather(place, a.room * 2 - place)
        row, total = epilogue.row([batch, number]), a.results * parts
        result = f.address(memory, a.room * 2 - place, F64)
        with f.loop(0, total, lanes) as column:
            vector = f.load(result, column, F64, lanes, remaining=total - column)
            row.emit(column, lanes, total - column, given=[f.convert(vector, spectra.type.computed)])


class _Signals:
    """Signals into the memory of passes, through these, and out of it."""

    def __init__(self, f: KernelFunction, a: SpectraArguments, spectra: Spectra, passes: _Passes, is_exact: Value):
        self.f = f
        self.a = a
        self.spectra = spectra
        self.passes = passes
        self.is_exact = is_exact

    def read(self, signal: Value) -> None:
        """Numbers of a signal, as those of a forward transform, turned by the chirp."""
        f, a = self.f, self.a
        self.passes.clear()
        with f.loop(0, a.length, self.passes.lanes) as first:
            turned = self._chirped(self._samples(signal, first), first)
            self.passes.store(turned, f.const(I64, 0), first, a.length - first)

    def _samples(self, signal: Value, first: Value) -> Complex:
        """A vector of samples, from `first` on."""
        f, a, lanes, type = self.f, self.a, self.passes.lanes, self.spectra.type
        numbers = f.iota(I64, lanes) + f.splat(first, lanes)
        places, is_mirrored = numbers, f.const(BOOL.vector(lanes), False)
        if self.spectra.from_half:
            is_mirrored = numbers > f.splat(a.length // 2, lanes)
            places = f.select(is_mirrored, f.splat(a.length, lanes) - numbers, numbers)
        is_there = (numbers < f.splat(a.length, lanes)) & (places < f.splat(a.samples, lanes))
        places, step = places * f.splat(a.parts, lanes), a.parts - 1
        real, imaginary = (
            f.convert(f.gather(f.address(signal, offset, type), places, type, mask=is_there), F64)
            for offset in (f.const(I64, 0), step)
        )
        imaginary = f.select(f.splat(step > 0, lanes), imaginary, 0.0)
        if a.window is not None:
            factor = f.convert(f.load(a.window, first, type, lanes, remaining=a.length - first), F64)
            real, imaginary = real * factor, imaginary * factor
        is_turned = ~is_mirrored if self.spectra.inverse else is_mirrored
        return real, f.select(is_turned, -imaginary, imaginary)

    def _chirped(self, value: Complex, first: Value) -> Complex:
        """Numbers turned by the chirp, if there is one."""
        f, a, lanes = self.f, self.a, self.passes.lanes
        remaining, is_exact = a.length - first, f.splat(self.is_exact, lanes)
        chirp = [f.load(a.chirp, part * a.room + first, F64, lanes, remaining=remaining) for part in (0, 1)]
        turned = multiplied(value, (chirp[0], chirp[1]))
        return f.select(is_exact, value[0], turned[0]), f.select(is_exact, value[1], turned[1])

    def transformed(self) -> Value:
        """Where the spectrum lies; what a chirp is convolved with is turned back as it is read."""
        f, passes = self.f, self.passes
        place = f.variable(passes.run())
        with f.if_(~self.is_exact):
            self._filter(place.get())
            place.set(passes.run())
        return place.get()

    def _filter(self, place: Value) -> None:
        """A spectrum times that of the chirp; its conjugate goes through the passes again, which leads back."""
        f, a, passes = self.f, self.a, self.passes
        with f.loop(0, passes.points, passes.lanes) as first:
            remaining = passes.points - first
            factor = [f.load(a.filter, part * a.room + first, F64, passes.lanes, remaining=remaining) for part in (0, 1)]
            real, imaginary = multiplied(passes.load(place, first, remaining), (factor[0], factor[1]))
            passes.store((real, -imaginary), f.const(I64, 0), first, remaining)

    def gather(self, place: Value, target: Value) -> None:
        """The results that are wanted, part beside part."""
        f, a, memory = self.f, self.a, self.passes.memory
        scale = f.select(self.is_exact, 1.0, 1.0 / f.convert(self.passes.points, F64))
        if self.spectra.inverse:
            scale = scale / f.convert(a.length, F64)
        scales, is_exact = f.splat(scale, self.passes.lanes), f.splat(self.is_exact, self.passes.lanes)
        with f.loop(0, a.results, self.passes.lanes) as first:
            real, imaginary = (one * scales for one in self.passes.load(place, first, a.results - first))
            real, imaginary = self._chirped((real, f.select(is_exact, imaginary, -imaginary)), first)
            if self.spectra.from_half:
                f.store(real, memory, target + first, F64, remaining=a.results - first)
            else:
                self._pair(real, -imaginary if self.spectra.inverse else imaginary, target + first * 2)

    def _pair(self, real: Value, imaginary: Value, target: Value) -> None:
        """Put both parts of results side by side. There is room for those behind the last one."""
        f, places = self.f, self.f.iota(I64, self.passes.lanes) * 2
        for part, vector in enumerate((real, imaginary)):
            f.scatter(vector, f.address(self.passes.memory, target + part, F64), places, F64)
