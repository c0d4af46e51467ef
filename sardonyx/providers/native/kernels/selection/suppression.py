"""NonMaxSuppression. How many boxes it keeps depends on data, so it is no part of a cluster but a step of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.dtypes import float32
from sardonyx.ir import Node, Value
from sardonyx.ops.reading import constant, input_named, operand
from sardonyx.providers.native.execution.immediate import memory_of, numbers_of, run_step
from sardonyx.providers.native.program.arguments import Arguments, Number, Pointer, Size, declare
from sardonyx.providers.native.program.table import alone
from sardonyx.providers.provider import Cluster, element_type
from sardonyx.providers.steps import StepCall

if TYPE_CHECKING:
    from sardonyx.compiler.jit import Kernel
    from sardonyx.compiler.target import Target

THRESHOLDS = ("iou_threshold", "score_threshold")
NUMBERS = ("max_output_boxes_per_class", *THRESHOLDS)
"""Operands of one element each; NumPy says what is wrong with others."""
OPERANDS = ("boxes", "scores", *NUMBERS)
MOST_KEPT = 1 << 22
"""Boxes for which room is made; beyond, NumPy computes."""


class SuppressArguments(Arguments):
    """Of `suppression_kernel`. It stands here as compiled models are run without the code that emits kernels."""

    sides: Pointer
    """[5, images, count]: left, low, right and high sides of all boxes, and their areas."""
    scores: Pointer
    images: Size
    labels: Size
    """How many classes there are."""
    count: Size
    """Boxes of an image."""
    limit: Size
    """How many boxes of a class are kept at most."""
    overlap: Number
    """What boxes may share with one that is kept, as a part of their union."""
    threshold: Number
    """Boxes with lower scores, or this one, are left out."""
    heap: Pointer
    chosen: Pointer
    """Scratch memory, [classes of images, 5, limit], for the sides of boxes that are kept."""
    kept: Pointer
    counts: Pointer
    """How many boxes are kept, for each class of each image."""


DECLARATION = declare(SuppressArguments, {})


def _claims(node: Node) -> bool:
    return all(value is not None and element_type(value) is float32 for value in node.inputs[:2])


def _kernel(target: Target) -> Kernel:
    from sardonyx.providers.native.kernels.selection.suppression_kernel import suppress_kernel

    return suppress_kernel(target)


@alone("NonMaxSuppression", claims=_claims, kernel=_kernel)
class Suppression(StepCall):
    """The step of one node: called with the values of its inputs that are not constant. `address` is where its kernel lies.

    `kept` keeps the kernel in memory.
    """

    def __init__(self, cluster: Cluster, address: int, threads: int, kept: object = None):
        (node,) = cluster.nodes
        self._operands = {name: input_named(node, name) for name in OPERANDS}
        self._center = int(operand(node, "center_point_box"))
        self._places = {value: place for place, value in enumerate(cluster.inputs)}
        self._threads = threads
        self._address = address
        self._kept = kept

    def __call__(self, inputs: Sequence[Any]) -> list[np.ndarray]:
        from sardonyx.providers.cpu.selection import corners_of, non_max_suppression

        operands = {name: self._value(value, inputs) for name, value in self._operands.items()}
        if any(operands[name] is not None and np.size(operands[name]) != 1 for name in NUMBERS):
            return [non_max_suppression(**operands, center_point_box=self._center)]  # type: ignore[no-untyped-call]
        boxes, scores, most = operands["boxes"], operands["scores"], operands["max_output_boxes_per_class"]
        limit = 0 if most is None else min(int(np.reshape(most, -1)[0]), scores.shape[2])
        overlap, threshold = (None if operands[name] is None else float(np.reshape(operands[name], ())) for name in THRESHOLDS)
        largest = scores.shape[0] * scores.shape[1] * limit
        is_usual = (
            boxes.shape == (scores.shape[0], scores.shape[2], 4)
            and 0 < largest <= MOST_KEPT
            and 0 <= (overlap or 0) <= 1
            and np.isfinite(scores.min())
            and np.isfinite(boxes).all()
        )
        if not is_usual:
            return [non_max_suppression(**operands, center_point_box=self._center)]  # type: ignore[no-untyped-call]
        corners = corners_of(boxes, self._center)  # type: ignore[no-untyped-call]
        return [
            self._select(
                corners, np.ascontiguousarray(scores), limit, overlap or 0.0, -math.inf if threshold is None else threshold
            )
        ]

    def _value(self, value: Value | None, inputs: Sequence[Any]) -> Any:
        if value is None:
            return None
        return inputs[self._places[value]] if value in self._places else constant(value)

    def _select(self, corners: np.ndarray, scores: np.ndarray, limit: int, overlap: float, threshold: float) -> np.ndarray:
        images, labels, count = scores.shape
        rows = images * labels
        sides = np.empty((5, images, count), np.float32)
        sides[:4] = np.moveaxis(corners, -1, 0)
        with np.errstate(all="ignore"):
            np.multiply(sides[2] - sides[0], sides[3] - sides[1], out=sides[4])
        kept, counts = np.empty((rows, limit), np.int64), np.zeros(rows, np.int64)
        arguments = SuppressArguments(
            sides=memory_of(sides),
            scores=memory_of(scores),
            images=images,
            labels=labels,
            count=count,
            limit=limit,
            overlap=overlap,
            threshold=threshold,
            heap=memory_of(np.empty((rows, count), np.int64)),
            chosen=memory_of(np.empty((rows, 5, limit), np.float32)),
            kept=memory_of(kept),
            counts=memory_of(counts),
        )
        numbers = numbers_of(DECLARATION, "suppress", arguments)
        run_step(self._address, numbers, rows, 1, self._threads)
        row = np.repeat(np.arange(rows), counts)
        chosen = kept[np.arange(limit) < counts[:, np.newaxis]]
        return np.column_stack([row // max(1, labels), row % max(1, labels), chosen])
