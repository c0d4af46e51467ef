"""Data of modules apart from its structure, tables for logs, under the names of `onnxruntime.training.utils`. Needs PyTorch.

Samplers are in `data`, what looks on while a module trains in `hooks`.
"""

from __future__ import annotations

from sardonyx.training.torch.ranges import torch_nvtx_range_pop, torch_nvtx_range_push
from sardonyx.training.torch.wrapping.arguments import extract_data_and_schema, unflatten_data_using_schema
from sardonyx.training.utils.ptable import PTable

__all__ = [
    "PTable",
    "extract_data_and_schema",
    "torch_nvtx_range_pop",
    "torch_nvtx_range_push",
    "unflatten_data_using_schema",
]
