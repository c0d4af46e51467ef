"""Inference of Fourier transforms, window functions and the mel scale."""

from __future__ import annotations

from sardonyx.errors import InferenceError
from sardonyx.ir import TensorType, dim
from sardonyx.ops.shapes import axis_index, element_type, fresh_shape
from sardonyx.ops.table import infer

LONGEST = 2**31 - 1
"""Of signals, windows and frames."""


@infer("DFT")
def dft(input, dft_length, axis, inverse, onesided):
    if input.shape is None:
        return None
    if input.rank < 2:
        raise InferenceError(f"input must have a signal axis and one for real and imaginary part, its rank is {input.rank}")
    last = 1 if onesided and inverse else 2
    place, size = -2 if axis is None else _whole(axis, "axis"), _length(dft_length, "dft_length")
    if place is None:
        unchanged = dft_length is None and not onesided
        return *(input.shape[:-1] if unchanged else fresh_shape(input.rank - 1)), last
    place = axis_index(place, input.rank)
    if place == input.rank - 1:
        raise InferenceError("axis names the last axis, which holds real and imaginary part")
    if size is None:
        size = 2 * (input.shape[place] - 1) if onesided and inverse else input.shape[place]
    if onesided and not inverse:
        size = dim.floordiv(size, 2) + 1
    return *input.shape[:place], size, *input.shape[place + 1 : -1], last


def _whole(operand, name):
    operand.require_one(name)
    return None if operand.ints is None else operand.ints[0]


def _length(operand, name, least=1):
    """A length given as an operand: None if it is absent, a fresh size if it is not known."""
    if operand is None:
        return None
    operand.require_one(name)
    if not operand.dims:
        return dim.fresh()
    length = operand.dims[0]
    if isinstance(length, int) and not least <= length <= LONGEST:
        raise InferenceError(f"{name} must lie between {least} and {LONGEST}, it is {length}")
    return length


@infer("STFT")
def stft(signal, frame_step, window, frame_length, onesided):
    if window is not None:
        window.require_rank(1, name="window")
    signal.require_rank(2, 3, name="signal")  # the text wants 3; exporters leave the last axis of a real signal out
    batch, samples = (signal.shape or fresh_shape(3))[:2]
    length = _length(frame_length, "frame_length")
    if length is None and window is not None:
        length = window.shape[0] if window.shape else dim.fresh()
    if length is None:
        length = samples
    _length(frame_step, "frame_step")
    step = _whole(frame_step, "frame_step")
    frames = dim.floordiv(samples - length, step) + 1 if step else dim.fresh()
    return batch, frames, dim.floordiv(length, 2) + 1 if onesided else length, 2


@infer("MelWeightMatrix")
def mel_weight_matrix(num_mel_bins, dft_length, output_datatype):
    sizes = dim.floordiv(_length(dft_length, "dft_length", least=0), 2) + 1, _length(num_mel_bins, "num_mel_bins", least=0)
    return TensorType(element_type(output_datatype, "output_datatype"), sizes)


@infer("HannWindow", "HammingWindow", "BlackmanWindow")
def window(size, output_datatype):
    return TensorType(element_type(output_datatype, "output_datatype"), (_length(size, "size", least=0),))
