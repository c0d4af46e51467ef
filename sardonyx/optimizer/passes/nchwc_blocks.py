"""Values in blocks of channels while a graph is rewritten for onnxruntime's blocked layout: for `nchwc.py` and `nchwc_ops.py`."""

from __future__ import annotations

import numpy as np

from sardonyx import dtypes
from sardonyx.ir import Graph, Node, Value
from sardonyx.ops.contrib.nchwc import DOMAIN, block_size
from sardonyx.ops.reading import operand
from sardonyx.optimizer.passes.building import TypingBuilder
from sardonyx.optimizer.rewriting import Rewriting
from sardonyx.optimizer.values import dtype_of, shape_of
from sardonyx.settings import NCHWC_BLOCK_SIZE
from sardonyx.startup.records import dataclass

NAME = "NchwcTransformer"
"""Config entry, our own: the block size of the machine that shall run a saved model, "8" (AVX2) or "16" (AVX-512). Default: this one's."""

ALIGNMENT = 4
"""onnxruntime puts channels into blocks only if their number is a multiple of this."""
TO_CHANNELS_FIRST = [0, 3, 1, 2]


@dataclass(frozen=True)
class Blocked:
    """A value in blocks; of its channels, which fill whole blocks, the first `channels` count."""

    value: Value
    channels: int


class Blocks:
    """What is in blocks so far; the ops in `nchwc_ops.py` read and write through this."""

    def __init__(self, graph: Graph, rewriting: Rewriting):
        self.graph = graph
        self.rewriting = rewriting
        self.size = _block_size(rewriting)
        self.blocked: dict[Value, Blocked] = {}

    def builder(self, node: Node) -> TypingBuilder:
        """Makes nodes in front of `node`."""
        opsets = self.rewriting.model.opsets if node.domain else {**self.rewriting.model.opsets, "": node.version}
        return TypingBuilder(self.graph, node, opsets, node.name or NAME, self.rewriting.driver)

    def find(self, value: Value | None) -> Blocked | None:
        """A value in blocks, if it is there."""
        return None if value is None else self.blocked.get(value)

    def make(self, value: Value, before: Node) -> Blocked | None:
        """A value in blocks, reordered in front of `before` if it is not there; None if that cannot be."""
        channels = channels_of(value)
        if value in self.blocked or channels is None or channels % ALIGNMENT:
            return self.blocked.get(value)
        source, is_last = value, None
        turn = value.producer
        if turn is not None and not turn.domain and turn.op_type == "Transpose" and operand(turn, "perm") == TO_CHANNELS_FIRST:
            assert turn.inputs[0] is not None
            source, is_last = turn.inputs[0], 1
        reordered = self.builder(before).node(
            "ReorderInput", source, domain=DOMAIN, channels_last=is_last, __block_size=self.size
        )
        self.blocked[value] = Blocked(reordered, channels)
        return self.blocked[value]

    def rounded(self, channels: int) -> int:
        """The channels of whole blocks."""
        return -(-channels // self.size) * self.size

    def padded(self, array: np.ndarray, *axes: int) -> np.ndarray:
        """An array with zeros up to whole blocks along some axes."""
        widths = [(0, self.rounded(size) - size if axis in axes else 0) for axis, size in enumerate(array.shape)]
        return np.pad(array, widths)


def _block_size(rewriting: Rewriting) -> int:
    return int(NCHWC_BLOCK_SIZE.of(rewriting.options) or block_size())


def channels_of(value: Value) -> int | None:
    """How many channels an image of float32 has; None if the value is something else, or if that is not known."""
    shape = shape_of(value)
    if dtype_of(value) is not dtypes.float32 or shape is None or len(shape) != 4 or not isinstance(shape[1], int):
        return None
    return shape[1]
