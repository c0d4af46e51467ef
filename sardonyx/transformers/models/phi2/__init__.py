"""Phi-2 under onnxruntime's names."""
