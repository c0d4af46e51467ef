"""Models written in the ORT format: the same trees as onnxruntime's, buffers that it loads, and clear refusals."""

from __future__ import annotations

import math
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from sardonyx import dtypes, formats, ir
from sardonyx.errors import Fail, InvalidGraph
from sardonyx.formats.ort import derived, encoding, writer
from sardonyx.formats.ort.decoding import decode
from sardonyx.formats.ort.encoding import encode
from sardonyx.formats.ort.tables import TABLES, UNIONS, VERSION, Field, FieldKind
from sardonyx.ir import Attribute, Kind, Node, Tensor, TensorType, Value
from sardonyx.ir.text import parse_model
from sardonyx.optimizer.pipeline import Level
from sardonyx.runtime.saving import files as saving
from tests.formats import ort_fixtures
from tests.formats.ort_fixtures import MODELS, comparable, decoded


def loaded(name: str) -> ir.Model:
    model = formats.load(MODELS / f"{name}.onnx")
    saving.make_savable(model, Level.DISABLE_ALL)
    return model


def written(model: ir.Model) -> dict[str, Any]:
    """The tree of what is written for a typed model, without changing it for onnxruntime."""
    return decode(writer.write_model(model, saving.KnownOps(model)))


def typed(text: str) -> ir.Model:
    model = parse_model('<ir_version: 9, opset_import: ["": 20]>' + text)
    saving.make_savable(model, Level.DISABLE_ALL)
    return model


# --- trees


def test_there_are_trees_to_compare() -> None:
    assert len(ort_fixtures.ENTRIES) == 23


@pytest.mark.parametrize("name", sorted(ort_fixtures.ENTRIES.keys() - {"fp16_casts", "local_function", "sequence"}))
def test_the_tree_is_the_one_that_onnxruntime_writes(name: str) -> None:
    data = saving.as_saved(loaded(name), fold=False).encoded()
    assert comparable(decode(data)) == decoded(f"{name}.noopt")


def test_a_sequence_says_more_of_its_elements() -> None:
    """Our inference knows the rank of what a sequence holds, onnxruntime's does not."""
    got, want = comparable(decode(saving.as_saved(loaded("sequence")).encoded())), decoded("sequence.noopt")
    types = {info["name"]: info["type"] for info in got["model"]["graph"]["node_args"]}
    assert types["seq"]["value"]["elem_type"]["value"].pop("shape") == {"dim": [{"value": {"dim_type": 0, "dim_value": 0}}]}
    assert got == want


def renamed(tree: dict[str, Any], names: dict[str, str]) -> Any:
    """A tree with nodes numbered from zero, and with other names."""
    graph = tree["model"]["graph"]
    order = sorted(graph["nodes"], key=lambda node: [names.get(name, name) for name in node["outputs"]])
    slots = {node["index"]: number for number, node in enumerate(order)}

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: walk(one) for key, one in value.items()}
        if isinstance(value, list):
            return [walk(one) for one in value]
        return names.get(value, value) if isinstance(value, str) else value

    for edge in graph["node_edges"]:
        edge["node_index"] = slots[edge["node_index"]]
        for side in ("input_edges", "output_edges"):
            edge[side] = sorted((slots[a], b, c) for a, b, c in edge[side])
    for node in graph["nodes"]:
        node["index"], node["name"] = slots[node["index"]], ""
        node["doc_string"] = ""
    graph["nodes"].sort(key=lambda node: node["index"])
    graph["node_edges"].sort(key=lambda edge: edge["node_index"])
    graph["max_node_index"] = len(order)
    tree = walk(tree)
    for part in ("initializers", "node_args"):
        tree["model"]["graph"][part].sort(key=lambda one: one["name"])
    return tree


def test_the_tree_of_inlined_functions_differs_in_names_and_slots_alone() -> None:
    """onnxruntime makes the names of a body from the function, we from the call; it leaves the slots of the calls empty."""
    names = {"_inlfunc_ScaleShift_": "call0/", "_inlfunc_ScaleShift_token_0_": "call1/"}
    theirs = {f"{start}{name}": f"{ours}{name}" for start, ours in names.items() for name in ("t", "two")}
    got = comparable(decode(saving.as_saved(loaded("local_function")).encoded()))
    assert renamed(got, {}) == renamed(decoded("local_function.noopt"), theirs)


def test_the_tree_of_float16_differs_in_slots_and_forgotten_values_alone() -> None:
    """The casts are the same; onnxruntime also keeps the types of values that its own cast removal made superfluous."""
    got = renamed(comparable(decode(saving.as_saved(loaded("fp16_casts"), fold=False).encoded())), {})
    want = renamed(decoded("fp16_casts.noopt"), {})
    graph = want["model"]["graph"]
    used = {name for node in graph["nodes"] for name in (*node["inputs"], *node["outputs"])}
    graph["node_args"] = [info for info in graph["node_args"] if info["name"] in used]
    assert got == want


@pytest.mark.parametrize("name", sorted(ort_fixtures.ENTRIES))
def test_onnxruntime_computes_the_same_from_our_file(name: str) -> None:
    import onnxruntime

    data = saving.as_saved(loaded(name)).encoded()
    session = onnxruntime.InferenceSession(bytes(data), providers=["CPUExecutionProvider"])
    ort_fixtures.assert_gives_expected(name, session)


# --- buffers


def _field_strategy(field: Field, depth: int) -> st.SearchStrategy[Any]:
    match field.kind:
        case FieldKind.SCALAR:
            return _numbers(field.code)
        case FieldKind.STRING:
            return st.text(max_size=6)
        case FieldKind.STRINGS:
            return st.lists(st.text(max_size=6), max_size=3)
        case FieldKind.SCALARS:
            return st.lists(_numbers(field.code), max_size=4)
        case FieldKind.STRUCTS:
            return st.lists(st.tuples(*(_numbers(code) for code in field.code)), max_size=3)
        case FieldKind.BYTES:
            return st.one_of(st.binary(max_size=20), st.binary(min_size=1024, max_size=1100))
        case FieldKind.TABLE:
            return trees(field.table, depth + 1)
    return st.lists(trees(field.table, depth + 1), max_size=2)


def _numbers(code: str) -> st.SearchStrategy[Any]:
    if code == "?":
        return st.booleans()
    if code == "f":
        return st.floats(width=32, allow_nan=False)
    bits = {"b": 8, "B": 8, "i": 32, "I": 32, "q": 64, "Q": 64}[code]
    low, high = (0, 2**bits - 1) if code.isupper() else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return st.integers(low, high)


@st.composite
def trees(draw: st.DrawFn, table: str, depth: int = 0) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for field in TABLES[table]:
        nested = field.kind in (FieldKind.TABLE, FieldKind.TABLES, FieldKind.UNION)
        if field.kind is FieldKind.DEPRECATED or (nested and depth > 5):
            continue
        if field.kind is FieldKind.SCALAR:
            tree[field.name] = draw(_field_strategy(field, depth))
        elif field.kind is FieldKind.UNION:
            tag = draw(st.sampled_from(sorted(UNIONS)))
            tree |= {f"{field.name}_type": int(tag), field.name: draw(trees(UNIONS[tag], depth + 1))}
        elif field.key or draw(st.booleans()):
            tree[field.name] = draw(_field_strategy(field, depth))
    return tree | ({"value_type": 0} if "value_type" in tree and "value" not in tree and table == "TypeInfo" else {})


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(trees("InferenceSession"))
def test_a_tree_that_is_encoded_is_decoded_again(tree: dict[str, Any]) -> None:
    assert decode(encode(tree)) == tree


def test_large_payloads_lie_where_vector_instructions_like_them() -> None:
    payload = bytes(range(256)) * 8
    data = encode({"model": {"graph": {"initializers": [{"name": "odd", "raw_data": b"123"}, {"raw_data": payload}]}}})
    assert bytes(data).index(payload) % 64 == 0
    assert bytes(decode(data)["model"]["graph"]["initializers"][1]["raw_data"]) == payload


def test_equal_strings_are_stored_once() -> None:
    data = encode({"model": {"producer_name": "the same words", "doc_string": "the same words"}})
    assert bytes(data).count(b"the same words") == 1


def test_a_negative_zero_keeps_its_sign() -> None:
    tree = decode(encode({"model": {"graph": {"nodes": [{"attributes": [{"name": "alpha", "f": -0.0}]}]}}}))
    assert math.copysign(1, tree["model"]["graph"]["nodes"][0]["attributes"][0]["f"]) == -1


def test_bytes_that_are_no_text_survive() -> None:
    text = b"\xff\xfe".decode("utf-8", "surrogateescape")
    tree = decode(encode({"model": {"graph": {"initializers": [{"string_data": [text]}]}}}))
    assert tree["model"]["graph"]["initializers"][0]["string_data"] == [text]


def test_too_much_is_refused_before_it_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "MAX_BYTES", 1000)
    with pytest.raises(Fail, match=r"more than the 2 GB that one ORT format file can hold.*\.onnx"):
        encode({"model": {"graph": {"initializers": [{"raw_data": bytes(1000)}]}}})
    monkeypatch.setattr(writer, "MAX_BYTES", 7)
    with pytest.raises(Fail, match="takes 8 bytes, more than the 2 GB"):
        written(typed("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }"))


# --- what is derived


def test_inputs_fall_on_formal_ones() -> None:
    assert derived.input_arg_counts(3, 3) == [1, 1, 1]
    assert derived.input_arg_counts(1, 3) == [1, 0, 0]
    assert derived.input_arg_counts(5, 2) == [1, 4]  # the last is variadic
    assert derived.input_arg_counts(1, 2) == [1, 0]
    assert derived.input_arg_counts(0, 0) == []


def test_edges_name_both_ends_and_are_sorted() -> None:
    model = typed("""
    g (float[4] x) => (float[2] y) {
        a, b = Split<axis=0, num_outputs=2>(x)
        c = Sub(b, a)
        y = Max(c, b, b)
    }""")
    slots = {node: number for number, node in enumerate(model.graph.nodes)}
    found = list(derived.edges(slots).values())
    assert [outgoing for _, outgoing in found] == [[(1, 0, 1), (1, 1, 0), (2, 1, 1), (2, 1, 2)], [(2, 0, 0)], []]
    assert [incoming for incoming, _ in found] == [[], [(0, 0, 1), (0, 1, 0)], [(0, 1, 1), (0, 1, 2), (1, 0, 0)]]


def test_a_definition_counts_formal_inputs_by_its_type_strings() -> None:
    assert derived.Definition("", "Op", 1, {"T": [(0, 0), (1, 0)], "I": [(0, 2), (0, 1)]}).formal_inputs == 3
    assert derived.Definition("", "RandomNormal", 1, {"T": [(1, 0)]}).formal_inputs == 0


# --- the rest of a model


def test_what_a_model_leaves_unsaid_has_its_value() -> None:
    tree = written(typed("g (float[2] x) => (float[2] y) { y = Relu(x) }"))
    model = tree["model"]
    assert tree["ort_version"] == str(VERSION)
    assert model["model_version"] == 2**63 - 1
    assert model["domain"] == ""
    assert "producer_name" not in model and "metadata_props" not in model and "doc_string" not in model
    imports = {one["domain"]: one["version"] for one in model["opset_import"]}
    assert imports[""] == 20 and imports["com.microsoft"] == 1 and len(imports) == 9


def test_constants_of_all_kinds_become_initializers() -> None:
    model = typed("""
    g (float[2] x) => (float[2] y, int64[3] i, string[1] s, int64 n) {
        f = Constant<value_floats=[1.5, 2.5]>()
        y = Add(x, f)
        i = Constant<value_ints=[1, 2, 3]>()
        s = Constant<value_strings=["Grüße"]>()
        n = Constant<value_int=7>()
    }""")
    graph = written(model)["model"]["graph"]
    assert [node["op_type"] for node in graph["nodes"]] == ["Add"]
    found = {one["name"]: one for one in graph["initializers"]}
    assert found["s"]["string_data"] == ["Grüße"] and found["s"]["dims"] == [1]
    assert np.frombuffer(found["f"]["raw_data"], np.float32).tolist() == [1.5, 2.5]
    assert found["n"]["dims"] == [] and np.frombuffer(found["n"]["raw_data"], np.int64).tolist() == [7]
    assert len(list(model.graph.nodes)) == 5  # the model itself stays as it is


@pytest.mark.parametrize(("largest", "code"), [(127, 3), (128, 5), (32768, 6)])
def test_sparse_indices_are_flat_and_of_the_smallest_type(largest: int, code: int) -> None:
    sparse = ir.SparseTensor(np.array([5.0, 0.0, -0.0, 7.0], np.float32), np.array([3, 1, 2, largest]), (2, 20000), "w")
    tree = writer._sparse_tensor(sparse, "w")
    assert tree["indices"]["data_type"] == code and "name" not in tree["indices"]
    values = np.frombuffer(tree["values"]["raw_data"], np.float32)
    assert values.tolist() == [0.0, 5.0, 7.0] and np.signbit(values[0])  # only a value whose bits are all zero is left out
    assert tree["dims"] == [2, 20000] and tree["values"]["dims"] == [3]


def test_sparse_coordinates_become_flat() -> None:
    sparse = ir.SparseTensor(np.array([1, 2], np.int64), np.array([[1, 0], [0, 2]]), (2, 3), "w")
    tree = writer._sparse_tensor(sparse, "w")
    assert bytes(tree["indices"]["raw_data"]) == bytes([2, 3])
    assert np.frombuffer(tree["values"]["raw_data"], np.int64).tolist() == [2, 1]


@pytest.mark.parametrize("dtype", [dtypes.int4, dtypes.uint4, dtypes.int2], ids=str)
def test_narrow_integers_are_packed_and_come_back(dtype: dtypes.ElementType) -> None:
    numbers = np.array([1, 0, 1, 1, 0], dtype.numpy)
    graph = ir.Graph("g")
    value = graph.add_initializer("w", Tensor.of(numbers))
    graph.append(Node("Cast", [value], ["y"], {"to": 1}, version=25))
    graph.outputs = [next(graph.nodes).outputs[0]]
    model = ir.Model(graph, {"": 25})
    saving.make_savable(model, Level.DISABLE_ALL)
    data = writer.write_model(model, saving.KnownOps(model))
    again = formats.load(bytes(data)).graph.initializers["w"].constant
    assert again is not None and again.dtype is dtype and again.nbytes == (5 * dtype.bits + 7) // 8
    assert np.array_equal(again.numpy(), numbers)


def test_expressions_are_sizes_of_a_name() -> None:
    model = typed("g (float[N] x) => (float[M] y) { z = Concat<axis=0>(x, x) y = Relu(z) }")
    infos = {
        one["name"]: one["type"]["value"]["shape"]["dim"][0]["value"] for one in written(model)["model"]["graph"]["node_args"]
    }
    assert infos["x"]["dim_param"] == "N" and infos["y"]["dim_param"] == "M"
    assert infos["z"]["dim_type"] == 2 and infos["z"]["dim_param"] == "2*N"


def test_a_slot_for_what_is_left_out_has_no_type() -> None:
    model = typed("g (float[2] x, float h) => (float[2] y) { y = Clip(x, , h) }")
    graph = written(model)["model"]["graph"]
    assert graph["nodes"][0]["inputs"] == ["x", "", "h"]
    assert {"name": ""} in graph["node_args"]
    assert graph["nodes"][0]["input_arg_counts"] == [1, 1, 1]


# --- refusals


def test_optional_values_are_refused() -> None:
    graph = ir.Graph("g", [Value("x", ir.OptionalType(TensorType(dtypes.float32)))])
    graph.append(Node("OptionalGetElement", [graph.inputs[0]], ["y"], version=18))
    graph.outputs = [next(graph.nodes).outputs[0]]
    model = ir.Model(graph, {"": 18})
    saving.make_savable(model, Level.DISABLE_ALL)
    with pytest.raises(Fail, match=r"'x' is of type optional\(tensor\(float\)\).*\.onnx"):
        written(model)


def test_an_unknown_type_is_refused() -> None:
    model = typed("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    model.graph.outputs[0].type = model.graph.outputs[0].declared = None
    with pytest.raises(Fail, match="type of 'y' is not known"):
        written(model)


def test_functions_are_refused_until_they_are_inlined() -> None:
    model = formats.load(MODELS / "local_function.onnx")
    with pytest.raises(Fail, match="Functions must be inlined.*ScaleShift"):
        written(model)


def test_attributes_that_the_format_lacks_are_refused() -> None:
    model = typed("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    next(model.graph.nodes).attributes["graphs"] = Attribute(Kind.GRAPHS, [])
    with pytest.raises(Fail, match="Relu 'y': attribute 'graphs' is GRAPHS"):
        written(model)


def test_an_initializer_without_data_is_refused() -> None:
    model = typed("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }")
    model.graph.initializers["w"].constant = None
    with pytest.raises(InvalidGraph, match="'w' has no data"):
        written(model)


def test_an_op_that_nobody_knows_is_refused() -> None:
    model = typed("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    next(model.graph.nodes).op_type = "NoSuchOp"
    with pytest.raises(InvalidGraph, match="NoSuchOp"):
        written(model)


def test_a_node_of_another_opset_is_refused_if_its_op_differs() -> None:
    model = typed("g (float[2] x) => (float[2] y) { y = Softmax(x) }")
    next(model.graph.nodes).version = 12
    with pytest.raises(Fail, match="Softmax 'y' is written for opset 12 .* imports 20"):
        written(model)
    next(model.graph.nodes).version = 13
    assert written(model)["model"]["graph"]["nodes"][0]["since_version"] == 13
