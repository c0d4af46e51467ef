"""Our type and shape inference beside the onnx package's own: it may know less than ours, never more, and never something else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sardonyx import formats, ops
from sardonyx.ir import (
    MapType,
    OptionalType,
    SequenceType,
    SparseTensorType,
    TensorType,
    Type,
    described,
    dim,
)
from sardonyx.providers.cpu.provider import evaluate


@dataclass(frozen=True)
class Difference:
    """One value on which the two disagree. `kind` is "contradiction" or "unknown"."""

    kind: str
    value: str
    reason: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.value}: {self.reason}"


def compare(proto: Any) -> list[Difference]:
    """What ours contradicts or leaves unknown of all that onnx.shape_inference finds in a model's main graph."""
    bare = _without_declarations(proto)
    theirs = _their_types(bare)
    if theirs is None:
        return []
    try:
        model = formats.load(bare)
        ops.infer(model, evaluate)
    except Exception as error:
        return [Difference("contradiction", "model", f"onnx infers, we raise {type(error).__name__}: {error}")]
    ours = {value.name: value.type for value in model.graph.values() if value.name}
    return [
        difference
        for name, type_proto in theirs.items()
        if name in ours
        for difference in _differences(name, ours[name], type_proto)
    ]


def contradicts_declaration(proto: Any) -> str | None:
    """Why strict inference refuses the model with the types that it declares, None if it does not."""
    try:
        ops.infer(formats.load(proto), evaluate, strict=True)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _without_declarations(proto: Any) -> Any:
    """The model with nothing said of inner values and outputs, so that all is left to inference."""
    import onnx

    bare = onnx.ModelProto()
    bare.CopyFrom(proto)
    del bare.graph.value_info[:]
    for output in bare.graph.output:
        output.ClearField("type")
    return bare


def _their_types(bare: Any) -> dict[str, Any] | None:
    """Types by name as onnx infers them, None if it cannot."""
    import onnx.shape_inference

    for strict in (True, False):
        try:
            inferred = onnx.shape_inference.infer_shapes(bare, check_type=True, strict_mode=strict, data_prop=True)
        except Exception:
            continue
        return {value.name: value.type for value in (*inferred.graph.value_info, *inferred.graph.output)}
    return None


def _differences(name: str, ours: Type | None, theirs: Any) -> Iterator[Difference]:
    kind = theirs.WhichOneof("value")
    if kind is None:
        return
    if ours is None:
        yield Difference("unknown", name, f"onnx knows {kind}")
        return
    if kind in ("tensor_type", "sparse_tensor_type"):
        expected = TensorType if kind == "tensor_type" else SparseTensorType
        if not isinstance(ours, expected):
            yield Difference("contradiction", name, f"ours is {ours}, onnx has a {kind}")
        else:
            yield from _tensor_differences(name, ours, getattr(theirs, kind))
    elif kind in ("sequence_type", "optional_type"):
        if not isinstance(ours, SequenceType if kind == "sequence_type" else OptionalType):
            yield Difference("contradiction", name, f"ours is {ours}, onnx has a {kind}")
        else:
            yield from _differences(f"{name}[]", ours.element, getattr(theirs, kind).elem_type)
    elif kind == "map_type":
        if not isinstance(ours, MapType) or ours.key.code != theirs.map_type.key_type:
            yield Difference("contradiction", name, f"ours is {ours}, onnx has {theirs.map_type}")
        else:
            yield from _differences(f"{name}{{}}", ours.value, theirs.map_type.value_type)


def _tensor_differences(name: str, ours: TensorType | SparseTensorType, theirs: Any) -> Iterator[Difference]:
    if theirs.elem_type:
        if ours.dtype is None:
            yield Difference("unknown", name, f"element type; onnx knows {theirs.elem_type}")
        elif ours.dtype.code != theirs.elem_type:
            yield Difference("contradiction", name, f"ours is {ours.dtype}, onnx has element type {theirs.elem_type}")
    if not theirs.HasField("shape"):
        return
    sizes = list(theirs.shape.dim)
    if ours.shape is None:
        yield Difference("unknown", name, f"rank; onnx knows {_shape_text(sizes)}")
        return
    if len(ours.shape) != len(sizes):
        yield Difference("contradiction", name, f"ours is {described(ours)}, onnx has {_shape_text(sizes)}")
        return
    for mine, other in zip(ours.shape, sizes, strict=True):
        if other.HasField("dim_value"):
            if isinstance(mine, int) and mine != other.dim_value:
                yield Difference("contradiction", name, f"ours is {described(ours)}, onnx has {_shape_text(sizes)}")
            elif not isinstance(mine, int):
                yield Difference("unknown", name, f"ours is {described(ours)}, onnx has {_shape_text(sizes)}")
        elif other.dim_param and not other.dim_param.startswith("unk__") and dim.is_anonymous(mine):
            yield Difference("unknown", name, f"ours is {described(ours)}, onnx has {_shape_text(sizes)}")


def _shape_text(sizes: list[Any]) -> str:
    return "[" + ", ".join(str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?" for d in sizes) + "]"
