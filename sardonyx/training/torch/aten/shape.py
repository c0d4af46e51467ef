"""What moves, joins, cuts and makes tensors."""

from __future__ import annotations

import sys

import numpy as np
import torch

from sardonyx import dtypes
from sardonyx.training.torch.aten.table import aten
from sardonyx.training.torch.types import Unsupported, element_type

END = 2**63 - 1


@aten("detach.default", "alias.default", "clone.default", "lift_fresh_copy.default", "lift_fresh.default", "contiguous.default")
def same(op, self):
    return op.Identity(self)


@aten("_to_copy.default", "to.dtype", "convert_element_type.default")
def to_copy(op, **arguments):
    value = arguments.get("self") or arguments.get("a")
    return op.Identity(value) if op.dtype(value) is op.out_dtype else op.Cast(value, to=op.out_dtype.code)


@aten("copy.default")
def copy(op, self, src):
    return op.Expand(op.as_type(src, op.dtype(self)), op.shape_value(op.out.shape))


@aten("view.default", "_unsafe_view.default", "reshape.default", "view_copy.default")
def view(op, self, **arguments):
    return op.reshaped(self, op.out.shape)


@aten("unsqueeze.default")
def unsqueeze(op, self, dim):
    return op.Unsqueeze(self, axes=[dim % (op.rank(self) + 1)])


@aten("squeeze.dim", "squeeze.dims", "squeeze.default")
def squeeze(op, self, **arguments):
    return op.reshaped(self, op.out.shape)


@aten("t.default")
def t(op, self):
    return op.Transpose(self, perm=[1, 0]) if op.rank(self) == 2 else op.Identity(self)


@aten("transpose.int")
def transpose(op, self, dim0, dim1):
    order = list(range(op.rank(self)))
    if order:
        dim0, dim1 = op.axis(self, dim0), op.axis(self, dim1)
        order[dim0], order[dim1] = order[dim1], order[dim0]
    return op.Transpose(self, perm=order)


@aten("permute.default")
def permute(op, self, dims):
    return op.Transpose(self, perm=[op.axis(self, axis) for axis in dims])


@aten("expand.default")
def expand(op, self, **arguments):
    return op.Expand(self, op.shape_value(op.out.shape))


@aten("repeat.default")
def repeat(op, self, repeats):
    extra = len(repeats) - op.rank(self)
    if extra:
        self = op.Unsqueeze(self, axes=list(range(extra)))
    return op.Tile(self, op.shape_value(repeats))


@aten("cat.default")
def cat(op, tensors, dim=0):
    tensors = [op.as_type(tensor, op.out_dtype) for tensor in tensors if not _is_nothing(op, tensor)]
    if not tensors:
        raise Unsupported("joining nothing")
    return op.Concat(*tensors, axis=op.axis(tensors[0], dim)) if len(tensors) > 1 else op.Identity(tensors[0])


def _is_nothing(op, tensor):
    """torch leaves vectors without elements out, whatever rank the others have."""
    return op.shape(tensor) == (0,)


@aten("stack.default")
def stack(op, tensors, dim=0):
    axis = dim % (op.rank(tensors[0]) + 1)
    return op.Concat(*(op.Unsqueeze(op.as_type(tensor, op.out_dtype), axes=[axis]) for tensor in tensors), axis=axis)


@aten("split.Tensor", "split_with_sizes.default")
def split(op, self, dim=0, **arguments):
    axis = op.axis(self, dim)
    if len(op.out) == 1:
        return (op.Identity(self),)
    sizes = op.shape_value([part.shape[axis] for part in op.out])
    return tuple(op.Split(self, sizes, axis=axis, outputs=len(op.out)))


@aten("unbind.int")
def unbind(op, self, dim=0):
    axis = op.axis(self, dim)
    if len(op.out) == 1:
        return (op.Squeeze(self, axes=[axis]),)
    parts = op.Split(self, axis=axis, num_outputs=len(op.out), outputs=len(op.out))
    return tuple(op.Squeeze(part, axes=[axis]) for part in parts)


@aten("slice.Tensor")
def slice_tensor(op, self, dim=0, start=None, end=None, step=1):
    axis = op.axis(self, dim)
    start, end = 0 if start is None else start, END if end is None else end
    if type(start) is int and start == 0 and type(end) is int and end >= sys.maxsize and step == 1:
        return op.Identity(self)
    return op.Slice(self, op.sizes.value(start), op.sizes.value(end), op.ints(axis), op.sizes.value(step))


@aten("slice_backward.default")
def slice_backward(op, grad_output, input_sizes, dim, start, end, step):
    if type(step) is int and step == 1:
        return _padded(op, grad_output, input_sizes, dim, start, op.traced_shape(grad_output)[dim % len(input_sizes)])
    shape = op.shape_value(input_sizes)
    bounds = (op.sizes.value(start), op.sizes.value(end), op.ints(dim % len(input_sizes)), op.sizes.value(step))
    return op.contrib("SliceGrad", grad_output, shape, *bounds)


def _padded(op, grad_output, sizes, axis, start, length):
    """Zeros before and after along an axis, up to a shape."""
    axis, rank = axis % len(sizes), len(sizes)
    size = sizes[axis]
    if type(start) is int and type(size) is int:
        start = max(start + size, 0) if start < 0 else min(start, size)
    elif type(start) is not int or start < 0:
        raise Unsupported("a gradient behind a slice from the end of an axis of open size")
    before, after = [0] * rank, [0] * rank
    before[axis], after[axis] = start, size - start - length
    return op.Pad(grad_output, op.shape_value([*before, *after]))


@aten("slice_scatter.default")
def slice_scatter(op, self, src, dim=0, start=None, end=None, step=1):
    size = op.out.shape[dim % len(op.out.shape)]
    if type(size) is not int or not all(type(bound) is int or bound is None for bound in (start, end)):
        raise Unsupported("a slice that is replaced along an axis of open size")
    axis = op.axis(self, dim)
    places = np.arange(size)[slice(start, min(END if end is None else end, size), step)]
    if len(places) == size:
        return op.Expand(op.as_type(src, op.dtype(self)), op.shape_value(op.out.shape))
    parts = op.Transpose(op.Expand(src, _replaced(op, axis, len(places))), perm=_to_front(op, self, axis))
    rows = op.ScatterND(op.Transpose(self, perm=_to_front(op, self, axis)), op.constant(places[:, None]), parts)
    return op.Transpose(rows, perm=np.argsort(_to_front(op, self, axis)).tolist())


def _replaced(op, axis, length):
    sizes = list(op.out.shape)
    sizes[axis] = length
    return op.shape_value(sizes)


def _to_front(op, value, axis):
    return [axis, *(other for other in range(op.rank(value)) if other != axis)]


@aten("select.int")
def select(op, self, dim, index):
    axis = op.axis(self, dim)
    if type(index) is not int:
        raise Unsupported("an index that is a size")
    return op.Gather(self, op.constant(np.array(index, np.int64)), axis=axis)


@aten("select_backward.default")
def select_backward(op, grad_output, input_sizes, dim, index):
    axis = dim % len(input_sizes)
    return _padded(op, op.Unsqueeze(grad_output, axes=[axis]), input_sizes, axis, index, 1)


@aten("flip.default")
def flip(op, self, dims):
    axes = [op.axis(self, axis) for axis in dims]
    if not axes:
        return op.Identity(self)
    last = [-1] * len(axes)
    return op.Slice(self, starts=last, ends=[-(2**62)] * len(axes), axes=axes, steps=last)


@aten("constant_pad_nd.default")
def constant_pad_nd(op, self, pad, value=0):
    rank = op.rank(self)
    pairs = [(pad[place], pad[place + 1]) for place in range(0, len(pad), 2)][::-1]
    pairs = [(0, 0)] * (rank - len(pairs)) + pairs
    pads = op.shape_value([first for first, _ in pairs] + [last for _, last in pairs])
    return op.Pad(self, pads, op.scalar(value, op.dtype(self)))


@aten("tril.default")
def tril(op, self, diagonal=0):
    return op.Trilu(self, op.constant(np.array(diagonal, np.int64)), upper=0)


@aten("triu.default")
def triu(op, self, diagonal=0):
    return op.Trilu(self, op.constant(np.array(diagonal, np.int64)), upper=1)


# --- new tensors


@aten("full.default", "full_like.default", "new_full.default")
def full(op, fill_value, **arguments):
    return filled(op, fill_value)


def filled(op, content):
    if isinstance(content, (torch.SymInt, torch.SymFloat)):
        return op.Expand(op.scalar(content, op.out_dtype), op.shape_value(op.out.shape))
    shape, value = op.out.shape, np.array([content]).astype(op.out_dtype.numpy)
    if not shape:
        return op.constant(value[0])
    return op.ConstantOfShape(op.shape_value(shape), value=value)


@aten("scalar_tensor.default")
def scalar_tensor(op, s):
    return op.scalar(s, op.out_dtype)


@aten(
    "zeros.default", "zeros_like.default", "new_zeros.default", "empty.memory_format", "empty_like.default", "new_empty.default"
)
def zeros(op, **arguments):
    return filled(op, 0)


@aten("empty_strided.default", "new_empty_strided.default")
def empty_strided(op, **arguments):
    return filled(op, 0)


@aten("ones.default", "ones_like.default", "new_ones.default")
def ones(op, **arguments):
    return filled(op, 1)


@aten("arange.default", "arange.start", "arange.start_step")
def arange(op, end, start=0, step=1, **arguments):
    dtype = op.out_dtype
    if dtype in dtypes.HALVES:
        raise Unsupported("a range of half precision")
    if all(type(bound) in (int, float) for bound in (start, end, step)):
        return op.constant(np.arange(start, end, step).astype(dtype.numpy))
    whole = element_type(torch.int64)
    if not all(isinstance(bound, (int, torch.SymInt)) for bound in (start, end, step)):
        raise Unsupported("a range between sizes that are floats")
    return op.as_type(op.Range(*(op.scalar(bound, whole) for bound in (start, end, step))), dtype)
