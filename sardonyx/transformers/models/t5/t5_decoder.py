"""The decoder of T5 as modules, for the first step and for those after it; their inputs, their files, and comparisons of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.runtime.api.session import InferenceSession
from sardonyx.transformers.conversion import OPSET
from sardonyx.transformers.encoder_decoders import DECODER, DECODER_INIT, SIZES, Part
from sardonyx.transformers.models.t5.pieces import Pieces
from sardonyx.transformers.models.t5.t5_encoder import T5EncoderInputs
from sardonyx.transformers.past_helper import PastKeyValuesHelper
from sardonyx.transformers.torch_modules import TorchModule
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch

CASES = len(SIZES)


class T5DecoderInit(TorchModule):
    """The first step: there are no keys and values yet."""

    def __init__(self, decoder: Any, lm_head: Any, config: Any, decoder_start_token_id: int | None = None):
        super().__init__()
        self.decoder, self.lm_head, self.config = decoder, lm_head, config
        given = decoder_start_token_id is not None
        self.decoder_start_token_id = decoder_start_token_id if given else config.decoder_start_token_id

    @property
    def part(self) -> Part:
        """What becomes a file."""
        pieces = Pieces(self.config, None, self.decoder, self.lm_head, self.decoder_start_token_id)
        return Part(pieces, *DECODER_INIT)

    def forward(
        self, decoder_input_ids: Any, encoder_attention_mask: Any, encoder_hidden_states: Any
    ) -> tuple[Any, list[Any], list[Any]]:
        """Logits, keys and values of the words and of the source; without words the one that begins all texts is taken."""
        if decoder_input_ids is None:
            outputs = self.part.without_words().call_in_order(encoder_attention_mask, encoder_hidden_states)
        else:
            outputs = self.part.call_in_order(decoder_input_ids, encoder_attention_mask, encoder_hidden_states)
        return by_kind(outputs)


def by_kind(outputs: Sequence[Any]) -> tuple[Any, list[Any], list[Any]]:
    """Logits, and as many keys and values of the words as of the source."""
    count = len(outputs) // 2
    return outputs[0], list(outputs[1 : 1 + count]), list(outputs[1 + count :])


class T5Decoder(TorchModule):
    """A step that is handed keys and values of the words before it and of the source."""

    def __init__(self, decoder: Any, lm_head: Any, config: Any):
        super().__init__()
        self.decoder, self.lm_head, self.config = decoder, lm_head, config

    @property
    def part(self) -> Part:
        """What becomes a file."""
        return Part(Pieces(self.config, None, self.decoder, self.lm_head), *DECODER)

    def forward(self, decoder_input_ids: Any, encoder_attention_mask: Any, *past: Any) -> tuple[Any, list[Any]]:
        """Logits, and keys and values of all words."""
        logits, *present = self.part.call_in_order(decoder_input_ids, encoder_attention_mask, *past)
        return logits, present


class T5DecoderInputs:
    """A word for each text, the mask of the source, keys and values in the order of their names."""

    def __init__(self, decoder_input_ids: Any, encoder_attention_mask: Any, past_key_values: list[Any] | None = None):
        self.decoder_input_ids, self.encoder_attention_mask = decoder_input_ids, encoder_attention_mask
        self.past_key_values = past_key_values

    @staticmethod
    def create_dummy(
        config: Any,
        batch_size: int,
        encode_sequence_length: int,
        past_decode_sequence_length: int,
        device: Any,
        float16: bool = False,
        use_int32_inputs: bool = False,
    ) -> T5DecoderInputs:
        """Random inputs; there are no keys and values without earlier words."""
        torch = loaded_torch()
        sizes = config.vocab_size, device, use_int32_inputs
        words = T5EncoderInputs.create_dummy(batch_size, 1, *sizes).input_ids
        mask = T5EncoderInputs.create_dummy(batch_size, encode_sequence_length, *sizes).attention_mask
        if not past_decode_sequence_length:
            return T5DecoderInputs(words, mask)
        lengths = [past_decode_sequence_length, encode_sequence_length]
        shapes = [
            (batch_size, config.num_heads, length, config.d_kv)
            for length in lengths
            for _ in range(2 * config.num_decoder_layers)
        ]
        kind = torch.float16 if float16 else torch.float32
        return T5DecoderInputs(words, mask, [torch.rand(shape, dtype=kind, device=device) for shape in shapes])

    def to_list(self) -> list[Any]:
        """What there is, in the order of the decoder's inputs."""
        return [self.decoder_input_ids, self.encoder_attention_mask, *(self.past_key_values or ())]

    def to_fp32(self) -> T5DecoderInputs:
        """A copy with keys and values of float32."""
        past = [tensor.float() for tensor in self.past_key_values] if self.past_key_values else None
        return T5DecoderInputs(self.decoder_input_ids.clone(), self.encoder_attention_mask.clone(), past)


class T5DecoderHelper:
    """Files of both modules."""

    @staticmethod
    def export_onnx(
        decoder: Any,
        device: Any,
        onnx_model_path: str,
        verbose: bool = True,
        use_external_data_format: bool = False,
        use_int32_inputs: bool = False,
    ) -> None:
        """Write a decoder; that of the first step takes the hidden states of the source, too."""
        _part(decoder, use_int32_inputs).export(onnx_model_path, OPSET, use_external_data_format)

    @staticmethod
    def onnxruntime_inference(ort_session: InferenceSession, inputs: T5DecoderInputs) -> list[Any]:
        """The outputs of a session."""
        past = inputs.past_key_values or []
        names = ["input_ids", "encoder_attention_mask", *PastKeyValuesHelper.get_past_names(len(past) // 4)]
        feeds = {name: tensor.cpu().numpy() for name, tensor in zip(names, inputs.to_list(), strict=True)}
        return ort_session.run(None, feeds)

    @staticmethod
    def verify_onnx(
        model: Any, ort_session: InferenceSession, device: Any, use_int32_inputs: bool, max_cases: int = CASES
    ) -> float:
        """How far the outputs of a session are from those of the module at most."""
        cases = min(max_cases, CASES)
        return _part(model, use_int32_inputs).difference_of(ort_session, cases, SIZES)


def _part(decoder: Any, use_int32_inputs: bool) -> Part:
    if not isinstance(decoder, (T5Decoder, T5DecoderInit)):
        raise TypeError(f"a T5Decoder or a T5DecoderInit is wanted, got {type(decoder).__name__}")
    return decoder.part.with_integers(np.int32 if use_int32_inputs else np.int64)
