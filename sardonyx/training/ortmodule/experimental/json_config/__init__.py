"""Settings of an ORTModule from a file, under the name of `onnxruntime.training.ortmodule.experimental.json_config`."""

from __future__ import annotations

from sardonyx.training.torch.wrapping.configuration import load_from_json

__all__ = ["load_from_json"]
