"""Graphs written with spox, whose values it computes while they are written; run by test_packages.py."""

import json

import numpy as np
import onnxruntime
import spox.opset.ai.onnx.v17 as op
from spox import Tensor, argument, build

x = argument(Tensor(np.float32, ("N", 3)))
table = op.const(np.arange(12, dtype=np.float32).reshape(3, 4))
product = op.matmul(x, op.mul(table, op.const(np.float32(0.5))))
top, places = op.top_k(product, op.const(np.array([2], np.int64)))
model = build({"x": x}, {"top": top, "places": places, "size": op.shape(product)})
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
values = session.run(None, {"x": np.linspace(-2, 2, 15, dtype=np.float32).reshape(5, 3)})
results = {"outputs": [value.tolist() for value in values], "shape": [str(size) for size in product.unwrap_tensor().shape]}
print(json.dumps(results))
