"""Cases of the ops that make a tensor out of little or nothing."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import sardonyx
from sardonyx import dtypes
from sardonyx.dtypes import ALL
from sardonyx.errors import Fail
from sardonyx.ir import SparseTensor
from tests.ops.cases import case, f32, i64, refuse, strings

HUGE = 2**60

VALUE = f32(2, 3)
WORDS = strings(2)

case("Constant", value=VALUE, expect=VALUE)
case("Constant", value=WORDS, since=9, expect=WORDS)
case("Constant", value_float=1.5, expect=np.float32(1.5))
case("Constant", value_floats=[1.5, 2.5], expect=np.array([1.5, 2.5], np.float32))
case("Constant", value_int=-3, expect=np.int64(-3))
case("Constant", value_ints=[3, 2**40], expect=np.array([3, 2**40]))
case("Constant", value_string="é", expect=np.array("é", dtype=object))
case("Constant", value_strings=["a", ""], expect=np.array(["a", ""], dtype=object))
case(
    "Constant", sparse_value=SparseTensor(np.array([1.5, 2.5], np.float32), np.array([1, 5]), (2, 3)),
    expect=np.array([[0, 1.5, 0], [0, 0, 2.5]], np.float32),
)  # fmt: skip
refuse("Constant", since=12, match="value")

case("ConstantOfShape", input=[2, 3], expect=np.zeros((2, 3), np.float32))
case("ConstantOfShape", input=[2, 0], value=np.array([7], np.int32), expect=np.zeros((2, 0), np.int32))
case("ConstantOfShape", input=[3], value=np.array([-7], np.int8), expect=np.full(3, -7, np.int8))
case("ConstantOfShape", input=np.zeros(0, np.int64), value=np.array([True]), expect=np.array(True))
case(
    "ConstantOfShape",
    input=[2],
    value=np.array([1.5], dtypes.bfloat16.numpy),
    since=20,
    expect=np.full(2, 1.5, dtypes.bfloat16.numpy),
)
case("ConstantOfShape", input=[2], value=np.array([3], dtypes.int4.numpy), since=21, expect=np.full(2, 3, dtypes.int4.numpy))
refuse("ConstantOfShape", input=[2, -1], match="negative")
refuse("ConstantOfShape", input=[HUGE, 2], match="bytes")

case("EyeLike", input=f32(2, 3), expect=np.eye(2, 3, dtype=np.float32))
case("EyeLike", input=f32(3, 2), k=-1, dtype=dtypes.int32.code, expect=np.array([[0, 0], [1, 0], [0, 1]], np.int32))
case("EyeLike", input=f32(2, 3), k=2, dtype=dtypes.bool_.code, expect=np.array([[False, False, True], [False] * 3]))
case("EyeLike", input=f32(2, 3), k=9, expect=np.zeros((2, 3), np.float32))
case("EyeLike", input=f32(2, 3), k=-(2**62), expect=np.zeros((2, 3), np.float32))
case("EyeLike", input=f32(0, 3), expect=np.zeros((0, 3), np.float32))
case("EyeLike", input=i64(2, 2), types={"T1": ALL}, since=22, expect=lambda input: np.eye(2).astype(input.dtype))
refuse("EyeLike", input=f32(3), match="rank|dimension")

INTS = {dtypes.int16, dtypes.int32, dtypes.int64}
FLOATS = {dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64}

case(
    "Range",
    start=np.int64(3),
    limit=np.int64(9),
    delta=np.int64(3),
    types={"T": INTS | FLOATS},
    expect=lambda start: np.array([3, 6], start.dtype),
    sizes_known=False,
)
case(
    "Range",
    start=np.int64(10),
    limit=np.int64(4),
    delta=np.int64(-2),
    types={"T": INTS | FLOATS},
    expect=lambda start: np.array([10, 8, 6], start.dtype),
    sizes_known=False,
)
case(
    "Range",
    start=np.int64(5),
    limit=np.int64(5),
    delta=np.int64(1),
    types={"T": INTS | FLOATS},
    expect=lambda start: np.zeros(0, start.dtype),
    sizes_known=False,
)
case("Range", start=np.int64(5), limit=np.int64(9), delta=np.int64(-1), expect=np.zeros(0, np.int64))
case(
    "Range", start=np.float32(0), limit=np.float32(1), delta=np.float32(0.25), expect=np.array([0, 0.25, 0.5, 0.75], np.float32)
)
case("Range", start=np.int16(-32768), limit=np.int16(32767), delta=np.int16(1), expect=np.arange(-32768, 32767, dtype=np.int16))
case(
    "Range",
    start=np.float16(2000),
    limit=np.float16(3000),
    delta=np.float16(1),
    stash_type=1,
    expect=np.arange(2000, 3000).astype(np.float16),
)
refuse("Range", start=np.int64(0), limit=np.int64(5), delta=np.int64(0), match="zero")
refuse("Range", start=np.float32(0), limit=np.float32(np.nan), delta=np.float32(1), match="finite")
refuse("Range", start=np.int64(0), limit=np.int64(HUGE), delta=np.int64(1), match="bytes")

OFF_ON = np.array([2, 7])
NUMBERS = {t for t in dtypes.NUMERIC if t.bits >= 8}

case(
    "OneHot",
    indices=np.array([0, 2, -1, 3, -4]),
    depth=np.int64(3),
    values=OFF_ON,
    expect=np.array([[7, 2, 2], [2, 2, 7], [2, 2, 7], [2] * 3, [2] * 3]),
)
case("OneHot", indices=np.array([[1], [0]]), depth=[2], values=OFF_ON, axis=0, expect=np.array([[[2], [7]], [[7], [2]]]))
case("OneHot", indices=np.array([[1], [0]]), depth=[2], values=OFF_ON, axis=-2, expect=np.array([[[2], [7]], [[7], [2]]]))
case(
    "OneHot",
    indices=np.array(1),
    depth=np.int64(3),
    values=np.array(["n", "y"], dtype=object),
    expect=np.array(["n", "y", "n"], dtype=object),
)
case("OneHot", indices=np.zeros((0, 2), np.int64), depth=np.int64(3), values=OFF_ON, expect=np.zeros((0, 2, 3), np.int64))
case(
    "OneHot",
    indices=np.array([1]),
    depth=np.int64(2),
    values=OFF_ON,
    types={"T1": NUMBERS, "T2": {dtypes.int64, dtypes.float32}},
    expect=np.array([[2, 7]]),
)
case(
    "OneHot",
    indices=np.array([1]),
    depth=np.int64(2),
    values=np.array([0, 1]),
    types={"T3": ALL - {dtypes.string}},
    expect=lambda values: values[None],
)
case("OneHot", indices=np.array([2**64 - 1, 1], np.uint64), depth=np.int64(2), values=OFF_ON, expect=np.array([[2, 2], [2, 7]]))
case(
    "OneHot",
    indices=np.array([np.nan, np.inf, 1.9], np.float32),
    depth=np.int64(2),
    values=OFF_ON,
    expect=np.array([[2, 2], [2, 2], [2, 7]]),
)
for depth in (np.zeros(0, np.int64), np.array([1, 2])):
    refuse("OneHot", indices=np.array([1]), depth=depth, values=OFF_ON, match="depth must be one number")
refuse("OneHot", indices=np.array([1]), depth=np.int64(-1), values=OFF_ON, match="negative")
refuse("OneHot", indices=np.array([1]), depth=np.int64(HUGE), values=OFF_ON, match="bytes")


def test_more_axes_than_arrays_can_have_are_refused():
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21]>
        g (int64[32768] shape) => (float y) { y = ConstantOfShape(shape) }
    """)
    with pytest.raises(Fail, match="32768 axes, at most 64 are supported"):
        sardonyx.InferenceSession(model)
