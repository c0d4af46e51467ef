"""Scales of losses for half precision, under the names of `onnxruntime.training.amp`."""

from sardonyx.training.amp.loss_scaler import DynamicLossScaler, LossScaler

__all__ = ["DynamicLossScaler", "LossScaler"]
