"""Types and shapes of a model's inner values, symbolic sizes included, by sardonyx's own inference.

`python -m sardonyx.tools.symbolic_shape_infer --input … --output …` writes them into a model.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from typing import Any

import onnx
from onnx import ModelProto

from sardonyx.formats.onnx.writer import write_model
from sardonyx.runtime.api.options import SessionOptions
from sardonyx.runtime.preparation.prepare import prepare
from sardonyx.runtime.preparation.recipe import Recipe

LOG = logging.getLogger(__name__)


class SymbolicShapeInference:
    """`infer_shapes` is all that others call; the arguments of the constructor are kept for them."""

    def __init__(
        self,
        int_max: int = 2**31 - 1,
        auto_merge: bool = False,
        guess_output_rank: bool = False,
        verbose: int = 0,
        prefix: str = "",
    ):
        self.int_max_, self.auto_merge_ = int_max, auto_merge
        self.guess_output_rank_, self.verbose_, self.prefix_ = guess_output_rank, verbose, prefix

    @staticmethod
    def infer_shapes(
        in_mp: ModelProto,
        int_max: int = 2**31 - 1,
        auto_merge: bool = False,
        guess_output_rank: bool = False,
        verbose: int = 0,
    ) -> ModelProto:
        """A copy of the model in which all inner values that can be typed are.

        Sizes have no limit here, and sizes that differ are an error rather than merged, so `int_max`, `auto_merge` and
        `guess_output_rank` change nothing.
        """
        model = ModelProto()
        model.CopyFrom(in_mp)
        try:
            inferred = write_model(prepare(Recipe(model, SessionOptions()), "infer").model, _without_data)
        except Exception as error:
            raise Exception(f"Incomplete symbolic shape inference: {error}") from error
        add_value_infos(model, inferred)
        if verbose:
            missing = _untyped(model)
            LOG.info("no type is known of %s", ", ".join(missing) or "nothing")
        return model


def _without_data(tensor: Any, name: str) -> Any:
    """Initializers keep their data: whoever wants none of it in memory gives external ones."""
    return None


def add_value_infos(model: ModelProto, inferred: Any) -> None:
    """Copy the types of values that the graph itself makes; what was declared stays where inference knows less."""
    made = {name for node in model.graph.node for name in node.output}
    outputs = {value.name: value for value in model.graph.output}
    known = {value.name: value for value in model.graph.value_info}
    for value in (*inferred.graph.value_info, *inferred.graph.output):
        if value.name in outputs:
            if value.type.ByteSize() > outputs[value.name].type.ByteSize():
                outputs[value.name].CopyFrom(_parsed(value))
        elif value.name in made and value.type.ByteSize():
            known[value.name] = _parsed(value)
    del model.graph.value_info[:]
    model.graph.value_info.extend(known.values())


def _parsed(value: Any) -> Any:
    """The same message in the classes of the onnx package."""
    return onnx.ValueInfoProto.FromString(value.SerializeToString())


def _untyped(model: ModelProto) -> list[str]:
    typed = {value.name for value in (*model.graph.value_info, *model.graph.output)}
    return sorted(name for node in model.graph.node for name in node.output if name and name not in typed)


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Infer types and shapes of a model's inner values.")
    parser.add_argument("--input", required=True, help="path of the model")
    parser.add_argument("--output", required=True, help="path of the model with types")
    parser.add_argument("--auto_merge", action="store_true", help="accepted for compatibility")
    parser.add_argument("--int_max", type=int, default=2**31 - 1, help="accepted for compatibility")
    parser.add_argument("--guess_output_rank", action="store_true", help="accepted for compatibility")
    parser.add_argument("--verbose", type=int, default=0, help="1: say which values have no type")
    parser.add_argument("--save_as_external_data", action="store_true", help="tensors go to a file beside the model")
    parser.add_argument("--all_tensors_to_one_file", action="store_true", help="one file for all tensors")
    parser.add_argument("--external_data_location", default="./", help="name of that file")
    parser.add_argument("--external_data_size_threshold", type=int, default=1024, help="bytes from which a tensor goes there")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_arguments(arguments)
    model = SymbolicShapeInference.infer_shapes(onnx.load(options.input), verbose=options.verbose)
    if options.save_as_external_data:
        onnx.save_model(
            model,
            options.output,
            save_as_external_data=True,
            all_tensors_to_one_file=options.all_tensors_to_one_file,
            location=options.external_data_location,
            size_threshold=options.external_data_size_threshold,
        )
    else:
        onnx.save(model, options.output)


if __name__ == "__main__":
    main()
