"""Cases of the ops that change or measure a shape, join and cut, pad; and sizes that stay known on their way through them."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import sardonyx
from sardonyx import dtypes, errors, formats, ops
from sardonyx.dtypes import ALL
from sardonyx.ir import described
from sardonyx.providers.cpu.provider import evaluate
from tests.ops.cases import booleans, case, f32, i32, i64, refuse, strings

HUGE = 2**50
LAST = 2**63 - 1
FIRST = -(2**63) + 1

# --- Reshape, Flatten, Squeeze, Unsqueeze -----------------------------------------------------------------------------

case("Reshape", data=f32(2, 3, 4), shape=[4, 6], expect=lambda data: data.reshape(4, 6))
case("Reshape", data=f32(2, 3, 4), shape=[0, -1], expect=lambda data: data.reshape(2, 12))
case("Reshape", data=f32(2, 3, 4), shape=[-1, 0, 2], expect=lambda data: data.reshape(4, 3, 2))
case("Reshape", data=f32(1, 1), shape=np.zeros(0, np.int64), since=5, expect=lambda data: data.reshape(()))
case("Reshape", data=f32(), shape=[1, 1], expect=lambda data: data.reshape(1, 1))
case("Reshape", data=f32(0, 3), shape=[-1, 3], expect=lambda data: data)
case("Reshape", data=f32(2, 0), shape=[0, 3], allowzero=1, expect=lambda data: np.zeros((0, 3), np.float32))
case("Reshape", data=f32(3, 0), shape=[5, 0], allowzero=0, expect=lambda data: np.zeros((5, 0), np.float32))
case("Reshape", data=f32(2, 3), shape=[3, 2], types={"T": ALL}, since=25, expect=lambda data: data.reshape(3, 2))
refuse(
    "Reshape",
    data=f32(4),
    shape=[3],
    match=r"cannot be reshaped to the requested shape. Input shape:\{4\}, requested shape:\{3\}",
)
refuse("Reshape", data=f32(4), shape=[-1, 3], match="cannot be reshaped")
refuse("Reshape", data=f32(4), shape=[-1, -1], match="At most one")
refuse("Reshape", data=f32(4), shape=[2, 2, 0], match="0|zero")
refuse("Reshape", data=f32(0, 4), shape=[0, -1], allowzero=1, match="both 0 and -1")
refuse("Reshape", data=f32(4), shape=[-2, -2], match="negative|none less")

case("Flatten", input=f32(2, 3, 4), axis=1, expect=lambda input: input.reshape(2, 12))
case("Flatten", input=f32(2, 3, 4), axis=0, expect=lambda input: input.reshape(1, 24))
case("Flatten", input=f32(2, 3, 4), axis=3, expect=lambda input: input.reshape(24, 1))
case("Flatten", input=f32(2, 3, 4), axis=-1, since=11, expect=lambda input: input.reshape(6, 4))
case("Flatten", input=f32(), axis=0, expect=lambda input: input.reshape(1, 1))
case("Flatten", input=f32(0, 3, 4), axis=2, expect=lambda: np.zeros((0, 4), np.float32))
case("Flatten", input=f32(2, 3), axis=1, types={"T": ALL}, since=25, expect=lambda input: input)
refuse("Flatten", input=f32(2, 3), axis=3, match="axis")

case("Squeeze", data=f32(2, 1, 3), axes=[1], expect=lambda data: data[:, 0])
case("Squeeze", data=f32(1, 2, 1), axes=[-1, 0], since=11, expect=lambda data: data[0, :, 0])
case("Squeeze", data=f32(1, 2, 1, 0), expect=lambda data: data.reshape(2, 0))
case("Squeeze", data=f32(1), axes=[0], expect=lambda data: data.reshape(()))
case("Squeeze", data=f32(1, 2), axes=[0], types={"T": ALL}, since=25, expect=lambda data: data[0])
refuse("Squeeze", data=f32(2, 1, 3), axes=[7], match="axis|axes")
refuse("Squeeze", data=f32(2, 1, 3), axes=[0], match="must be 1 instead of 2")

case("Unsqueeze", data=f32(2, 3), axes=[0, 2], expect=lambda data: data[None, :, None])
case("Unsqueeze", data=f32(2, 3), axes=[-1, 0], since=11, expect=lambda data: data[None, ..., None])
case("Unsqueeze", data=f32(), axes=[0, 1], expect=lambda data: data.reshape(1, 1))
case("Unsqueeze", data=f32(0), axes=[1], expect=lambda data: data[:, None])
case("Unsqueeze", data=f32(2), axes=[1], types={"T": ALL}, since=25, expect=lambda data: data[:, None])
refuse("Unsqueeze", data=f32(2), axes=[0, 0], match="duplicate|twice")
refuse("Unsqueeze", data=f32(2), axes=[5], match="ax[ie]s")

# --- Shape, Size, Expand, Tile ----------------------------------------------------------------------------------------

case("Shape", data=f32(2, 3, 4), expect=np.array([2, 3, 4]))
case("Shape", data=f32(), expect=np.zeros(0, np.int64))
case("Shape", data=f32(2, 3, 4), start=-2, end=5, expect=np.array([3, 4]))
case("Shape", data=f32(2, 3, 4), start=-9, end=-1, expect=np.array([2, 3]))
case("Shape", data=f32(2, 3, 4), start=2, end=1, expect=np.zeros(0, np.int64))
case("Shape", data=f32(2, 0), types={"T": ALL}, since=25, expect=np.array([2, 0]))
case("Size", data=f32(2, 3, 4), expect=np.array(24))
case("Size", data=f32(), expect=np.array(1))
case("Size", data=f32(2, 0), types={"T": ALL}, since=25, expect=np.array(0))

case("Expand", input=f32(3, 1), shape=[2, 1, 4], expect=lambda input: np.tile(input[None], (2, 1, 4)))
case("Expand", input=f32(2, 3), shape=[1], expect=lambda input: input)
case("Expand", input=f32(), shape=[2, 2], expect=lambda input: np.full((2, 2), input))
case("Expand", input=f32(1, 3), shape=[0, 3], expect=np.zeros((0, 3), np.float32))
case("Expand", input=f32(2, 1), shape=[2, 2], types={"T": ALL}, since=13, expect=lambda input: np.repeat(input, 2, axis=1))
refuse("Expand", input=f32(2), shape=[3], match="broadcast|expand")
refuse("Expand", input=f32(2), shape=[HUGE, 2], match="bytes")
refuse("Expand", input=f32(2), shape=[-1], match="negative|expand")
refuse("Expand", input=f32(), shape=[2, -(2**31) - 1], match="negative|expand")

case("Tile", input=f32(2, 3), repeats=[2, 1], expect=lambda input: np.concatenate([input, input]))
case("Tile", input=f32(2, 3), repeats=[1, 3], expect=lambda input: np.concatenate([input] * 3, axis=1))
case("Tile", input=f32(2, 3), repeats=[0, 2], expect=np.zeros((0, 6), np.float32))
case("Tile", input=f32(), repeats=np.zeros(0, np.int64), expect=lambda input: input)
case("Tile", input=f32(2), repeats=[2], types={"T": ALL}, since=6, expect=lambda input: np.concatenate([input, input]))
case(
    "Tile", input=f32(2, 3), repeats=np.float32(2), axis=np.float32(1), opsets=(1,), sizes_known=False,
    expect=lambda input: np.concatenate([input, input], axis=1),
)  # fmt: skip
refuse("Tile", input=f32(2, 3), repeats=[2], since=6, match="repeat")
refuse("Tile", input=f32(2, 3), repeats=[2, -1], since=6, match="negative")
refuse("Tile", input=f32(2, 3), repeats=[HUGE, 1], since=6, match="bytes")

# --- Concat, Split, Slice ---------------------------------------------------------------------------------------------

case("Concat", inputs=[f32(2, 3), f32(1, 3)], axis=0, expect=lambda inputs: np.concatenate(inputs))
case("Concat", inputs=[f32(2, 3), f32(2, 1), f32(2, 0)], axis=1, expect=lambda inputs: np.concatenate(inputs, axis=1))
case("Concat", inputs=[f32(2, 3), f32(2, 3)], axis=-1, since=11, expect=lambda inputs: np.concatenate(inputs, axis=1))
case("Concat", inputs=[f32(2, 3)], axis=0, expect=lambda inputs: inputs[0])
case("Concat", inputs=[f32(2, 3), f32(2, 1)], until=1, expect=lambda inputs: np.concatenate(inputs, axis=1))
case("Concat", inputs=[f32(2), f32(1)], axis=0, types={"T": ALL}, since=4, expect=lambda inputs: np.concatenate(inputs))
refuse("Concat", inputs=[f32(2, 3), f32(2, 4)], axis=0, match="differ|mismatch")
refuse("Concat", inputs=[f32(2, 3), f32(2)], axis=0, match="rank")
refuse("Concat", inputs=[f32(2, 3), f32(2, 3)], axis=2, match="axis")

case("Split", input=f32(2, 6), axis=1, split=[1, 2, 3], expect=lambda input: (input[:, :1], input[:, 1:3], input[:, 3:]))
case("Split", input=f32(4, 2), axis=0, until=13, expect=lambda input: (input[:2], input[2:]))
case("Split", input=f32(4, 2), num_outputs=2, expect=lambda input: (input[:2], input[2:]))
case("Split", input=f32(7), num_outputs=3, expect=lambda input: (input[:3], input[3:6], input[6:]))
case("Split", input=f32(7), num_outputs=2, expect=lambda input: (input[:4], input[4:]))
case("Split", input=f32(5), num_outputs=4, expect=lambda input: (input[:2], input[2:4], input[4:], input[5:]))
case("Split", input=f32(2, 3), axis=-1, split=[0, 3], since=11, expect=lambda input: (input[:, :0], input))
case("Split", input=f32(4), split=[3, 1], types={"T": ALL}, since=2, expect=lambda input: (input[:3], input[3:]))
refuse("Split", input=f32(5), split=[2, 2], outputs=2, match="split")
refuse("Split", input=f32(5), outputs=2, until=13, match="split")
refuse("Split", input=f32(5), split=[6, -1], outputs=2, match="split|negative")

case("Slice", data=f32(5, 6), starts=[1, 2], ends=[4, -1], axes=[0, 1], expect=lambda data: data[1:4, 2:-1])
case("Slice", data=f32(5, 6), starts=[1], ends=[LAST], axes=[1], expect=lambda data: data[:, 1:])
case("Slice", data=f32(5, 6), starts=[-2, -3], ends=[5, 100], expect=lambda data: data[-2:, -3:])
case("Slice", data=f32(5, 6), starts=[3], ends=[1], axes=[0], expect=lambda data: data[:0])
case("Slice", data=f32(5), starts=[1], ends=[5], axes=[0], steps=[2], expect=lambda data: data[1::2])
case("Slice", data=f32(5), starts=[-1], ends=[FIRST], axes=[0], steps=[-1], expect=lambda data: data[::-1])
case("Slice", data=f32(5), starts=[LAST], ends=[FIRST], axes=[-1], steps=[-2], expect=lambda data: data[::-2])
case("Slice", data=f32(5), starts=[-10], ends=[-100], axes=[0], steps=[-1], expect=lambda data: data[:1])
case("Slice", data=f32(5), starts=[10], ends=[-3], axes=[0], steps=[-1], expect=lambda data: data[4:2:-1])
case("Slice", data=f32(0), starts=[3], ends=[FIRST], axes=[0], steps=[-1], expect=lambda data: data)
case("Slice", data=f32(5), starts=i32(1), ends=np.array([4], np.int32), since=10, against_onnxruntime=True)
case("Slice", data=f32(3, 2), starts=[1], ends=[3], types={"T": ALL}, since=13, expect=lambda data: data[1:])
refuse("Slice", data=f32(5), starts=[0], ends=[5], axes=[0], steps=[0], match="step")
refuse("Slice", data=f32(5), starts=[0], ends=[5], axes=[1], match="axis|axes")

# --- Pad, CenterCropPad -----------------------------------------------------------------------------------------------

PADS = [1, 0, 2, 3]  # before both axes, then after both

case("Pad", data=f32(2, 3), pads=PADS, expect=lambda data: np.pad(data, [(1, 2), (0, 3)]))
case(
    "Pad",
    data=f32(2, 3),
    pads=PADS,
    constant_value=np.float32(7),
    expect=lambda data: np.pad(data, [(1, 2), (0, 3)], constant_values=7),
)
case(
    "Pad", data=f32(2, 3), pads=PADS, value=7.0, until=2, expect=lambda data: np.pad(data, [(1, 2), (0, 3)], constant_values=7)
)
case("Pad", data=f32(2, 3), paddings=PADS, value=7.0, expect=lambda data: np.pad(data, [(1, 2), (0, 3)], constant_values=7))
case("Pad", data=f32(3, 5), pads=PADS, mode="reflect", expect=lambda data: np.pad(data, [(1, 2), (0, 3)], mode="reflect"))
case("Pad", data=f32(2, 3), pads=PADS, mode="edge", expect=lambda data: np.pad(data, [(1, 2), (0, 3)], mode="edge"))
case(
    "Pad",
    data=f32(2, 3),
    pads=[3, 0, 2, 8],
    mode="wrap",
    since=19,
    expect=lambda data: np.pad(data, [(3, 2), (0, 8)], mode="wrap"),
)
case("Pad", data=f32(3), pads=[7, 9], mode="reflect", expect=lambda data: np.pad(data, (7, 9), mode="reflect"))
case("Pad", data=f32(5), pads=[-1, 2], mode="reflect", expect=lambda data: data[[1, 2, 3, 4, 3, 2]])
case("Pad", data=f32(5), pads=[3, -4], mode="edge", expect=lambda data: data[[0, 0, 0, 0]])
case("Pad", data=f32(5), pads=[-2, 4], mode="wrap", since=19, expect=lambda data: data[[2, 3, 4, 2, 3, 4, 2]])
case("Pad", data=f32(3), pads=[-4, 3], expect=np.zeros(2, np.float32))
case("Pad", data=f32(4, 4), pads=[-1, 1, -2, -2], expect=lambda data: np.pad(data[1:2, :2], [(0, 0), (1, 0)]))
case("Pad", data=f32(0, 2), pads=[1, 0, 0, 0], expect=np.zeros((1, 2), np.float32))
case("Pad", data=f32(2, 3), pads=[1, 2], axes=[-1], expect=lambda data: np.pad(data, [(0, 0), (1, 2)]))
case("Pad", data=f32(2, 3), pads=[1, 2], axes=np.array([0], np.int32), expect=lambda data: np.pad(data, [(1, 2), (0, 0)]))
case("Pad", data=strings(2), pads=[1, 1], mode="edge", since=13, expect=lambda data: data[[0, 0, 1, 1]])
case("Pad", data=strings(2), pads=[1, 0], since=13, expect=lambda data: np.array(["", *data], dtype=object))
case("Pad", data=i64(3), pads=[1, 1], mode="wrap", types={"T": ALL}, since=25, expect=lambda data: data[[2, 0, 1, 2, 0]])
case(
    "Pad", data=i64(2), pads=[0, 2], constant_value=np.int64(1), types={"T": ALL - {dtypes.string}}, since=25,
    expect=lambda data: np.concatenate([data, np.ones(2, data.dtype)]),
)  # fmt: skip
refuse("Pad", data=f32(2, 3), pads=[1, 1], match="pads")
refuse("Pad", data=f32(0), pads=[1, 1], mode="edge", match="'edge' mode to pad dimension with a value of 0")
refuse("Pad", data=f32(3), pads=[-2, -2], match="negative")
refuse("Pad", data=f32(3), pads=[HUGE, 0], match="bytes")
refuse("Pad", data=f32(3), pads=[1, 1], mode="mirror", match="mirror")

case("CenterCropPad", input_data=f32(5, 4), shape=[2, 7], expect=lambda input_data: np.pad(input_data[1:3], [(0, 0), (1, 2)]))
case("CenterCropPad", input_data=f32(5, 4), shape=[2, 3], expect=lambda input_data: input_data[1:3, :3])
case(
    "CenterCropPad", input_data=f32(5, 4), shape=[6], axes=[-2], expect=lambda input_data: np.pad(input_data, [(0, 1), (0, 0)])
)
case("CenterCropPad", input_data=f32(5, 4), shape=np.array([4, 0], np.int32), expect=lambda input_data: input_data[:4, :0])
case("CenterCropPad", input_data=i64(3), shape=[1], types={"T": ALL}, expect=lambda input_data: input_data[1:2])
case(
    "CenterCropPad", input_data=strings(1), shape=[3], expect=lambda input_data: np.array(["", input_data[0], ""], dtype=object)
)
refuse("CenterCropPad", input_data=f32(3), shape=[HUGE], match="bytes")
refuse("CenterCropPad", input_data=booleans(3), shape=[1, 2], match="axes|sizes")


# --- sizes stay known -------------------------------------------------------------------------------------------------

CONSTANTS = """
    zero = Constant <value_int = 0> ()   one = Constant <value_int = 1> ()
    v0 = Constant <value_ints = [0]> ()  v1 = Constant <value_ints = [1]> ()  v2 = Constant <value_ints = [2]> ()
    rest = Constant <value_ints = [-1]> ()  heads = Constant <value_ints = [12]> ()
    last = Constant <value_ints = [9223372036854775807]> ()  first = Constant <value_ints = [-9223372036854775807]> ()
"""


def types_of(signature: str, body: str) -> dict[str, str]:
    text = f'<ir_version: 10, opset_import: ["" : 21]> g ({signature}) => () {{ {CONSTANTS} {body} }}'
    model = formats.load(onnx.parser.parse_model(text))
    ops.infer(model, evaluate)
    return {value.name: described(value.type) for value in model.graph.values()}


IDIOMS = {
    "heads": (
        "s = Shape(x) b = Gather(s, zero) t = Gather(s, one) bu = Unsqueeze(b, v0) tu = Unsqueeze(t, v0) "
        "c = Concat <axis = 0> (bu, tu, heads, rest) y = Reshape(x, c)",
        "float[B, S, 12, 64]",
    ),
    "sliced shape": ("s = Shape(x) h = Slice(s, v0, v2) c = Concat <axis = 0> (h, rest) y = Reshape(x, c)", "float[B, S, 768]"),
    "merged axes": ("s = Shape <start = 2> (x) c = Concat <axis = 0> (rest, s) y = Reshape(x, c)", "float[B*S, 768]"),
    "positions": ("s = Shape(x) t = Gather(s, one) y = Range(zero, t, one)", "int64[S]"),
    "mask": ("s = Shape <start = 0, end = 2> (x) y = ConstantOfShape(s)", "float[B, S]"),
    "expanded": ("s = Shape(x) e = Expand(one, s) y = Tile(e, s)", "int64[B*B, S*S, 589824]"),
    "split shape": (
        "s = Shape(x) b, t, d = Split <num_outputs = 3> (s) c = Concat <axis = 0> (t, b) y = ConstantOfShape(c)",
        "float[S, B]",
    ),
    "squeezed": ("s = Shape <start = 1, end = 2> (x) t = Squeeze(s, v0) y = Range(zero, t, one)", "int64[S]"),
    "tail": ("y = Slice(x, v2, last, v1)", "float[B, max(0, S-min(2, S)), 768]"),
    "last": ("y = Slice(x, rest, last, v1)", "float[B, min(1, S), 768]"),
    "first ones backward": ("y = Slice(x, v2, first, v1, rest)", "float[B, min(3, S), 768]"),
    "halves": ("y, z = Split <axis = 1, num_outputs = 2> (x)", "float[B, -((-S)//2), 768]"),
    "size": ("s = Size(x) n = Unsqueeze(s, v0) y = Reshape(x, n)", "float[768*B*S]"),
    "flat": ("y = Flatten <axis = 2> (x)", "float[B*S, 768]"),
}  # fmt: skip


@pytest.mark.parametrize("body, expected", IDIOMS.values(), ids=IDIOMS.keys())
def test_shape_arithmetic_with_symbols_stays_known(body, expected):
    assert types_of("float[B, S, 768] x", body)["y"] == expected


def test_unknown_content_leaves_the_rank_known():
    types = types_of("float[B, S] x, int64[3] n, int64[k] m", "y = Reshape(x, n) z = Reshape(x, m)")
    assert types["y"].count(",") == 2
    assert types["z"] == "float[...]"


def test_a_reshape_that_cannot_be_is_refused_at_load():
    with pytest.raises(errors.Fail, match=r"Input shape:\{2,3\}, requested shape:\{4,2\}"):
        types_of("float[2, 3] x", "c = Constant <value_ints = [4, 2]> () y = Reshape(x, c)")


@pytest.mark.parametrize(
    "node",
    [
        "Tile(x, below)",
        "Expand(x, below)",
        "ConstantOfShape(below)",
        "Reshape(x, below)",
        "Pad(x, pads)",
    ],
)
def test_constants_that_ask_for_a_negative_size_are_refused_by_name(node: str) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 21]> g () => (y)
        <float[2] x = {{1, 2}}, int64[1] below = {{-2}}, int64[2] pads = {{-3, 0}}, int64[1] axis = {{0}}> {{ y = {node} }}"""
    with pytest.raises(errors.CODED, match=node.split("(", maxsplit=1)[0]):
        sardonyx.InferenceSession(onnx.parser.parse_model(text)).run(None, {})


@pytest.mark.parametrize("node", ["Tile(x, huge)", "Expand(x, huge)", "ConstantOfShape(huge)"])
def test_constants_of_sizes_that_no_array_has_are_refused_by_name(node: str) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 21]> g () => (y)
        <float[1,1] x = {{1}}, int64[2] huge = {{{2**63 - 1}, 0}}> {{ y = {node} }}"""
    with pytest.raises(errors.CODED, match=f"running {node.split('(', maxsplit=1)[0]} node"):
        sardonyx.InferenceSession(onnx.parser.parse_model(text)).run(None, {})
