"""Cases of com.microsoft's SparseAttention, against a walk over rows, heads and queries."""

import math

import numpy as np
import onnx.helper
import onnxruntime
import pytest

from sardonyx.dtypes import bfloat16, float16, float32
from sardonyx.ops import schemas
from sardonyx.providers.cpu.contrib.grouped_attention import sparse_attention
from tests.ops.cases import case, f32, refuse

CONTRIB = "com.microsoft"
HEADS, SHARED, SIZE, BLOCK = 4, 2, 16, 16
MASKS = np.array(
    [
        [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 1, 1, 1]],
        [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 1, 1]],
    ]
)


def compressed(masks):
    """Row and column indices of each mask, the columns padded with -1."""
    rows = [[0, *np.cumsum(mask.sum(axis=1))] for mask in masks]
    columns = [np.nonzero(mask)[1].tolist() for mask in masks]
    longest = max(map(len, columns))
    return {
        "block_row_indices": np.array(rows, np.int32),
        "block_col_indices": np.array([line + [-1] * (longest - len(line)) for line in columns], np.int32),
    }


def attended(masks):
    def expect(
        query, past_key, past_value, total_sequence_length, key_total_sequence_lengths, key=None, value=None, scale=None
    ):
        if key is None:
            query, key, value = np.split(query, [HEADS * SIZE, (HEADS + SHARED) * SIZE], axis=2)
        query = np.stack(np.split(query, HEADS, axis=2), axis=1)
        batch, _, queries, _ = query.shape
        output = np.zeros((batch, queries, HEADS, SIZE), np.float32)
        presents = []
        for past, new in ((past_key, key), (past_value, value)):
            present = np.zeros_like(past)
            for b, total in enumerate(key_total_sequence_lengths):
                start = 0 if queries == total_sequence_length.item() else total - queries
                present[b, :, :start] = past[b, :, :start]
                present[b, :, start : start + queries] = np.stack(np.split(new[b], SHARED, axis=1))
            presents.append(present)
        for b, h, i in np.ndindex(batch, HEADS, queries):
            start = 0 if queries == total_sequence_length.item() else key_total_sequence_lengths[b] - queries
            position = start + i
            mask = masks[h % len(masks)]
            seen = [j for j in range(min(position + 1, key_total_sequence_lengths[b])) if mask[position // BLOCK, j // BLOCK]]
            group = h // (HEADS // SHARED)
            row = presents[0][b, group, seen] @ query[b, h, i] * (scale or 1 / math.sqrt(SIZE))
            weights = np.exp(row - row.max())
            output[b, i, h] = weights / weights.sum() @ presents[1][b, group, seen]
        return output.reshape(batch, queries, HEADS * SIZE), *presents

    return expect


SETTINGS = {"num_heads": HEADS, "kv_num_heads": SHARED, "sparse_block_size": BLOCK, "domain": CONTRIB}


def tensors(batch, queries):
    return {
        "query": f32(batch, queries, HEADS * SIZE),
        "key": f32(batch, queries, SHARED * SIZE),
        "value": f32(batch, queries, SHARED * SIZE),
        "past_key": f32(batch, SHARED, 64, SIZE),
        "past_value": f32(batch, SHARED, 64, SIZE),
    }


def lengths(longest, *totals):
    return {
        "total_sequence_length": np.array([longest], np.int32),
        "key_total_sequence_lengths": np.array(totals, np.int32),
    }


# onnxruntime wants past and present in one buffer, see below
for masks in (MASKS, MASKS[:1]):
    common = {**SETTINGS, **compressed(masks), "expect": attended(masks)}
    case("SparseAttention", **tensors(1, 50), **lengths(50, 50), **common)
    case("SparseAttention", **tensors(2, 33), **lengths(33, 33, 33), **common, scale=0.5)
    case("SparseAttention", **tensors(2, 1), **lengths(60, 60, 40), **common)
    case("SparseAttention", **tensors(1, 3), **lengths(40, 40), **common)
packed = {**tensors(1, 20), "query": f32(1, 20, (HEADS + 2 * SHARED) * SIZE), "key": None, "value": None}
case("SparseAttention", **packed, **lengths(20, 20), **SETTINGS, **compressed(MASKS), expect=attended(MASKS))
case(
    "SparseAttention",
    **tensors(1, 20),
    **lengths(20, 20),
    **SETTINGS,
    **compressed(MASKS),
    types={"T": {float32, float16, bfloat16}},
    expect=attended(MASKS),
    rtol=3e-2,
    atol=3e-2,
)
still = {"cos_cache": np.ones((64, 8), np.float32), "sin_cache": np.zeros((64, 8), np.float32), "do_rotary": 1}
case("SparseAttention", **tensors(1, 20), **lengths(20, 20), **SETTINGS, **compressed(MASKS), **still, expect=attended(MASKS))
refuse("SparseAttention", **tensors(1, 3), **lengths(80, 80), **SETTINGS, **compressed(MASKS), match="the cache has 64 rows")
refuse(
    "SparseAttention",
    **tensors(1, 3),
    **lengths(40, 40),
    **{**SETTINGS, "kv_num_heads": 3},
    **compressed(MASKS),
    match="kv_num",
)


def changed(name, *places, to):
    indices = compressed(MASKS)
    indices[name][places] = to
    return indices


GREATEST, LEAST = np.iinfo(np.int32).max, np.iinfo(np.int32).min
for name, place, value, match in (
    ("block_row_indices", (1, -1), GREATEST, "must not decrease and lie in"),
    ("block_row_indices", (0, 2), GREATEST, "must not decrease and lie in"),
    ("block_row_indices", (0, 0), LEAST, "must not decrease and lie in"),
    ("block_col_indices", (0, 0), 4, r"must lie in \[0, 4\)"),
    ("block_col_indices", (0, 0), -1, r"must lie in \[0, 4\)"),
):
    refuse("SparseAttention", **tensors(1, 3), **lengths(40, 40), **SETTINGS, **changed(name, *place, to=value), match=match)


def in_one_buffer(operands, attributes):
    """What onnxruntime makes of a step whose presents lie where its pasts do."""
    names = list(schemas.versions(CONTRIB, "SparseAttention")[1].operand_names)
    while names[-1] not in operands:
        names.pop()
    helper = onnx.helper
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in operands.items()
    ]
    node = helper.make_node("SparseAttention", names, ["y", "present_key", "present_value"], domain=CONTRIB, **attributes)
    graph = helper.make_graph([node], "g", infos, [helper.make_tensor_value_info(name, 1, None) for name in node.output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(CONTRIB, 1)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in operands.items()}
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_output("y")
    binding.bind_ortvalue_output("present_key", values["past_key"])
    binding.bind_ortvalue_output("present_value", values["past_value"])
    session.run_with_iobinding(binding)
    return [value.numpy() for value in binding.get_outputs()]


@pytest.mark.parametrize("rotary_interleaved", [None, 0, 1])
@pytest.mark.parametrize(("batch", "queries", "total"), [(1, 50, 50), (2, 33, 33), (2, 1, 60), (1, 3, 40)])
def test_onnxruntime_agrees(batch, queries, total, rotary_interleaved):
    attributes = {"num_heads": HEADS, "kv_num_heads": SHARED, "sparse_block_size": BLOCK}
    operands = {**tensors(batch, queries), **compressed(MASKS), **lengths(total, *(total,) * batch)}
    if rotary_interleaved is not None:
        operands |= {"cos_cache": f32(64, 8), "sin_cache": f32(64, 8)}
        attributes |= {"do_rotary": 1, "rotary_interleaved": rotary_interleaved}
    mine = sparse_attention(**operands, **attributes)
    for got, expected in zip(mine, in_one_buffer(operands, attributes), strict=True):
        valid = (slice(None), slice(None), slice(total)) if got.ndim == 4 else ()
        np.testing.assert_allclose(got[valid], expected[valid], rtol=1e-4, atol=1e-5)
