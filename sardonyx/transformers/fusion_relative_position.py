"""Biases of T5 that depend on how far a key stands from a query, as one op. `onnx_model_t5` has the name."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from sardonyx.providers.cpu.contrib.position_bias import bucket_of
from sardonyx.runtime.api.session import InferenceSession
from sardonyx.transformers.fusion_base import Fusion, Makers, Readers
from sardonyx.transformers.onnx_model import CONTRIB, OnnxModel

SAMPLES = (200, 300)
"""How many queries and keys are tried; the distances between them fill all buckets that are far."""
USUAL_DISTANCE = 128


class FusionRelativePositionBiasBlock(Fusion):
    """A table that is looked up by buckets of distances becomes RelativePositionBias.

    Which buckets nodes compute is tried out: exporters write the same formula in many ways. onnxruntime has the op for GPUs alone, so
    `optimize_model` does not fuse it; models that are to run here may.
    """

    def __init__(self, model: OnnxModel):
        super().__init__(model, "RelativePositionBias", ["Gather"])

    def fuse(self, node: NodeProto, input_name_to_nodes: Readers, output_name_to_node: Makers) -> None:
        """Look at one Gather whose rows become biases of (1, heads, queries, keys)."""
        table = self.model.get_initializer(node.input[0])
        result = self._transposed(node, input_name_to_nodes)
        if table is None or len(table.dims) != 2 or result is None:
            return
        block = _Buckets(self.model, node.input[1], output_name_to_node)
        found = block.settings(table.dims[0])
        if found is None:
            return
        (queries, keys), distance, is_bidirectional = found
        name = self.model.create_node_name("RelativePositionBias")
        array = numpy_helper.to_array(table)
        by_heads = np.ascontiguousarray(array.T).reshape(array.shape)
        bias = self.add_initializer(f"{name}_table", table.data_type, array.shape, by_heads)
        inputs = [bias.name, queries.input[1], keys.input[1]]
        options = {"max_distance": distance, "is_bidirectional": int(is_bidirectional)}
        made = helper.make_node("RelativePositionBias", inputs, [result.output[0]], name=name, domain=CONTRIB, **options)
        self.add_nodes_to_remove([result])
        self.nodes_to_add.append(made)
        self.node_name_to_graph_name[name] = self.this_graph_name or ""
        self.increase_counter("RelativePositionBias")
        self.prune_graph = True

    def _transposed(self, node: NodeProto, readers: Readers) -> NodeProto | None:
        """The Unsqueeze behind a Transpose that puts heads first and a batch before them."""
        (transpose,) = following if len(following := readers.get(node.output[0], ())) == 1 else (None,)
        if (
            transpose is None
            or transpose.op_type != "Transpose"
            or self.model.get_node_attribute(transpose, "perm") != [2, 0, 1]
        ):
            return None
        following = readers.get(transpose.output[0], ())
        if len(following) != 1 or following[0].op_type != "Unsqueeze":
            return None
        axes = self.model.get_constant_value(following[0].input[1]) if len(following[0].input) > 1 else None
        return following[0] if axes is not None and np.asarray(axes).ravel().tolist() == [0] else None


class _Buckets:
    """The nodes that compute buckets from places of queries and keys."""

    def __init__(self, model: OnnxModel, name: str, makers: Makers):
        self.model, self.name = model, name
        self.ranges: list[NodeProto] = []
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []
        self.is_closed = self._collect(name, makers, set())

    def _collect(self, name: str, makers: Makers, seen: set[str]) -> bool:
        """Follow a value up to ranges from 0 and constants; whether there is nothing else."""
        if name in seen or not name:
            return True
        seen.add(name)
        tensor = self.model.get_initializer(name)
        if tensor is not None:
            self.constants.append(tensor)
            return True
        node = makers.get(name)
        if node is None:
            return False
        if node.op_type == "Range":
            self.ranges.append(node)
            bounds = [self.model.get_constant_value(node.input[number]) for number in (0, 2)]
            return [None if bound is None else np.asarray(bound).item() for bound in bounds] == [0, 1]
        if any(attribute.HasField("g") for attribute in node.attribute) or len(self.nodes) > 100:
            return False
        self.nodes.append(node)
        return all(self._collect(given, makers, seen) for given in node.input)

    def settings(self, buckets: int) -> tuple[tuple[NodeProto, NodeProto], int, bool] | None:
        """(the ranges of queries and of keys, the greatest distance, whether keys may come later); None if there are none."""
        if not self.is_closed or len(self.ranges) not in (1, 2):
            return None
        first, last = self.ranges[0], self.ranges[-1]
        sizes = [SAMPLES[0]] if first is last else list(SAMPLES)
        got = self._computed(sizes)
        pairs = ((first, last), (last, first))
        counts = ((sizes[0], sizes[-1]), (sizes[-1], sizes[0]))
        for pair, (queries, keys) in zip(pairs, counts, strict=True):
            distances = np.arange(keys) - np.arange(queries)[:, None]
            for distance, is_both in self._candidates(buckets):
                wanted = bucket_of(distances, buckets, distance, is_both)  # type: ignore[no-untyped-call]
                if got.shape == wanted.shape and np.array_equal(got, wanted):
                    return pair, distance, is_both
        return None

    def _computed(self, sizes: list[int]) -> np.ndarray:
        """The buckets for so many places."""
        inputs = [helper.make_tensor_value_info(node.output[0], TensorProto.INT64, [None]) for node in self.ranges]
        output = helper.make_tensor_value_info(self.name, TensorProto.INT64, None)
        graph = helper.make_graph(self.nodes[::-1], "buckets", inputs, [output], self.constants)
        model = OnnxModel(helper.make_model(graph, opset_imports=self.model.model.opset_import))
        model.topological_sort()
        model.model.ir_version = self.model.model.ir_version
        session = InferenceSession(model.model.SerializeToString(), providers=["CPUExecutionProvider"])
        feeds = {node.output[0]: np.arange(size) for node, size in zip(self.ranges, sizes, strict=True)}
        return np.asarray(session.run(None, feeds)[0])

    def _candidates(self, buckets: int) -> Iterator[tuple[int, bool]]:
        """Distances that constants tell, for either kind; logarithms of distances by the number of near buckets are among them."""
        values = [self.model.get_constant_value(name) for node in self.nodes for name in (*node.input, *node.output)]
        numbers = {float(np.asarray(value).item()) for value in values if value is not None and np.asarray(value).size == 1}
        for is_both in (True, False):
            near = buckets // 4 if is_both else buckets // 2
            told = {round(near * math.exp(number)) for number in numbers if 0 < number < 20}
            if near:
                yield from ((distance, is_both) for distance in sorted({USUAL_DISTANCE, *told}) if distance > near)
