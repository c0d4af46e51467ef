"""Col2Im: blocks are what the windows of a transposed convolution would give, and are added up as these are."""

from __future__ import annotations

import math
from typing import cast

from sardonyx.errors import InferenceError
from sardonyx.ir import Node, dim
from sardonyx.ops.reading import operand
from sardonyx.ops.window import output_sizes
from sardonyx.providers.native.kernels.conv.form import MAX_SPATIAL
from sardonyx.providers.native.kernels.conv.transpose import LONGEST_STRIDE, Transposed, spread_step
from sardonyx.providers.native.kernels.conv.windows import explicit_pads, steps_of
from sardonyx.providers.native.kernels.shape.views import content
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, element_of, may_equal, required, stored
from sardonyx.providers.native.program.views import View, contiguous_strides


def _sizes_of(node: Node) -> Transposed | None:
    """None if blocks are not known, or do not fit."""
    image, block = content(node, "image_shape"), content(node, "block_shape")
    depth = dims(required(node.inputs[0]))[1]
    if image is None or block is None or not 1 <= len(image) <= MAX_SPATIAL:
        return None
    kernel = tuple(size for size in block if isinstance(size, int) and size > 0)
    steps = [*(operand(node, "strides") or ()), *(operand(node, "dilations") or ())]
    taps = math.prod(kernel)
    if len(kernel) < len(image) or not 0 < min(steps, default=1) <= max(steps, default=1) <= LONGEST_STRIDE:
        return None
    if not may_equal(dim.mod(depth, taps), 0):
        return None
    strides, dilations = steps_of(node, len(image))
    counts = tuple(output_sizes(tuple(image), kernel, strides, dilations, operand(node, "pads"), "NOTSET"))
    begin, end = explicit_pads(node, len(image))
    return Transposed(kernel, strides, dilations, begin, end, counts, tuple(image), 1, 1, cast(int, dim.floordiv(depth, taps)))


def _claims(node: Node) -> bool:
    type, shape = element_of(required(node.inputs[0])), dims(required(node.inputs[0]))
    try:
        return type is not None and type.is_number and len(shape) == 3 and _sizes_of(node) is not None
    except InferenceError:
        return False


@lower("Col2Im", claims=_claims)
def col2im(lowerer: Lowerer, node: Node) -> None:
    sizes = _sizes_of(node)
    assert sizes is not None
    value = required(node.inputs[0])
    batch, depth, count = dims(value)
    for size in (*sizes.output, *sizes.input):
        lowerer.require(dim.maximum(size, 0), size)
    lowerer.require(count, dim.product(sizes.input))
    lowerer.require(depth, sizes.taps * sizes.filters)
    columns = lowerer.contiguous(value).reshaped((batch, sizes.filters, sizes.taps, count))
    assert columns is not None
    turned, type = columns.transposed((0, 3, 2, 1)), stored(value).computed
    made = View(lowerer.scratch(dim.product(turned.shape) * type.bytes), type, turned.shape, contiguous_strides(turned.shape))
    lowerer.copy(turned, made)
    products = made.reshaped((batch, count, depth))
    assert products is not None
    spread_step(lowerer, node, sizes, products, batch, None)
