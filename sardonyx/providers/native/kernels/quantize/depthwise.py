"""Depthwise convolutions of 8-bit integers: groups of bytes where the CPU multiplies these, else whole floats.

Floats hold every sum of so few products exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sardonyx.compiler.types import F32, I32
from sardonyx.ir import Node
from sardonyx.providers.native.kernels.conv import depthwise, depthwise_bytes
from sardonyx.providers.native.kernels.conv.form import Geometry
from sardonyx.providers.native.kernels.quantize.images import (
    Integers,
    channels_last,
    first_sums,
    less_zero,
    multiplies_bytes,
    padding_bytes,
    required_array,
    sink_of,
)
from sardonyx.providers.native.kernels.quantize.operators import single
from sardonyx.providers.native.program.expression import Operation
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.values import dims, stored
from sardonyx.providers.native.program.views import View
from sardonyx.providers.native.program.weights import aligned_empty
from sardonyx.providers.prepacking import PackedFormat
from sardonyx.providers.scalars.quantize import added, center

DEPTHWISE = PackedFormat("integer-depthwise")
DEPTHWISE_BYTES = PackedFormat("integer-depthwise-bytes")
EXACT_PRODUCTS = 258
"""Products of 8-bit numbers less zero points, 255 · 255 at most, of which float32 holds every sum."""


def depthwise_steps(lowerer: Lowerer, node: Node, geometry: Geometry, found: Integers, operations: Sequence[Operation]) -> bool:
    """Add the steps of a convolution of small groups; False if it is none, or one for direct sums."""
    if depthwise_bytes.takes(geometry) and multiplies_bytes(lowerer.target, found):
        _byte_steps(lowerer, node, geometry, found, operations)
        return True
    has_few = geometry.taps * geometry.channels <= EXACT_PRODUCTS
    if depthwise.has_small_groups(geometry, lowerer.target.lanes(F32)) and has_few:
        _float_steps(lowerer, node, geometry, found, operations)
        return True
    return False


def _float_steps(lowerer: Lowerer, node: Node, geometry: Geometry, found: Integers, operations: Sequence[Operation]) -> None:
    """The kernel of floats, whose sums are whole; a bias of 32 bits is added to them as whole numbers."""
    view, zero_point = _depthwise_image(lowerer, found)
    inputs, channels = geometry.channels, geometry.groups * geometry.filters

    def pack(w: np.ndarray, zero: np.ndarray | None = None) -> list[np.ndarray]:
        ordered = aligned_empty((geometry.taps, inputs, channels), np.float32)
        ordered[...] = less_zero(w, zero).reshape(channels, inputs, geometry.taps).transpose(2, 1, 0)
        return [ordered, np.zeros(channels, np.float32)]

    sizes = [geometry.taps * inputs * channels * 4, channels * 4]
    w, none = lowerer.packed(found.filter_sources, DEPTHWISE, (inputs, channels), sizes, pack)
    bias = 0 if found.bias is None else lowerer.view(found.bias).with_axes_behind(len(geometry.kernel))
    sums = Operation(added, (None, bias), type=I32)
    sink = sink_of(lowerer, node, [sums, *operations], F32)
    depthwise.real_step(lowerer, geometry, view, w, none, sink, zero_point)


def _byte_steps(lowerer: Lowerer, node: Node, geometry: Geometry, found: Integers, operations: Sequence[Operation]) -> None:
    """The kernel of bytes, which begins with what zero points and the bias add to sums."""
    view = _bytes_image(lowerer, found)
    rows = depthwise_bytes.rows_of(geometry, view.type)
    channels = geometry.groups
    groups = -(-rows.height // depthwise_bytes.GROUP)

    def pack(w: np.ndarray, zero: np.ndarray | None = None) -> list[np.ndarray]:
        return [depthwise_bytes.grouped_filters(less_zero(w, zero))]

    sizes = [groups * rows.taps * channels * depthwise_bytes.GROUP]
    (w,) = lowerer.packed(found.filter_sources, DEPTHWISE_BYTES, (channels,), sizes, pack)
    first, later = first_sums(lowerer, geometry, found, is_centered=False)
    zeros = padding_bytes(lowerer, found, channels, 0)
    sink = sink_of(lowerer, node, [*later, *operations], I32)
    kernel = depthwise_bytes.depthwise_bytes_kernel(lowerer.target, rows, sink.chain)
    depthwise.packed_step(lowerer, kernel, geometry, view, (w, lowerer.table(first), zeros), sink)


def _bytes_image(lowerer: Lowerer, found: Integers) -> View:
    """X with the channels last."""
    known = lowerer.known_view(found.x)
    if known is not None and known.strides[1] == 1:
        return known
    view = channels_last(lowerer, stored(found.x), dims(found.x))
    lowerer.store_through(found.x, [], view)
    return view


def _depthwise_image(lowerer: Lowerer, found: Integers) -> tuple[View, int]:
    """X as bytes with its zero point, or as floats less one that is computed; channels last."""
    if found.x_zero is not None and found.x_zero.constant is None:
        view = channels_last(lowerer, F32, dims(found.x))
        lowerer.store_through(found.x, [Operation(center, (None, single(lowerer, found.x_zero)), type=F32)], view)
        return view, 0
    zero_point = 0 if found.x_zero is None else int(required_array(found.x_zero).reshape(()))
    return _bytes_image(lowerer, found), zero_point
