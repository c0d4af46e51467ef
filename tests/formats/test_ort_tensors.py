"""Tensors of ORT format files: packed types, strings, alignment, sparse initializers, attributes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from sardonyx.errors import Fail
from sardonyx.formats.ort.decoding import decode
from sardonyx.formats.ort.encoding import encode
from sardonyx.formats.ort.reader import read_model
from tests.formats.ort_files import (
    Tree,
    edited,
    graph_of,
    node_of,
)

# --- tensors


def one_tensor(tensor: Tree, elem_type: int, dims: list[int]) -> bytes:
    """A model whose output is an initializer."""
    shape = {"dim": [{"value": {"dim_type": 1, "dim_value": size}} for size in dims]}
    tree = {
        "ort_version": "6",
        "model": {
            "ir_version": 10,
            "opset_import": [{"domain": "", "version": 21}],
            "graph": {
                "initializers": [{"name": "t", "data_type": elem_type, "dims": dims, **tensor}],
                "node_args": [{"name": "t", "type": {"value_type": 1, "value": {"elem_type": elem_type, "shape": shape}}}],
                "outputs": ["t"],
            },
        },
        "kernel_type_str_resolver": {"op_kernel_type_str_args": []},
    }
    return bytes(encode(tree))


@pytest.mark.parametrize(
    ("dtype", "code"),
    [(ml_dtypes.uint4, 21), (ml_dtypes.int4, 22), (ml_dtypes.float4_e2m1fn, 23), (ml_dtypes.uint2, 25), (ml_dtypes.int2, 26)],
)
def test_types_of_less_than_a_byte_are_read_though_onnxruntime_does_not(dtype, code):
    numbers = np.array([0, 1, 0, 1, 1, 0, 1], dtype)
    bits = 2 if code > 24 else 4
    one = {21: 1, 22: 1, 23: 2, 25: 1, 26: 1}[code]
    packed = bytearray(-(-7 * bits // 8))
    for position, number in enumerate(numbers.astype(int)):
        packed[position * bits // 8] |= int(number) * one << position * bits % 8
    model = read_model(one_tensor({"raw_data": bytes(packed)}, code, [7]))
    assert np.array_equal(model.graph.initializers["t"].constant.numpy(), numbers)
    with pytest.raises(Fail, match="size mismatch"):
        read_model(one_tensor({"raw_data": bytes(packed) + b"\0"}, code, [7]))


def test_strings_may_be_any_bytes():
    model = read_model(one_tensor({"string_data": ["a", "\udcff", "é"]}, 8, [3]))
    assert list(model.graph.initializers["t"].constant.numpy()) == ["a", "\udcff", "é"]


def test_a_scalar_has_no_dims_and_an_empty_tensor_no_bytes():
    assert read_model(one_tensor({"raw_data": np.float32(3).tobytes()}, 1, [])).graph.initializers["t"].constant.numpy() == 3
    assert read_model(one_tensor({"raw_data": b""}, 1, [0, 3])).graph.initializers["t"].constant.numpy().shape == (0, 3)


@pytest.mark.parametrize("offset", range(4))
def test_weights_need_not_be_aligned(offset):
    data = one_tensor({"raw_data": np.arange(6, dtype=np.float64).tobytes()}, 11, [6])
    shifted = memoryview(bytes(offset) + data)[offset:]
    array = read_model(shifted, directly=True).graph.initializers["t"].constant.numpy()
    assert array.flags.aligned and np.array_equal(array, np.arange(6))


def sparse(**values: Any) -> bytes:
    indices: Tree = {"dims": [2], "data_type": 7, "raw_data": np.array([5, 1]).tobytes()}
    indices |= values.pop("indices", {})
    content: Tree = {"name": "t", "dims": [2], "data_type": 1, "raw_data": np.array([2, 3], np.float32).tobytes()}
    content |= values.pop("values", {})

    def edit(tree: Tree) -> None:
        graph_of(tree)["initializers"] = []
        graph_of(tree)["sparse_initializers"] = [{"values": content, "indices": indices, "dims": [2, 3], **values}]

    tree = decode(one_tensor({"raw_data": bytes(24)}, 1, [2, 3]))
    edit(tree)
    return bytes(encode(tree))


@pytest.mark.parametrize(
    "indices",
    [
        {},
        {"data_type": 3, "raw_data": np.array([5, 1], np.int8).tobytes()},
        {"data_type": 5, "raw_data": np.array([5, 1], np.int16).tobytes()},
        {"data_type": 6, "raw_data": np.array([5, 1], np.int32).tobytes()},
        {"dims": [2, 2], "raw_data": np.array([[1, 2], [0, 1]]).tobytes()},
    ],
)
def test_positions_of_sparse_initializers_come_in_several_forms(indices):
    model = read_model(sparse(indices=indices))
    assert np.array_equal(model.graph.initializers["t"].constant.numpy(), [[0, 3, 0], [0, 0, 2]])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"indices": {"data_type": 2, "raw_data": b"\5\1"}}, "must be int8, int16, int32 or int64"),
        ({"indices": {"raw_data": np.array([6, 1]).tobytes()}}, "outside its dims"),
        ({"indices": {"raw_data": np.array([-1, 1]).tobytes()}}, "outside its dims"),
        ({"indices": {"dims": [2, 2], "raw_data": np.array([[2, 0], [0, 1]]).tobytes()}}, "outside its dims"),
        ({"values": {"name": ""}}, "Missing name"),
        ({"values": {"dims": [2, 1]}}, "must be 1-D"),
        ({"dims": [2**20, 2**20]}, "too large"),
    ],
)
def test_sparse_initializers_that_are_refused(change, reason):
    with pytest.raises(Fail, match=reason):
        read_model(sparse(**change))


def test_attributes_may_hold_any_bytes():
    def edit(tree: Tree) -> None:
        node_of(tree)["attributes"] = [
            {"name": "a", "type": 3, "s": "\udcff"},
            {"name": "b", "type": 8, "strings": ["\udcff", "é"]},
        ]

    node = next(read_model(edited("basic.noopt", edit)).graph.nodes)
    assert node.attribute("a") == b"\xff" and node.attribute("b") == [b"\xff", "é"]
