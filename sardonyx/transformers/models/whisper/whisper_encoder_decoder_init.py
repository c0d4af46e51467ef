"""The encoder of Whisper as a module, with the first step of its decoder or with the keys and values of the sound."""

from __future__ import annotations

from typing import Any

from sardonyx.transformers.encoder_decoders import ENCODER_AND_CACHES, FIRST_STEP, Part
from sardonyx.transformers.models.whisper.whisper_inputs import get_sample_encoder_decoder_init_inputs
from sardonyx.transformers.models.whisper.whisper_module import WhisperModule
from sardonyx.transformers.past_helper import PastKeyValuesHelper


class WhisperEncoderDecoderInit(WhisperModule):
    """What is computed of sound once; with the first step where a search takes it."""

    @property
    def part(self) -> Part:
        if self.no_beam_search_op:
            return Part(self.model, *ENCODER_AND_CACHES, source_name="audio_features")
        return Part(self.model, *FIRST_STEP)

    def forward(self, audio_features: Any, decoder_input_ids: Any = None) -> Any:
        """Hidden states and keys and values of the sound; before a search logits, hidden states and four of each layer."""
        if self.no_beam_search_op:
            hidden, *cross = self.part.call_in_order(audio_features)
            return hidden, cross
        if decoder_input_ids is None:
            outputs = self.part.without_words().call_in_order(audio_features)
        else:
            outputs = self.part.call_in_order(audio_features, decoder_input_ids)
        logits, hidden, *present = outputs
        return logits, hidden, PastKeyValuesHelper.group_by_layer(present, self.config.decoder_layers)

    def sample_inputs(self, use_fp16_inputs: bool, use_int32_inputs: bool) -> dict[str, Any]:
        frames = 2 * self.config.max_source_positions
        samples = get_sample_encoder_decoder_init_inputs(
            self.config, self.device, 2, 6, frames, use_fp16_inputs, use_int32_inputs
        )
        if self.no_beam_search_op:
            del samples["decoder_input_ids"]
        return samples

    def export_onnx(
        self,
        onnx_model_path: str,
        provider: str,
        verbose: bool = True,
        use_external_data_format: bool = False,
        use_fp16_inputs: bool = False,
        use_int32_inputs: bool = True,
    ) -> None:
        """Write the module, and compare the file with it."""
        self.write(onnx_model_path, provider, use_external_data_format, use_fp16_inputs, use_int32_inputs)

    def verify_onnx(self, onnx_model_path: str, provider: str, use_fp16_inputs: bool, use_int32_inputs: bool) -> float:
        """How far the outputs of a file are from those of the module at most."""
        return self.compare(onnx_model_path, use_fp16_inputs, use_int32_inputs)
