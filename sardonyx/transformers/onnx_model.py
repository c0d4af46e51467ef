"""OnnxModel: a model with methods to look into it, to change it, to convert it to float16 and to save it."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto, TensorProto

from sardonyx.tools.external_files import save_beside
from sardonyx.tools.symbolic_shape_infer import SymbolicShapeInference
from sardonyx.transformers import float16
from sardonyx.transformers.graph_edits import GraphEdits
from sardonyx.transformers.shape_infer_helper import SymbolicShapeInferenceHelper, known_shapes

logger = logging.getLogger(__name__)

CONTRIB = "com.microsoft"


class OnnxModel(GraphEdits):
    """A model; `model` is the message itself, which the methods change."""

    def __init__(self, model: ModelProto):
        super().__init__()
        self.initialize(model)

    def initialize(self, model: ModelProto) -> None:
        """Take another model."""
        self.model = model
        self._suffixes = {}
        self.shape_infer_helper: SymbolicShapeInferenceHelper | None = None
        self.enable_shape_infer = True
        self.all_graphs = None

    # --- shapes

    def disable_shape_inference(self) -> None:
        """Infer nothing from now on."""
        self.enable_shape_infer = False

    def infer_runtime_shape(
        self, dynamic_axis_mapping: Mapping[str, int] | None = None, update: bool = False
    ) -> SymbolicShapeInferenceHelper | None:
        """What tells shapes for these sizes; kept until `update` asks for another."""
        if self.enable_shape_infer and (self.shape_infer_helper is None or update):
            self.shape_infer_helper = known_shapes(self.model, dynamic_axis_mapping)
        return self.shape_infer_helper if self.enable_shape_infer else None

    def _shapes(self) -> SymbolicShapeInferenceHelper | None:
        return known_shapes(self.model)

    def clean_shape_infer(self) -> None:
        """Forget types of inner values."""
        del self.model.graph.value_info[:]
        self.shape_infer_helper = None

    # --- float16

    def use_float16(self) -> bool:
        """Whether weights are float16."""
        return any(tensor.data_type == TensorProto.FLOAT16 for graph in self.graphs() for tensor in graph.initializer)

    def convert_model_float32_to_float16(self, cast_input_output: bool = True) -> None:
        """The old name of `convert_float_to_float16`."""
        self.convert_float_to_float16(use_symbolic_shape_infer=True, keep_io_types=cast_input_output)

    def convert_float_to_float16(self, use_symbolic_shape_infer: bool = True, **kwargs: Any) -> None:
        """Compute in float16; `keep_io_types`, `op_block_list` and others go to `float16.convert_float_to_float16`."""
        arguments = {"keep_io_types": True} | kwargs
        inferred = self._inferred() if use_symbolic_shape_infer else None
        if inferred is not None:
            arguments |= {"disable_shape_infer": True}
        self.initialize(float16.convert_float_to_float16(inferred or self.model, **arguments))
        self.remove_cascaded_cast_nodes()
        self.remove_useless_cast_nodes()
        self.prune_graph()

    def _inferred(self) -> ModelProto | None:
        """A copy of the model with the types of inner values."""
        try:
            return SymbolicShapeInference.infer_shapes(self.model, auto_merge=True)
        except Exception as error:
            logger.warning("Types are inferred by onnx, because ours say: %s", error)
            return None

    # --- files

    @staticmethod
    def save(
        model: ModelProto,
        output_path: str,
        save_as_external_data: bool = False,
        all_tensors_to_one_file: bool = True,
        size_threshold: int = 1024,
        convert_attribute: bool = False,
    ) -> None:
        """Write a model; weights of at least `size_threshold` bytes go into files beside it, if that is wanted."""
        domains = {entry.domain for entry in model.opset_import}
        if CONTRIB not in domains and any(node.domain == CONTRIB for node in model.graph.node):
            model.opset_import.append(onnx.helper.make_opsetid(CONTRIB, 1))
        path = Path(output_path)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not save_as_external_data:
            onnx.save_model(model, os.fspath(path))
            return
        if not all_tensors_to_one_file and any(path.parent.iterdir()):
            raise RuntimeError(f"Output directory ({path.parent}) for external data is not empty.")
        location = f"{path.name}.data" if all_tensors_to_one_file else None
        save_beside(model, path, location, size_threshold=size_threshold, convert_attribute=convert_attribute)

    def save_model_to_file(
        self,
        output_path: str,
        use_external_data_format: bool = False,
        all_tensors_to_one_file: bool = True,
        size_threshold: int = 1024,
        convert_attribute: bool = False,
    ) -> None:
        """Sort the nodes and write the model."""
        logger.info("Sort graphs in topological order")
        self.topological_sort()
        OnnxModel.save(
            self.model, output_path, use_external_data_format, all_tensors_to_one_file, size_threshold, convert_attribute
        )
