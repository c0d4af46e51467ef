"""A model kept and served with mlflow.onnx; run by test_packages.py."""

import json
import os
import tempfile

import mlflow
import mlflow.onnx
import numpy as np
import onnx.parser

TEXT = """<ir_version: 8, opset_import: ["": 17]>
g (float[N, 4] x) => (float[N, 4] y) { e = Exp(x) y = Softmax<axis = -1>(e) }"""
inputs = {"x": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)}
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "model")
    mlflow.onnx.save_model(onnx.parser.parse_model(TEXT), path)
    served = mlflow.pyfunc.load_model(path)
    results = {"y": served.predict(inputs)["y"].tolist()}
print(json.dumps(results))
