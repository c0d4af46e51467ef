"""Makes the example models of this package: `python -m sardonyx.datasets.models` writes them beside this file."""

from __future__ import annotations

import os
from typing import Any


def mul_1() -> Any:
    """Y = X * W with a constant W."""
    from onnx import TensorProto, helper

    weights = helper.make_tensor("W", TensorProto.FLOAT, [3, 2], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, 2]) for name in ("X", "Y"))
    graph = helper.make_graph([helper.make_node("Mul", ["X", "W"], ["Y"], name="mul_1")], "mul", [x], [y], [weights])
    return _model(graph, [("", 13)])


def sigmoid() -> Any:
    """y = sigmoid(x)."""
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, 4, 5]) for name in ("x", "y"))
    return _model(helper.make_graph([helper.make_node("Sigmoid", ["x"], ["y"])], "sigmoid", [x], [y]), [("", 13)])


def logreg_iris() -> Any:
    """Logistic regression, one against the rest, on sepal length and width of three iris species: label and probabilities.

    The coefficients were chosen by hand from the species' mean sizes; the point is the shape of such a model, not its quality.
    """
    from onnx import TensorProto, helper

    inputs = [helper.make_tensor_value_info("float_input", TensorProto.FLOAT, [3, 2])]
    classes = [0, 1, 2]
    nodes = [
        helper.make_node(
            "LinearClassifier",
            ["float_input"],
            ["label", "scores"],
            name="LinearClassifier",
            domain="ai.onnx.ml",
            classlabels_ints=classes,
            coefficients=[-1.5, 2.5, 0.2, -0.9, 1.4, -0.8],
            intercepts=[0.6, 1.3, -6.4],
            post_transform="LOGISTIC",
        ),
        helper.make_node("Normalizer", ["scores"], ["shares"], name="Normalizer", domain="ai.onnx.ml", norm="L1"),
        helper.make_node(
            "ZipMap", ["shares"], ["probabilities"], name="ZipMap", domain="ai.onnx.ml", classlabels_int64s=classes
        ),
    ]
    probability = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    outputs = [
        helper.make_tensor_value_info("label", TensorProto.INT64, [3]),
        helper.make_value_info("probabilities", helper.make_sequence_type_proto(probability)),
    ]
    return _model(helper.make_graph(nodes, "logreg_iris", inputs, outputs), [("ai.onnx.ml", 1)])


def _model(graph: Any, opsets: list[tuple[str, int]]) -> Any:
    from onnx import checker, helper

    imports = [helper.make_opsetid(domain, version) for domain, version in opsets]
    model = helper.make_model(graph, producer_name="sardonyx", opset_imports=imports, ir_version=8)
    checker.check_model(model)
    return model


def write(folder: str) -> None:
    """Write all models to a folder."""
    import onnx

    for make in (mul_1, sigmoid, logreg_iris):
        onnx.save(make(), os.path.join(folder, f"{make.__name__}.onnx"))


if __name__ == "__main__":
    write(os.path.dirname(os.path.abspath(__file__)))
