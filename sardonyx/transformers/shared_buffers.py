"""Decoders whose keys and values lie in buffers of the greatest length: how long the past is comes as an input, beams as another.

`convert_generation` has the names. MultiHeadAttention and DecoderMaskedMultiHeadAttention write new keys and values into the buffers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from sardonyx.transformers.onnx_model import CONTRIB, OnnxModel

MASKED = "DecoderMaskedMultiHeadAttention"
PAST_LENGTH, BEAM_WIDTH, INDIRECTION = "past_sequence_length", "beam_width", "cache_indirection"
GREATEST = "max_seq_len"
"""The name of a buffer's length."""
STACKED_AXIS, AXIS = 3, 2
"""Where tensors of a past have its length: with keys and values in one (past_0), and alone (past_key_self_0)."""


def find_past_seq_len_usage(subg: GraphProto) -> tuple[set[str], list[NodeProto]]:
    """Names of values that are the length of the past, taken from a shape, and the nodes that take it."""
    found = list(_lengths(subg, _constants(subg)))
    names = {taken[-1].output[0] for taken in found}
    nodes: list[NodeProto] = []
    for taken in found:
        nodes += [node for node in taken if not any(node is other for other in nodes)]
    read = {name for node in subg.node if not any(node is other for other in nodes) for name in node.input}
    return names, [node for node in nodes if node.output[0] in names or node.output[0] not in read]


def _constants(graph: GraphProto) -> dict[str, np.ndarray]:
    """Small constants by name."""
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer if len(tensor.dims) < 2}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
    return constants


def _lengths(graph: GraphProto, constants: dict[str, np.ndarray]) -> Iterator[tuple[NodeProto, ...]]:
    """Shape and what takes the length of the past from it, or a Shape that gives the length alone."""
    axes = {value.name: _axis(value.name) for value in graph.input if _axis(value.name) is not None}
    shapes = {node.output[0]: node for node in graph.node if node.op_type == "Shape" and node.input[0] in axes}
    for node in shapes.values():
        options = {attribute.name: attribute.i for attribute in node.attribute}
        if options.get("start") == axes[node.input[0]] and options.get("end") == options["start"] + 1:
            yield (node,)
    for node in graph.node:
        if node.op_type == "Gather" and node.input[0] in shapes and not shapes[node.input[0]].attribute:
            index = constants.get(node.input[1])
            if (
                index is not None
                and index.size == 1
                and int(index.item()) % 4 == (axes[shapes[node.input[0]].input[0]] or 0) % 4
            ):
                yield shapes[node.input[0]], node


def _axis(name: str) -> int | None:
    """Where an input has the length of the past, None if it has none; a source's length is none."""
    if not name.startswith("past_") or "_cross_" in name or name == PAST_LENGTH:
        return None
    return STACKED_AXIS if name[5:].isdecimal() else AXIS


def fix_past_sequence_length(model: OnnxModel) -> tuple[OnnxModel, str]:
    """Let the length of the past be an input, int32 of one element; gives the model, and its name."""
    graph = model.model.graph
    _add_input(graph, PAST_LENGTH, [1])
    names, _ = find_past_seq_len_usage(graph)
    if not names:
        return model, PAST_LENGTH
    ranks = {taken[-1].output[0]: _rank(taken[-1], _constants(graph)) for taken in _lengths(graph, _constants(graph))}
    long, alone = f"{PAST_LENGTH}_int64", f"{PAST_LENGTH}_scalar"
    model.add_node(helper.make_node("Cast", [PAST_LENGTH], [long], name=model.create_node_name("Cast"), to=TensorProto.INT64))
    model.add_initializer(numpy_helper.from_array(np.zeros(0, np.int64), f"{PAST_LENGTH}_shape"))
    reshape = helper.make_node("Reshape", [long, f"{PAST_LENGTH}_shape"], [alone], name=model.create_node_name("Reshape"))
    model.add_node(reshape)
    for name in names:
        model.replace_input_of_all_nodes(name, long if ranks[name] else alone)
    model.prune_graph(allow_remove_graph_inputs=False)
    model.topological_sort()
    return model, PAST_LENGTH


def _rank(node: NodeProto, constants: dict[str, np.ndarray]) -> int:
    """How many axes a length has."""
    return constants[node.input[1]].ndim if node.op_type == "Gather" else 1


def _lengthen(graph: GraphProto, axis: int) -> None:
    """Declare that keys and values have the greatest length, before a step and behind it."""
    for value in (*graph.input, *graph.output):
        sizes = value.type.tensor_type.shape.dim
        if _axis(value.name.replace("present_", "past_", 1)) == axis < len(sizes):
            sizes[axis].dim_param = GREATEST


def _add_input(graph: GraphProto, name: str, shape: Sequence[int | str]) -> None:
    """Add an input of int32, unless it is there."""
    if all(value.name != name for value in graph.input):
        graph.input.append(helper.make_tensor_value_info(name, TensorProto.INT32, shape))


# --- attention


def add_cache_indirection_to_mha(model: OnnxModel, past_seq_len_name: str) -> OnnxModel:
    """Let attention over earlier words read the length of the past, and from which beam each of its words comes."""
    for node in model.get_nodes_by_op_type("MultiHeadAttention"):
        if _has_past(node):
            node.input.extend([""] * (10 - len(node.input)))
            node.input[8], node.input[9] = past_seq_len_name, INDIRECTION
    _add_input(model.model.graph, INDIRECTION, ["batch_size", "num_beams", "max_sequence_length"])
    return model


def add_output_qk_to_mha(model: OnnxModel, dtype: int = 0, skip_node_idxs: Collection[int] = ()) -> OnnxModel:
    """Make the scores of attention outputs of the model, `output_cross_qk_0` and so on, except for nodes of these numbers."""
    graph = model.model.graph
    floats = dtype or graph.output[0].type.tensor_type.elem_type
    nodes = [
        node for number, node in enumerate(model.get_nodes_by_op_type("MultiHeadAttention")) if number not in skip_node_idxs
    ]
    for number, node in enumerate(nodes):
        heads = model.get_node_attribute(node, "num_heads")
        shape = ["batch_size", heads, "sequence_length", f"output_cross_qk_{number}_length"]
        _output_scores(graph, node, helper.make_tensor_value_info(f"output_cross_qk_{number}", floats, shape))
    return model


def _output_scores(graph: GraphProto, node: NodeProto, scores: ValueInfoProto) -> None:
    node.output.extend([""] * (4 - len(node.output)))
    node.output[3] = scores.name
    graph.output.append(scores)


def update_decoder_subgraph_output_cross_attention(subg: GraphProto) -> None:
    """Make the scores of attention to a source outputs of the graph, `output_cross_qk_0` and so on, one for each layer."""
    keys = [value for value in subg.input if value.name.startswith("past_key_cross_")]
    nodes = {node.input[1]: node for node in subg.node if node.op_type == MASKED}
    missing = [key.name for key in keys if key.name not in nodes]
    if missing:
        raise ValueError(f"expected a {MASKED} over the keys of each layer's source, there is none over {', '.join(missing)}")
    for layer, key in enumerate(keys):
        batch, heads, length, _ = (size.dim_param or size.dim_value for size in key.type.tensor_type.shape.dim)
        shape = [batch, heads, 1, length]
        node = nodes[key.name]
        _set(node, "output_qk", 1)
        _output_scores(subg, node, helper.make_tensor_value_info(f"output_cross_qk_{layer}", TensorProto.FLOAT, shape))


def _set(node: NodeProto, name: str, value: int) -> None:
    """Give an attribute of a node another value."""
    kept = [attribute for attribute in node.attribute if attribute.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])


def update_decoder_subgraph_past_present_share_buffer(subg: GraphProto) -> GraphProto:
    """Let Attention write new keys and values into buffers, as in GPT-2; gives the graph."""
    _lengthen(subg, STACKED_AXIS)
    _add_input(subg, PAST_LENGTH, [1])
    for node in subg.node:
        if node.op_type == "Attention" and len(node.input) > 4 and node.input[4]:
            node.input.extend([""] * (7 - len(node.input)))
            node.input[6] = PAST_LENGTH
            _set(node, "past_present_share_buffer", 1)
    return subg


def update_decoder_subgraph_share_buffer_and_use_decoder_masked_mha(subg: GraphProto) -> bool:
    """Let all attention be over buffers, one word a step, as in T5; False, and nothing changes, where a layer has none that is fused."""
    layers = sum(_axis(value.name) == AXIS for value in subg.input) // 2
    if sum(node.op_type == "MultiHeadAttention" for node in subg.node) < layers:
        return False
    model = OnnxModel(helper.make_model(subg))
    replace_mha_with_dmmha(*fix_past_sequence_length(model))
    _lengthen(model.model.graph, AXIS)
    subg.CopyFrom(model.model.graph)
    return True


def replace_mha_with_dmmha(model: OnnxModel, past_seq_len_name: str) -> OnnxModel:
    """Let DecoderMaskedMultiHeadAttention take the place of MultiHeadAttention: one word a step, keys and values in buffers."""
    for node in model.get_nodes_by_op_type("MultiHeadAttention"):
        inputs = list(node.input) + [""] * (10 - len(node.input))
        has_past = _has_past(node)
        beams = [past_seq_len_name, BEAM_WIDTH, INDIRECTION] if has_past else [""] * 3
        replacement = helper.make_node(
            MASKED,
            [*inputs[:3], *inputs[4:8], *beams, inputs[3]],
            list(node.output),
            name=model.create_node_name(MASKED),
            domain=CONTRIB,
            past_present_share_buffer=int(has_past),
            output_qk=int(len(node.output) > 3 and bool(node.output[3])),
        )
        kept = ("num_heads", "scale", "mask_filter_value")
        replacement.attribute.extend(attribute for attribute in node.attribute if attribute.name in kept)
        model.remove_node(node)
        model.add_node(replacement)
    for name, shape in ((BEAM_WIDTH, [1]), (INDIRECTION, ["batch_size", "num_beams", "max_sequence_length"])):
        _add_input(model.model.graph, name, shape)
    model.topological_sort()
    return model


def pack_qkv_for_decoder_masked_mha(model_proto: ModelProto) -> bool:
    """Let one product give queries, keys and values of a layer.

    False, and nothing changes, where they are no products of one value with weights of one size. Keys of a source stay inputs.
    """
    model = OnnxModel(model_proto)
    producers = model.output_name_to_node()
    nodes = [node for node in model.get_nodes_by_op_type(MASKED) if node.input[1] in producers]
    products = [[producers[name] for name in node.input[:3] if name in producers] for node in nodes]
    packed = [side_by_side for matmuls in products if (side_by_side := _side_by_side(model, matmuls)) is not None]
    if len(packed) < len(nodes):
        return False
    for node, (source, weights) in zip(nodes, packed, strict=True):
        name = model.create_node_name("MatMul", name_prefix="MatMul_QKV")
        model.add_initializer(numpy_helper.from_array(weights, f"{name}_weight"))
        model.add_node(helper.make_node("MatMul", [source, f"{name}_weight"], [f"{name}_out"], name=name))
        node.input[:3] = [f"{name}_out", "", ""]
    model.prune_graph(allow_remove_graph_inputs=False)
    model.topological_sort()
    return True


def _side_by_side(model: OnnxModel, nodes: Sequence[NodeProto]) -> tuple[str, np.ndarray] | None:
    """What three products multiply, and their weights side by side; None if they do not fit."""
    tensors = [model.get_initializer(node.input[1]) for node in nodes if node.op_type == "MatMul"]
    weights = [numpy_helper.to_array(tensor) for tensor in tensors if tensor is not None]
    sources = {node.input[0] for node in nodes}
    if len(weights) < 3 or len(sources) > 1 or len({array.shape for array in weights}) > 1 or weights[0].ndim != 2:
        return None
    return sources.pop(), np.concatenate(weights, axis=1)


def _has_past(node: NodeProto) -> bool:
    """Whether a node attends to earlier words, whose keys and values it is given."""
    return len(node.input) > 7 and bool(node.input[6]) and bool(node.input[7])
