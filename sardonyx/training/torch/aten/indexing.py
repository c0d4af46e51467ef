"""Gathering, scattering, embeddings, and their gradients."""

from __future__ import annotations

import torch

from sardonyx import dtypes
from sardonyx.training.torch.aten.table import aten
from sardonyx.training.torch.types import Unsupported


@aten("embedding.default")
def embedding(op, weight, indices, **arguments):
    return op.Gather(weight, op.from_front(indices), axis=0)


@aten("embedding_dense_backward.default")
def embedding_dense_backward(op, grad_output, indices, num_weights, padding_idx, scale_grad_by_freq):
    if scale_grad_by_freq:
        raise Unsupported("scale_grad_by_freq")
    if padding_idx is not None and (type(padding_idx) is not int or padding_idx >= 0):
        padded = op.Equal(indices, op.scalar(padding_idx, op.dtype(indices)))
        grad_output = op.Where(op.Unsqueeze(padded, axes=[op.rank(indices)]), op.number(0, grad_output), grad_output)
    return op.contrib("GatherGrad", op.shape_value(op.out.shape), indices, grad_output, axis=0)


@aten("gather.default")
def gather(op, self, dim, index, **arguments):
    return op.GatherElements(self, op.from_front(index), axis=op.axis(self, dim))


@aten("index_select.default")
def index_select(op, self, dim, index):
    return op.Gather(self, op.from_front(index), axis=op.axis(self, dim))


@aten("scatter.src")
def scatter(op, self, dim, index, src):
    return op.ScatterElements(self, op.from_front(index), _cut(op, src, index), axis=op.axis(self, dim))


@aten("scatter.value")
def scatter_value(op, self, dim, index, value):
    content = op.Expand(op.scalar(value, op.dtype(self)), op.Shape(index))
    return op.ScatterElements(self, op.from_front(index), content, axis=op.axis(self, dim))


@aten("scatter_add.default")
def scatter_add(op, self, dim, index, src):
    return op.ScatterElements(self, op.from_front(index), _cut(op, src, index), axis=op.axis(self, dim), reduction="add")


def _cut(op, src, index):
    """torch reads as much of `src` as there are indices."""
    if op.shape(src) == op.shape(index):
        return src
    axes = list(range(op.rank(index)))
    return op.Slice(src, op.ints(*[0] * len(axes)), op.Shape(index), op.ints(*axes))


class _Indices:
    """Indices of neighbouring axes, as ScatterND and GatherND take them: these axes come first, and go back afterwards."""

    def __init__(self, op, self_, indices):
        axes = [axis for axis, index in enumerate(indices) if index is not None]
        if not axes or axes != list(range(axes[0], axes[0] + len(axes))):
            raise Unsupported("indices of axes that are no neighbours")
        known = [indices[axis] for axis in axes]
        if any(op.dtype(index) in (dtypes.bool_, dtypes.uint8) for index in known):
            raise Unsupported("a mask as an index")
        self.op, self.axes = op, axes
        self.shape = torch.broadcast_shapes(*(op.traced_shape(index) for index in known))
        """Of the indices."""
        known = [op.as_type(index, dtypes.int64) for index in known]
        if len(known) > 1:
            known = [op.Expand(index, op.shape_value(self.shape)) for index in known]
        parts = [op.Unsqueeze(index, axes=[len(self.shape)]) for index in known]
        self.places = parts[0] if len(parts) == 1 else op.Concat(*parts, axis=-1)
        rank, first, count = op.rank(self_), axes[0], len(axes)
        self.front = [*axes, *range(first), *range(first + count, rank)]
        """The order of the axes of what is indexed."""
        rows, rest = len(self.shape), rank - count
        self.back = [*range(rows, rows + first), *range(rows), *range(rows + first, rows + rest)]
        """The order that puts the axes of the indices in place of those that they index."""

    def in_front(self, value):
        return value if self.front == sorted(self.front) else self.op.Transpose(value, perm=self.front)

    def put_back(self, rows):
        return rows if self.back == sorted(self.back) else self.op.Transpose(rows, perm=self.back)


def _inverse(order):
    return [order.index(place) for place in range(len(order))]


@aten("index.Tensor", "_unsafe_index.Tensor")
def index(op, self, indices):
    known = [place for place, index in enumerate(indices) if index is not None]
    if len(known) == 1 and op.dtype(indices[known[0]]) in (dtypes.int64, dtypes.int32):
        return op.Gather(self, indices[known[0]], axis=known[0])
    found = _Indices(op, self, indices)
    return found.put_back(op.GatherND(found.in_front(self), found.places))


@aten("index_put.default", "_unsafe_index_put.default")
def index_put(op, self, indices, values, accumulate=False):
    known = [index for index in indices if index is not None]
    if len(known) == 1 and op.dtype(known[0]) is dtypes.bool_:
        return _masked(op, self, indices, values, accumulate)
    found = _Indices(op, self, indices)
    sizes = op.traced_shape(self)
    first, count = found.axes[0], len(found.axes)
    whole = op.shape_value([*sizes[:first], *found.shape, *sizes[first + count :]])
    values = op.Expand(op.as_type(values, op.dtype(self)), whole)
    if found.back != sorted(found.back):
        values = op.Transpose(values, perm=_inverse(found.back))
    rows = op.ScatterND(found.in_front(self), found.places, values, reduction="add" if accumulate else "none")
    return rows if found.front == sorted(found.front) else op.Transpose(rows, perm=_inverse(found.front))


def _masked(op, self, indices, values, accumulate):
    mask = indices[0]
    if mask is None or op.rank(values) or accumulate:
        raise Unsupported("a mask that takes several values, or is not of the first axes")
    extra = list(range(op.rank(mask), op.rank(self)))
    return op.Where(op.Unsqueeze(mask, axes=extra) if extra else mask, op.as_type(values, op.dtype(self)), self)
