"""Models for phones: nodes and parts are counted as onnxruntime counts them, and told in words of ours."""

from __future__ import annotations

import importlib
import logging
import sys
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest

from sardonyx.tools import check_onnx_model_mobile_usability as program
from sardonyx.tools.mobile_helpers import usability_checker as ours
from sardonyx.tools.mobile_helpers.supported_ops import BY_FILE

theirs = importlib.import_module("onnxruntime.tools.mobile_helpers.usability_checker")
LISTS = ["coreml_supported_neuralnetwork_ops.md", "coreml_supported_mlprogram_ops.md"]

MODELS = {
    "open sizes": """g (float[N, 3, 8, 8] x) => (float[N, 3] y) <float[3, 3, 1, 1] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}> {
        a = Conv(x, w) b = Relu(a) c = GlobalAveragePool(b) d = Flatten(c) y = Erf(d) }""",
    "fixed sizes": """g (float[1, 3, 8, 8] x) => (float[1, 3, 1, 1] y) <float[3, 3, 1, 1] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}> {
        a = Conv(x, w) b = Relu(a) y = GlobalAveragePool(b) }""",
    "several parts": """g (float[2, 4] x) => (float[2, 4] y, float[2, 4] z) {
        a = Relu(x) b = Tan(a) c = Sigmoid(b) d = Atan(c) e = Tanh(d) f = Add(a, e) y = Mul(f, c) z = Asin(b) }""",
    "graphs inside": """g (float[2, 4] x, bool c) => (float[2, 4] y) {
        a = Relu(x)
        y = If(c) <then_branch = yes () => (float[2, 4] t) { b = Tanh(a) t = Tan(b) },
                   else_branch = no () => (float[2, 4] e) { e = Sigmoid(a) }> }""",
    "many axes": """g (float[1, 2, 1, 2, 1, 2] x) => (float[2, 1, 2, 1, 2, 1] y) {
        a = Relu(x) b = Transpose<perm = [5, 4, 3, 2, 1, 0]>(a) y = Tanh(b) }""",
    "nothing": "g (float[2] x) => (float[2] y) { y = Tan(x) }",
}


def model(name: str) -> onnx.ModelProto:
    parsed = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {MODELS[name]}')
    return onnx.shape_inference.infer_shapes(parsed)


def counts(info: Any) -> dict[str, Any]:
    plain = {name: value for name, value in vars(info).items() if isinstance(value, (int, set))}
    return plain | {"sizes": [len(group) for group in info.supported_groups], "answer": info.suitability().name}


@pytest.mark.parametrize("fixed", [True, False], ids=["as it is", "sizes fixed"])
@pytest.mark.parametrize("name", MODELS)
def test_nodes_and_parts_are_counted_as_onnxruntime_counts(name: str, fixed: bool) -> None:
    made = model(name)
    assert counts(ours.check_nnapi_partitions(made, fixed)) == counts(theirs.check_nnapi_partitions(made, fixed))
    for kind in LISTS:
        assert counts(ours.check_coreml_partitions(made, fixed, kind)) == counts(
            theirs.check_coreml_partitions(made, fixed, kind)
        )
    assert [value.name for value in ours.check_shapes(made.graph)[0]] == [
        value.name for value in theirs.check_shapes(made.graph, logging.getLogger())[0]
    ]


def test_ops_are_those_that_onnxruntime_lists() -> None:
    for name, supported in BY_FILE.items():
        listed = set(theirs._SupportedOpsChecker(Path(theirs.__file__).with_name(name))._ops)
        spelt = {"ai.onnx:ArgMax" if op == "ai.onnx:Argmax" else op for op in listed}  # onnxruntime's list misspells it
        lost = {"ai.onnx:ReduceSum"} if name == LISTS[0] else set()  # and has this one with a full stop for the colon
        assert set(supported.ops) == spelt | lost


def test_another_list_is_refused() -> None:
    with pytest.raises(ValueError, match="x.md is none of the lists nnapi_supported_ops.md, coreml_supported_neural"):
        ours.check_coreml_partitions(model("nothing"), True, "x.md")


@pytest.mark.parametrize("name", ["open sizes", "several parts", "nothing"])
def test_a_model_is_worth_trying_where_onnxruntime_says_so(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(model(name), path)
    logger = logging.getLogger("phones")
    logger.setLevel(logging.DEBUG)
    with caplog.at_level(logging.DEBUG):
        answer = ours.analyze_model(path, skip_optimize=True, logger=logger)
    told = caplog.text
    assert answer == theirs.analyze_model(path, skip_optimize=True, logger=logging.getLogger("silent"))
    assert "Worth trying with NNAPI" in told
    if name == "open sizes":
        assert "NNAPI takes 4 of 5 nodes, in 1 part of 4 nodes." in told
        assert "asked of ai.onnx:Conv, and not checked: runs over two axes; weights and bias are constants." in told
        assert "make_dynamic_shape_fixed fixes sizes" in told


def test_the_program_says_what_is_best(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(model("nothing"), path)
    monkeypatch.setattr(sys, "argv", ["check", str(path)])
    with caplog.at_level(logging.INFO):
        program.check_usability()
    assert "1 nodes have ops that it does not take: ai.onnx:Tan" in caplog.text
    assert "The CPU is the best choice for this model." in caplog.text
