"""Untidy models that onnxruntime takes: they run here with the same results, and a warning says what is wrong.

What is not even worth a warning, in both, stands in the second table. docs/api.md lists these decisions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import sardonyx as ort
from sardonyx.errors import Fail
from tests.formats.building import add, external_model, info, model_of, relu, tensor

X = np.array([-1, 3], np.float32)
W = tensor("w", np.array([1, 2], np.float32))
LARGER = tensor("w", np.array([10, 20], np.float32))


def with_weights(*weights: onnx.TensorProto, **more: object) -> onnx.ModelProto:
    return model_of([add("x", "w")], initializers=weights, **more)


def edited(model: onnx.ModelProto, edit: Callable[[onnx.ModelProto], object]) -> onnx.ModelProto:
    edit(model)
    return model


def both_fields() -> onnx.ModelProto:
    return edited(with_weights(W), lambda model: model.graph.initializer[0].float_data.extend([7, 7]))


def sparse_and_dense() -> onnx.ModelProto:
    values, places = (
        helper.make_tensor("w", TensorProto.FLOAT, [1], [5.0]),
        helper.make_tensor("i", TensorProto.INT64, [1], [1]),
    )
    return edited(
        with_weights(W), lambda model: model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [2]))
    )


def function_with_more_attributes() -> onnx.ModelProto:
    function = helper.make_function("my", "F", ["a"], ["b"], [relu("a", "b")], [helper.make_opsetid("", 17)])
    call = helper.make_node("F", ["x"], ["y"], domain="my", foo=1)
    return model_of([call], opsets=(("", 17), ("my", 1)), functions=[function])


def softmax(*opsets: tuple[str, int]) -> onnx.ModelProto:
    """Up to opset 12 all axes from the first on were one row."""
    return model_of([helper.make_node("Softmax", ["x"], ["y"])], [info("x", (1, 2, 2))], [info("y", None)], opsets=opsets)


def scaler() -> onnx.ModelProto:
    node = helper.make_node("Scaler", ["x"], ["y"], domain="ai.onnx.ml", offset=[1.0], scale=[2.0])
    return model_of([node], [info("x", (1, 2))], [info("y", None)])


WITH_WARNING = {
    "two initializers of one name": (with_weights(W, LARGER), "Duplicate initializer 'w'"),
    "a sparse initializer of that name": (sparse_and_dense(), "Duplicate initializer 'w'"),
    "an initializer without a name": (with_weights(W, tensor("", np.ones(3, np.float32))), "no name"),
    "data in two fields": (both_fields(), "both raw_data and float_data"),
    "a declared type of a constant": (
        with_weights(W, value_info=[info("w", (2,), TensorProto.INT8)]),
        "declared tensor(int8) but holds tensor(float)",
    ),
    "an older opset last": (softmax(("", 17), ("", 12)), "with version 17 and again with 12"),
    "a newer opset last": (softmax(("", 12), ("ai.onnx", 17)), "with version 12 and again with 17"),
    "the standard is not imported": (softmax(("ai.onnx.ml", 1)), "does not import the domain 'ai.onnx'"),
    "ai.onnx.ml is not imported": (scaler(), "does not import the domain 'ai.onnx.ml'"),
    "an attribute that a function does not have": (function_with_more_attributes(), "'foo' is unknown to its function"),
    "an initializer that nobody reads": (with_weights(W, tensor("u", np.ones(3, np.float32))), "'u' is not used"),
    "an output of another shape": (model_of([relu()], outputs=[info("y", (5,))]), "the inferred shape is used"),
    "an output of another rank": (model_of([relu()], outputs=[info("y", (2, 1))]), "the inferred shape is used"),
    "an inner value of another shape": (
        model_of([relu("x", "m"), relu("m")], value_info=[info("m", (7,))]),
        "the inferred shape is used",
    ),
}
WITHOUT = {
    "an initializer among the inputs": with_weights(W, inputs=[info("x"), info("w")]),
    "the same in an old file": with_weights(W, inputs=[info("x"), info("w")], ir_version=3),
    "one import twice": model_of([relu()], opsets=(("", 17), ("", 17))),
    "an import that nobody needs": model_of([relu()], opsets=(("", 17), ("my.own", 3))),
    "com.microsoft is not imported": model_of([helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")]),
    "optional inputs at the end": model_of([helper.make_node("Clip", ["x", "", ""], ["y"])]),
    "an attribute of some tool": model_of([relu(__mark=1)]),
    "unsorted nodes": model_of([relu("m"), relu("x", "m")]),
    "constants of one name": model_of(
        [
            helper.make_node("Constant", [], ["c"], value_floats=[1.0, 2.0], name="n"),
            helper.make_node("Constant", [], ["d"], value_floats=[3.0, 4.0], name="n"),
            add("c", "d", "e"),
            add("x", "e"),
        ]
    ),
    "a declared value that is not there": model_of([relu()], value_info=[info("gone")]),
    "an output without a shape": model_of([relu()], outputs=[info("y", None)]),
    "an input of size -1": model_of([relu()], [info("x", (-1,))], [info("y", (-1,))]),
    "a function that nobody calls": edited(
        model_of([relu()], opsets=(("", 17), ("my", 1))),
        lambda model: model.functions.append(
            helper.make_function(
                "my", "F", ["a"], ["b"], [helper.make_node("Unknown", ["a"], ["b"])], [helper.make_opsetid("", 17)]
            )
        ),
    ),
    "external data with a tail, of a length that is not known": external_model(location="w.bin", offset=4, length=0),
}


def run(runtime: object, path: Path) -> list[np.ndarray]:
    options = runtime.SessionOptions()  # type: ignore[attr-defined]
    options.log_severity_level = 2 if runtime is ort else 4
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])  # type: ignore[attr-defined]
    shape = session.get_inputs()[0].shape
    return session.run(None, {"x": np.resize(X, [2 if not isinstance(size, int) or size < 0 else size for size in shape])})


def saved(model: onnx.ModelProto, folder: Path) -> Path:
    np.array([9, 5, 6, 9, 9], np.float32).tofile(folder / "w.bin")
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder / "model.onnx"


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("name", WITH_WARNING)
def test_an_untidy_model_runs_with_a_warning(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    import onnxruntime

    model, text = WITH_WARNING[name]
    path = saved(model, tmp_path)
    results = run(ort, path)
    assert any(text in warning for warning in warnings_of(caplog)), warnings_of(caplog)
    for ours, theirs in zip(results, run(onnxruntime, path), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize("name", WITHOUT)
def test_an_untidy_model_runs_without_a_word(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    import onnxruntime

    path = saved(WITHOUT[name], tmp_path)
    results = run(ort, path)
    assert warnings_of(caplog) == []
    for ours, theirs in zip(results, run(onnxruntime, path), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_an_older_opset_that_comes_last_changes_what_an_op_means(tmp_path: Path) -> None:
    numbers = np.exp([-1.0, 3, -1, 3])
    (flat,) = run(ort, saved(softmax(("", 17), ("", 12)), tmp_path))
    np.testing.assert_allclose(flat.ravel(), numbers / numbers.sum(), rtol=1e-6)
    (by_row,) = run(ort, saved(softmax(("", 12), ("", 17)), tmp_path))
    np.testing.assert_allclose(by_row.ravel(), numbers / numbers[:2].sum(), rtol=1e-6)


def test_models_that_lack_an_import_are_saved_with_it(tmp_path: Path) -> None:
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "saved.onnx")
    ort.InferenceSession(saved(scaler(), tmp_path), options)
    assert {entry.domain for entry in onnx.load(tmp_path / "saved.onnx").opset_import} >= {"", "ai.onnx.ml"}
    np.testing.assert_array_equal(run(ort, tmp_path / "saved.onnx")[0].ravel(), (X - 1) * 2)


@pytest.mark.parametrize("second", [np.ones(3, np.float32), np.ones(2)], ids=["shape", "type"])
def test_initializers_of_one_name_and_different_types_are_refused(second: np.ndarray) -> None:
    with pytest.raises(Fail, match=r"Duplicate definition of name \(w\)"):
        ort.InferenceSession(with_weights(W, tensor("w", second)).SerializeToString())
