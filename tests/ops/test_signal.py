"""Cases of Fourier transforms, window functions and the mel scale."""

import itertools

import numpy as np

from sardonyx import dtypes
from sardonyx.dtypes import FLOATS, INTS, SUB_BYTE_INTS
from tests.ops.cases import case, f32, refuse

LENGTHS = {"T1": {dtypes.int32, dtypes.int64}}
NUMBERS = FLOATS | (INTS - SUB_BYTE_INTS)


# --- DFT -------------------------------------------------------------------------------------------------------------


def transformed(axis=-2, length=None, inverse=False, onesided=False):
    """`expect` of DFT by the sum that defines it."""

    def expect(input):
        signal = np.moveaxis(input.astype(np.float64), axis, 0)
        signal = signal[..., 0] + 1j * (signal[..., 1] if signal.shape[-1] == 2 else 0)
        count = length or (2 * (len(signal) - 1) if inverse and onesided else len(signal))
        if inverse and onesided:
            signal = signal[: count // 2 + 1]
            signal = np.concatenate([signal, np.zeros((count // 2 + 1 - len(signal), *signal.shape[1:]))])
            signal = np.concatenate([signal, signal[1 : (count + 1) // 2][::-1].conj()])
        signal = np.concatenate([signal, np.zeros((max(0, count - len(signal)), *signal.shape[1:]))])[:count]
        turns = np.outer(np.arange(count), np.arange(count)) / count
        result = np.tensordot(np.exp((2j if inverse else -2j) * np.pi * turns), signal, 1) / (count if inverse else 1)
        if inverse and onesided:
            return np.moveaxis(result.real[..., None], 0, axis)
        result = result[: count // 2 + 1] if onesided else result
        return np.moveaxis(np.stack([result.real, result.imag], axis=-1), 0, axis)

    return expect


REAL, COMPLEX = f32(2, 6, 5, 1), f32(2, 6, 5, 2)
for input, inverse, onesided in ((REAL, 0, 0), (REAL, 0, 1), (REAL, 1, 0), (COMPLEX, 0, 0), (COMPLEX, 1, 0), (COMPLEX, 1, 1)):
    direction = {"inverse": inverse, "onesided": onesided}
    for axis, length in itertools.product((0, 1, 2), (None, 4, 7)):
        case(
            "DFT",
            input=input,
            axis=axis,
            dft_length=length,
            **direction,
            expect=transformed(axis, length, inverse, onesided),
            atol=1e-5,
        )
    case("DFT", input=input, **direction, until=19, expect=transformed(1, None, inverse, onesided), atol=1e-5)
    case("DFT", input=input, **direction, since=20, expect=transformed(-2, None, inverse, onesided), atol=1e-5)
case("DFT", input=f32(1, 8, 1), axis=1, types={"T1": FLOATS}, atol=0.02, expect=transformed(1))
case(
    "DFT",
    input=f32(1, 8, 1),
    axis=np.array([1]),
    dft_length=np.array([8]),
    types={"T2": {dtypes.int32, dtypes.int64}},
    expect=transformed(1),
    atol=1e-5,
)
case("DFT", input=f32(3, 4, 2), axis=-3, since=20, expect=transformed(0), atol=1e-5)
refuse("DFT", input=COMPLEX, axis=1, onesided=1, match="onesided")
refuse("DFT", input=COMPLEX, axis=3, match="axis")
refuse("DFT", input=COMPLEX, axis=9, match="axis")
refuse("DFT", input=f32(2, 4, 3), axis=1, match="last axis")
refuse("DFT", input=COMPLEX, axis=1, dft_length=-2, match="dft_length|negative")


# --- STFT ------------------------------------------------------------------------------------------------------------


def framed(step, length, onesided=True):
    def expect(signal, window=None):
        starts = range(0, signal.shape[1] - length + 1, step)
        weights = np.ones(length) if window is None else window
        frames = np.stack([signal[:, start : start + length] * weights[:, None] for start in starts], axis=1)
        spectrum = transformed(-2, onesided=False)(frames)
        return spectrum[:, :, : length // 2 + 1] if onesided else spectrum

    return expect


SOUND = f32(2, 20, 1)
case(
    "STFT",
    signal=SOUND,
    frame_step=3,
    frame_length=8,
    types={"T1": FLOATS, "T2": {dtypes.int32, dtypes.int64}},
    atol=0.05,
    rtol=0.02,
    expect=framed(3, 8),
)
case("STFT", signal=SOUND, frame_step=4, window=f32(6), expect=framed(4, 6), atol=1e-5)
case("STFT", signal=SOUND, frame_step=5, window=f32(7), frame_length=7, onesided=0, expect=framed(5, 7, False), atol=1e-5)
case("STFT", signal=SOUND, frame_step=1, expect=framed(1, 20), atol=1e-5)
case("STFT", signal=f32(2, 20, 2), frame_step=5, frame_length=10, onesided=0, expect=framed(5, 10, False), atol=1e-5)
refuse("STFT", signal=SOUND, frame_step=5, window=f32(7), frame_length=8, match="window")
refuse("STFT", signal=SOUND, frame_step=0, frame_length=8, match="frames")
refuse("STFT", signal=SOUND, frame_step=2**31, frame_length=8, match="frame")
refuse("STFT", signal=SOUND, frame_step=1, frame_length=28, match="frames|negative")
refuse("STFT", signal=f32(2, 20, 2), frame_step=5, frame_length=10, match="onesided")


# --- windows, mel scale ----------------------------------------------------------------------------------------------

COEFFICIENTS = {"HannWindow": (0.5, 0.5, 0), "HammingWindow": (25 / 46, 21 / 46, 0), "BlackmanWindow": (0.42, 0.5, 0.08)}


def window(op, size, periodic=1):
    a, b, c = COEFFICIENTS[op]
    n = 2 * np.pi * np.arange(size) / (size if periodic else size - 1)
    return a - b * np.cos(n) + c * np.cos(2 * n)


for op in COEFFICIENTS:
    case(op, size=10, types=LENGTHS, expect=window(op, 10), atol=1e-6)
    case(op, size=9, periodic=0, expect=window(op, 9, 0), atol=1e-6)
    case(op, size=0, expect=np.zeros(0))
    case(op, size=1, periodic=0, expect=np.ones(1))
    for dtype in sorted(NUMBERS, key=str):
        case(
            op,
            size=8,
            output_datatype=dtype.code,
            atol=0.01,
            expect=window(op, 8) if dtype in FLOATS else np.trunc(window(op, 8) + 1e-9),
        )


def mel_triangles(bands, length, rate, low, high):
    """One band after the other, from the corners rounded down to bins of the spectrum."""
    low, high = (2595 * np.log10(1 + edge / 700) for edge in (low, high))
    corners = 700 * (10 ** ((low + (high - low) * np.arange(bands + 2) / (bands + 2)) / 2595) - 1)
    bins = np.floor((length + 1) * corners / rate).astype(int)
    matrix = np.zeros((length // 2 + 1, bands))
    for band in range(bands):
        left, peak, right = bins[band : band + 3]
        for k in range(left, peak):
            matrix[k, band] = (k - left) / (peak - left)
        matrix[peak, band] = 1
        for k in range(peak, right):
            matrix[k, band] = (right - k) / (right - peak)
    return matrix


for bands, length, rate, low, high in ((8, 16, 8192, 0, 4096), (20, 512, 16000, 20, 8000), (40, 400, 16000, 0, 8000)):
    case(
        "MelWeightMatrix",
        num_mel_bins=bands,
        dft_length=length,
        sample_rate=rate,
        lower_edge_hertz=np.float32(low),
        upper_edge_hertz=np.float32(high),
        expect=mel_triangles(bands, length, rate, low, high),
        against_onnxruntime=True,
    )
MEL = {
    "num_mel_bins": 4,
    "dft_length": 32,
    "sample_rate": 8000,
    "lower_edge_hertz": np.float32(0),
    "upper_edge_hertz": np.float32(4000),
}
case(
    "MelWeightMatrix",
    **MEL,
    types={"T1": {dtypes.int32, dtypes.int64}, "T2": FLOATS},
    expect=mel_triangles(4, 32, 8000, 0, 4000),
)
for dtype in sorted(NUMBERS, key=str):
    case(
        "MelWeightMatrix",
        **MEL,
        output_datatype=dtype.code,
        rtol=0.01,
        expect=mel_triangles(4, 32, 8000, 0, 4000).astype(dtype.numpy),
    )
