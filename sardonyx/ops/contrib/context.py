"""EPContext of com.microsoft: a part of a model that a provider has compiled. Its outputs are of the types that the model declares."""

from __future__ import annotations

from sardonyx.dtypes import ALL
from sardonyx.ops.schemas import define

define(
    "com.microsoft",
    "EPContext",
    1,
    "(**inputs: T?, *, main_context: int = 1, ep_cache_context: string?, embed_mode: int = 1, ep_sdk_version: string?,"
    " onnx_model_filename: string?, __source_checksum: string?, hardware_architecture: string?, partition_name: string?,"
    " source: string?, notes: string?, max_size: int = 0) -> (**outputs: T)",
    T=ALL,
)
