"""Hypothesis strategies for models of our IR: random graphs with subgraphs, functions, all kinds of attributes, types and tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from sardonyx import dtypes, ir
from sardonyx.ir import Attribute, Kind, packing

texts = st.text(st.characters(codec="utf-8"), max_size=6)
names = st.text(st.sampled_from('abcXYZ_019/. :"\\é'), min_size=1, max_size=6)
int64s = st.integers(-(2**63), 2**63 - 1)
float32s = st.floats(width=32, allow_nan=True)
metadata = st.dictionaries(texts, texts, max_size=2)
element_types = st.sampled_from(sorted(dtypes.ALL, key=lambda dtype: dtype.code))


@st.composite
def tensors(draw: Any, name: str = "") -> ir.Tensor:
    dtype = draw(element_types)
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
    count = int(np.prod(shape))
    if dtype is dtypes.string:
        array = np.empty(count, object)
        array[:] = draw(st.lists(texts, min_size=count, max_size=count))
    else:
        size = dtype.stored_bytes(count)
        array = packing.decode(draw(st.binary(min_size=size, max_size=size)), dtype, (count,))
    tensor = ir.Tensor.of(array.reshape(shape), name)
    tensor.doc, tensor.metadata = draw(texts), draw(metadata)
    return tensor


sizes = st.one_of(st.integers(0, 2**40), names.map(ir.dim.named), st.builds(ir.dim.fresh))
shapes = st.one_of(st.none(), st.lists(sizes, max_size=3).map(tuple))
tensor_types = st.builds(ir.TensorType, element_types, shapes)
types = st.recursive(
    st.one_of(
        tensor_types,
        st.builds(ir.SparseTensorType, element_types, shapes),
        st.builds(ir.OpaqueType, st.just("my.domain"), st.just("Thing")),
    ),
    lambda inner: st.one_of(
        st.builds(ir.SequenceType, inner),
        st.builds(ir.OptionalType, inner),
        st.builds(ir.MapType, st.sampled_from([dtypes.int64, dtypes.string]), inner),
    ),
    max_leaves=3,
)


@st.composite
def sparse_tensors(draw: Any, name: str = "") -> ir.SparseTensor:
    count = draw(st.integers(0, 3))
    values = np.array(draw(st.lists(float32s, min_size=count, max_size=count)), np.float32)
    flat = np.array(draw(st.lists(st.integers(0, 5), min_size=count, max_size=count)), np.int64)
    indices = flat if draw(st.booleans()) else np.stack(np.unravel_index(flat, (2, 3)), axis=-1).reshape(count, 2)
    return ir.SparseTensor(values, indices.astype(np.int64), (2, 3), name)


strings = st.one_of(texts, st.just(b"\xff\x00"))
attributes = st.one_of(
    st.builds(Attribute, st.just(Kind.FLOAT), float32s),
    st.builds(Attribute, st.just(Kind.INT), int64s),
    st.builds(Attribute, st.just(Kind.STRING), strings),
    st.builds(Attribute, st.just(Kind.FLOATS), st.lists(float32s, max_size=3)),
    st.builds(Attribute, st.just(Kind.INTS), st.lists(int64s, max_size=3)),
    st.builds(Attribute, st.just(Kind.STRINGS), st.lists(strings, max_size=3)),
    st.builds(Attribute, st.just(Kind.TENSOR), tensors("t")),
    st.builds(Attribute, st.just(Kind.TENSORS), st.lists(tensors(), max_size=2)),
    st.builds(Attribute, st.just(Kind.TYPE_PROTO), types),
    st.builds(Attribute, st.just(Kind.TYPE_PROTOS), st.lists(types, max_size=2)),
)
sparse_attributes = st.one_of(
    st.builds(Attribute, st.just(Kind.SPARSE_TENSOR), sparse_tensors()),
    st.builds(Attribute, st.just(Kind.SPARSE_TENSORS), st.lists(sparse_tensors(), max_size=2)),
)


@st.composite
def graphs(
    draw: Any,
    visible: tuple[ir.Value, ...] = (),
    depth: int = 0,
    references: bool = False,
    taken: frozenset[str] | set[str] = frozenset(),
) -> ir.Graph:
    """A graph whose nodes use `visible` values of outside too. No name comes twice, in inner graphs either."""
    graph = ir.Graph(draw(names))
    graph.doc, graph.metadata = draw(texts), draw(metadata)
    taken = taken if isinstance(taken, set) else set()

    def new_name() -> str:
        name = draw(names)
        while name in taken:
            name += "_"
        taken.add(name)
        return name

    for _ in range(draw(st.integers(0, 2))):
        value = graph.add_input(ir.Value(new_name(), draw(types)))
        value.doc, value.metadata = draw(texts), draw(metadata)
    if not references:
        for _ in range(draw(st.integers(0, 2))):
            name = new_name()
            graph.add_initializer(name, draw(tensors(name))).declared = None
    known = [*visible, *graph.values()]
    for number in range(draw(st.integers(0, 4))):
        inputs = draw(st.lists(st.one_of(st.none(), *([st.sampled_from(known)] if known else [])), max_size=3))
        outputs = [new_name() for _ in range(draw(st.integers(1, 2)))]
        node = ir.Node(f"Op{number}", inputs, [*outputs, ""][: draw(st.integers(1, 3))], domain="my.domain", version=3)
        node.attributes = draw(st.dictionaries(st.sampled_from(["a", "b", "axis", "_x"]), attributes, max_size=2))
        if references and draw(st.booleans()):
            node.attributes["r"] = Attribute(draw(st.sampled_from(Kind)), None, reference="given")
        if depth < 2 and draw(st.integers(0, 4)) == 0:
            node.attributes["body"] = Attribute(Kind.GRAPH, draw(graphs(tuple(known), depth + 1, references, taken)))
        node.name = draw(st.one_of(st.just(""), st.just(f"node {number}")))
        node.overload = draw(st.sampled_from(["", "v2"]))
        node.doc, node.metadata = draw(texts), draw(metadata)
        graph.append(node)
        for output in node.outputs:
            if output.name:
                known.append(output)
                output.type = output.declared = draw(st.one_of(st.none(), tensor_types))
    own = [value for value in known[len(visible) :] if value.graph is graph]
    graph.outputs = draw(st.lists(st.sampled_from(own), max_size=2, unique=True)) if own else []
    return graph


@st.composite
def models(draw: Any) -> ir.Model:
    graph = draw(graphs())
    model = ir.Model(graph, {"": 17, "my.domain": 3}, ir_version=draw(st.integers(4, 10)))
    model.producer_name, model.producer_version, model.domain = draw(texts), draw(texts), draw(texts)
    model.doc, model.metadata, model.model_version = draw(texts), draw(metadata), draw(st.one_of(st.none(), int64s))
    if draw(st.booleans()):
        name = "sparse value"
        sparse = draw(sparse_tensors(name))
        graph.add_initializer(name, ir.Tensor.of(sparse.to_dense(), name)).declared = None
        graph.initializers[name].sparse = sparse
    for number in range(draw(st.integers(0, 2))):
        body = draw(graphs(references=True))
        for value in body.inputs:
            value.doc, value.metadata = "", {}
        function = ir.Function(
            "my.domain", f"F{number}", body, {"": 17, "my.domain": 3}, ["given"], overload=draw(st.sampled_from(["", "o"]))
        )
        function.default_attributes = draw(st.dictionaries(st.sampled_from(["a", "b"]), attributes, max_size=2))
        function.doc, function.metadata = draw(texts), draw(metadata)
        body.name, body.doc, body.metadata = function.name, "", {}
        model.functions[function.key] = function
    return model
