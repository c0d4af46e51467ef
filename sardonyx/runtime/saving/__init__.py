"""Models into files: `.onnx`, the ORT format, compiled contexts, and what cut-down builds need."""
