"""The decoder of Whisper as a module, for the first step and for those after it."""

from __future__ import annotations

from typing import Any

from sardonyx.transformers.encoder_decoders import DECODER, DECODER_INIT, Part
from sardonyx.transformers.models.whisper.whisper_inputs import get_sample_decoder_inputs
from sardonyx.transformers.models.whisper.whisper_module import WhisperModule
from sardonyx.transformers.past_helper import PastKeyValuesHelper


class WhisperDecoder(WhisperModule):
    """A step, with keys and values of the words before it or without."""

    first_pass = False
    """Whether the file is that of the first step; the export says so."""

    @property
    def part(self) -> Part:
        return self._first_step() if self.first_pass else Part(self.model, *DECODER)

    def _first_step(self) -> Part:
        return Part(self.model, *DECODER_INIT)

    def forward(self, decoder_input_ids: Any, encoder_hidden_states: Any = None, past_key_values: Any = None) -> Any:
        """Logits, and keys and values: for the first step four of each layer, else those of the words in one list."""
        if past_key_values is None:
            logits, *present = self._first_step().call_in_order(decoder_input_ids, encoder_hidden_states)
            return logits, PastKeyValuesHelper.group_by_layer(present, self.config.decoder_layers)
        past = PastKeyValuesHelper.back_group_by_layer(past_key_values)
        logits, *own = Part(self.model, *DECODER).call_in_order(decoder_input_ids, *past)
        return logits, own

    def dynamic_axes(self, input_names: Any, output_names: Any) -> dict[str, dict[int, str]]:
        """The open sizes; a search hands over one word at a time."""
        axes = super().dynamic_axes(input_names, output_names)
        if "input_ids" in axes and not self.no_beam_search_op:
            axes["input_ids"].pop(1)
        return axes

    def sample_inputs(self, use_fp16_inputs: bool, use_int32_inputs: bool) -> dict[str, Any]:
        past, words = (0, 6) if self.first_pass else (6, 1)
        samples = get_sample_decoder_inputs(self.config, self.device, 2, past, words, use_fp16_inputs, use_int32_inputs)
        if self.first_pass:
            del samples["past_key_values"]
        return samples

    def export_onnx(
        self,
        onnx_model_path: str,
        provider: str,
        verbose: bool = True,
        use_external_data_format: bool = False,
        use_fp16_inputs: bool = False,
        use_int32_inputs: bool = True,
        use_encoder_hidden_states: bool = False,
        use_kv_cache_inputs: bool = True,
    ) -> None:
        """Write the first step, which takes hidden states, or a step that takes keys and values; and compare the file with it."""
        if use_encoder_hidden_states == use_kv_cache_inputs:
            raise ValueError("a decoder takes hidden states of the sound or keys and values: one of them, not both or neither")
        self.first_pass = use_encoder_hidden_states
        self.write(onnx_model_path, provider, use_external_data_format, use_fp16_inputs, use_int32_inputs)

    def verify_onnx(self, onnx_model_path: str, provider: str, use_fp16_inputs: bool, use_int32_inputs: bool) -> float:
        """How far the outputs of a file are from those of the module at most."""
        return self.compare(onnx_model_path, use_fp16_inputs, use_int32_inputs)
