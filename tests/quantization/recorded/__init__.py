"""What the tools of onnxruntime 1.31.1 (onnx 1.23.2) make of small float models: the models, the calls, and how results are compared.

`runs.json.xz` holds 174 runs and 32 wrong calls, each with the call and what came of it.
"""
