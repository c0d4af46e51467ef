"""What looks on while a module trains, under the names of `onnxruntime.training.utils.hooks`. Needs PyTorch."""

from __future__ import annotations

from sardonyx.training.torch.subscribers import (
    GlobalSubscriberManager,
    StatisticsSubscriber,
    SubscriberBase,
    inspect_activation,
)

__all__ = ["GlobalSubscriberManager", "StatisticsSubscriber", "SubscriberBase", "inspect_activation"]
