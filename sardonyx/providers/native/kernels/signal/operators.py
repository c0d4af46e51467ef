"""Lowerings of DFT and STFT. Lengths of small factors are transformed fast; short others are products with what unit signals become.

Lengths that only a run tells, and complex signals that are long, are transformed one at a time: see `chirp_kernel`.
"""

from __future__ import annotations

import numpy as np

from sardonyx.compiler.types import Type
from sardonyx.ir import Dim, Node, Value, dim
from sardonyx.ops.reading import input_named, operand
from sardonyx.providers.cpu import signal as fourier
from sardonyx.providers.native.kernels.linalg.matmul import Factor, packed_factor, tiled_product
from sardonyx.providers.native.kernels.linalg.packing import Packed, packed_constant
from sardonyx.providers.native.kernels.shape.views import axis_of
from sardonyx.providers.native.kernels.signal.chirp_kernel import (
    ROOM,
    FilterArguments,
    Spectra,
    SpectraArguments,
    TurnArguments,
    filter_kernel,
    memory_of,
    spectra_kernel,
    turns_kernel,
)
from sardonyx.providers.native.kernels.signal.fast_kernel import (
    FastArguments,
    Transform,
    fast_kernel,
    order_of,
    radices_of,
    twiddles_of,
)
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.sizes import ScratchSlots
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, element_of, fixed, may_equal, required, stored
from sardonyx.providers.native.program.views import Dims, View
from sardonyx.providers.provider import CannotCompile
from sardonyx.startup.records import dataclass, replace

LONGEST_PRODUCT = 512
"""Longer signals of other lengths are left to NumPy, whose transform takes fewer operations."""
LONGEST = 4096
"""Signals whose transforms fit into a core's cache, a vector of them at a time."""
LONGEST_CHIRP = 1 << 18
"""Longer ones are left to NumPy, as tables and memory for each thread would take more than 50 MB."""
PIECE_VALUES = 32768
"""How many numbers are worth handing to another thread."""
TURNS_PER_PIECE = 1024
"""Sines and cosines, likewise."""
FLOPS = 300
"""Operations for each number of a signal that is transformed with chirps, about."""


def _whole(node: Node, name: str) -> int | None:
    """An operand that is one whole number, None if it is absent or depends on data."""
    number = operand(node, name)
    if number is None or isinstance(number, Value):
        return None
    if np.size(number) != 1:
        raise CannotCompile(f"{node}: {name} has {np.size(number)} elements", quiet=True)
    return int(np.reshape(number, ()))


def _is_set(node: Node, name: str) -> bool:
    return bool(operand(node, name))


def _may_be_complex(size: Dim) -> bool:
    """Whether an axis holds real numbers, or pairs that are complex ones; where it is open, a run tells."""
    return not isinstance(size, int) or size in (1, 2)


def _is_settled(node: Node, *names: str) -> bool:
    """Whether those of these inputs that are there are constant."""
    values = [input_named(node, name) for name in names]
    return all(value is None or value.is_constant for value in values)


def _fast(type: Type, length: Dim, parts: Dim, *, onesided: bool, inverse: bool, window: bool = False) -> Transform | None:
    """A fast transform of signals of a length, None if there is none for it: complex to complex, or real to half a spectrum."""
    if not isinstance(length, int) or not isinstance(parts, int):
        return None
    is_real = parts == 1
    if length > LONGEST or is_real != onesided or (is_real and (inverse or length % 2)) or (window and not is_real):
        return None
    radices = radices_of(length // 2 if is_real else length)
    return None if radices is None else Transform(type, radices, is_real, inverse, window)


def _transform(
    lowerer: Lowerer, node: Node, transform: Transform, signals: View, window: Value | None, groups: tuple[int, ...]
) -> None:
    """Add the step of a fast transform of signals (batch, signal, numbers)."""
    batch, count, _ = signals.shape
    sink = lowerer.sink(node, groups)
    type = transform.type.computed
    lanes = lowerer.target.lanes(type)
    twiddles = lowerer.constant(twiddles_of(transform).astype(np.float32 if type.bits == 32 else np.float64))
    order = lowerer.constant(order_of(transform).astype(np.int32))
    scratch_slots = ScratchSlots(batch * dim.ceildiv(count, lanes), max(1, PIECE_VALUES // (transform.values * lanes)))
    scratch = lowerer.scratch(transform.scratch_values(lanes) * type.bytes * scratch_slots.count)
    total = batch * count
    lowerer.call(
        fast_kernel(lowerer.target, transform, sink.chain),
        FastArguments(
            signals=signals.place,
            batch_stride=signals.strides[0],
            signal_stride=signals.strides[1],
            count=count,
            groups=dim.maximum(1, dim.ceildiv(count, lanes)),
            window=None if window is None else lowerer.contiguous(window).place,
            twiddles=twiddles,
            order=order,
            scratch=scratch,
            scratch_slots=scratch_slots.arguments,
            sink=sink.arguments,
        ),
        scratch_slots.items,
        scratch_slots.grain,
        flops=total * sum(4 * radix for radix in transform.radices) * transform.points,
        traffic=total * (transform.values + transform.results) * transform.type.bytes,
    )


def _multiply(lowerer: Lowerer, node: Node, signals: View, matrix: np.ndarray, groups: tuple[int, ...]) -> None:
    """Add the step that multiplies rows of samples with a matrix."""
    type = signals.type.computed
    matrix = np.ascontiguousarray(matrix, np.float32 if type.bits == 32 else np.float64)
    batch: Dims = signals.shape[:-2]

    def factor(width: int, is_once: bool) -> Factor:
        panels, stride = packed_constant(lowerer.weights, matrix, type, width)
        packed = Packed(lowerer.constant(panels), type, stride, -(-matrix.shape[1] // width) * stride)
        return packed_factor(matrix.shape, packed, batch, width)

    tiled_product(lowerer, node, signals, matrix.shape, batch, factor, groups)


@dataclass(frozen=True)
class Signals:
    """What is transformed with chirps: (batch, signal, numbers)."""

    view: View
    samples: Dim
    parts: Dim
    length: Dim
    """Of the transform."""
    results: Dim
    window: Value | None = None


def _takes_chirps(form: Spectrum | Frames, is_half: bool, *sizes: Dim) -> bool:
    """Whether passes and chirps are for it. Where all is known, NumPy is quicker with real signals, and with lengths of large factors."""
    if not all(isinstance(size, int) for size in (form.length, form.parts, *sizes)):
        return True
    length = fixed(form.length, "a length")
    return length <= LONGEST_CHIRP and not is_half and radices_of(length) is not None


def _with_chirps(lowerer: Lowerer, node: Node, signals: Signals, spectra: Spectra, groups: tuple[int, ...]) -> None:
    """Add the steps of a transform of any length."""
    batch, count, _ = signals.view.shape
    length, parts, target = signals.length, signals.parts, lowerer.target
    lowerer.require(dim.minimum(dim.maximum(length, 1), LONGEST_CHIRP), length)
    lowerer.require(dim.maximum(signals.samples, 1), signals.samples)
    lowerer.require((parts - 1) * (parts - 2), 0)
    sink, room = lowerer.sink(node, groups), length * ROOM
    turns, chirp, filter = (lowerer.scratch(2 * room * 8) for _ in range(3))
    for table, numbers in ((turns, room), (chirp, length)):
        of_table = TurnArguments(target=table, room=room, length=length)
        lowerer.call(turns_kernel(target, table is chirp), of_table, numbers, TURNS_PER_PIECE)
    memory = lowerer.scratch(memory_of(room) * 8)
    of_filter = FilterArguments(chirp=chirp, turns=turns, room=room, length=length, memory=memory, target=filter)
    lowerer.call(filter_kernel(target), of_filter, 1)
    total = batch * count
    slots = ScratchSlots(total, dim.maximum(1, dim.floordiv(PIECE_VALUES, dim.maximum(1, 8 * length))))
    window = signals.window
    lowerer.call(
        spectra_kernel(target, spectra, sink.chain),
        SpectraArguments(
            signals=signals.view.place,
            batch_stride=signals.view.strides[0],
            signal_stride=signals.view.strides[1],
            count=dim.maximum(1, count),
            samples=signals.samples,
            parts=parts,
            length=length,
            results=signals.results,
            window=None if window is None else lowerer.contiguous(window).place,
            turns=turns,
            chirp=chirp,
            filter=filter,
            room=room,
            scratch=lowerer.scratch(memory_of(room) * 8 * slots.count),
            scratch_slots=slots.arguments,
            sink=sink.arguments,
        ),
        slots.items,
        slots.grain,
        flops=total * length * FLOPS,
        traffic=total * (signals.samples * parts + 2 * signals.results) * spectra.type.bytes,
    )


def _units(samples: int, parts: int) -> np.ndarray:
    """Signals with a one in one place each."""
    return np.eye(samples * parts).reshape(-1, samples, parts)


# --- DFT ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spectrum:
    """What a DFT asks for."""

    samples: Dim
    parts: Dim
    length: Dim
    onesided: bool
    inverse: bool

    @property
    def is_short(self) -> bool:
        """Whether it is a product with a matrix that is made before runs."""
        sizes = (self.samples, self.length)
        return isinstance(self.parts, int) and all(isinstance(size, int) and size <= LONGEST_PRODUCT for size in sizes)

    def fast(self, type: Type) -> Transform | None:
        if self.samples != self.length:
            return None
        return _fast(type, self.length, self.parts, onesided=self.onesided, inverse=self.inverse)


def _spectrum_of(node: Node) -> Spectrum | None:
    """None for what depends on data, or is along another axis than the one before the last."""
    shape = dims(required(node.inputs[0]))
    if len(shape) < 2 or not _is_settled(node, "dft_length", "axis"):
        return None
    samples, parts = shape[-2:]
    if axis_of(node, len(shape), default=-2) != len(shape) - 2 or not _may_be_complex(parts):
        return None
    onesided, inverse = _is_set(node, "onesided"), _is_set(node, "inverse")
    length: Dim | None = _whole(node, "dft_length")
    if length is None:
        length = 2 * (samples - 1) if onesided and inverse else samples
    return Spectrum(samples, parts, length, onesided, inverse)


def _claims_dft(node: Node) -> bool:
    type, spectrum = element_of(required(node.inputs[0])), _spectrum_of(node)
    if type is None or not type.is_float or spectrum is None:
        return False
    if any(isinstance(size, int) and size <= 0 for size in (spectrum.samples, spectrum.length)):
        return False
    is_half = spectrum.onesided and not spectrum.inverse
    if is_half and spectrum.parts == 2:
        return False
    return spectrum.fast(type) is not None or spectrum.is_short or _takes_chirps(spectrum, is_half, spectrum.samples)


@lower("DFT", claims=_claims_dft)
def dft(lowerer: Lowerer, node: Node) -> None:
    """A spectrum of the signals along the axis before the last."""
    view, spectrum = lowerer.contiguous(required(node.inputs[0])), _spectrum_of(node)
    assert spectrum is not None
    numbers, count = spectrum.samples * spectrum.parts, dim.product(view.shape[:-2])
    transform, rank = spectrum.fast(view.type), len(view.shape)
    signals = replace(view, shape=(1, count, numbers), strides=(0, numbers, 1))
    if transform is not None:
        _transform(lowerer, node, transform, signals, None, (0, rank - 2, 2))
        return
    if not spectrum.is_short:
        _with_chirps(lowerer, node, *_chirped(lowerer, spectrum, signals), (0, rank - 2, 2))
        return
    samples, parts = fixed(spectrum.samples, "a signal"), fixed(spectrum.parts, "a sample")
    units = _units(samples, parts)
    matrix = fourier.dft(units, spectrum.length, -2, spectrum.inverse, spectrum.onesided)  # type: ignore[no-untyped-call]
    rows = replace(view, shape=(count, numbers), strides=(numbers, 1))
    numbers = samples * parts
    _multiply(lowerer, node, rows, matrix.reshape(numbers, -1), (rank - 2, 2))


def _chirped(lowerer: Lowerer, spectrum: Spectrum, view: View) -> tuple[Signals, Spectra]:
    is_half = spectrum.onesided and not spectrum.inverse
    if is_half:
        lowerer.require(spectrum.parts, 1)
    results = dim.floordiv(spectrum.length, 2) + 1 if is_half else spectrum.length
    signals = Signals(view, spectrum.samples, spectrum.parts, spectrum.length, results)
    return signals, Spectra(view.type, spectrum.inverse, from_half=spectrum.inverse and spectrum.onesided)


# --- STFT -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Frames:
    """What an STFT asks for."""

    parts: Dim
    length: Dim
    step: int
    onesided: bool
    window: Value | None

    @property
    def is_short(self) -> bool:
        """Whether it is a product with a matrix that is made before runs, if the window is there then."""
        return isinstance(self.parts, int) and isinstance(self.length, int) and self.length <= LONGEST_PRODUCT

    def fast(self, type: Type) -> Transform | None:
        return _fast(type, self.length, self.parts, onesided=self.onesided, inverse=False, window=self.window is not None)


def _frames_of(node: Node) -> Frames | None:
    """None for what depends on data or does not fit together."""
    shape, window = dims(required(node.inputs[0])), input_named(node, "window")
    if not 2 <= len(shape) <= 3 or not _is_settled(node, "frame_step", "frame_length"):
        return None
    length: Dim | None = _whole(node, "frame_length")
    if window is not None:
        if len(dims(window)) != 1 or not (length is None or may_equal(length, dims(window)[0])):
            return None
        length = dims(window)[0] if length is None else length
    elif length is None:
        length = shape[1]
    parts, step = 1 if len(shape) == 2 else shape[2], _whole(node, "frame_step") or 0
    is_long = isinstance(length, int) and not 0 < length <= LONGEST_CHIRP
    if is_long or step <= 0 or not _may_be_complex(parts):
        return None
    return Frames(parts, length, step, _is_set(node, "onesided"), window)


def _claims_stft(node: Node) -> bool:
    value = required(node.inputs[0])
    type, frames = element_of(value), _frames_of(node)
    if type is None or not type.is_float or frames is None or (frames.parts == 2 and frames.onesided):
        return False
    if frames.window is not None and element_of(frames.window) != type:
        return False
    is_product = frames.is_short and _is_settled(node, "window")
    return frames.fast(type) is not None or is_product or _takes_chirps(frames, frames.onesided)


@lower("STFT", claims=_claims_stft)
def stft(lowerer: Lowerer, node: Node) -> None:
    """Spectra of frames, which are read where they are in the signal: they overlap."""
    view, form = lowerer.contiguous(required(node.inputs[0])), _frames_of(node)
    assert form is not None
    batch, samples = view.shape[:2]
    lowerer.require(dim.maximum(samples, form.length), samples)
    if form.window is not None:
        lowerer.require_shape(dims(form.window), (form.length,))
    count: Dim = dims(node.outputs[0])[1]
    signals = replace(
        view, shape=(batch, count, form.length * form.parts), strides=(samples * form.parts, form.step * form.parts, 1)
    )
    transform = form.fast(stored(required(node.inputs[0])))
    if transform is not None:
        _transform(lowerer, node, transform, signals, form.window, (1, 1, 2))
        return
    if not form.is_short or not _is_settled(node, "window"):
        if form.onesided:
            lowerer.require(form.parts, 1)
        results = dim.floordiv(form.length, 2) + 1 if form.onesided else form.length
        chirped = Signals(signals, form.length, form.parts, form.length, results, form.window)
        _with_chirps(lowerer, node, chirped, Spectra(view.type, has_window=form.window is not None), (1, 1, 2))
        return
    length, parts = fixed(form.length, "a frame"), fixed(form.parts, "a sample")
    matrix = fourier.stft(_units(length, parts), 1, operand(node, "window"), length, form.onesided)  # type: ignore[no-untyped-call]
    _multiply(lowerer, node, signals, matrix.reshape(length * parts, -1), (1, 1, 2))
