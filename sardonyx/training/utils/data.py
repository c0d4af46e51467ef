"""Samplers for several processes, under the names of `onnxruntime.training.utils.data`. Needs PyTorch."""

from __future__ import annotations

from sardonyx.training.torch.sampling import LoadBalancingDistributedBatchSampler, LoadBalancingDistributedSampler

__all__ = ["LoadBalancingDistributedBatchSampler", "LoadBalancingDistributedSampler"]
