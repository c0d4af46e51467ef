"""Fourier transforms, window functions and the mel scale, in NumPy."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from sardonyx import dtypes
from sardonyx.errors import KernelError
from sardonyx.ops.signal import LONGEST
from sardonyx.providers.cpu.shape import bounded, scalar, whole
from sardonyx.providers.cpu.table import cpu


@cpu.kernel("DFT", widen=True)
def dft(input, dft_length=None, axis=-2, inverse=0, onesided=0):
    axis = whole(axis, "axis")
    if not -input.ndim <= axis < input.ndim or axis % input.ndim == input.ndim - 1:
        raise KernelError(f"axis is {axis}, which names no signal axis of an input of shape {list(input.shape)}")
    axis %= input.ndim
    signal = as_complex(input)
    length = (
        whole(dft_length, "dft_length") if dft_length is not None else _default_length(signal.shape[axis], inverse and onesided)
    )
    if length <= 0:
        raise KernelError(f"dft_length is {length}, it must be positive")
    bounded((*input.shape[:axis], length, *input.shape[axis + 1 : -1], 2), input.dtype)
    if onesided and inverse:
        return np.fft.irfft(signal, length, axis)[..., np.newaxis]
    if onesided:
        if input.shape[-1] == 2:
            raise KernelError("onesided=1 needs a real input; the last axis of this one has the size 2")
        return as_pairs(np.fft.rfft(signal, length, axis))
    return as_pairs((np.fft.ifft if inverse else np.fft.fft)(signal, length, axis))


def _default_length(size, from_half_spectrum):
    return 2 * (size - 1) if from_half_spectrum else size


def as_complex(pairs):
    """Real and imaginary part, or the real part alone, stand along the last axis."""
    if pairs.shape[-1] not in (1, 2):
        raise KernelError(f"the last axis has the size {pairs.shape[-1]}, expected 1 (real) or 2 (complex)")
    if pairs.shape[-1] == 1:
        return pairs[..., 0]
    return np.ascontiguousarray(pairs).view(np.result_type(pairs.dtype, np.complex64))[..., 0]


def as_pairs(values):
    return np.stack([values.real, values.imag], axis=-1)


@cpu.kernel("STFT", widen=True)
def stft(signal, frame_step, window=None, frame_length=None, onesided=1):
    samples = as_complex(signal) if signal.ndim == 3 else signal
    step = whole(frame_step, "frame_step")
    length = _frame_length(samples.shape[-1], window, frame_length)
    if not 0 < step <= LONGEST or not 0 < length <= samples.shape[-1]:
        raise KernelError(f"{samples.shape[-1]} samples cannot be cut into frames of {length}, {step} apart")
    frames = sliding_window_view(samples, length, axis=-1)[..., ::step, :]
    if window is not None:
        frames = frames * window
    if not onesided:
        return as_pairs(np.fft.fft(frames))
    if np.iscomplexobj(frames):
        raise KernelError("onesided=1 needs a real signal; the last axis of this one has the size 2")
    return as_pairs(np.fft.rfft(frames))


def _frame_length(available, window, frame_length):
    if frame_length is None:
        return available if window is None else len(window)
    length = whole(frame_length, "frame_length")
    if window is not None and len(window) != length:
        raise KernelError(f"the window has {len(window)} samples, but frame_length is {length}")
    return length


@cpu.kernel("MelWeightMatrix", widen=True)
def mel_weight_matrix(num_mel_bins, dft_length, sample_rate, lower_edge_hertz, upper_edge_hertz, output_datatype=1):
    bands, length, rate = (
        whole(num_mel_bins, "num_mel_bins"),
        whole(dft_length, "dft_length"),
        whole(sample_rate, "sample_rate"),
    )
    if not (0 <= length <= LONGEST and 0 <= bands <= LONGEST):
        raise KernelError(f"dft_length {length} and num_mel_bins {bands} must lie between 0 and {LONGEST}")
    bounded((length // 2 + 1, bands), np.dtype(np.float64))
    low, high = (_mel(float(scalar(edge, "an edge"))) for edge in (lower_edge_hertz, upper_edge_hertz))
    edges = _hertz(low + np.arange(bands + 2) * ((high - low) / (bands + 2)))
    left, peak, right = _triangles(np.floor((length + 1) * edges / rate).astype(np.int64))
    spectrum = np.arange(length // 2 + 1)[:, np.newaxis]
    rising = np.where(peak == left, spectrum == peak, (spectrum - left) / np.maximum(peak - left, 1))
    falling = (right - spectrum) / np.maximum(right - peak, 1)
    weights = np.where(spectrum <= peak, rising, falling)
    inside = (spectrum >= left) & ((spectrum < right) | (spectrum == peak))
    return np.where(inside, weights, 0).astype(dtypes.from_code(output_datatype).numpy)


def _triangles(bins):
    """Left corner, peak and right corner of each band."""
    return bins[:-2], bins[1:-1], bins[2:]


def _mel(hertz):
    return 2595 * np.log10(1 + hertz / 700)


def _hertz(mel):
    return 700 * (10 ** (mel / 2595) - 1)


@cpu.kernel("HannWindow")
def hann_window(size, output_datatype=1, periodic=1):
    return _cosine_window(size, (0.5, -0.5), periodic, output_datatype)


@cpu.kernel("HammingWindow")
def hamming_window(size, output_datatype=1, periodic=1):
    return _cosine_window(size, (25 / 46, -21 / 46), periodic, output_datatype)


@cpu.kernel("BlackmanWindow")
def blackman_window(size, output_datatype=1, periodic=1):
    return _cosine_window(size, (0.42, -0.5, 0.08), periodic, output_datatype)


def _cosine_window(size, coefficients, periodic, output_datatype):
    """A sum of cosines over one period, which ends one sample after the window if `periodic`, else with its last one."""
    dtype, length = dtypes.from_code(output_datatype).numpy, whole(size, "size")
    bounded((length,), np.dtype(np.float64))
    if length == 1 and not periodic:
        return np.ones(1, dtype)
    angle = 2 * np.pi * np.arange(length) / max(1, length if periodic else length - 1)
    window = sum(weight * np.cos(order * angle) for order, weight in enumerate(coefficients))
    # rounded to float32 a peak of 1 is 1, also when cut off to an integer
    return window.astype(dtype) if dtype.kind == "f" else window.astype(np.float32).astype(dtype)
