"""GatherBlockQuantized in native code, bit for bit as NumPy has it: every type, axis, kind of zero point and feature set."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from tests.compiler.functions import levels
from tests.providers.native.agreement import assert_agrees
from tests.providers.native.levels import use_level

SMALL = {
    TensorProto.INT4: ml_dtypes.int4,
    TensorProto.UINT4: ml_dtypes.uint4,
    TensorProto.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
    TensorProto.FLOAT8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
    TensorProto.FLOAT8E5M2: ml_dtypes.float8_e5m2,
    TensorProto.FLOAT8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
    TensorProto.FLOAT4E2M1: ml_dtypes.float4_e2m1fn,
}
FLOATS = {TensorProto.FLOAT: np.float32, TensorProto.FLOAT16: np.float16, TensorProto.BFLOAT16: ml_dtypes.bfloat16}


def model(types: dict[str, int], **attributes: int):
    """All inputs are fed; their ranks are known, their sizes are not."""
    names = list(types)
    inputs = [helper.make_tensor_value_info(name, type, None) for name, type in types.items()]
    output = helper.make_tensor_value_info("Y", types["scales"], None)
    node = helper.make_node("GatherBlockQuantized", names, ["Y"], domain="com.microsoft", **attributes)
    graph = helper.make_graph([node], "g", inputs, [output])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return graph, opsets


def agrees(feeds: dict[str, np.ndarray], types: dict[str, int], **attributes: int) -> None:
    graph, opsets = model(types, **attributes)
    for value, array in zip(graph.input, feeds.values(), strict=True):
        value.type.tensor_type.shape.Clear()
        for size in array.shape:
            value.type.tensor_type.shape.dim.add().dim_value = size
    assert_agrees(helper.make_model(graph, opset_imports=opsets, ir_version=11), feeds, tolerance=0.0)


@st.composite
def gathers(draw):
    """A node with its operands: feeds, types and attributes."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    rank = draw(st.integers(1, 4))
    shape = [draw(st.integers(0 if axis else 1, 40 if axis == rank - 1 else 5)) for axis in range(rank)]
    bits = draw(st.sampled_from([2, 4, 8]))
    kind = draw(st.sampled_from(["bytes", *SMALL]))
    in_byte = 8 // bits if kind == "bytes" else 1
    gather, quantize = draw(st.integers(0, rank - 1)), draw(st.integers(0, rank - 1))
    if in_byte > 1 and gather in (rank - 1, quantize):
        in_byte, bits = 1, 8
    block = draw(st.sampled_from([16, 32] if kind in ("bytes", TensorProto.INT4, TensorProto.UINT4) else [0, 16, 64]))
    logical = [*shape[:-1], shape[-1] * in_byte]
    blocks = [*logical[:quantize], -(-logical[quantize] // (block or max(1, logical[quantize]))), *logical[quantize + 1 :]]
    scale = draw(st.sampled_from(list(FLOATS)))
    types = {"data": TensorProto.UINT8 if kind == "bytes" else kind}
    types |= {"indices": draw(st.sampled_from([TensorProto.INT32, TensorProto.INT64])), "scales": scale}

    def codes(sizes):
        numbers = rng.integers(0, 256, sizes).astype(np.uint8)
        if kind == "bytes":
            return numbers
        return (numbers % 16 if SMALL[kind] in (ml_dtypes.int4, ml_dtypes.uint4) else numbers).astype(SMALL[kind])

    size = logical[gather]
    indices = rng.integers(-size - 1, size + 1, draw(st.sampled_from([(), (3,), (2, 2), (0,)])))
    feeds = {
        "data": codes(shape),
        "indices": indices.astype(np.int32 if types["indices"] == TensorProto.INT32 else np.int64),
        "scales": rng.standard_normal(blocks).astype(FLOATS[scale]),
    }
    if kind in ("bytes", TensorProto.INT4, TensorProto.UINT4) and draw(st.booleans()):
        types["zero_points"] = types["data"]
        feeds["zero_points"] = codes([*blocks[:-1], -(-blocks[-1] // in_byte)])
    sign = draw(st.sampled_from([0, rank]))
    return feeds, types, {"gather_axis": gather - sign, "quantize_axis": quantize, "block_size": block, "bits": bits}


@settings(max_examples=60, deadline=None)
@given(gathers())
def test_any_axes_types_and_indices(case) -> None:
    feeds, types, attributes = case
    agrees(feeds, types, **attributes)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_packed_tables_on_every_level(level: str, bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    use_level(monkeypatch, level)
    rng = np.random.default_rng(bits)
    width = 75 * 8
    for zero in (False, True):
        feeds = {
            "data": rng.integers(0, 256, (9, width * bits // 8)).astype(np.uint8),
            "indices": np.array([[3, -1, 8], [9, -10, 0]]),
            "scales": rng.standard_normal((9, -(-width // 16))).astype(np.float32),
        }
        types = {"data": TensorProto.UINT8, "indices": TensorProto.INT64, "scales": TensorProto.FLOAT}
        if zero:
            blocks = -(-width // 16)
            feeds["zero_points"] = rng.integers(0, 256, (9, -(-blocks * bits // 8))).astype(np.uint8)
            types["zero_points"] = TensorProto.UINT8
        agrees(feeds, types, block_size=16, bits=bits)
