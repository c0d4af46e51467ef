"""What models around a search are made of: weights that two graphs share, masks, attention over groups of heads.

The search itself (BeamSearch, GreedySearch and Sampling of com.microsoft) has no kernel here yet, so no model is built around one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from typing import Any, NoReturn

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from sardonyx.transformers.generation_parts import (
    create_ort_session,
    generate_gpt2_init_decoder,
    gpt2_to_onnx,
    make_dim_proto_numeric_t5,
    pad_weights_of_logits_matmul,
    parse_arguments,
    shape_inference,
    t5_to_onnx,
    test_torch_performance,
    update_input_shapes_for_gpt2_decoder_model,
    verify_gpt2_subgraph,
    verify_t5_decoder_subgraph,
    verify_t5_encoder_decoder_init_subgraph,
)
from sardonyx.transformers.onnx_model import OnnxModel
from sardonyx.transformers.shared_buffers import (
    add_cache_indirection_to_mha,
    add_output_qk_to_mha,
    find_past_seq_len_usage,
    fix_past_sequence_length,
    pack_qkv_for_decoder_masked_mha,
    replace_mha_with_dmmha,
    update_decoder_subgraph_output_cross_attention,
    update_decoder_subgraph_past_present_share_buffer,
    update_decoder_subgraph_share_buffer_and_use_decoder_masked_mha,
)

__all__ = [
    "GenerationType",
    "add_cache_indirection_to_mha",
    "add_output_qk_to_mha",
    "convert_generation_model",
    "create_attention_mask",
    "create_ort_session",
    "find_past_seq_len_usage",
    "fix_past_sequence_length",
    "generate_gpt2_init_decoder",
    "get_shared_initializers",
    "gpt2_to_onnx",
    "kwargs_of",
    "main",
    "make_dim_proto_numeric_t5",
    "move_initializers",
    "pack_qkv_for_decoder_masked_mha",
    "pad_weights_of_logits_matmul",
    "parse_arguments",
    "remove_shared_initializers",
    "replace_mha_with_dmmha",
    "replace_mha_with_gqa",
    "shape_inference",
    "shape_of",
    "t5_to_onnx",
    "test_torch_performance",
    "update_decoder_subgraph_output_cross_attention",
    "update_decoder_subgraph_past_present_share_buffer",
    "update_decoder_subgraph_share_buffer_and_use_decoder_masked_mha",
    "update_input_shapes_for_gpt2_decoder_model",
    "verify_gpt2_subgraph",
    "verify_t5_decoder_subgraph",
    "verify_t5_encoder_decoder_init_subgraph",
]
CONTRIB = "com.microsoft"


class GenerationType(Enum):
    """Ways to choose words."""

    BEAMSEARCH = "beam_search"
    GREEDYSEARCH = "greedy_search"
    SAMPLING = "sampling"

    def __str__(self) -> str:
        return self.value


def convert_generation_model(args: Any, generation_type: GenerationType = GenerationType.BEAMSEARCH) -> NoReturn:
    """Refuse: no model is built around a search."""
    raise NotImplementedError(
        f"no model is built around a {generation_type} yet; the converters of sardonyx.transformers.models write decoders, "
        "and programs choose the words"
    )


def main(argv: Sequence[str] | None = None, sentences: Sequence[str] | None = None) -> NoReturn:
    """Refuse, as `convert_generation_model` does."""
    convert_generation_model(argv)


def refuse_search(paths: Sequence[str], arguments: str) -> NoReturn:
    """Tell that the parts are written, and that nothing is built around them."""
    raise NotImplementedError(
        f"written: {', '.join(paths)}. No model is built around a search yet; with {arguments} the program ends here"
    )


# --- weights of two graphs


def get_shared_initializers(encoder_model: ModelProto, decoder_model: ModelProto) -> list[TensorProto]:
    """Weights that two models share, which they lose; names get prefixes that tell the models apart."""
    encoder, decoder = OnnxModel(encoder_model), OnnxModel(decoder_model)
    for model, prefix in ((encoder, "e_"), (decoder, "d_")):
        model.add_prefix_to_names(prefix)
        model.remove_duplicated_initializer({})
    return remove_shared_initializers(decoder.model.graph, encoder.model.graph, shared_prefix="s_")


def remove_shared_initializers(
    graph1: GraphProto,
    graph2: GraphProto,
    shared_prefix: str = "shared_",
    min_elements: int = 1024,
    signature_cache1: dict[str, Any] | None = None,
    signature_cache2: dict[str, Any] | None = None,
) -> list[TensorProto]:
    """Take weights of at least `min_elements` out of two graphs where both have them, and name them after the second graph's."""
    candidates = [tensor for tensor in graph2.initializer if _elements(tensor) >= min_elements]
    names1: dict[str, str] = {}
    shared: dict[str, TensorProto] = {}
    for tensor in [tensor for tensor in graph1.initializer if _elements(tensor) >= min_elements]:
        for other in candidates:
            if OnnxModel.has_same_value(tensor, other, signature_cache1, signature_cache2):
                names1[tensor.name] = shared_prefix + other.name
                shared[other.name] = other
                break
    names2 = {name: shared_prefix + name for name in shared}
    _require_new(graph1, names2.values())
    _require_new(graph2, names2.values())
    results = []
    for name, tensor in shared.items():
        moved = TensorProto()
        moved.CopyFrom(tensor)
        moved.name = names2[name]
        results.append(moved)
    _rename_initializers(graph1, names1, results)
    _rename_initializers(graph2, names2, results)
    return results


def _rename_initializers(graph: GraphProto, names: dict[str, str], moved: Sequence[TensorProto]) -> None:
    """Let a graph read weights from outside under other names; their types stay known."""
    kept = [tensor for tensor in graph.initializer if tensor.name not in names]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    values = [value for value in graph.value_info if value.name not in names]
    del graph.value_info[:]
    graph.value_info.extend(values)
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
    graph.value_info.extend(_declaration(tensor) for tensor in moved)


def _require_new(graph: GraphProto, names: Any) -> None:
    used = {name for node in graph.node for name in (*node.input, *node.output)}
    taken = sorted(used.intersection(names))
    if taken:
        raise RuntimeError(f"graph {graph.name!r} has names of shared weights already: {', '.join(taken)}")


def move_initializers(graph: GraphProto, min_elements: int = 1024) -> list[TensorProto]:
    """Take weights of at least `min_elements` out of a graph, whose types stay known."""
    moved = [tensor for tensor in graph.initializer if _elements(tensor) >= min_elements]
    for tensor in moved:
        graph.initializer.remove(tensor)
    graph.value_info.extend(_declaration(tensor) for tensor in moved)
    return moved


def _elements(tensor: TensorProto) -> int:
    return math.prod(tensor.dims) if tensor.dims else 0


def _declaration(tensor: TensorProto) -> ValueInfoProto:
    return helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))


# --- pieces of graphs


def kwargs_of(node: NodeProto) -> dict[str, Any]:
    """Attributes of a node as arguments of `onnx.helper.make_node`, with its domain."""
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    return attributes | ({"domain": node.domain} if node.domain else {})


def shape_of(vi: ValueInfoProto) -> tuple[str | int, ...]:
    """Sizes of a declared value, or their names."""
    return tuple(size.dim_param or size.dim_value for size in vi.type.tensor_type.shape.dim)


def create_attention_mask(input_ids: Any, pad_token_id: int) -> np.ndarray:
    """1 from the first word on that is no padding, in each row."""
    is_word = np.asarray(input_ids) != pad_token_id
    return np.logical_or.accumulate(is_word, axis=1).astype(np.int32)


def replace_mha_with_gqa(
    model: OnnxModel, attn_mask: str, kv_num_heads: int = 0, world_size: int = 1, window_size: int = -1
) -> OnnxModel:
    """Let GroupQueryAttention take the place of MultiHeadAttention with a cache.

    It reads from the input `attn_mask` how long each row is, and takes each token to see all before it: what else a bias said is lost.
    """
    nodes = [node for node in model.graph().node if node.op_type == "MultiHeadAttention"]
    for node in nodes:
        _require_cached(node, kv_num_heads, world_size)
    lengths, total = _lengths(model, attn_mask)
    for node in nodes:
        heads = kwargs_of(node)["num_heads"]
        inputs = list(node.input) + [""] * (8 - len(node.input))
        replacement = helper.make_node(
            "GroupQueryAttention",
            [*inputs[:3], *inputs[6:8], lengths, total],
            list(node.output),
            name=model.create_node_name("GroupQueryAttention"),
            domain=CONTRIB,
            num_heads=heads,
            kv_num_heads=heads,
            local_window_size=window_size,
        )
        scale = kwargs_of(node).get("scale")
        if scale:
            replacement.attribute.append(helper.make_attribute("scale", scale))
        model.remove_node(node)
        model.add_node(replacement)
    return model


def _require_cached(node: NodeProto, kv_num_heads: int, world_size: int) -> None:
    heads = kwargs_of(node)["num_heads"]
    if world_size != 1:
        raise ValueError(f"models are not split over processes here, got world_size {world_size}")
    if kv_num_heads not in (0, heads):
        raise ValueError(f"{node.name}: keys of {kv_num_heads} heads are wanted, and the node has {heads} heads")
    has_caches = len(node.input) >= 8 and all(node.input[:3]) and all(node.input[6:8]) and len(node.output) == 3
    if not has_caches or node.input[3]:
        raise ValueError(f"{node.name}: expected queries, keys, values and a cache, and no other bias, got {list(node.input)}")


def _lengths(model: OnnxModel, mask: str) -> tuple[str, str]:
    """Add what tells the last place of each row, and how long rows are; gives both names."""
    one = f"{mask}_one"
    model.add_initializer(onnx.numpy_helper.from_array(np.array([1], np.int64), one))
    steps = [
        ("ReduceSum", [mask, one], f"{mask}_sums", {"keepdims": 0}),
        ("Cast", [f"{mask}_sums"], f"{mask}_wide_sums", {"to": TensorProto.INT64}),
        ("Sub", [f"{mask}_wide_sums", one], f"{mask}_last", {}),
        ("Cast", [f"{mask}_last"], "seqlens_k", {"to": TensorProto.INT32}),
        ("Shape", [mask], f"{mask}_shape", {}),
        ("Gather", [f"{mask}_shape", one], f"{mask}_length", {"axis": 0}),
        ("Cast", [f"{mask}_length"], "total_sequence_length", {"to": TensorProto.INT32}),
    ]
    for op, inputs, output, attributes in steps:
        model.add_node(helper.make_node(op, inputs, [output], name=model.create_node_name(op), **attributes))
    return "seqlens_k", "total_sequence_length"
