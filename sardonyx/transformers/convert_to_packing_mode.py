"""Models of encoders that compute no padding: tokens of all rows stand one after the other, from the first attention to what reads rows.

`python -m sardonyx.transformers.convert_to_packing_mode --input fused.onnx --output packed.onnx`
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from sardonyx.transformers.benchmark_helper import setup_logger
from sardonyx.transformers.onnx_model import CONTRIB, OnnxModel

logger = logging.getLogger(__name__)

ELEMENTWISE = (
    *("Add", "Sub", "Mul", "Div", "Cast", "Identity", "Tanh", "Erf", "Relu", "Sigmoid"),
    *("Gelu", "BiasGelu", "FastGelu", "QuickGelu"),
)
"""Ops that compute each number by itself."""
NORMALIZATIONS = ("LayerNormalization", "SimplifiedLayerNormalization")
SKIP_NORMALIZATIONS = ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
OFFSETS, LENGTHS = "packing_token_offset", "packing_cumulative_sequence_length"


class PackingAttentionBase:
    """Conversion of the attention of one op."""

    packed_op: ClassVar[str]
    mask_input: ClassVar[int]

    def __init__(self, model: OnnxModel, attention_op_type: str):
        self.model = model
        self.attention_op_type = attention_op_type
        self.attentions = model.get_nodes_by_op_type(attention_op_type)
        self.attention_mask: str | None = None
        """How many tokens each row has."""

    def convert(self, use_symbolic_shape_infer: bool = True) -> None:
        """Change the model, if its attention can be packed; otherwise the log says why not."""
        reason = self._obstacle()
        if reason is None:
            self.model.topological_sort()
            self.attentions = self.model.get_nodes_by_op_type(self.attention_op_type)
            source = self.source()
            region = list(self._region(source))
            outside = [node for node in self.attentions if not any(node is inner for inner in region)]
            reason = f"{outside[0].name} reads what is not made of tokens alone" if outside else None
        if reason is not None:
            logger.error("%s is not packed: %s", self.attention_op_type, reason)
            return
        self._pack(source, region)
        self.model.clean_shape_infer()
        self.model.prune_graph()
        self.model.topological_sort()
        if use_symbolic_shape_infer:
            inferred = self.model._inferred()
            if inferred is not None:
                self.model.initialize(inferred)

    # --- conditions

    def _obstacle(self) -> str | None:
        """Why the nodes cannot be packed, None if they can be."""
        if not self.attentions:
            return "there is none"
        masks = {_input(node, self.mask_input) for node in self.attentions}
        if len(masks) != 1 or "" in masks:
            return "expected one mask for all of them"
        (self.attention_mask,) = masks
        if not self._counts_tokens(self.attention_mask):
            return f"expected the lengths of rows as their mask, int32 of (batch,), not {self.attention_mask}"
        return next((f"{node.name} {reason}" for node in self.attentions if (reason := self._refusal(node))), None)

    def _counts_tokens(self, name: str) -> bool:
        """Whether a value has one integer for each row: nodes and declarations say so, in this order."""
        maker = self.model.output_name_to_node().get(name)
        if maker is not None and maker.op_type == "Cast":
            return self._counts_tokens(maker.input[0])
        if maker is not None and maker.op_type == "EmbedLayerNormalization":
            return list(maker.output).index(name) == 1
        if maker is not None and maker.op_type == "ReduceSum":
            return self.model.get_node_attribute(maker, "keepdims") == 0
        values = (*self.model.model.graph.input, *self.model.model.graph.value_info)
        shapes = [value.type.tensor_type.shape for value in values if value.name == name]
        return len(shapes) == 1 and len(shapes[0].dim) == 1

    def _refusal(self, node: NodeProto) -> str | None:
        """Why a node cannot be packed."""
        raise NotImplementedError

    # --- the region of tokens

    def source(self) -> str:
        """The value from which on tokens stand alone: what the first attention is made of."""
        return self.attentions[0].input[0]

    def _region(self, source: str) -> Iterator[NodeProto]:
        """The nodes that compute tokens from tokens."""
        tokens = {source}
        for node in self.model.model.graph.node:
            if self._takes_tokens(node, tokens):
                tokens.update(filter(None, node.output))
                yield node

    def _takes_tokens(self, node: NodeProto, tokens: set[str]) -> bool:
        """Whether a node computes each token by itself, or is an attention over them."""
        if node.op_type == self.attention_op_type:
            return all(name in tokens for name in self.packed_inputs(node))
        given = [name for name in node.input if name]
        others = [name for name in given if name not in tokens]
        ranks = [self._rank(name) for name in others]
        if len(others) == len(given) or None in ranks:
            return False
        if node.op_type in ELEMENTWISE or node.op_type in SKIP_NORMALIZATIONS:
            return all(rank is not None and rank <= 1 for rank in ranks)
        if node.op_type in NORMALIZATIONS:
            return node.input[0] in tokens and self.model.get_node_attribute(node, "axis") in (None, -1, 2)
        return node.op_type == "MatMul" and node.input[0] in tokens and ranks == [2]

    def packed_inputs(self, node: NodeProto) -> list[str]:
        """What of an attention are tokens."""
        raise NotImplementedError

    def _rank(self, name: str) -> int | None:
        """How many axes a constant has, None if it is none."""
        constant = self.model.get_constant_value(name)
        return None if constant is None else np.asarray(constant).ndim

    # --- the change

    def _pack(self, source: str, region: Sequence[NodeProto]) -> None:
        """Let the region compute packed tokens."""
        graph = self.model.model.graph
        inner = {id(node) for node in region}
        made = {name for node in region for name in node.output if name}
        read = {name for node in graph.node if id(node) not in inner for name in node.input}
        leaving = sorted(made & (read | {value.name for value in graph.output}))
        packed = {name: f"{name}_packed" for name in (source, *leaving)}
        for node in region:
            node.input[:] = [packed.get(name, name) for name in node.input]
            node.output[:] = [packed.get(name, name) for name in node.output]
            if node.op_type in NORMALIZATIONS and self.model.get_node_attribute(node, "axis") == 2:
                _set(node, "axis", -1)
        counts = self.model.create_node_name("RemovePadding")
        cast = helper.make_node("Cast", [self.attention_mask or ""], [f"{counts}_counts"], to=TensorProto.INT32)
        cast.name = self.model.create_node_name("Cast")
        outputs = [packed[source], OFFSETS, LENGTHS, f"{counts}_longest"]
        self.model.add_node(cast)
        self._add("RemovePadding", [source, cast.output[0]], outputs)
        for name in leaving:
            self._add("RestorePadding", [packed[name], OFFSETS], [name])
        for node in [node for node in region if node.op_type == self.attention_op_type]:
            self.model.add_node(self.packed(node))
            self.model.remove_node(node)
        if not any(entry.domain == CONTRIB for entry in self.model.model.opset_import):
            self.model.model.opset_import.append(helper.make_opsetid(CONTRIB, 1))

    def _add(self, op: str, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        name = self.model.create_node_name(op)
        self.model.add_node(helper.make_node(op, inputs, outputs, name=name, domain=CONTRIB))

    def packed(self, node: NodeProto) -> NodeProto:
        """The node that takes the place of an attention."""
        raise NotImplementedError

    def _make(self, node: NodeProto, inputs: Sequence[str], attributes: Sequence[str]) -> NodeProto:
        """A node of the packed op with some attributes of the other."""
        name = self.model.create_node_name(self.packed_op)
        made = helper.make_node(self.packed_op, inputs, node.output[:1], name=name, domain=CONTRIB)
        made.attribute.extend(attribute for attribute in node.attribute if attribute.name in attributes)
        return made


class PackingAttention(PackingAttentionBase):
    """Conversion of Attention, which projects tokens itself."""

    packed_op = "PackedAttention"
    mask_input = 3

    def __init__(self, model: OnnxModel):
        super().__init__(model, "Attention")

    def _refusal(self, node: NodeProto) -> str | None:
        if node.domain != CONTRIB:
            return "is the op of ONNX, which projects nothing"
        if _input(node, 4) or _input(node, 6) or _input(node, 1) == "" or len([name for name in node.output if name]) > 1:
            return "has a past or a present"
        if self.model.get_node_attribute(node, "unidirectional") or self.model.get_node_attribute(node, "do_rotary"):
            return "is causal or rotates"
        if self._rank(node.input[1]) != 2:
            return "has weights that are computed"
        return None

    def packed_inputs(self, node: NodeProto) -> list[str]:
        return [node.input[0]]

    def packed(self, node: NodeProto) -> NodeProto:
        bias = _input(node, 2) or self._zeros(node)
        inputs = [node.input[0], node.input[1], bias, OFFSETS, LENGTHS]
        extra = [_input(node, 5)] if _input(node, 5) else []
        return self._make(node, [*inputs, *extra], ("num_heads", "qkv_hidden_sizes", "scale"))

    def _zeros(self, node: NodeProto) -> str:
        """The bias of a node that has none."""
        weights = np.asarray(self.model.get_constant_value(node.input[1]))
        name = f"{node.name}_bias"
        self.model.add_initializer(numpy_helper.from_array(np.zeros(weights.shape[1], weights.dtype), name))
        return name


class PackingMultiHeadAttention(PackingAttentionBase):
    """Conversion of MultiHeadAttention of a sequence to itself."""

    packed_op = "PackedMultiHeadAttention"
    mask_input = 4

    def __init__(self, model: OnnxModel):
        super().__init__(model, "MultiHeadAttention")

    def _refusal(self, node: NodeProto) -> str | None:
        if any(_input(node, number) for number in (6, 7, 8, 9)) or len([name for name in node.output if name]) > 1:
            return "has a past or a present"
        if not all(_input(node, number) for number in (1, 2)):
            return "has queries, keys and values in one"
        return "is causal" if self.model.get_node_attribute(node, "unidirectional") else None

    def source(self) -> str:
        """What the first queries are projected from."""
        maker = self.model.output_name_to_node().get(self.attentions[0].input[0])
        while maker is not None and maker.op_type == "Add":
            makers = self.model.output_name_to_node()
            maker = next((makers[name] for name in maker.input if name in makers), None)
        return maker.input[0] if maker is not None and maker.op_type == "MatMul" else self.attentions[0].input[0]

    def packed_inputs(self, node: NodeProto) -> list[str]:
        return list(node.input[:3])

    def packed(self, node: NodeProto) -> NodeProto:
        extra = [_input(node, 5)] if _input(node, 5) else []
        inputs = [*node.input[:3], _input(node, 3), OFFSETS, LENGTHS, *extra]
        return self._make(node, inputs, ("num_heads", "mask_filter_value", "scale"))


class PackingMode:
    """Conversion of a model, whichever of the two ops it has."""

    def __init__(self, model: OnnxModel):
        self.model = model

    def convert(self, use_symbolic_shape_infer: bool = True) -> None:
        """Change the model, if its attention can be packed; otherwise the log says why not."""
        has_attention = bool(self.model.get_nodes_by_op_type("Attention"))
        if has_attention and self.model.get_nodes_by_op_type("MultiHeadAttention"):
            logger.error("the model has Attention and MultiHeadAttention, and is not packed")
            return
        packing: PackingAttentionBase = PackingAttention(self.model) if has_attention else PackingMultiHeadAttention(self.model)
        packing.convert(use_symbolic_shape_infer)


def _input(node: NodeProto, number: int) -> str:
    """An input, "" if it is left out."""
    return node.input[number] if number < len(node.input) else ""


def _set(node: NodeProto, name: str, value: Any) -> None:
    kept = [attribute for attribute in node.attribute if attribute.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])


def main(argv: Sequence[str] | None = None) -> None:
    """Convert a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", required=True, help="a model whose attention is fused, with lengths of rows as its mask")
    parser.add_argument("--output", required=True, help="where it is written")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--use_external_data_format", action="store_true", help="weights in a file of their own")
    arguments = parser.parse_args(argv)
    setup_logger(arguments.verbose)
    model = OnnxModel(onnx.load(arguments.input))
    PackingMode(model).convert()
    model.save_model_to_file(arguments.output, arguments.use_external_data_format)


if __name__ == "__main__":
    main()
