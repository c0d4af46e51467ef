"""`compare_models` finds the layer that loses, and `suggest` leaves it in float."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from sardonyx.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static
from sardonyx.quantization.comparison import compare_models, suggest
from tests.quantization.small import Feeds, batches, mlp, named


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(9)


def with_outlier(rng: np.random.Generator) -> onnx.ModelProto:
    """A network whose second weight has one number that eats the range of all others."""
    proto = named(mlp(rng))
    weight = numpy_helper.to_array(proto.graph.initializer[2]).copy()
    weight[0, 0] = 60.0
    proto.graph.initializer[2].CopyFrom(numpy_helper.from_array(weight, "w2"))
    bias = numpy_helper.to_array(proto.graph.initializer[1]).copy()
    bias[0] = -100.0  # the row of the outlier is never used
    proto.graph.initializer[1].CopyFrom(numpy_helper.from_array(bias, "b1"))
    return proto


def test_the_layer_that_loses_is_found_and_left_in_float(rng, tmp_path) -> None:
    proto, feeds = with_outlier(rng), batches(rng, "x", 8, 32)
    quantize_static(proto, tmp_path / "q.onnx", Feeds(feeds), activation_type=QuantType.QUInt8, op_types_to_quantize=["MatMul"])
    reader = Feeds(feeds)
    found = compare_models(proto, tmp_path / "q.onnx", reader)
    assert found.ratio < 10
    assert max(found.layers, key=lambda layer: layer.drop).node == "matmul_3"
    assert next(iter(found.weights)) == "w2"
    reader.rewind()
    suggestion = suggest(proto, tmp_path / "q.onnx", reader, 25.0, found)
    assert suggestion.nodes == ["matmul_3"] and suggestion.is_enough and suggestion.ratio > 25


@pytest.mark.parametrize("quant_format", QuantFormat)
def test_ratios_of_both_formats_are_near_each_other(quant_format, rng, tmp_path) -> None:
    proto, feeds = named(mlp(rng)), batches(rng, "x", 8, 32)
    quantize_static(proto, tmp_path / "q.onnx", Feeds(feeds), quant_format=quant_format, activation_type=QuantType.QUInt8)
    found = compare_models(proto, tmp_path / "q.onnx", Feeds(feeds))
    assert {layer.tensor for layer in found.layers} >= {"a", "y"}
    assert 25 < found.ratio < 60
    assert all(layer.ratio > 20 for layer in found.layers)


def test_equal_models_have_no_error(rng) -> None:
    proto = mlp(rng)
    found = compare_models(proto, proto, Feeds(batches(rng, "x", 2, 32)))
    assert found.outputs[0].largest == 0.0 and found.ratio > 200


def test_suggestions_need_pairs_and_comparisons_need_data(rng, tmp_path) -> None:
    proto = mlp(rng)
    quantize_dynamic(proto, tmp_path / "d.onnx")
    with pytest.raises(ValueError, match="QDQ"):
        suggest(proto, tmp_path / "d.onnx", Feeds(batches(rng, "x", 2, 32)), 30.0)
    with pytest.raises(ValueError, match="no data"):
        compare_models(proto, tmp_path / "d.onnx", Feeds([]))
