"""The encoder of T5 and the first step of its decoder as one module; its inputs, its file, and comparisons of both."""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.runtime.api.session import InferenceSession
from sardonyx.transformers.conversion import OPSET
from sardonyx.transformers.encoder_decoders import ENCODER_OF_CACHES, FIRST_STEP, SIZES, Part
from sardonyx.transformers.models.t5.pieces import Pieces
from sardonyx.transformers.models.t5.t5_decoder import CASES, by_kind
from sardonyx.transformers.models.t5.t5_encoder import T5EncoderInputs
from sardonyx.transformers.torch_modules import TorchModule
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch


class T5EncoderDecoderInit(TorchModule):
    """Both, or the keys and values of the source alone."""

    def __init__(
        self,
        encoder: Any,
        decoder: Any,
        lm_head: Any,
        config: Any,
        decoder_start_token_id: int | None = None,
        output_cross_only: bool = False,
    ):
        super().__init__()
        self.config, self.output_cross_only = config, output_cross_only
        self.pieces = Pieces(config, encoder, decoder, lm_head, decoder_start_token_id)

    @property
    def part(self) -> Part:
        """What becomes a file."""
        return Part(self.pieces, *(ENCODER_OF_CACHES if self.output_cross_only else FIRST_STEP))

    def forward(self, encoder_input_ids: Any, encoder_attention_mask: Any, decoder_input_ids: Any = None) -> Any:
        """Logits, hidden states, keys and values of the words and of the source; those of the source alone if that is wanted."""
        if self.output_cross_only:
            return self.part.call_in_order(encoder_input_ids, encoder_attention_mask)
        part, words = self.part, [decoder_input_ids]
        if decoder_input_ids is None:
            part, words = part.without_words(), []
        logits, hidden, *caches = part.call_in_order(encoder_input_ids, encoder_attention_mask, *words)
        _, own, cross = by_kind([logits, *caches])
        return logits, hidden, own, cross


class T5EncoderDecoderInitInputs:
    """A source, its mask, and words if the first of them is an input."""

    def __init__(self, encoder_input_ids: Any, encoder_attention_mask: Any, decoder_input_ids: Any = None):
        self.encoder_input_ids, self.encoder_attention_mask = encoder_input_ids, encoder_attention_mask
        self.decoder_input_ids = decoder_input_ids

    @staticmethod
    def create_dummy(
        config: Any,
        batch_size: int,
        encode_sequence_length: int,
        use_decoder_input_ids: bool,
        device: Any,
        use_int32_inputs: bool = False,
    ) -> T5EncoderDecoderInitInputs:
        """Random sources, and the word that begins all texts."""
        source = T5EncoderInputs.create_dummy(batch_size, encode_sequence_length, config.vocab_size, device, use_int32_inputs)
        words = None
        if use_decoder_input_ids:
            kind = source.input_ids.dtype
            start = config.decoder_start_token_id
            words = loaded_torch().full((batch_size, 1), start, dtype=kind, device=device)
        return T5EncoderDecoderInitInputs(source.input_ids, source.attention_mask, words)

    def to_list(self) -> list[Any]:
        """What there is, in the order of the inputs."""
        words = [] if self.decoder_input_ids is None else [self.decoder_input_ids]
        return [self.encoder_input_ids, self.encoder_attention_mask, *words]


class T5EncoderDecoderInitHelper:
    """Files of the module."""

    @staticmethod
    def export_onnx(
        model: T5EncoderDecoderInit,
        device: Any,
        onnx_model_path: str,
        use_decoder_input_ids: bool = True,
        verbose: bool = True,
        use_external_data_format: bool = False,
        use_int32_inputs: bool = False,
    ) -> None:
        """Write the module."""
        part = _part(model, use_decoder_input_ids, use_int32_inputs)
        part.export(onnx_model_path, OPSET, use_external_data_format)

    @staticmethod
    def onnxruntime_inference(ort_session: InferenceSession, inputs: T5EncoderDecoderInitInputs) -> list[Any]:
        """The outputs of a session."""
        names = ["encoder_input_ids", "encoder_attention_mask", "decoder_input_ids"]
        return ort_session.run(None, {name: tensor.cpu().numpy() for name, tensor in zip(names, inputs.to_list())})

    @staticmethod
    def verify_onnx(
        model: T5EncoderDecoderInit,
        ort_session: InferenceSession,
        device: Any,
        use_int32_inputs: bool,
        max_cases: int = CASES,
    ) -> float:
        """How far the outputs of a session are from those of the module at most."""
        has_words = "decoder_input_ids" in [value.name for value in ort_session.get_inputs()]
        cases = min(max_cases, CASES)
        return _part(model, has_words, use_int32_inputs).difference_of(ort_session, cases, SIZES)


def _part(model: T5EncoderDecoderInit, has_words: bool, use_int32_inputs: bool) -> Part:
    part = model.part.with_integers(np.int32 if use_int32_inputs else np.int64)
    return part if has_words else part.without_words()
