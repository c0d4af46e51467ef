"""Tools for single kinds of models, under onnxruntime's names."""
