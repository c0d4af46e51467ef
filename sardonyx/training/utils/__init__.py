"""Data of modules apart from its structure, under the names of `onnxruntime.training.utils`; samplers are in `data`. Needs PyTorch."""

from __future__ import annotations

from sardonyx.training.torch.wrapping.arguments import extract_data_and_schema, unflatten_data_using_schema

__all__ = ["extract_data_and_schema", "unflatten_data_using_schema"]
