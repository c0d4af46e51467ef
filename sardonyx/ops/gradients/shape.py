"""Gradients of ops that move elements and compute nothing: each sends what came back to where the elements were."""

from __future__ import annotations

import numpy as np

from sardonyx.ops.gradients.builder import CONTRIB
from sardonyx.ops.gradients.table import gradient, no_gradient

no_gradient("Shape", "Size", "ConstantOfShape", "EyeLike", "NonZero", "OneHot", "Range")
no_gradient("Bernoulli", "Multinomial", "RandomNormalLike", "RandomUniformLike")


@gradient("Reshape")
def reshape(op, data, reshaped_grad):
    return op.shaped(reshaped_grad, data)


@gradient("Flatten")
def flatten(op, input, output_grad):
    return op.shaped(output_grad, input)


@gradient("Squeeze")
def squeeze(op, data, squeezed_grad):
    return op.shaped(squeezed_grad, data)


@gradient("Unsqueeze")
def unsqueeze(op, data, expanded_grad):
    return op.shaped(expanded_grad, data)


@gradient("Transpose")
def transpose(op, transposed_grad, perm):
    return op.Transpose(transposed_grad, perm=None if perm is None else np.argsort(perm))


@gradient("Expand")
def expand(op, input, output_grad):
    return op.fitted(output_grad, input)


@gradient("Concat", since=4)
def concat(op, inputs, concat_result_grad, axis):
    if len(inputs) == 1:
        return {"inputs": [concat_result_grad]}
    sizes = [op.shape(value)[axis] for value in inputs]
    if all(isinstance(size, int) for size in sizes):
        split = op.constant(np.array(sizes, np.int64))
    else:
        index = op.constant(np.array([axis], np.int64))
        split = op.Concat(*(op.Gather(op.Shape(value), index) for value in inputs), axis=0)
    return {"inputs": op.contrib("SplitTraining", concat_result_grad, split, axis=axis, outputs=len(inputs))}


@gradient("Split")
def split(op, outputs, outputs_grad, axis):
    parts = [op.zeros(value) if part is None else part for value, part in zip(outputs, outputs_grad, strict=True)]
    return op.Concat(*parts, axis=axis)


@gradient("SplitTraining", domain=CONTRIB)
def split_training(op, outputs, outputs_grad, axis):
    return split(op, outputs, outputs_grad, axis)


@gradient("Slice")
def slice(op, data, starts, ends, axes, steps, output_grad):
    return op.contrib("SliceGrad", output_grad, op.Shape(data), starts, ends, axes, steps)


@gradient("Pad")
def pad(op, data, pads, axes, mode, output_grad):
    """What was added is cut off: pads that are negative do that, and what they cut off comes back as zeros.

    Where copies of elements were added, their places padded alike say what each copy belongs to.
    """
    if mode == "constant":
        return op.Pad(output_grad, pads=op.Neg(pads), axes=axes)
    first, step = (op.constant(np.array(number, np.int64)) for number in (0, 1))
    places = op.Reshape(op.Range(first, op.Size(data), step), op.Shape(data))
    flat = op.constant(np.array([-1], np.int64))
    owners, parts = (op.Reshape(value, flat) for value in (op.Pad(places, pads=pads, axes=axes, mode=mode), output_grad))
    return op.shaped(op.contrib("GatherGrad", op.Unsqueeze(op.Size(data), axes=[0]), owners, parts, axis=0), data)


@gradient("Tile", since=6)
def tile(op, input, repeats, output_grad):
    """The copies of an element are summed: each axis becomes (copies, elements), one behind the other."""
    rank = op.rank(input)
    pairs = op.Concat(*(op.Unsqueeze(part, axes=[1]) for part in (repeats, op.Shape(input))), axis=1)
    copies = op.Reshape(output_grad, op.Reshape(pairs, op.constant(np.array([2 * rank], np.int64))))
    return op.ReduceSum(copies, axes=list(range(0, 2 * rank, 2)), keepdims=0) if rank else output_grad


@gradient("Trilu")
def trilu(op, k, upper, output_grad):
    return op.Trilu(output_grad, k, upper=upper)


@gradient("SpaceToDepth")
def space_to_depth(op, output_grad, blocksize):
    return op.DepthToSpace(output_grad, blocksize=blocksize)


@gradient("DepthToSpace")
def depth_to_space(op, input, output_grad, blocksize, mode):
    blocks = op.SpaceToDepth(output_grad, blocksize=blocksize)
    if mode != "CRD":
        return blocks
    # channels lie within blocks here and blocks within channels there
    split = op.Reshape(blocks, op.constant(np.array([0, blocksize * blocksize, -1], np.int64)))
    channels = op.Shape(output_grad)
    inner = op.Concat(
        op.constant(np.array([0, blocksize * blocksize], np.int64)),
        op.Gather(channels, op.constant(np.array([1], np.int64))),
        op.constant(np.array([-1], np.int64)),
        axis=0,
    )
    return op.Reshape(op.Transpose(op.Reshape(split, inner), perm=[0, 2, 1, 3]), op.Shape(input))
