"""Types and shapes of a model's inner values, symbolic sizes included, by sardonyx's own inference.

`python -m sardonyx.tools.symbolic_shape_infer --input … --output …` writes them into a model.
"""

from __future__ import annotations

import argparse
import logging
import math
from collections.abc import Sequence
from typing import Any

import onnx
from onnx import ModelProto, NodeProto, TypeProto, ValueInfoProto, helper

from sardonyx import ir
from sardonyx.formats.onnx.types import write_type
from sardonyx.ir import Type, Value
from sardonyx.ir.scope import ScopedNames
from sardonyx.runtime.api.options import SessionOptions
from sardonyx.runtime.preparation.prepare import prepare
from sardonyx.runtime.preparation.recipe import Recipe
from sardonyx.tools.symbolic_sizes import merged, resized, simplified, written

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

        Symbolic sizes are taken for 1 or more. With `auto_merge`, those that a node can only take if they are equal are one. Sizes
        have no limit here and nothing is guessed, so `int_max` and `guess_output_rank` change nothing.
        """
        model = ModelProto()
        model.CopyFrom(in_mp)
        try:
            graph = prepare(Recipe(model, SessionOptions()), "infer").model.graph
        except Exception as error:
            raise Exception(f"Incomplete symbolic shape inference: {error}") from error
        types: dict[Value, Type | None] = {value: resized(value.type, simplified) for value in graph.values()}
        if auto_merge:
            types = merged(types, graph.nodes)
        add_value_infos(model, graph, types)
        if verbose:
            missing = _untyped(model)
            LOG.info("no type is known of %s", ", ".join(missing) or "nothing")
        return model


def add_value_infos(model: ModelProto, graph: ir.Graph, types: dict[Value, Type | None]) -> None:
    """Write the types of what the nodes of a model make; what was declared stays where inference knows nothing."""
    scope = ScopedNames.of(graph)
    by_name = {scope[value]: type for value, type in types.items()}
    declared = {value.name: value for value in (*model.graph.value_info, *model.graph.output)}
    names = _fresh_names(model, by_name)
    infos = []
    for node in model.graph.node:
        for name in filter(None, node.output):
            type = resized(by_name.get(name), lambda size: written(size, names))
            if type is not None:
                info = ValueInfoProto(name=name)
                write_type(type, info.type)
                infos.append(info)
            elif name in declared:
                infos.append(declared[name])
    known = {info.name: info for info in infos}
    for output in model.graph.output:
        if output.name in known:
            output.type.CopyFrom(known[output.name].type)
    del model.graph.value_info[:]
    model.graph.value_info.extend(infos)


def _fresh_names(model: ModelProto, types: dict[str, Type | None]) -> dict[str, str]:
    """What sizes are called that the data decides: by the node, the output and the axis where they come up."""
    names: dict[str, str] = {}
    for number, node in enumerate(model.graph.node):
        for output, name in enumerate(node.output):
            type = types.get(name)
            for axis, size in enumerate((type.shape if isinstance(type, ir.TensorType) else None) or ()):
                if isinstance(size, ir.dim.Expression) and size.symbol is not None and size.symbol.is_anonymous:
                    names.setdefault(size.symbol.name, f"{node.op_type}_{number}_o{output}__d{axis}")
    return names


def _untyped(model: ModelProto) -> list[str]:
    typed = {value.name for value in (*model.graph.value_info, *model.graph.output)}
    return sorted(name for node in model.graph.node for name in node.output if name and name not in typed)


# --- small functions that scripts import from here


def get_attribute(node: NodeProto, attr_name: str, default_value: Any = None) -> Any:
    """The value of a node's attribute, or what stands for it."""
    found = next((attribute for attribute in node.attribute if attribute.name == attr_name), None)
    return default_value if found is None else helper.get_attribute_value(found)


def get_opset(mp: ModelProto, domain: str | Sequence[str] | None = None) -> int | None:
    """The version of a domain that a model imports, by default that of ONNX itself."""
    domains = ["", "onnx", "ai.onnx"] if domain is None else [domain] if isinstance(domain, str) else domain
    return next((opset.version for opset in mp.opset_import if opset.domain in domains), None)


def get_dim_from_proto(dim: Any) -> Any:
    """A size as a number or a name, None if it says nothing."""
    field = dim.WhichOneof("value")
    return getattr(dim, field) if field else None


def is_sequence(type_proto: TypeProto) -> bool:
    kind = type_proto.WhichOneof("value")
    if kind not in ("tensor_type", "sequence_type"):
        raise AssertionError(f"a tensor or a sequence is wanted, not {kind}")
    return bool(kind == "sequence_type")


def _tensor_type(type_proto: TypeProto) -> Any:
    return type_proto.sequence_type.elem_type.tensor_type if is_sequence(type_proto) else type_proto.tensor_type


def get_shape_from_type_proto(type_proto: TypeProto) -> list[Any] | None:
    """The sizes of a tensor, or of those of a sequence; None if the rank is not known."""
    tensor = _tensor_type(type_proto)
    return [get_dim_from_proto(dim) for dim in tensor.shape.dim] if tensor.HasField("shape") else None


def get_elem_type_from_type_proto(type_proto: TypeProto) -> int:
    return int(_tensor_type(type_proto).elem_type)


def get_shape_from_value_info(vi: ValueInfoProto) -> list[Any] | None:
    """The sizes of a value; None where its type says none."""
    kind = vi.type.WhichOneof("value")
    if kind is None or (kind == "sequence_type" and vi.type.sequence_type.elem_type.WhichOneof("value") is None):
        return None
    return get_shape_from_type_proto(vi.type)


def make_named_value_info(name: str) -> ValueInfoProto:
    return ValueInfoProto(name=name)


def get_shape_from_sympy_shape(sympy_shape: Sequence[Any]) -> list[Any]:
    """Sizes as a model has them: numbers, and the text of expressions."""
    return [
        size if size is None or isinstance(size, str) else int(size) if is_literal(size) else str(size) for size in sympy_shape
    ]


def is_literal(dim: Any) -> bool:
    """Whether a size is a number."""
    return isinstance(dim, int) or bool(getattr(dim, "is_number", False))


def handle_negative_axis(axis: int, rank: int) -> int:
    """The axis counted from the front."""
    if not -rank <= axis < rank:
        raise AssertionError(f"axis {axis} is outside of a tensor of rank {rank}")
    return axis % rank


def as_scalar(x: Any) -> Any:
    """The one element of a list or an array, or the number itself."""
    if isinstance(x, list):
        if len(x) != 1:
            raise AssertionError(f"one element is wanted, there are {len(x)}")
        return x[0]
    return x.item() if hasattr(x, "item") else x


def as_list(x: Any, keep_none: bool) -> list[Any] | None:
    """Something as a list; None stays None if it shall."""
    if x is None:
        return None if keep_none else []
    return x if isinstance(x, list) else list(x) if hasattr(x, "__iter__") else [x]


def sympy_reduce_product(x: Sequence[Any]) -> Any:
    """The product of sizes, numbers or expressions of sympy."""
    return math.prod(x)


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Infer types and shapes of a model's inner values.")
    parser.add_argument("--input", required=True, help="path of the model")
    parser.add_argument("--output", required=True, help="path of the model with types")
    parser.add_argument("--auto_merge", action="store_true", help="sizes that a node can only take if they are equal are one")
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
    model = SymbolicShapeInference.infer_shapes(
        onnx.load(options.input), auto_merge=options.auto_merge, verbose=options.verbose
    )
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
