"""Weights of 8 bits for models of either kind: modules of PyTorch, and ONNX files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sardonyx.quantization import quantize_dynamic
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch


def conv1d_to_linear(model: Any) -> None:
    """Replace what the transformers package calls Conv1D by linear layers, in the module: PyTorch quantizes these alone."""
    for name, child in list(model.named_children()):
        if type(child).__name__ == "Conv1D":
            setattr(model, name, _linear(child))
        else:
            conv1d_to_linear(child)


def _linear(layer: Any) -> Any:
    linear = loaded_torch().nn.Linear(*layer.weight.shape)
    linear.weight.data = layer.weight.data.T.contiguous()
    linear.bias.data = layer.bias.data
    return linear


class QuantizeHelper:
    """Weights of 8 bits; what layers compute on is rounded in each run."""

    @staticmethod
    def quantize_torch_model(model: Any, dtype: Any = None) -> Any:
        """A module whose linear layers have weights of 8 bits, by default with signs."""
        torch = loaded_torch()
        conv1d_to_linear(model)
        return torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=dtype or torch.qint8)

    @staticmethod
    def quantize_onnx_model(
        onnx_model_path: str | Path,
        quantized_model_path: str | Path,
        use_external_data_format: bool = False,
    ) -> None:
        """Write a model whose products have weights of 8 bits. Both paths may be the same."""
        Path(quantized_model_path).parent.mkdir(parents=True, exist_ok=True)
        quantize_dynamic(onnx_model_path, quantized_model_path, use_external_data_format=use_external_data_format)
