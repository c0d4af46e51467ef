"""Window functions, composed of other ops where shapes tell how long they are."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sardonyx import dtypes
from sardonyx.ir import Value, dim
from sardonyx.providers.native.program.composition import Composer, compose
from sardonyx.providers.native.program.known import known_sizes
from sardonyx.providers.provider import CannotCompile


@compose("HannWindow")
def hann_window(op: Composer, size: Value, output_datatype: int, periodic: int) -> Value:
    return _cosine_window(op, size, (0.5, -0.5), output_datatype, periodic)


@compose("HammingWindow")
def hamming_window(op: Composer, size: Value, output_datatype: int, periodic: int) -> Value:
    return _cosine_window(op, size, (25 / 46, -21 / 46), output_datatype, periodic)


@compose("BlackmanWindow")
def blackman_window(op: Composer, size: Value, output_datatype: int, periodic: int) -> Value:
    return _cosine_window(op, size, (0.42, -0.5, 0.08), output_datatype, periodic)


def _cosine_window(op: Composer, size: Value, weights: Sequence[float], output_datatype: int, periodic: int) -> Value:
    """A sum of cosines over one period, which ends one sample after the window if `periodic`, else with its last one."""
    sizes = known_sizes(size)
    if sizes is None:
        raise CannotCompile("how long the window is depends on data", quiet=True)
    length = sizes[0]
    places = op.counted(length)
    period = op.cast_to(op.sizes(dim.maximum(1, length if periodic else length - 1)), dtypes.float64)
    turn = op.Div(op.cast_to(places, dtypes.float64), period)
    window = op.number(weights[0], turn)
    for order, weight in enumerate(weights[1:], 1):
        cosine = op.Cos(op.Mul(turn, op.number(2 * math.pi * order, turn)))
        window = op.Add(window, op.Mul(cosine, op.number(weight, turn)))
    if not periodic:
        window = op.Where(op.Equal(op.sizes(length), op.constant([1])), op.number(1, turn), window)
    dtype = dtypes.from_code(output_datatype)
    # rounded to float32 a peak of 1 is 1, also when cut off to an integer
    return op.cast_to(window if dtype in dtypes.FLOATS else op.cast_to(window, dtypes.float32), dtype)
