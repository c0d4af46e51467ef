"""Cases of the ops that put elements in another order."""

from __future__ import annotations

import numpy as np

from sardonyx import dtypes
from sardonyx.dtypes import ALL
from tests.ops.cases import case, f32, i64, refuse

case("Transpose", data=f32(2, 3, 4), perm=[2, 0, 1], expect=lambda data: np.moveaxis(data, 2, 0))
case("Transpose", data=f32(2, 3, 4), expect=lambda data: data.T)
case("Transpose", data=f32(), expect=lambda data: data)
case("Transpose", data=f32(2, 0), perm=[1, 0], expect=np.zeros((0, 2), np.float32))
case("Transpose", data=i64(2, 3), types={"T": ALL}, since=25, expect=lambda data: data.T)
refuse("Transpose", data=f32(2, 3), perm=[0, 0], match="perm")
refuse("Transpose", data=f32(2, 3), perm=[0, 1, 2], match="perm")

# one pixel of 8 or 4 channels becomes blocks of 2x2 pixels
CHANNELS = np.arange(8, dtype=np.float32).reshape(1, 8, 1, 1)
DEPTH_FIRST = np.array([[[[0, 2], [4, 6]], [[1, 3], [5, 7]]]], np.float32)
CHANNEL_FIRST = np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2)

case("DepthToSpace", input=CHANNELS, blocksize=2, expect=DEPTH_FIRST)
case("DepthToSpace", input=CHANNELS, blocksize=2, mode="DCR", expect=DEPTH_FIRST)
case("DepthToSpace", input=CHANNELS, blocksize=2, mode="CRD", expect=CHANNEL_FIRST)
case("DepthToSpace", input=f32(2, 3, 4, 5), blocksize=1, expect=lambda input: input)
case("DepthToSpace", input=f32(0, 4, 2, 3), blocksize=2, expect=np.zeros((0, 1, 4, 6), np.float32))
case(
    "DepthToSpace",
    input=i64(1, 4, 1, 1),
    blocksize=2,
    types={"T": ALL},
    since=13,
    expect=lambda input: input.reshape(1, 1, 2, 2),
)
refuse("DepthToSpace", input=f32(1, 3, 2, 2), blocksize=2, match="multiple")
refuse("DepthToSpace", input=f32(4, 2, 2), blocksize=2, match="rank")
for _mode in ("RDC", ""):
    refuse("DepthToSpace", input=f32(1, 4, 2, 2), blocksize=2, mode=_mode, since=11, match=f"mode is {_mode!r}")
    refuse("SpaceToDepth", input=f32(1, 1, 2, 2), blocksize=2, mode=_mode, since=28, match=f"mode is {_mode!r}")

case("SpaceToDepth", input=DEPTH_FIRST, blocksize=2, expect=CHANNELS)
case("SpaceToDepth", input=CHANNEL_FIRST, blocksize=2, mode="CRD", expect=CHANNELS)
case("SpaceToDepth", input=f32(2, 1, 4, 6), blocksize=2, until=13, against_onnxruntime=True)
case(
    "SpaceToDepth",
    input=i64(1, 1, 2, 2),
    blocksize=2,
    types={"T": ALL},
    since=13,
    expect=lambda input: input.reshape(1, 4, 1, 1),
)
refuse("SpaceToDepth", input=f32(1, 1, 3, 2), blocksize=2, match="multiple")

COLUMNS = np.arange(16, dtype=np.float32).reshape(4, 4)

case(
    "ReverseSequence", input=COLUMNS, sequence_lens=[4, 3, 0, 1], batch_axis=1, time_axis=0,
    expect=lambda input: np.stack([input[::-1, 0], input[[2, 1, 0, 3], 1], input[:, 2], input[:, 3]], axis=1),
)  # fmt: skip
case(
    "ReverseSequence", input=COLUMNS, sequence_lens=[1, 2, 3, 4], batch_axis=0, time_axis=1,
    expect=lambda input: np.stack([input[0], input[1, [1, 0, 2, 3]], input[2, [2, 1, 0, 3]], input[3, ::-1]]),
)  # fmt: skip
case("ReverseSequence", input=f32(3, 2, 2, 2), sequence_lens=[3, 3], expect=lambda input: input[::-1])
case("ReverseSequence", input=i64(2, 1), sequence_lens=[2], types={"T": ALL}, since=10, expect=lambda input: input[::-1])
refuse("ReverseSequence", input=f32(2, 2), sequence_lens=[3, 1], match="length")
refuse("ReverseSequence", input=f32(2, 2), sequence_lens=[1, 1], batch_axis=1, time_axis=1, match="axis")

case("Trilu", input=f32(3, 4), expect=lambda input: np.triu(input))
case("Trilu", input=f32(3, 4), k=np.int64(1), expect=lambda input: np.triu(input, 1))
case("Trilu", input=f32(2, 4, 3), k=np.int64(-1), upper=0, expect=lambda input: np.tril(input, -1))
case("Trilu", input=f32(2, 3), k=np.int64(2**63 - 1), expect=np.zeros((2, 3), np.float32))
case("Trilu", input=f32(2, 3), k=np.int64(-(2**63)), upper=0, expect=np.zeros((2, 3), np.float32))
case(
    "Trilu",
    input=np.array([[np.nan, np.inf], [np.nan, np.inf]], np.float32),
    expect=np.array([[np.nan, np.inf], [0, np.inf]], np.float32),
)
case("Trilu", input=f32(0, 3), expect=lambda input: input)
case("Trilu", input=i64(2, 2), types={"T": ALL - {dtypes.string}}, expect=lambda input: np.triu(input))
case("Trilu", input=np.array([["a", "b"], ["c", "d"]], object), expect=np.array([["a", "b"], ["", "d"]], object))
refuse("Trilu", input=f32(3), match="rank")
