"""Windows that slide over the spatial axes of an image: what convolutions, transposed ones and pools have in common."""

from __future__ import annotations

import math

from sardonyx.ir import Dim, Node
from sardonyx.ops.reading import operand
from sardonyx.ops.window import SAME, pads_same, per_axis, span_of, split_pads
from sardonyx.providers.native.program.views import Dims
from sardonyx.startup.records import dataclass


@dataclass(frozen=True)
class Windows:
    """The sizes of windows, one entry per axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: Dims
    """Pixels of padding before each axis; of a transposed convolution, pixels that are left out of the result."""
    end: Dims
    """The same behind it."""
    input: Dims
    output: Dims

    @property
    def taps(self) -> int:
        return math.prod(self.kernel)

    def axis(self, number: int) -> dict[str, Dim]:
        """One axis as kernels are given it: the fields of a `WindowAxis`."""
        return {
            "output": self.output[number],
            "input": self.input[number],
            "kernel": self.kernel[number],
            "stride": self.strides[number],
            "dilation": self.dilations[number],
            "begin": self.begin[number],
        }


def windows_of(node: Node, kernel: tuple[int, ...], input: Dims, output: Dims) -> Windows:
    """Those of a convolution or a pool over an image."""
    strides, dilations = steps_of(node, len(input))
    auto_pad = operand(node, "auto_pad") or "NOTSET"
    if auto_pad in SAME:
        spans = [span_of(*axis) for axis in zip(kernel, dilations)]  # type: ignore[no-untyped-call]
        begin, end = pads_same(input, output, spans, strides, auto_pad)
    else:
        begin, end = explicit_pads(node, len(input))
    return Windows(kernel, strides, dilations, begin, end, input, output)


def steps_of(node: Node, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Strides and dilations."""
    return tuple(per_axis(operand(node, "strides"), rank, "strides")), tuple(
        per_axis(operand(node, "dilations"), rank, "dilations")
    )


def explicit_pads(node: Node, rank: int) -> tuple[Dims, Dims]:
    """Pads as a node gives them; auto_pad VALID means none."""
    begin, end = split_pads(None if operand(node, "auto_pad") == "VALID" else operand(node, "pads"), rank)
    return tuple(begin), tuple(end)
