"""NonMaxSuppression: boxes are chosen class by class, their number is settled, and then they are written in the order of classes."""

from __future__ import annotations

from sardonyx.compiler.types import F32, I64
from sardonyx.dtypes import float32
from sardonyx.ir import Dim, Node, dim
from sardonyx.ops.reading import input_named, operand
from sardonyx.providers.native.kernels.selection.counting import accumulate
from sardonyx.providers.native.kernels.selection.suppression_kernel import (
    CheckArguments,
    KeptArguments,
    LimitArguments,
    SidesArguments,
    SuppressArguments,
    check_kernel,
    kept_kernel,
    limit_kernel,
    sides_kernel,
    suppress_kernel,
)
from sardonyx.providers.native.program.computed_sizes import has_numbers, numbers_of, positions, settle_shape
from sardonyx.providers.native.program.known import known_sizes
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import At, Buffer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, required
from sardonyx.providers.native.program.views import View
from sardonyx.providers.provider import element_type

PIECE_BOXES = 1 << 12
"""How many boxes are worth handing to another thread."""


def _claims(node: Node) -> bool:
    most = input_named(node, "max_output_boxes_per_class")
    thresholds = [input_named(node, name) for name in ("iou_threshold", "score_threshold")]
    numbers = [value for value in (most, *thresholds) if value is not None]
    return (
        all(value is not None and element_type(value) is float32 for value in node.inputs[:2])
        and all(dim.product(dims(value)) == 1 for value in numbers)
        and (most is None or has_numbers(most))
    )


@lower("NonMaxSuppression", claims=_claims, settles=True)
def non_max_suppression(lowerer: Lowerer, node: Node) -> None:
    """Boxes that overlap none of a higher score too much, for each class of each image."""
    boxes, scores = (lowerer.contiguous(required(value)) for value in node.inputs[:2])
    images, labels, count = scores.shape
    lowerer.require_shape(boxes.shape, (images, count, 4))
    limit, rows = _limit(lowerer, node, count), images * labels
    overlap, threshold = (_number(lowerer, node, name) for name in ("iou_threshold", "score_threshold"))
    if overlap is not None:
        lowerer.call(check_kernel(lowerer.target), CheckArguments(overlap=overlap, status=lowerer.status()), 1)
    kept, counts = lowerer.scratch(rows * limit * I64.bytes), lowerer.scratch(rows * I64.bytes)
    lowerer.call(
        suppress_kernel(lowerer.target, overlap is not None, threshold is not None),
        SuppressArguments(
            sides=_sides(lowerer, node, boxes, images * count),
            scores=scores.place,
            images=images,
            labels=labels,
            count=count,
            limit=limit,
            overlap=overlap,
            threshold=threshold,
            heap=lowerer.scratch(rows * count * I64.bytes),
            chosen=lowerer.scratch(rows * 5 * limit * F32.bytes),
            kept=kept,
            counts=counts,
            status=lowerer.status(),
        ),
        rows,
        flops=rows * count * 16,
        traffic=rows * count * F32.bytes,
    )
    total = lowerer.scratch(I64.bytes)
    accumulate(lowerer, counts, rows, total)
    settle_shape(lowerer, node.outputs[0], [(0, total)])
    target = lowerer.output(node.outputs[0])
    arguments = KeptArguments(
        kept=kept, starts=counts, rows=rows, total=target.shape[0], labels=labels, limit=limit, target=target.place
    )
    lowerer.call(kept_kernel(lowerer.target), arguments, rows, PIECE_BOXES)


def _limit(lowerer: Lowerer, node: Node, count: Dim) -> Dim:
    """How many boxes of a class are kept at most."""
    most = input_named(node, "max_output_boxes_per_class")
    known = [0] if most is None else known_sizes(most)
    if known is not None:
        return dim.maximum(0, dim.minimum(known[0], count))
    (number,) = numbers_of(lowerer, required(most))
    limit = lowerer.scratch(I64.bytes)
    lowerer.call(limit_kernel(lowerer.target), LimitArguments(most=number, count=count, target=limit), 1)
    return positions(lowerer, [limit])[0]


def _number(lowerer: Lowerer, node: Node, name: str) -> At | None:
    value = input_named(node, name)
    return None if value is None else lowerer.contiguous(value).place


def _sides(lowerer: Lowerer, node: Node, boxes: View, total: Dim) -> Buffer:
    """The sides of all boxes, and their areas."""
    sides = lowerer.scratch(5 * total * F32.bytes)
    arguments = SidesArguments(boxes=boxes.place, total=total, sides=sides, status=lowerer.status())
    lowerer.call(sides_kernel(lowerer.target, bool(operand(node, "center_point_box"))), arguments, total, PIECE_BOXES)
    return sides
