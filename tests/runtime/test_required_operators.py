"""Configuration files with required operators: those of onnxruntime's own tool are understood and reproduced."""

from __future__ import annotations

import pytest

from sardonyx import formats, ir, ops
from sardonyx.errors import InvalidArgument
from sardonyx.ir.text import parse_model
from sardonyx.providers.cpu.provider import evaluate
from sardonyx.runtime.saving.required_operators import RequiredOperators
from tests.formats.ort_fixtures import HERE, MODELS


def typed(model: ir.Model) -> ir.Model:
    ops.infer(model, evaluate)
    return model


def model_of(text: str, opset: int = 20) -> ir.Model:
    return typed(parse_model(f'<ir_version: 9, opset_import: ["": {opset}]>' + text))


def entries(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("with_types", [True, False])
def test_the_lists_are_those_of_the_original_tool(with_types: bool) -> None:
    """But for what records of runtime optimizations may produce, which it forgets."""
    needed = RequiredOperators()
    for path in sorted((HERE / "models").glob("*.ort")):
        needed.add(typed(formats.load(path)), with_types=with_types)
    needed.operators["", 10].remove("QLinearConv")
    name = "required_operators_and_types.config" if with_types else "required_operators.config"
    assert entries(needed.text(["a.ort"])) == entries((HERE / name).read_text())


@pytest.mark.parametrize("name", ["required_operators.config", "required_operators_and_types.config"])
def test_a_list_that_is_read_and_written_stays_the_same(name: str) -> None:
    text = (HERE / name).read_text()
    found = RequiredOperators.parse(text)
    assert entries(found.text()) == entries(text)
    assert RequiredOperators.parse(found.text()) == found


def test_all_that_the_form_has_is_understood() -> None:
    found = RequiredOperators.parse("""
        # a comment
        !no_ops_specified_means_all_ops_are_required
        !globally_allowed_types;float, int64_t
        ai.onnx;12,13;Add, Cast
        com.microsoft;1;FusedConv
    """)
    assert found.operators == {("", 12): {"Add", "Cast"}, ("", 13): {"Add", "Cast"}, ("com.microsoft", 1): {"FusedConv"}}
    assert found.allowed_types == {"float", "int64_t"} and found.all_if_empty
    types = RequiredOperators.parse('ai.onnx;13;Cast{"inputs": {"0": ["float"]}, "outputs": {"0": ["double"]}},Relu')
    assert types.types == {("", "Cast"): {"inputs": {"0": {"float"}}, "outputs": {"0": {"double"}}}}
    assert types.operators["", 13] == {"Cast", "Relu"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ai.onnx;13", "line 1 .* domain;opsets;ops"),
        ("\nai.onnx;x;Add", "line 2 .* 'x'"),
        ("ai.onnx;13;Add,,Relu", "an op is missing"),
        ("ai.onnx;13;Add Relu", "a comma is missing"),
        ('ai.onnx;13;Add{"inputs": ', "line 1"),
        ("!globally_allowed_types;float\n!globally_allowed_types;float", "line 2 .* already"),
        ('!globally_allowed_types;float\nai.onnx;13;Add{"inputs": {"0": ["float"]}}', "together is unsupported"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        RequiredOperators.parse(text)


def test_one_hot_counts_its_types_together() -> None:
    model = model_of(
        "g (int64[3] i, double[2] v) => (double[3,4] y) <int32 depth = {4}> { y = OneHot(i, depth, v) }",
    )
    needed = RequiredOperators()
    needed.add(model)
    assert entries(needed.text()) == ['ai.onnx;11;OneHot{"custom": [["int64_t", "double", "int32_t"]]}']
    assert RequiredOperators.parse(needed.text()) == needed
    assert needed.lacking(model) == []


def test_what_a_build_lacks_is_told() -> None:
    model = model_of("g (float[2] x) => (float[2] y) { t = Relu(x) y = Add(t, x) }")
    assert RequiredOperators.parse("ai.onnx;20;Relu,Add").lacking(model) == []
    assert [node.op_type for node in RequiredOperators.parse("ai.onnx;14;Relu\nai.onnx;7;Add").lacking(model)] == ["Add"]
    narrow = RequiredOperators.parse('ai.onnx;14;Relu{"inputs": {"0": ["double"]}},Add{"inputs": {"0": ["double"]}}')
    assert [node.op_type for node in narrow.lacking(model)] == ["Relu", "Add"]
    assert RequiredOperators.parse("!no_ops_specified_means_all_ops_are_required").lacking(model) == []
    assert len(RequiredOperators.parse("!globally_allowed_types;double\nai.onnx;14;Relu,Add").lacking(model)) == 2


def test_types_that_builds_always_keep_are_not_lacking() -> None:
    model = model_of("g (int64[2] x) => (int64[2] y) { y = Add(x, x) }")
    assert RequiredOperators.parse('ai.onnx;14;Add{"inputs": {"0": ["float"]}}').lacking(model) == []


def test_graphs_inside_count_and_constants_do_not() -> None:
    needed = RequiredOperators()
    needed.add(typed(formats.load(MODELS / "if_outer_scope.onnx")), with_types=False)
    names = {name for found in needed.operators.values() for name in found}
    assert "If" in names and len(names) > 1 and "Constant" not in names
