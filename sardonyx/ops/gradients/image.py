"""Gradients of ops on images."""

from __future__ import annotations

import numpy as np

from sardonyx.errors import Fail
from sardonyx.ops.gradients.table import gradient

FORM = (
    "antialias",
    "coordinate_transformation_mode",
    "cubic_coeff_a",
    "exclude_outside",
    "mode",
    "nearest_mode",
)


@gradient("Resize", since=11)
def resize(op, node, X, roi, scales, sizes, Y_grad):
    """Each axis is stretched by itself, which is a product with a matrix: what the identity becomes if its rows are stretched."""
    policy = node.attribute("keep_aspect_ratio_policy", "stretch")
    if policy not in ("stretch", b"stretch"):
        raise Fail(f"{node}: there is no gradient of Resize with keep_aspect_ratio_policy {policy!r}, only with 'stretch'")
    rank = op.rank(X)
    axes = [axis % rank for axis in node.attribute("axes") or range(rank)]
    form = {name: node.attribute(name) for name in FORM if name in node.attributes}
    for place, axis in enumerate(axes):
        if _is_stretched(op, X, Y_grad, axis, form):
            matrix = _stretched_rows(op, X, roi, scales, sizes, (axis, place, len(axes)), form)
            Y_grad = _multiplied(op, Y_grad, matrix, axis)
    return Y_grad


def _is_stretched(op, X, Y_grad, axis, form):
    before, after = op.shape(X)[axis], op.shape(Y_grad)[axis]
    return before != after or form.get("coordinate_transformation_mode") in ("tf_crop_and_resize", b"tf_crop_and_resize")


def _stretched_rows(op, X, roi, scales, sizes, which, form):
    """The identity of an axis of X, its rows stretched as that axis is."""
    axis, place, count = which
    size = op.Slice(op.Shape(X), starts=[axis], ends=[axis + 1])
    identity = op.EyeLike(op.ConstantOfShape(op.Concat(size, size, axis=0), value=np.array([0], op.dtype(X).numpy)))

    def of_axis(values, place):
        return op.Slice(values, starts=[place], ends=[place + 1])

    def joined(values, place, first):
        return op.Concat(op.constant(np.array([first], op.dtype(values).numpy)), of_axis(values, place), axis=0)

    operands = {}
    if roi is not None and op.shape(roi) != (0,):
        ends = op.constant(np.array([0, 1], op.dtype(roi).numpy))
        begin, end = (of_axis(ends, number) for number in (0, 1))
        operands["roi"] = op.Concat(begin, of_axis(roi, place), end, of_axis(roi, count + place), axis=0)
    if scales is not None and op.shape(scales) != (0,):
        operands["scales"] = joined(scales, place, 1)
    else:
        operands["sizes"] = op.Concat(size, of_axis(sizes, place), axis=0)
    return op.Resize(identity, **operands, **form)


def _multiplied(op, Y_grad, matrix, axis):
    order = [number for number in range(op.rank(Y_grad)) if number != axis] + [axis]
    moved = op.MatMul(op.Transpose(Y_grad, perm=order), op.Transpose(matrix, perm=[1, 0]))
    return op.Transpose(moved, perm=[order.index(number) for number in range(len(order))])


# --- GridSample


@gradient("GridSample")
def grid_sample(op, node, X, grid, mode, padding_mode, align_corners, through):
    """A point between pixels is the weighted mean of the four around it; weights depend on where it lies."""
    form = f"mode {mode!r}, padding_mode {padding_mode!r} and {op.rank(X)} axes"
    if mode not in ("linear", "bilinear") or padding_mode not in ("zeros", "border") or op.rank(X) != 4:
        raise Fail(f"{node}: there is no gradient of GridSample with {form}, only linear with zeros or border of images")
    batch, channels, height, width = (op.Slice(op.Shape(X), starts=[axis], ends=[axis + 1]) for axis in range(4))
    x, y = (
        _pixels(op, op.Gather(grid, op.constant(np.array(number, np.int64)), axis=3), size, padding_mode, align_corners)
        for number, size in ((0, width), (1, height))
    )
    left, top = op.Floor(x), op.Floor(y)
    corners = []
    for right in (0, 1):
        for below in (0, 1):
            column, row = (op.Add(start, op.number(more, x)) for start, more in ((left, right), (top, below)))
            weight = op.Mul(_weight(op, x, left, right), _weight(op, y, top, below))
            weight = op.where(op.And(_is_inside(op, column, width), _is_inside(op, row, height)), weight)
            column, row = (_index(op, value, size) for value, size in ((column, width), (row, height)))
            place = op.Add(op.Mul(row, width), column)
            corners.append((op.Reshape(place, _joined(op, batch, 1, -1)), op.Reshape(weight, _joined(op, batch, 1, -1))))
    pixels = op.Reshape(X, op.Concat(batch, channels, op.Mul(height, width), axis=0))
    count = op.Slice(op.Shape(corners[0][0]), starts=[2], ends=[3])
    spread = op.Concat(batch, channels, count, axis=0)
    parts = [op.Mul(op.GatherElements(pixels, op.Expand(place, spread), axis=2), weight) for place, weight in corners]
    return through(
        op.Reshape(op.Sum(*parts), op.Concat(batch, channels, op.Slice(op.Shape(grid), starts=[1], ends=[3]), axis=0))
    )


def _joined(op, size, *numbers):
    return op.Concat(size, op.constant(np.array(numbers, np.int64)), axis=0)


def _pixels(op, coordinates, size, padding_mode, align_corners):
    """Coordinates from -1 to 1 as numbers of pixels."""
    size = op.cast(size, coordinates)
    half = op.scaled(op.Add(coordinates, op.number(1, coordinates)), 0.5)
    last = op.Sub(size, op.number(1, size))
    pixels = op.Mul(half, last) if align_corners else op.Sub(op.Mul(half, size), op.number(0.5, half))
    return op.Min(op.Max(pixels, op.number(0, pixels)), last) if padding_mode == "border" else pixels


def _weight(op, position, start, further):
    share = op.Sub(position, start)
    return share if further else op.Sub(op.number(1, share), share)


def _is_inside(op, position, size):
    last = op.Sub(op.cast(size, position), op.number(1, position))
    return op.And(op.Not(op.Less(position, op.number(0, position))), op.Not(op.Greater(position, last)))


def _index(op, position, size):
    """A pixel as an index, one at the edge for those outside."""
    last = op.Sub(op.cast(size, position), op.number(1, position))
    return op.Cast(op.Min(op.Max(position, op.number(0, position)), last), to=7)
