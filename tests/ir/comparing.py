"""Whether two models, graphs or tensors are the same, said with the place where they differ. Tests of ir and formats use it."""

from __future__ import annotations

import numpy as np

from sardonyx import ir
from sardonyx.ir import Kind


def assert_same_model(left: ir.Model, right: ir.Model, **options: bool) -> None:
    for name in ("ir_version", "producer_name", "producer_version", "domain", "model_version", "doc", "metadata"):
        assert getattr(left, name) == getattr(right, name), name
    assert left.opsets == right.opsets
    Comparison(**options).graphs(left.graph, right.graph)
    assert list(left.functions) == list(right.functions)
    for key, function in left.functions.items():
        assert_same_function(function, right.functions[key], **options)


def assert_same_function(left: ir.Function, right: ir.Function, **options: bool) -> None:
    for name in ("key", "doc", "opsets", "required_attributes"):
        assert getattr(left, name) == getattr(right, name), name
    comparison = Comparison(**options)
    comparison.attributes(left.default_attributes, right.default_attributes, left.name)
    comparison.graphs(left.graph, right.graph)


def assert_same_graph(left: ir.Graph, right: ir.Graph, **options: bool) -> None:
    Comparison(**options).graphs(left, right)


def same_type(left: ir.Type | None, right: ir.Type | None) -> bool:
    """Equal but for sizes without a name, each of which is unique."""
    match left, right:
        case (ir.TensorType(a, s), ir.TensorType(b, t)) | (ir.SparseTensorType(a, s), ir.SparseTensorType(b, t)):
            return a is b and same_shape(s, t)
        case (ir.SequenceType(a), ir.SequenceType(b)) | (ir.OptionalType(a), ir.OptionalType(b)):
            return same_type(a, b)
        case ir.MapType(k, a), ir.MapType(m, b):
            return k is m and same_type(a, b)
    return left == right


def same_shape(left: ir.Shape | None, right: ir.Shape | None) -> bool:
    if left is None or right is None:
        return left is right
    return len(left) == len(right) and all(
        a == b or (ir.dim.is_anonymous(a) and ir.dim.is_anonymous(b)) for a, b in zip(left, right)
    )


def same_arrays(left: np.ndarray, right: np.ndarray) -> bool:
    """Equal bit by bit."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    if left.dtype == object:
        return left.tolist() == right.tolist()
    return np.ascontiguousarray(left).tobytes() == np.ascontiguousarray(right).tobytes()


class Comparison:
    """Walks two graphs side by side. `texts=False` leaves out documentation, metadata and names of graphs and tensors."""

    def __init__(self, texts: bool = True, sparse: bool = True):
        self.texts = texts
        self.sparse = sparse
        self.partner: dict[ir.Value, ir.Value] = {}

    def graphs(self, left: ir.Graph, right: ir.Graph) -> None:
        if self.texts:
            assert (left.name, left.doc, left.metadata, left.quantization) == (
                right.name,
                right.doc,
                right.metadata,
                right.quantization,
            )
        self.all_values(left.inputs, right.inputs, "inputs")
        assert set(left.initializers) == set(right.initializers)
        for name, value in left.initializers.items():
            self.initializers(value, right.initializers[name])
        assert len(left) == len(right), (list(left.nodes), list(right.nodes))
        for a, b in zip(left.nodes, right.nodes):
            self.nodes(a, b)
        assert [self.partner[value] for value in left.outputs] == right.outputs

    def all_values(self, left: list[ir.Value], right: list[ir.Value], place: str) -> None:
        assert len(left) == len(right), place
        for a, b in zip(left, right):
            self.values(a, b)

    def values(self, left: ir.Value, right: ir.Value) -> None:
        assert self.partner.setdefault(left, right) is right
        assert left.name == right.name
        assert same_type(left.type, right.type), (left, right)
        assert (left.is_input, left.is_constant) == (right.is_input, right.is_constant), left
        if self.texts:
            assert (left.doc, left.metadata) == (right.doc, right.metadata)

    def initializers(self, left: ir.Value, right: ir.Value) -> None:
        self.values(left, right)
        assert left.constant is not None and right.constant is not None
        self.tensors(left.constant, right.constant, left.name)
        if self.sparse:
            assert (left.sparse is None) == (right.sparse is None)
            if left.sparse is not None and right.sparse is not None:
                self.sparse_tensors(left.sparse, right.sparse, left.name)

    def tensors(self, left: ir.Tensor, right: ir.Tensor, place: str) -> None:
        assert left.dtype is right.dtype and left.shape == right.shape, place
        assert same_arrays(left.numpy(), right.numpy()), place
        if self.texts:
            assert (left.name, left.doc, left.metadata) == (right.name, right.doc, right.metadata), place

    def sparse_tensors(self, left: ir.SparseTensor, right: ir.SparseTensor, place: str) -> None:
        assert left.dense_shape == right.dense_shape and left.name == right.name, place
        assert same_arrays(left.values, right.values) and same_arrays(left.indices, right.indices), place

    def nodes(self, left: ir.Node, right: ir.Node) -> None:
        for name in ("op_type", "domain", "version", "overload", "name"):
            assert getattr(left, name) == getattr(right, name), (left, right, name)
        if self.texts:
            assert (left.doc, left.metadata) == (right.doc, right.metadata), left
        assert [value and self.partner[value] for value in left.inputs] == list(right.inputs), left
        self.attributes(left.attributes, right.attributes, str(left))
        self.all_values(list(left.outputs), list(right.outputs), str(left))

    def attributes(self, left: dict[str, ir.Attribute], right: dict[str, ir.Attribute], place: str) -> None:
        assert list(left) == list(right), place
        for name, a in left.items():
            b = right[name]
            assert (a.kind, a.reference) == (b.kind, b.reference), (place, name)
            assert a.doc == b.doc or not self.texts
            if a.reference is None:
                self.attribute_values(a.kind, a.value, b.value, f"{name} of {place}")

    def attribute_values(self, kind: Kind, left: object, right: object, place: str) -> None:
        if isinstance(left, list) and isinstance(right, list):
            assert len(left) == len(right), place
            for a, b in zip(left, right):
                self.attribute_values(kind, a, b, place)
            return
        match left, right:
            case ir.Tensor(), ir.Tensor():
                self.tensors(left, right, place)
            case ir.SparseTensor(), ir.SparseTensor():
                self.sparse_tensors(left, right, place)
            case ir.Graph(), ir.Graph():
                self.graphs(left, right)
            case float(), float():
                assert np.array(left).tobytes() == np.array(right).tobytes() or (left != left and right != right), place
            case _ if kind in (Kind.TYPE_PROTO, Kind.TYPE_PROTOS):
                assert same_type(left, right), place  # type: ignore[arg-type]
            case _:
                assert type(left) is type(right) and left == right, (place, left, right)
