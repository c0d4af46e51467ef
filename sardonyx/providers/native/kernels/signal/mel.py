"""MelWeightMatrix, composed of other ops where shapes tell how large it is."""

from __future__ import annotations

import math

from sardonyx import dtypes
from sardonyx.ir import Dim, Value, dim
from sardonyx.ops.signal import LONGEST
from sardonyx.providers.native.program.composition import Composer, compose
from sardonyx.providers.native.program.known import known_sizes
from sardonyx.providers.provider import CannotCompile

NEAR = 1e-9
"""How near to a whole number the edge of a band is NumPy's to round: the last bit of a logarithm may decide."""
FAR = 2.0**40
"""Edges that are farther are NumPy's, too, and those that are not numbers."""


@compose("MelWeightMatrix")
def mel_weight_matrix(
    op: Composer,
    num_mel_bins: Value,
    dft_length: Value,
    sample_rate: Value,
    lower_edge_hertz: Value,
    upper_edge_hertz: Value,
    output_datatype: int,
) -> Value:
    """Triangles over the frequencies of a spectrum, evenly spaced in mels."""
    bands, length = (known_sizes(size) for size in (num_mel_bins, dft_length))
    if bands is None or length is None:
        raise CannotCompile("how large the matrix is depends on data", quiet=True)
    count, size = bands[0], length[0]
    for number in (count, size):
        op.require(dim.minimum(dim.maximum(number, 0), LONGEST), number)
    edges = _edges(op, count, size, sample_rate, lower_edge_hertz, upper_edge_hertz)
    left, peak, right = (op.reshape(op.Slice(edges, op.sizes(first), op.sizes(first + count)), 1, count) for first in range(3))
    one = op.number(1, edges)
    frequency = op.reshape(_counted(op, dim.floordiv(size, 2) + 1), dim.floordiv(size, 2) + 1, 1)
    at_peak = op.Equal(frequency, peak)
    slope = op.Div(op.Sub(frequency, left), op.Max(op.Sub(peak, left), one))
    rising = op.Where(op.Equal(peak, left), op.cast_to(at_peak, dtypes.float64), slope)
    falling = op.Div(op.Sub(right, frequency), op.Max(op.Sub(right, peak), one))
    weights = op.Where(op.LessOrEqual(frequency, peak), rising, falling)
    inside = op.And(op.GreaterOrEqual(frequency, left), op.Or(op.Less(frequency, right), at_peak))
    weights = op.Where(inside, weights, op.number(0, edges))
    return op.cast_to(weights, dtypes.from_code(output_datatype))


def _counted(op: Composer, count: Dim) -> Value:
    """0, 1, 2, … in float64."""
    return op.cast_to(op.counted(count), dtypes.float64)


def _edges(op: Composer, count: Dim, size: Dim, sample_rate: Value, lower: Value, upper: Value) -> Value:
    """Where bands begin, peak and end, as numbers of frequencies."""
    low, high, rate = (op.cast_to(op.reshape(value), dtypes.float64) for value in (lower, upper, sample_rate))
    low, high = (_mel(op, hertz) for hertz in (low, high))
    parts = op.cast_to(op.sizes(count + 2), dtypes.float64)
    mel = op.Add(low, op.Mul(_counted(op, count + 2), op.Div(op.Sub(high, low), parts)))
    power = op.Exp(op.Mul(mel, op.number(math.log(10) / 2595, mel)))
    hertz = op.Mul(op.Sub(power, op.number(1, mel)), op.number(700, mel))
    places = op.Div(op.Mul(op.cast_to(op.sizes(size + 1), dtypes.float64), hertz), rate)
    return op.Floor(_checked(op, places))


def _mel(op: Composer, hertz: Value) -> Value:
    logarithm = op.Log(op.Add(op.Div(hertz, op.number(700, hertz)), op.number(1, hertz)))
    made: Value = op.Mul(logarithm, op.number(2595 / math.log(10), hertz))
    return made


def _checked(op: Composer, places: Value) -> Value:
    """Places that are clearly above or below a whole number, or exactly 0. Where some is not, an index beyond the last sets the status."""
    away = op.Abs(op.Sub(places, op.Round(places)))
    distance = op.Abs(places)
    clear = op.Greater(away, op.Mul(op.Add(distance, op.number(1, places)), op.number(NEAR, places)))
    right = op.And(op.Or(clear, op.Equal(places, op.number(0, places))), op.Less(distance, op.number(FAR, places)))
    wrong = op.ReduceMax(op.cast_to(op.Not(right), dtypes.int32), op.constant([0]), keepdims=0)
    zero = op.Gather(op.constant([0.0]), op.cast_to(wrong, dtypes.int64))
    made: Value = op.Add(places, op.cast(zero, places))
    return made
