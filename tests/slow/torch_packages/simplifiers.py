"""Models made simpler with onnxsim and onnxslim, which run parts of them; run by test_packages.py."""

import json

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import onnxsim
import onnxslim

TEXT = """<ir_version: 8, opset_import: ["": 17]>
g (float[2, 3, 8, 8] x) => (float[2, K] y) <float[4, 3, 3, 3] w, float[4] b> {
    minus = Constant<value = int64[1] {-1}>()
    c = Conv<pads = [1, 1, 1, 1]>(x, w, b)
    shape = Shape(c)
    zero = Constant<value = int64 {0}>()
    batch = Gather(shape, zero)
    axes = Constant<value = int64[1] {0}>()
    first = Unsqueeze(batch, axes)
    sizes = Concat<axis = 0>(first, minus)
    flat = Reshape(c, sizes)
    half = Constant<value = float {0.5}>()
    quarter = Mul(half, half)
    y = Mul(flat, quarter)
}"""
rng = np.random.default_rng(2)
model = onnx.parser.parse_model(TEXT)
for name, shape in (("w", (4, 3, 3, 3)), ("b", (4,))):
    model.graph.initializer.append(onnx.numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name))
feeds = {"x": rng.standard_normal((2, 3, 8, 8)).astype(np.float32)}


def content(simple):
    session = onnxruntime.InferenceSession(simple.SerializeToString(), providers=["CPUExecutionProvider"])
    return {"ops": sorted(node.op_type for node in simple.graph.node), "y": session.run(None, feeds)[0][:, ::40].tolist()}


simple, agrees = onnxsim.simplify(model)
results = {"onnxsim": content(simple), "onnxsim checked": agrees, "onnxslim": content(onnxslim.slim(model, model_check=True))}
print(json.dumps(results))
