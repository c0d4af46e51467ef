"""Shapes of a model's values for given sizes of its symbolic dims."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnx import ModelProto, ValueInfoProto

from sardonyx.tools.onnx_model_utils import make_dim_param_fixed
from sardonyx.tools.symbolic_shape_infer import SymbolicShapeInference


class SymbolicShapeInferenceHelper(SymbolicShapeInference):
    """Infers once `infer` was called, and then tells shapes by name."""

    def __init__(
        self,
        model: ModelProto,
        verbose: int = 0,
        int_max: int = 2**31 - 1,
        auto_merge: bool = True,
        guess_output_rank: bool = False,
    ):
        super().__init__(int_max, auto_merge, guess_output_rank, verbose)
        self.model_ = model
        self.known_vi_: dict[str, ValueInfoProto] = {}

    def infer(self, dynamic_axis_mapping: Mapping[str, int], max_runs: int = 200) -> bool:
        """Infer with these sizes; whether that went well."""
        model = ModelProto()
        model.CopyFrom(self.model_)
        for name, size in dynamic_axis_mapping.items():
            make_dim_param_fixed(model.graph, name, size)
        try:
            inferred = self.infer_shapes(model)
        except Exception:  # what the inference refuses, it says by its exceptions
            return False
        graph = inferred.graph
        self.known_vi_ = {value.name: value for value in (*graph.input, *graph.value_info, *graph.output)}
        return True

    def get_edge_shape(self, edge: str) -> list[Any] | None:
        """The sizes of a value, numbers or names."""
        if edge not in self.known_vi_:
            return None
        shape = self.known_vi_[edge].type.tensor_type.shape
        return [size.dim_value if size.HasField("dim_value") else size.dim_param for size in shape.dim]

    def compare_shape(self, edge: str, edge_other: str) -> bool:
        """Whether two values have the same shape."""
        shapes = self.get_edge_shape(edge), self.get_edge_shape(edge_other)
        if None in shapes:
            raise Exception("fusion failed: shape not found")
        return shapes[0] == shapes[1]


def known_shapes(model: ModelProto, sizes: Mapping[str, int] | None = None) -> SymbolicShapeInferenceHelper | None:
    """A helper that has inferred, None if that is not possible."""
    helper = SymbolicShapeInferenceHelper(model)
    return helper if helper.infer(sizes or {}) else None
