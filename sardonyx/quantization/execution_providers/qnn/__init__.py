"""Quantization for QNN, as far as it needs no device: a config whose types QNN's ops take."""

from __future__ import annotations

from sardonyx.quantization.execution_providers.qnn.preprocess import qnn_preprocess_model
from sardonyx.quantization.execution_providers.qnn.quant_config import get_qnn_qdq_config

__all__ = ["get_qnn_qdq_config", "qnn_preprocess_model"]
