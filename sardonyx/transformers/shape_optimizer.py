"""BERT for inputs of one size: shapes become constants.

`python -m sardonyx.transformers.shape_optimizer --input MODEL --output NEW --input_ids … --segment_ids … --input_mask …`
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterable, Sequence

import onnx

from sardonyx.tools.fusing import fused
from sardonyx.transformers.onnx_model import OnnxModel

logger = logging.getLogger(__name__)


class BertOnnxModelShapeOptimizer(OnnxModel):
    """A model whose three inputs get fixed sizes."""

    def __init__(self, onnx_model: OnnxModel):
        super().__init__(onnx_model.model)

    def get_shape_outputs(self) -> list[str]:
        """What Shape nodes make and somebody reads."""
        readers = self.input_name_to_nodes()
        return [node.output[0] for node in self.model.graph.node if node.op_type == "Shape" and node.output[0] in readers]

    def get_reshape_shape_inputs(self) -> list[str]:
        """What tells Reshape nodes their shape."""
        return [node.input[1] for node in self.model.graph.node if node.op_type == "Reshape"]

    def use_static_input(self, inputs: Iterable[str], batch_size: int = 1, max_seq_len: int = 128) -> None:
        """Fix the sizes of inputs of [batch, length]; a length that is fixed already must be the same."""
        for name in inputs:
            self.validate_input(name)
            value = self.find_graph_input(name)
            assert value is not None
            batch, length = value.type.tensor_type.shape.dim[:2]
            if length.HasField("dim_value") and length.dim_value != max_seq_len:
                raise ValueError(f"{name} has {length.dim_value} columns already, {max_seq_len} are wanted")
            batch.dim_value, length.dim_value = batch_size, max_seq_len

    def validate_input(self, input: str) -> None:
        """Refuse a name that is no input."""
        if self.find_graph_input(input) is None:
            names = ", ".join(value.name for value in self.model.graph.input)
            raise ValueError(f"the graph has no input {input}, it has {names}")

    def validate_outputs(self, output_names: Iterable[str]) -> None:
        """Refuse names that are no outputs."""
        for name in output_names:
            if self.find_graph_output(name) is None:
                names = ", ".join(value.name for value in self.model.graph.output)
                raise ValueError(f"the graph has no output {name}, it has {names}")

    def optimize(
        self,
        output_path: str | None,
        input_ids: str,
        segment_ids: str,
        input_mask: str,
        enable_shape_opt: bool,
        enable_reshape_opt: bool,
        output_names: Sequence[str] | None = None,
        batch_size: int = 1,
        sequence_length: int = 128,
        verbose: bool = False,
    ) -> None:
        """Fix the inputs, fold the sizes that follow from them, simplify Reshape if wanted, and write the model."""
        inputs = [input_ids, segment_ids, input_mask]
        for name in inputs:
            self.validate_input(name)
        if output_names is not None:
            self.validate_outputs(output_names)
            self.prune_graph(list(output_names))
        chosen = {"ConstantFolding": enable_shape_opt, "ReshapeFusion": enable_reshape_opt}
        stages = [name for name, is_wanted in chosen.items() if is_wanted]
        if stages:
            self.use_static_input(inputs, batch_size, sequence_length)
            self.initialize(fused(self.model, stages))
            logger.warning("The model takes inputs of [%d, %d] alone", batch_size, sequence_length)
        if output_path is not None:
            self.save_model_to_file(output_path)


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the program."""
    parser = argparse.ArgumentParser(description="Fix the sizes of BERT's inputs, and fold what follows from them.")
    parser.add_argument("--input", required=True, help="path of the model")
    parser.add_argument("--output", required=True, help="path of the new model")
    for name in ("input_ids", "segment_ids", "input_mask"):
        parser.add_argument(f"--{name}", required=True, help=f"the input of that meaning: {name}")
    parser.add_argument("--output_names", help="outputs that stay, with semicolons between")
    parser.add_argument("--batch_size", type=int, default=1)
    parser.add_argument("--sequence_length", type=int, default=128)
    parser.add_argument("--enable_shape_opt", action="store_true", help="shapes become constants")
    parser.add_argument("--enable_reshape_opt", action="store_true", help="Reshape nodes are simplified")
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args(argv)


def setup_logging(verbose: bool) -> None:
    """Messages of this program on standard output."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter("%(filename)20s: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if verbose else logging.INFO)


def main(argv: Sequence[str] | None = None) -> None:
    options = parse_arguments(argv)
    setup_logging(options.verbose)
    names = None if options.output_names is None else options.output_names.split(";")
    BertOnnxModelShapeOptimizer(OnnxModel(onnx.load(options.input))).optimize(
        options.output,
        options.input_ids,
        options.segment_ids,
        options.input_mask,
        options.enable_shape_opt,
        options.enable_reshape_opt,
        names,
        options.batch_size,
        options.sequence_length,
        options.verbose,
    )


if __name__ == "__main__":
    main()
