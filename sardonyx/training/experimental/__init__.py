"""What may change, under the names of `onnxruntime.training.experimental`. Needs PyTorch: the extra `train`."""

from __future__ import annotations

from sardonyx.training.torch.exporting import export_gradient_graph

__all__ = ["export_gradient_graph"]
