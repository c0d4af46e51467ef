"""The text form, with the onnx package's printer and parser as the measure."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
import pytest
from hypothesis import HealthCheck, given, settings

from sardonyx import dtypes, formats, ir
from sardonyx.errors import Fail, InvalidArgument
from sardonyx.ir import Kind
from sardonyx.ir.text import parse_function, parse_graph, parse_model, to_text
from sardonyx.ir.verify import verify
from tests.formats.random_models import models
from tests.ir.comparing import assert_same_function, assert_same_model, same_arrays

MODELS = sorted((Path(__file__).parent.parent / "models").glob("*.onnx"))
SUITE = Path(onnx.backend.test.__file__).parent / "data"
SUITE_MODELS = [path for path in sorted(SUITE.glob("*/*/model.onnx")) if path.stat().st_size < 20_000][::3]


@pytest.mark.parametrize("path", [*MODELS, *SUITE_MODELS], ids=lambda path: path.parent.name + "-" + path.stem)
def test_what_we_print_both_parsers_read(path: Path) -> None:
    model = formats.load(path)
    text = to_text(model)
    again = parse_model(text)
    verify(again)
    assert_same_model(model, again, texts=False, sparse=False)
    assert_same_model(model, formats.load(onnx.parser.parse_model(text)), texts=False, sparse=False)


PRINTED = [path for path in (*MODELS, *SUITE_MODELS) if path.stem != "sparse_initializer"]  # the onnx package leaves those out


@pytest.mark.parametrize("path", PRINTED, ids=lambda path: path.parent.name + "-" + path.stem)
def test_what_the_onnx_package_prints_we_read(path: Path) -> None:
    proto = onnx.load(path)
    again = parse_model(onnx.printer.to_text(proto))
    verify(again)
    expected = formats.load(proto)
    if proto.ir_version < 4:  # what is printed does not say which of the inputs come first
        again.graph.inputs.sort(key=lambda value: value.name)
        expected.graph.inputs.sort(key=lambda value: value.name)
    assert_same_model(expected, again, texts=False)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(models())
def test_random_models_survive_being_printed(model: ir.Model) -> None:
    again = parse_model(to_text(model))
    verify(again)
    assert_same_model(model, again, texts=False, sparse=False)
    for function in model.functions.values():
        assert_same_function(function, parse_function(to_text(function)), texts=False)


def test_the_print_is_readable():
    text = """<
   ir_version: 8,
   opset_import: ["" : 17, "my.domain" : 1],
   producer_name: "me",
   model_version: 3,
   metadata_props: ["key": "say \\"hi\\""]
>
g (float[N,?,3] x, bool c, int64[] "odd name") => (float[N,?,3] y)
   <float[2] w = {1.0,-0.5}, float[2] t>
{
   t = Add (x, w)
   [n] u, "" = my.domain.Op:v2 <axis: int = -1, ratio: float = 0.1, names: strings = ["a"]> (t, "", "odd name")
   y = If (c) <then_branch: graph = p () => (float[2] z) {
      z = Neg (u)
   }>
}
<
   domain: "my.domain",
   overload: "v2",
   opset_import: ["" : 17]
>
Op <axis, ratio: float = 2.0>(a, b, c) => (d)
{
   d = Clip <k: int = @axis> (a, b)
}
"""
    assert to_text(parse_model(text)).splitlines() == text.splitlines()


def test_long_lists_are_abbreviated_when_asked():
    graph = parse_graph("g (float[2] x) => (y) { y = Upsample <scales: floats = [1.0, 2.0, 3.0]> (x) }")
    assert "scales: floats = [1.0, 2.0, ...]" in to_text(graph, max_elements=2)
    assert "scales: floats = [1.0, 2.0, 3.0]" in to_text(graph, max_elements=3)


def test_large_tensors_are_abbreviated_when_asked():
    graph = parse_graph("g () => (y) <float16[4] h = {15360, 16384, 0, 0}, int4[3] i = {1, 2, 3}> { y = Add (h, i) }")
    assert "float16[4] h = {1.0,2.0,...}, int4[3] i = {1,2,...}" in to_text(graph, max_elements=2)
    assert "float16[4] h = {1.0,2.0,0.0,0.0}, int4[3] i = {1,2,3}" in to_text(graph, max_elements=4)
    assert "float16[4] h = {15360,16384,0,0}, int4[3] i = {33,3}" in to_text(graph)


def test_types_of_inner_values_can_be_left_out():
    graph = parse_graph("g (float[2] x) => (float[2] y) <float[2] t> { t = Neg (x) y = Neg (t) }")
    assert "float[2] t" in to_text(graph) and "float[2] t" not in to_text(graph, types=False)


def test_a_node_is_printed_as_it_stands():
    graph = parse_graph("g (x) => (y) { [n] y = LeakyRelu <alpha = 0.25> (x) }")
    assert to_text(next(iter(graph.nodes))) == "[n] y = LeakyRelu <alpha: float = 0.25> (x)"


def test_opsets_are_the_newest_or_as_given():
    assert next(iter(parse_graph("g (x) => (y) { y = Relu (x) }").nodes)).version == onnx.defs.onnx_opset_version()
    node = next(iter(parse_graph("g (x) => (y) { y = ai.onnx.ml.Op (x) }", {"": 13, "ai.onnx.ml": 2}).nodes))
    assert (node.domain, node.version) == ("ai.onnx.ml", 2)


def test_no_brackets_are_rank_0_and_empty_ones_an_unknown_rank():
    graph = parse_graph(
        "g (float a, float[] b, seq(optional(int8[2])) c, map(string, float) d, sparse_tensor(float[2]) e, f) => () {}"
    )
    assert [ir.described(value.type) for value in graph.inputs] == [
        "float[]",
        "float[...]",
        "seq(optional(int8[2]))",
        "map(string, float[])",
        "sparse float[2]",
        "unknown",
    ]


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("1", Kind.INT, 1),
        ("-9223372036854775808", Kind.INT, -(2**63)),
        ("1.5", Kind.FLOAT, 1.5),
        ("1e3", Kind.FLOAT, 1000.0),
        ("-inf", Kind.FLOAT, float("-inf")),
        ("[1, 2.5]", Kind.FLOATS, [1.0, 2.5]),
        ("[]", None, None),
        ('"a \\"b\\" \\\\"', Kind.STRING, 'a "b" \\'),
        ('["a", "b"]', Kind.STRINGS, ["a", "b"]),
        ("float[N]", Kind.TYPE_PROTO, ir.TensorType(dtypes.float32, (ir.dim.symbol("N"),))),
        ("[float, int8]", Kind.TYPE_PROTOS, [ir.TensorType(dtypes.float32, ()), ir.TensorType(dtypes.int8, ())]),
    ],
)
def test_kinds_are_seen_from_values(text, kind, value):
    source = f"g (x) => (y) {{ y = Op <k = {text}> (x) }}"
    if kind is None:
        with pytest.raises(InvalidArgument, match="a list type for an empty list"):
            parse_graph(source)
        return
    attribute = next(iter(parse_graph(source).nodes)).attributes["k"]
    assert (attribute.kind, attribute.value) == (kind, value)


@pytest.mark.parametrize("dtype", sorted(dtypes.ALL - {dtypes.string, *dtypes.COMPLEX}, key=lambda dtype: dtype.code), ids=str)
def test_integers_mean_what_they_mean_in_the_fields_of_a_tensor(dtype):
    (value,) = parse_graph(f"g () => () <{dtype}[4] w = {{1, 0, 1, 1}}> {{}}").initializers.values()
    if dtype.bits in (2, 4):  # each element by itself, which the onnx package's parser cannot
        assert value.constant.numpy().view(np.uint8).tolist() == [1, 0, 1, 1]
        return
    proto = onnx.parser.parse_graph(f"g () => () <{dtype}[4] w = {{1, 0, 1, 1}}> {{}}").initializer[0]
    assert same_arrays(value.constant.numpy(), onnx.numpy_helper.to_array(proto))


def test_decimals_mean_the_number_in_every_floating_point_type():
    for dtype in dtypes.FLOATS | dtypes.SMALL_FLOATS - {dtypes.float8e8m0}:
        (value,) = parse_graph(f"g () => () <{dtype}[2] w = {{1.0, 2.0}}> {{}}").initializers.values()
        assert value.constant.numpy().astype(float).tolist() == [1.0, 2.0]


def test_names_left_out():
    (node,) = parse_graph("g (x) => (z) { , z = Op (, x, , x,) }").nodes
    assert [value and value.name for value in node.inputs] == [None, "x", None, "x"]
    assert [value.name for value in node.outputs] == ["", "z"]


def test_comments_and_blanks_are_skipped():
    parse_graph("# first\ng # name\n ( float [ 2 ] x ) => ( y )\n{ # nodes\n y = Relu ( x ) }  # end")


def test_external_data_is_fetched_by_whom_the_caller_gives():
    text = 'g () => () <float[2] w = ["location": "f", "offset": "8"]> {}'
    with pytest.raises(Fail, match="Data of 'w' is external"):
        parse_graph(text)
    places = []

    def fetch(dtype, shape, location):
        places.append(location)
        return ir.Tensor.of(np.ones(shape, dtype.numpy))

    graph = parse_graph(text, fetch=fetch)
    assert graph.initializers["w"].constant.numpy().tolist() == [1, 1]
    assert places == [ir.ExternalLocation("f", 8)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1: expected a name, found 'the end'"),
        ("g (x) => (y)\n{ y = Relu x }", "line 2, column 12: expected '\\(', found 'x'"),
        ("g (float[2 x) => () {}", "expected ']'"),
        ("g (float[2] x = {1}) => () {}", "expected 2 elements, not 1"),
        ("g (float[N] x = {1}) => () {}", "expected data after a shape of numbers"),
        ("g (uint8[1] x = {300}) => () {}", "expected numbers that fit uint8"),
        ("g (uint8[1] x = {1.5}) => () {}", "expected whole numbers"),
        ("g (string[1] x = {1}) => () {}", "expected elements of type string"),
        ("g () => () {} g", "expected the end"),
        ('g () => () { y = Op <k = "a> () }', "expected"),
        ("g (x) => (y) { y = Op <k: int = 1.5> (x) }", "expected a value of type INT"),
        ("g (x) => (y) { y = Op <k: ints = [1, 2.5]> (x) }", "expected values of a INTS attribute"),
        ("g (x) => (y) { y = Op <k: thing = 1> (x) }", "expected the type of an attribute"),
        ("g (x) => (y) { y = Op <k = @a> (x) }", "expected a type for attribute 'k'"),
        ("g (x) => (y) { y = Op <k = 99999999999999999999> (x) }", "expected a number of 64 bits"),
        ("g (x) => (y) { y = Op <k = " + "9" * 5000 + "> (x) }", "expected a shorter number"),
        ("g (x) => (y) { y = Op <k = 1, k = 2> (x) }", "two attributes 'k'"),
        ("g (x) => (y) { y = Op (q) }", "Node input 'q' is not a graph input"),
        ("g (" + "seq(" * 5000 + "float" + ")" * 5000 + " x) => () {}", "expected at most 64 levels of nesting"),
        ("g " + "() => () { y = Op <g = g " * 5000, "expected at most 64 levels of nesting"),
    ],
    ids=range(20),
)
def test_errors_say_where(text, message):
    with pytest.raises(InvalidArgument, match=message):
        parse_graph(text)


def test_headers_are_checked():
    with pytest.raises(InvalidArgument, match="unknown key 'color'"):
        parse_model("<color: 3> g () => () {}")
    with pytest.raises(InvalidArgument, match="ir_version must be a number"):
        parse_model('<ir_version: "x"> g () => () {}')
    with pytest.raises(InvalidArgument, match="opset_import must be versions"):
        parse_model("<opset_import: 4> g () => () {}")
    with pytest.raises(Fail, match="no opset of domain 'my' is imported"):
        parse_model('<opset_import: ["" : 17]> g (x) => (y) { y = my.Op (x) }')
