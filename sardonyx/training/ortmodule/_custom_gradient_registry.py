"""Gradients that users define, under the name of `onnxruntime.training.ortmodule._custom_gradient_registry`."""

from __future__ import annotations

from sardonyx.training.gradient_definitions import register_gradient

__all__ = ["register_gradient"]
