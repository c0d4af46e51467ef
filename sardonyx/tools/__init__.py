"""Tools around models under the names of `onnxruntime.tools`."""
