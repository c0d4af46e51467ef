"""Scripts as they are published for onnxruntime.quantization, in few lines each. Run by test_quantizers.py.

The styles: a one-line dynamic quantization with exclusions; ONNXQuantizer and QDQQuantizer constructed by hand; an op of one's own in the
registry; calibration with create_calibrator and its table; 4-bit weights of a decoder's products; QNN's configuration.
"""

import collections
import json
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantizationMode,
    QuantType,
    create_calibrator,
    get_qdq_config,
    quantize,
    quantize_dynamic,
    write_calibration_table,
)
from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer
from onnxruntime.quantization.onnx_quantizer import ONNXQuantizer
from onnxruntime.quantization.operators.qdq_base_operator import QDQOperatorBase
from onnxruntime.quantization.qdq_quantizer import QDQQuantizer
from onnxruntime.quantization.quant_utils import load_model_with_shape_infer, ms_domain
from onnxruntime.quantization.registry import IntegerOpsRegistry, QDQRegistry

FOLDER = Path(sys.argv[-1])
PATH = FOLDER / "network.onnx"


def make_network():
    rng = np.random.default_rng(2)

    def weight(name, *shape):
        return numpy_helper.from_array((rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32), name)

    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h1"], "first"),
        helper.make_node("Relu", ["h1"], ["a1"], "relu"),
        helper.make_node("MatMul", ["a1", "w2"], ["h2"], "second"),
        helper.make_node("Softplus", ["h2"], ["a2"], "softplus"),
        helper.make_node("MatMul", ["a2", "w3"], ["y"], "third"),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 8])],
        [weight("w1", 64, 96), weight("w2", 96, 64), weight("w3", 64, 8)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), PATH)


class Reader(CalibrationDataReader):
    def __init__(self):
        rng = np.random.default_rng(4)
        self.batches = iter([{"x": rng.standard_normal((16, 64)).astype(np.float32)} for _ in range(5)])

    def get_next(self):
        return next(self.batches, None)


def summary(path):
    model = onnx.load(path)
    counts = collections.Counter(node.op_type for node in model.graph.node)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    x = np.random.default_rng(9).standard_normal((4, 64)).astype(np.float32)
    return {"ops": dict(sorted(counts.items())), "y": session.run(None, {"x": x})[0].tolist()}


def one_line():
    path = FOLDER / "one_line.onnx"
    quantize_dynamic(str(PATH), str(path), weight_type=QuantType.QUInt8, nodes_to_exclude=["third"])
    return summary(path)


def by_hand():
    """As optimum and others construct the quantizers."""
    path = FOLDER / "by_hand.onnx"
    quantizer = ONNXQuantizer(
        load_model_with_shape_infer(PATH),
        False,
        False,
        QuantizationMode.IntegerOps,
        False,
        QuantType.QInt8,
        QuantType.QUInt8,
        None,
        [],
        [],
        list(IntegerOpsRegistry),
        {"WeightSymmetric": True, "MatMulConstBOnly": True},
    )
    quantizer.quantize_model()
    quantizer.model.save_model_to_file(str(path), False)
    assert quantizer.opset_version >= 10 and ms_domain == "com.microsoft"
    return summary(path)


def calibrated():
    """Ranges by hand, then a QDQ quantizer with an op of one's own."""
    calibrator = create_calibrator(
        str(PATH),
        ["MatMul", "Softplus"],
        str(FOLDER / "augmented.onnx"),
        CalibrationMethod.MinMax,
        extra_options={"symmetric": False},
    )
    calibrator.set_execution_providers(["CPUExecutionProvider"])
    calibrator.collect_data(Reader())
    ranges = calibrator.compute_data()
    write_calibration_table(ranges, str(FOLDER))
    QDQRegistry["Softplus"] = QDQOperatorBase
    path = FOLDER / "calibrated.onnx"
    quantizer = QDQQuantizer(
        load_model_with_shape_infer(PATH),
        False,
        False,
        QuantType.QInt8,
        QuantType.QUInt8,
        ranges,
        [],
        [],
        ["MatMul", "Softplus"],
        {"ActivationSymmetric": False},
    )
    quantizer.quantize_model()
    quantizer.model.save_model_to_file(str(path), False)
    return {**summary(path), "ranges": {name: np.ravel(value.range_value).tolist() for name, value in sorted(ranges.items())}}


def four_bits():
    path = FOLDER / "four_bits.onnx"
    config = DefaultWeightOnlyQuantConfig(
        block_size=32, is_symmetric=True, accuracy_level=0, quant_format=QuantFormat.QOperator
    )
    quantizer = MatMulNBitsQuantizer(onnx.load(PATH), algo_config=config)
    quantizer.process()
    quantizer.model.save_model_to_file(str(path), False)
    return summary(path)


def configured():
    path = FOLDER / "configured.onnx"
    config = get_qdq_config(str(PATH), Reader(), activation_type=QuantType.QUInt16, weight_type=QuantType.QUInt8)
    quantize(str(PATH), str(path), config)
    return summary(path)


make_network()
print(json.dumps({function.__name__: function() for function in (one_line, by_hand, calibrated, four_bits, configured)}))
