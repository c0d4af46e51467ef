"""Ops that move elements, and those that go along an axis."""

from __future__ import annotations

import numpy as np

from tests.fuzz.edges.table import CONTRIB, audit, floats, int32s, ints, scalar

data = floats(2, 3, 4)

audit("Gather", {"data": data, "indices": ints([0, 2], [1, -1])}, "axis=inference indices=status", axis=1)
audit("GatherElements", {"data": data, "indices": ints([[0, 2, 1, -1]])}, "axis=inference indices=status", axis=2)
audit("GatherND", {"data": data, "indices": ints([[1], [2]], [[0], [-1]])}, "batch_dims=inference indices=status", batch_dims=1)
audit("GatherND", {"data": data, "indices": int32s([1, 2], [0, -1])}, "indices=status", domain=CONTRIB)
audit(
    "ScatterElements",
    {"data": data, "indices": ints([[0, 2, 1, -1]]), "updates": floats(1, 1, 4)},
    "axis=inference indices=status",
    axis=1,
    reduction="add",
    opset=18,
)
audit(
    "Scatter",
    {"data": data, "indices": ints([[0, 2, 1, -1]]), "updates": floats(1, 1, 4)},
    "axis=inference indices=status",
    axis=1,
    opset=10,
)
audit("ScatterND", {"data": data, "indices": ints([1, 2], [0, -1]), "updates": floats(2, 4)}, "indices=status")

audit(
    "Range",
    {"start": scalar(1), "limit": scalar(20001), "delta": scalar(2)},
    "start=sizes limit=sizes delta=sizes stash_type=flag",
    constants="start limit delta",
)
audit(
    "Range",
    {"start": scalar(1), "limit": scalar(20001), "delta": scalar(2)},
    "start=sizes limit=sizes delta=sizes",
    domain=CONTRIB,
    constants="start limit delta",
)
audit("EyeLike", {"input": floats(3, 4)}, "k=clamped dtype=inference", k=1)
audit("Trilu", {"input": data, "k": scalar(1)}, "k=clamped upper=flag", upper=1)
audit("Trilu", {"X": data, "k": scalar(1)}, "k=clamped upper=flag", domain=CONTRIB, upper=1)
audit(
    "OneHot",
    {"indices": ints([0, 2], [-1, 1]), "depth": scalar(3), "values": np.array([0, 1], np.float32)},
    "indices=data depth=sizes axis=inference",
    constants="depth",
    axis=1,
)
audit(
    "ReverseSequence",
    {"input": floats(4, 3, 2), "sequence_lens": ints(1, 4, 2)},
    "batch_axis=inference time_axis=inference sequence_lens=status",
    batch_axis=1,
    time_axis=0,
)

audit("Reshape", {"data": data, "shape": ints(3, -1)}, "shape=sizes allowzero=flag", constants="shape", allowzero=0)
audit("Squeeze", {"data": floats(1, 3, 1), "axes": ints(0, -1)}, "axes=inference", constants="axes")
audit("Unsqueeze", {"data": data, "axes": ints(0, -1)}, "axes=inference", constants="axes")
audit("ExpandDims", {"X": data, "axis": int32s(1)}, "axis=inference", domain=CONTRIB, constants="axis")
audit("Flatten", {"input": data}, "axis=inference", axis=1)
audit("Identity", {"input": data})
audit("Transpose", {"data": data}, "perm=inference", perm=[2, 0, 1])
audit("Expand", {"input": floats(3, 1), "shape": ints(2, 3, 4)}, "shape=sizes", constants="shape")
audit(
    "Slice",
    {"data": data, "starts": ints(0, -1), "ends": ints(2, 0), "axes": ints(1, 2), "steps": ints(1, -2)},
    "starts=clamped ends=clamped axes=inference steps=inference",
    constants="starts ends axes steps",
)
audit(
    "Slice",
    {"data": data, "starts": ints(0, 1), "ends": ints(2, 3), "axes": ints(1, 2)},
    "starts=clamped ends=clamped axes=inference",
)
audit(
    "Split",
    {"input": data, "split": ints(1, 3)},
    "axis=inference split=inference num_outputs=inference",
    outputs=2,
    constants="split",
    axis=2,
)
audit("Split", {"input": data}, "axis=inference num_outputs=inference", outputs=2, axis=2, num_outputs=2)
audit("UnfoldTensor", {"input": data}, "dim=inference size=inference step=inference", domain=CONTRIB, dim=-1, size=2, step=1)
audit("ConstantOfShape", {"input": ints(2, 3)}, "input=sizes", constants="input")
audit("Concat", {"a": data, "b": floats(2, 1, 4)}, "axis=inference", axis=1)
audit("Tile", {"input": data, "repeats": ints(2, 1, 3)}, "repeats=sizes", constants="repeats")
audit("DepthToSpace", {"input": floats(1, 8, 2, 3)}, "blocksize=inference", blocksize=2)
audit("SpaceToDepth", {"input": floats(1, 2, 4, 6)}, "blocksize=inference", blocksize=2)
for mode in ("constant", "reflect", "edge", "wrap"):
    audit(
        "Pad",
        {"data": data, "pads": ints(1, 0, 1, 1), "constant_value": None, "axes": ints(1, -1)},
        "pads=sizes axes=inference",
        constants="pads axes",
        mode=mode,
    )
audit("Pad", {"data": data, "pads": ints(0, 1, 0, 0, 1, 1)}, "pads=sizes", domain=CONTRIB, constants="pads")

audit("ArgMax ArgMin", {"data": data}, "axis=inference keepdims=flag select_last_index=flag", axis=1)
audit("Hardmax Softmax LogSoftmax", {"input": data}, "axis=inference", axis=1)
audit("Hardmax Softmax LogSoftmax", {"input": data}, "axis=inference", axis=1, opset=11)
audit("CumSum", {"x": data, "axis": scalar(1)}, "axis=inference exclusive=flag reverse=flag", constants="axis")
audit("CumProd", {"x": data, "axis": scalar(1)}, "axis=inference exclusive=flag reverse=flag", constants="axis", opset=26)
audit(
    "TopK",
    {"X": data, "K": ints(2)},
    "axis=inference K=sizes largest=flag sorted=flag",
    outputs=2,
    constants="K",
    axis=-1,
)
REDUCTIONS = (
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare"
)
audit(
    REDUCTIONS,
    {"data": np.abs(data) + 1, "axes": ints(0, 2)},
    "axes=inference keepdims=flag noop_with_empty_axes=flag",
    constants="axes",
    keepdims=1,
)

# versions in which inputs of today were attributes
audit("Pad", {"data": data}, "pads=sizes paddings=sizes", opset=2, pads=[0, 1, 0, 0, 1, 1])
audit("Slice", {"data": data}, "starts=clamped ends=clamped axes=inference", opset=9, starts=[0, 1], ends=[2, 3], axes=[1, 2])
audit("Split", {"input": data}, "axis=inference split=inference", outputs=2, opset=11, axis=2, split=[1, 3])
audit("Squeeze", {"data": floats(1, 3, 1)}, "axes=inference", opset=11, axes=[0, 2])
audit("Unsqueeze", {"data": data}, "axes=inference", opset=11, axes=[0, 2])
audit("TopK", {"X": data}, "axis=inference k=sizes", outputs=2, opset=9, axis=-1, k=2)
audit("ReduceMax ReduceSum", {"data": data}, "axes=inference keepdims=flag", opset=11, axes=[0, 2])
audit("Reshape", {"data": data}, "shape=sizes", opset=1, shape=[3, -1])

# numbers that only a run tells
settled = floats(2, 3, 4)
audit("Reshape", {"data": settled, "shape": ints(3, -1)}, "shape=settled allowzero=flag", allowzero=0)
audit("Expand", {"input": floats(3, 1), "shape": ints(2, 3, 4)}, "shape=settled")
audit("ConstantOfShape", {"input": ints(2, 3)}, "input=settled")
audit("Tile", {"input": settled, "repeats": ints(2, 1, 3)}, "repeats=settled")
audit("Pad", {"data": settled, "pads": ints(0, 1, 0, 0, 1, 1)}, "pads=settled axes=inference", mode="edge")
audit(
    "Slice",
    {"data": settled, "starts": ints(0, -1), "ends": ints(2, 0), "axes": ints(1, 2), "steps": ints(1, -2)},
    "starts=clamped ends=clamped axes=inference steps=inference",
    constants="axes steps",
)
audit("Split", {"input": settled, "split": ints(1, 3)}, "axis=inference split=settled num_outputs=inference", outputs=2, axis=2)
audit("Range", {"start": scalar(1), "limit": scalar(20001), "delta": scalar(2)}, "start=data limit=settled delta=settled")
audit(
    "OneHot",
    {"indices": ints([0, 2], [-1, 1]), "depth": scalar(3), "values": np.array([0, 1], np.float32)},
    "indices=data depth=settled axis=inference",
    axis=1,
)
audit("TopK", {"X": settled, "K": ints(2)}, "axis=inference K=settled largest=flag sorted=flag", outputs=2, axis=-1)
audit("NonZero", {"X": ints([1, 0, 2], [0, 0, 3])}, "X=data")
audit("Compress", {"input": settled, "condition": np.array([True, False, True])}, "axis=inference", axis=1)
