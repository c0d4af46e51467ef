"""The encoder of Whisper as a module."""

from __future__ import annotations

from typing import Any

from sardonyx.transformers.encoder_decoders import ENCODER, Part
from sardonyx.transformers.models.whisper.whisper_inputs import get_sample_encoder_inputs
from sardonyx.transformers.models.whisper.whisper_module import WhisperModule


class WhisperEncoder(WhisperModule):
    """What Whisper makes of sound: hidden states."""

    def __init__(self, config: Any, model: Any, model_impl: str = "hf"):
        super().__init__(config, model, model_impl)

    @property
    def part(self) -> Part:
        return Part(self.model, *ENCODER, source_name="audio_features")

    def forward(self, audio_features: Any) -> Any:
        return self.part.call_in_order(audio_features)[0]

    def sample_inputs(self, use_fp16_inputs: bool, use_int32_inputs: bool) -> dict[str, Any]:
        frames = 2 * self.config.max_source_positions
        return get_sample_encoder_inputs(self.config, self.device, 2, frames, use_fp16_inputs)

    def export_onnx(
        self,
        onnx_model_path: str,
        provider: str,
        verbose: bool = True,
        use_external_data_format: bool = False,
        use_fp16_inputs: bool = False,
    ) -> None:
        """Write the encoder, and compare the file with it."""
        self.write(onnx_model_path, provider, use_external_data_format, use_fp16_inputs, True)

    def verify_onnx(self, onnx_model_path: str, provider: str, use_fp16_inputs: bool) -> float:
        """How far the outputs of a file are from those of the module at most."""
        return self.compare(onnx_model_path, use_fp16_inputs, True)
