"""ONNX protobuf files: `reader` makes them a Model, `writer` the other way."""
