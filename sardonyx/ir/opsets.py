"""How far the standard goes that we know: the newest opset of each of its domains. Readers, the text form and `ops` ask here."""

NEWEST = {"": 28, "ai.onnx.ml": 5, "ai.onnx.training": 1, "ai.onnx.preview.training": 1, "ai.onnx.preview": 1}
"""By domain. An `onnx` package that is newer may know more; then `.onnx` files may use it."""
