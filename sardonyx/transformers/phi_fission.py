"""Layers of Phi-2 that PyTorch's dynamo exporter wrote as calls of functions, as ops that runtimes have. `onnx_model_phi` has the names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from sardonyx.transformers.dynamo_onnx_helper import DynamoOnnxHelper
from sardonyx.transformers.fusion_base import Fusion, Makers, Readers
from sardonyx.transformers.fusion_options import AttentionOpType
from sardonyx.transformers.onnx_model import OnnxModel

CONTRIB = "com.microsoft"
EPSILON = 1e-5
HEAD_WIDTH = 80
"""Numbers in a head of Phi-2."""
ROTATED = 32
"""How many of them are rotated."""
WHOLE_MODEL = "modeling_phi_PhiModel_model_1"
LAYER = "modeling_phi_PhiDecoderLayer_model_layers"
HIDDEN = ["batch_size", "seq_len", "hidden_size"]
SHARED = ["attention_mask", "step", "seqlens_k", "total_sequence_length", "input_metadata", "position_ids"]
"""Values that all layers read."""
Array = np.ndarray


# --- weights


class ProcessGemmWFunc:
    """A weight of PyTorch's linear layer as the right side of a product."""

    def __call__(self, x: Array) -> Array:
        return x.T


class _Third:
    """One of the three parts of packed weights or biases."""

    number = 0

    def __call__(self, x: Array) -> Array:
        return np.split(x, 3, -1)[self.number]


class _TransposedThird(_Third):
    def __call__(self, x: Array) -> Array:
        return np.split(x, 3, 0)[self.number].T


class ProcessMatMulQFunc(_TransposedThird):
    """The weight of queries out of a packed one, as the right side of a product."""


class ProcessMatMulKFunc(_TransposedThird):
    """The weight of keys."""

    number = 1


class ProcessMatMulVFunc(_TransposedThird):
    """The weight of values."""

    number = 2


class ProcessBiasQFunc(_Third):
    """The bias of queries out of a packed one."""


class ProcessBiasKFunc(_Third):
    """The bias of keys."""

    number = 1


class ProcessBiasVFunc(_Third):
    """The bias of values."""

    number = 2


class ProcessRotCacheFunc:
    """Sines or cosines of the angles once, where PyTorch has them twice side by side."""

    def __call__(self, x: Array) -> Array:
        if x.ndim != 2:
            raise ValueError(f"sines of [places, angles] are wanted, got shape {list(x.shape)}")
        return x[:, : ROTATED // 2] if x.shape[1] == ROTATED else x


# --- nodes


class Fission(Fusion):
    """One node that becomes many. Names of inner values get the number of the layer."""

    def __init__(self, model: OnnxModel, nodes_to_find: list[str]):
        super().__init__(model, "several ops", nodes_to_find)
        self.attn_op_type = AttentionOpType.MultiHeadAttention

    def set_attention_op_type(self, attn_op_type: AttentionOpType) -> None:
        """Choose the op of attention."""
        self.attn_op_type = attn_op_type

    def get_uname(self, layer_id: int, name: str) -> str:
        """The name in a layer."""
        return f"{name}_{layer_id}"

    def get_edge_by_name(self, edges: Collection[str], name: str) -> str:
        """The value that begins or ends with a name."""
        edge = next((edge for edge in edges if edge.startswith(name) or edge.endswith(name)), None)
        if edge is None:
            raise ValueError(f"no value of {', '.join(edges)} is called {name}")
        return edge

    def get_input_by_name(self, node: NodeProto, name: str) -> str:
        """The input that begins or ends with a name."""
        return self.get_edge_by_name(node.input, name)

    def get_output_by_name(self, node: NodeProto, name: str) -> str:
        """The output that begins or ends with a name."""
        return self.get_edge_by_name(node.output, name)

    def process_initializer(
        self, initializer_name: str, functor: Callable[[Array], Array], custom_name: str | None = None
    ) -> str:
        """The name of a new weight, made of another one."""
        name = custom_name or f"{initializer_name}_processed"
        if self.model.get_initializer(name) is None:
            made = functor(self._weight(initializer_name)).astype(np.float32)
            self.model.add_initializer(numpy_helper.from_array(np.ascontiguousarray(made), name), self.this_graph_name)
        return name

    def _weight(self, name: str) -> Array:
        tensor = self.model.get_initializer(name)
        if tensor is None:
            raise ValueError(f"'{name}' is no weight of the model")
        return numpy_helper.to_array(tensor)

    def add_fp32_value_info(self, name: str) -> None:
        """Declare a value of float32."""
        self.model.graph().value_info.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))

    def add_int64_value_info(self, name: str) -> None:
        """Declare a value of int64."""
        self.model.graph().value_info.append(helper.make_tensor_value_info(name, TensorProto.INT64, None))

    def replace_fp32_value_info(self, name: str, shape: Sequence[Any]) -> None:
        """Declare a value of float32 anew, with its shape."""
        declared = self.model.graph().value_info
        kept = [value for value in declared if value.name != name]
        del declared[:]
        declared.extend([*kept, helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)])

    def set_unique_name_and_add_nodes(
        self, subgraph_nodes: Sequence[NodeProto], layer_id: int, layer_known_edges_names: Collection[str]
    ) -> None:
        """Add nodes; their names, and those of values that are not known outside, get the number of the layer."""
        known = {*layer_known_edges_names, ""}
        for node in subgraph_nodes:
            for names in (node.input, node.output):
                names[:] = [name if name in known else self.get_uname(layer_id, name) for name in names]
            node.name = self.get_uname(layer_id, node.name)
            self._add(node)

    def _add(self, node: NodeProto) -> None:
        self.nodes_to_add.append(node)
        self.node_name_to_graph_name[node.name] = self.this_graph_name or ""

    def _replaced(self, node: NodeProto) -> None:
        self.nodes_to_remove.append(node)
        self.prune_graph = True

    def layernorm(self, inputs: list[str], outputs: list[str], prefix: str = "") -> list[NodeProto]:
        """Of data, scale and bias."""
        return [helper.make_node("LayerNormalization", inputs, outputs, f"{prefix}_LayerNormalization", epsilon=EPSILON)]

    def gemm(self, inputs: list[str], outputs: list[str], prefix: str = "") -> list[NodeProto]:
        """Of data, weight and bias."""
        product = f"{prefix}matmul_out"
        return [
            helper.make_node("MatMul", inputs[:2], [product], f"{prefix}MatMul"),
            helper.make_node("Add", [product, inputs[2]], outputs, f"{prefix}Bias"),
        ]

    def _contrib(self, op: str, inputs: list[str], outputs: list[str], prefix: str, **attributes: Any) -> list[NodeProto]:
        return [helper.make_node(op, inputs, outputs, f"{prefix}{op}", domain=CONTRIB, **attributes)]

    def rotary(
        self, inputs: list[str], outputs: list[str], prefix: str = "", rot_dim: int = ROTATED, num_heads: int = 32
    ) -> list[NodeProto]:
        """Of data, places, cosines and sines."""
        sizes = {"rotary_embedding_dim": rot_dim, "num_heads": num_heads}
        return self._contrib("RotaryEmbedding", inputs, outputs, prefix, **sizes)

    def fastgelu(self, inputs: list[str], outputs: list[str], prefix: str = "") -> list[NodeProto]:
        """Of data."""
        return self._contrib("FastGelu", inputs, outputs, prefix)

    def add(self, inputs: list[str], outputs: list[str], prefix: str = "") -> list[NodeProto]:
        """Of two values."""
        return [helper.make_node("Add", inputs, outputs, f"{prefix}Add")]

    def mha(self, inputs: list[str], outputs: list[str], prefix: str = "", num_heads: int = 32) -> list[NodeProto]:
        """Of query, key, value, nothing, mask, nothing, and the keys and values of earlier words."""
        return self._contrib("MultiHeadAttention", inputs, outputs, prefix, num_heads=num_heads, unidirectional=1)

    def gqa(self, inputs: list[str], outputs: list[str], prefix: str = "", num_heads: int = 32) -> list[NodeProto]:
        """Of query, key, value, keys and values of earlier words, and lengths."""
        return self._contrib("GroupQueryAttention", inputs, outputs, prefix, num_heads=num_heads, kv_num_heads=num_heads)

    def attention(
        self, inputs: list[str], outputs: list[str], prefix: str = "", num_heads: int = 32, rot_dim: int = ROTATED
    ) -> list[NodeProto]:
        """Of data, packed weight, packed bias, mask, and the keys and values of earlier words in one tensor."""
        rotation = {"do_rotary": 1, "rotary_embedding_dim": rot_dim}
        return self._contrib("Attention", inputs, outputs, prefix, num_heads=num_heads, unidirectional=1, **rotation)

    def paged_attn(
        self,
        inputs: list[str],
        outputs: list[str],
        prefix: str = "",
        num_heads: int = 32,
        head_size: int = HEAD_WIDTH,
        scale: float = HEAD_WIDTH**-0.5,
    ) -> list[NodeProto]:
        """Of query, key, value, blocks of keys and of values, and where they are: an op of the vLLM engine."""
        sizes = {"num_heads": num_heads, "num_kv_heads": num_heads, "head_size": head_size, "scale": scale}
        name = f"{prefix}PagedAttention"
        return [helper.make_node("PagedAttention", inputs, outputs, name, domain="vllm.ort.ext", **sizes)]


class FissionTransformerEmbeddingPhi(Fission):
    """The table of words."""

    def __init__(self, model: OnnxModel):
        super().__init__(model, ["torch_nn_modules_sparse_Embedding_model_embed_tokens_1"])

    def fuse(self, node: NodeProto, input_name_to_nodes: Readers, output_name_to_node: Makers) -> None:
        table = self.get_input_by_name(node, "embed_tokens.weight")
        words = next(name for name in node.input if name != table)
        known = [table, words, node.output[0]]
        self.set_unique_name_and_add_nodes([helper.make_node("Gather", known[:2], known[2:], "Embedding_Gather")], 0, known)
        self._replaced(node)


class FissionTransformerLayerNormPhi(Fission):
    """The normalization behind the last layer."""

    def __init__(self, model: OnnxModel):
        super().__init__(model, ["torch_nn_modules_normalization_LayerNorm_model_final_layernorm_1"])

    def fuse(self, node: NodeProto, input_name_to_nodes: Readers, output_name_to_node: Makers) -> None:
        weights = [self.get_input_by_name(node, f"final_layernorm.{kind}") for kind in ("weight", "bias")]
        known = [node.input[0], *weights, node.output[0]]
        self.set_unique_name_and_add_nodes(self.layernorm(known[:3], known[3:], "Final"), 99, known)
        for name in (known[0], known[3]):
            self.replace_fp32_value_info(name, HIDDEN)
        self._replaced(node)


class FissionTransformerCausalLMHeadPhi(Fission):
    """The layer that gives the logits."""

    def __init__(self, model: OnnxModel):
        super().__init__(model, ["torch_nn_modules_linear_Linear_lm_head_1"])

    def fuse(self, node: NodeProto, input_name_to_nodes: Readers, output_name_to_node: Makers) -> None:
        weight = self.process_initializer(self.get_input_by_name(node, "lm_head.weight"), ProcessGemmWFunc())
        bias = self.get_input_by_name(node, "lm_head.bias")
        known = [node.input[2], weight, bias, node.output[0]]
        self.set_unique_name_and_add_nodes(self.gemm(known[:3], known[3:], "LMHead_"), 99, known)
        self.replace_fp32_value_info(known[0], HIDDEN)
        self.replace_fp32_value_info(known[3], [*HIDDEN[:2], len(self._weight(bias))])
        self._replaced(node)


class FissionTransformerBlockPhi(Fission):
    """A layer: attention and two dense layers beside each other, behind one normalization."""

    most_layers = 32

    def __init__(self, model: OnnxModel, num_heads: int):
        self.num_heads = num_heads
        self.func_to_layer_id = {f"{LAYER}_{layer}_1": layer for layer in range(self.most_layers)}
        super().__init__(model, list(self.func_to_layer_id))

    def get_layer_id(self, node: NodeProto) -> int:
        """The number of a layer."""
        return self.func_to_layer_id[node.op_type]

    def get_gqa_aux_nodes(self) -> list[NodeProto]:
        """The lengths that GroupQueryAttention takes, of the mask; `one` is a constant."""
        return [
            helper.make_node("Cast", ["attention_mask"], ["mask_int64"], "Cast_gqa_aux_0", to=TensorProto.INT64),
            helper.make_node("ReduceSum", ["mask_int64", "one"], ["mask_row_sums"], "ReduceSum_gqa_aux"),
            helper.make_node("Sub", ["mask_row_sums", "one"], ["seqlens_k_int64"], "Sub_gqa_aux"),
            helper.make_node("Cast", ["seqlens_k_int64"], ["seqlens_k"], "Cast_gqa_aux_1", to=TensorProto.INT32),
            helper.make_node("Shape", ["mask_int64"], ["mask_shape"], "Shape_gqa_aux_0"),
            helper.make_node("Gather", ["mask_shape", "one"], ["total_seq_len_int64"], "Gather_gqa_aux_0", axis=0),
            helper.make_node(
                "Cast", ["total_seq_len_int64"], ["total_sequence_length"], "Cast_gqa_aux_2", to=TensorProto.INT32
            ),
        ]

    def pack_qkv_gemm(
        self, q_w: str, k_w: str, v_w: str, q_b: str, k_b: str, v_b: str, weight_name: str, bias_name: str
    ) -> tuple[str, str]:
        """Names of one weight and one bias made of three each."""
        weight = np.concatenate([self._weight(name).T for name in (q_w, k_w, v_w)], axis=1)
        bias = np.concatenate([self._weight(name) for name in (q_b, k_b, v_b)])
        for name, array in ((weight_name, weight), (bias_name, bias)):
            self.model.add_initializer(numpy_helper.from_array(np.ascontiguousarray(array), name), self.this_graph_name)
        return weight_name, bias_name

    def fuse(self, node: NodeProto, input_name_to_nodes: Readers, output_name_to_node: Makers) -> None:
        layer = self.get_layer_id(node)
        before, after = node.input[0], node.output[-1]
        known = [before, after, *SHARED]

        def linear(source: str, target: str, weights: str, prefix: str) -> list[NodeProto]:
            weight = self.process_initializer(self.get_input_by_name(node, f"{weights}.weight"), ProcessGemmWFunc())
            bias = self.get_input_by_name(node, f"{weights}.bias")
            known.extend([weight, bias])
            return self.gemm([source, weight, bias], [target], prefix)

        norm = [self.get_input_by_name(node, f"input_layernorm.{kind}") for kind in ("weight", "bias")]
        known += norm
        nodes = self.layernorm([before, *norm], ["ln_out"])
        nodes += self._attention_nodes(node, layer, known, linear)
        nodes += linear("attn_out", "attn_add_out", "self_attn.dense", "OutProj_")
        nodes += linear("ln_out", "fc1_out", "mlp.fc1", "FC1_")
        nodes += self.fastgelu(["fc1_out"], ["gelu_out"])
        nodes += linear("gelu_out", "fc2_out", "mlp.fc2", "FC2_")
        nodes += self.add(["attn_add_out", "fc2_out"], ["residual_1_out"], "Residual_1")
        nodes += self.add([before, "residual_1_out"], [after], "Residual_2")
        self.set_unique_name_and_add_nodes(nodes, layer, known)
        for name in (before, after):
            self.replace_fp32_value_info(name, HIDDEN)
        self._replaced(node)

    def _attention_nodes(
        self, node: NodeProto, layer: int, known: list[str], linear: Callable[[str, str, str, str], list[NodeProto]]
    ) -> list[NodeProto]:
        """From "ln_out" to "attn_out"."""
        rotations = [
            self.process_initializer(self.get_input_by_name(node, f"rotary_emb.{kind}_cached"), ProcessRotCacheFunc())
            for kind in ("cos", "sin")
        ]
        width = 2 * self._weight(rotations[0]).shape[1]
        if self.attn_op_type is AttentionOpType.Attention:
            return self._packed_attention(node, layer, known, width)
        kinds = {"query": "q", "key": "k", "value": "v"}
        nodes = [
            new for name, kind in kinds.items() for new in linear("ln_out", name, f"self_attn.{kind}_proj", f"{kind.upper()}_")
        ]
        is_paged = self.attn_op_type is AttentionOpType.PagedAttention
        places = "position_ids" if is_paged else "step"
        for name in ("query", "key"):
            operands = [name, places, *rotations]
            nodes += self.rotary(operands, [f"{name}_rot"], f"{kinds[name].upper()}_", width, self.num_heads)
        past = [self.get_input_by_name(node, f"past_{kind}") for kind in ("key", "value")]
        rotated = ["query_rot", "key_rot", "value"]
        known += [*rotations, *past]
        if is_paged:
            return nodes + self.paged_attn([*rotated, *past, "input_metadata"], ["attn_out"], "", self.num_heads)
        present = [self.get_output_by_name(node, f"present_{kind}") for kind in ("key", "value")]
        known += present
        outputs = ["attn_out", *present]
        if self.attn_op_type is AttentionOpType.MultiHeadAttention:
            return nodes + self.mha([*rotated, "", "attention_mask", "", *past], outputs, "", self.num_heads)
        if layer == 0:
            self.model.add_initializer(numpy_helper.from_array(np.array([1]), "one"), self.this_graph_name)
            for new in self.get_gqa_aux_nodes():
                self._add(new)
        return nodes + self.gqa([*rotated, *past, *SHARED[2:4]], outputs, "", self.num_heads)

    def _packed_attention(self, node: NodeProto, layer: int, known: list[str], width: int) -> list[NodeProto]:
        """Attention with weights; keys and values of earlier words are one tensor for each layer."""
        parts = [self.get_input_by_name(node, f"self_attn.{part}_proj.{kind}") for kind in ("weight", "bias") for part in "qkv"]
        names = [self.get_uname(layer, f"attn_qkv_{kind}") for kind in ("weight", "bias")]
        self.pack_qkv_gemm(*parts, *names)
        past, present = self.get_uname(layer, "past"), self.get_uname(layer, "present")
        known += [*names, past, present]
        inputs = ["ln_out", *names, "attention_mask", past]
        return self.attention(inputs, ["attn_out", present], "", self.num_heads, width)


# --- the whole model


class Phi2PreProcessor(DynamoOnnxHelper):
    """What the exporter wrote, with the whole model unrolled into calls of layers and with inputs and outputs by the names of ours."""

    def __init__(self, model: ModelProto, num_heads: int, hidden_size: int):
        super().__init__(model)
        self.num_attention_heads, self.hidden_size = num_heads, hidden_size
        self.num_hidden_layers = sum(value.name.startswith("key_states") for value in model.graph.input)
        self.func_name = WHOLE_MODEL

    def get_phi2_edge_dict(self) -> dict[str, str]:
        """Names of the exporter to ours."""
        edges = {"lm_head_1": "logits", "l_input_ids_": "input_ids"}
        outputs = {value.name for value in self.model.graph().output}
        for layer in range(self.num_hidden_layers):
            suffix = f"_{layer}" if layer else ""
            edges |= {f"{kind}_states{suffix}": f"past_{kind}_{layer}" for kind in ("key", "value")}
            first = f"model_layers_{layer}_1"
            if first in outputs:
                edges |= {first: f"present_key_{layer}", f"{first}_1": f"present_value_{layer}"}
            else:
                edges |= {f"{first}_1": f"present_key_{layer}", f"{first}_2": f"present_value_{layer}"}
        return edges

    def simplify_phi2_op_type(self) -> None:
        """Let the ops of layers begin with the layer's name."""
        for node in self.model.graph().node:
            start = node.op_type.find(LAYER)
            if start >= 0:
                node.op_type = node.op_type[start:]

    def process_graph_io(self, attn_op_type: AttentionOpType) -> None:
        """Give the graph the inputs and outputs that go with an op of attention."""
        graph = self.model.graph()
        inputs = [made for value in graph.input for made in self._inputs_for(value, attn_op_type)]
        outputs = [made for value in graph.output[1:] for made in self._cache(value, attn_op_type, "present", "total_seq_len")]
        first = graph.output[0]
        del graph.input[:]
        graph.input.extend(inputs)
        if attn_op_type is AttentionOpType.PagedAttention:
            outputs = []
        kept = ValueInfoProto()
        kept.CopyFrom(first)
        del graph.output[:]
        graph.output.extend([kept, *outputs])

    def _inputs_for(self, value: ValueInfoProto, op: AttentionOpType) -> list[ValueInfoProto]:
        if "input_ids" not in value.name:
            return self._cache(value, op, "past", "past_seq_len")
        words = ["batch_size", "seq_len"]
        if op is AttentionOpType.PagedAttention:
            kinds: dict[str, tuple[int, list[Any]]] = {
                value.name: (TensorProto.INT64, words),
                "position_ids": (TensorProto.INT64, words),
                "input_metadata": (TensorProto.INT64, [1]),
            }
        else:
            total = ["batch_size", "total_seq_len"]
            kinds = {
                value.name: (TensorProto.INT32, words),
                "step": (TensorProto.INT64, [1]),
                "attention_mask": (TensorProto.INT32, total),
            }
        return [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in kinds.items()]

    def _cache(self, value: ValueInfoProto, op: AttentionOpType, time: str, length: str) -> list[ValueInfoProto]:
        """Keys or values of a layer; both in one tensor where the op has them so, which the keys stand for."""
        name, kind = value.name, value.type.tensor_type.elem_type
        is_key, is_value = f"{time}_key" in name, f"{time}_value" in name
        if not (is_key or is_value):
            return []
        shape: list[Any] = ["batch_size", self.num_attention_heads, length, self.hidden_size // self.num_attention_heads]
        if op is AttentionOpType.PagedAttention:
            blocks = ["num_blocks", "num_heads", "head_size_x", "block_size", "block_x"]
            shape = blocks if is_key else ["num_blocks", "num_heads", "head_size", "block_size"]
        elif op is AttentionOpType.Attention:
            if is_value:
                return []
            name, shape = name.replace(f"{time}_key", time), [2, *shape]
        return [helper.make_tensor_value_info(name, kind, shape)]

    def preprocess_onnx(self, attn_op_type: AttentionOpType) -> None:
        """Do all of this."""
        functions = [function.name for function in self.model.model.functions]
        name = next((name for name in functions if name.endswith(self.func_name)), None)
        if name is None:
            raise ValueError(f"the model has no function {self.func_name}: it is not what the dynamo exporter writes of Phi-2")
        self.unroll_function(name)
        self.update_edges(self.get_phi2_edge_dict())
        self.simplify_phi2_op_type()
        self.remove_dropout_layer()
        if attn_op_type is AttentionOpType.PagedAttention:
            self.remove_lm_head_layer()
        self.process_graph_io(attn_op_type)


def is_dynamo_phi(model: ModelProto) -> bool:
    """Whether a model is what the dynamo exporter writes of Phi-2."""
    return any(function.name.endswith(WHOLE_MODEL) for function in model.functions)


def split_layers(model: OnnxModel, num_heads: int, hidden_size: int, attn_op_type: AttentionOpType) -> None:
    """Make ops of all calls of functions."""
    helper_of_model = Phi2PreProcessor(model.model, num_heads, hidden_size)
    helper_of_model.preprocess_onnx(attn_op_type)
    model.initialize(helper_of_model.model.model)
    block = FissionTransformerBlockPhi(model, num_heads)
    block.set_attention_op_type(attn_op_type)
    others = FissionTransformerLayerNormPhi, FissionTransformerCausalLMHeadPhi, FissionTransformerEmbeddingPhi
    for fission in (block, *(kind(model) for kind in others)):
        fission.apply()
    model.prune_graph()
    del model.model.functions[:]
    versions = {entry.domain: entry for entry in model.model.opset_import}
    if CONTRIB not in versions:
        model.model.opset_import.append(helper.make_opsetid(CONTRIB, 1))
    model.topological_sort()
