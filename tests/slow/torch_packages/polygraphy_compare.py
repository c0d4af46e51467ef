"""A model run and compared with polygraphy's runner; run by test_packages.py."""

import json

import numpy as np
import onnx.parser
from polygraphy.backend.onnxrt import OnnxrtRunner, SessionFromOnnx
from polygraphy.comparator import Comparator, CompareFunc, DataLoader

TEXT = """<ir_version: 8, opset_import: ["": 17]>
g (float[2, 4] x, float[4, 3] w) => (float[2, 3] y) { p = MatMul(x, w) y = Sigmoid(p) }"""
model = onnx.parser.parse_model(TEXT).SerializeToString()
runners = [OnnxrtRunner(SessionFromOnnx(model), name=name) for name in ("first", "second")]
outcome = Comparator.run(runners, data_loader=DataLoader(seed=5))
same = bool(Comparator.compare_accuracy(outcome, compare_func=CompareFunc.simple(rtol=1e-5)))
results = {"same": same, "y": np.asarray(outcome[0][1][0]["y"]).tolist()}
print(json.dumps(results))
