"""An encoder, a decoder and a head of T5 as one model, of which `encoder_decoders.Part` makes files. The modules of T5 are around it."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

from sardonyx.transformers.torch_modules import TorchModule


class Pieces(TorchModule):
    """What was handed over of a model; a part that needs the others cannot be made of it."""

    def __init__(self, config: Any, encoder: Any = None, decoder: Any = None, lm_head: Any = None, start: int | None = None):
        super().__init__()
        self.config = config
        self.encoder, self.decoder, self.lm_head = encoder, decoder, lm_head
        if start is not None:
            self.config = copy.copy(config)
            self.config.decoder_start_token_id = start

    @property
    def dtype(self) -> Any:
        """The type of the weights."""
        return self.lm_head.weight.dtype

    def get_encoder(self) -> Any:
        """What reads the source."""
        return self.encoder

    def get_decoder(self) -> Any:
        """What writes words."""
        return self.decoder

    def forward(
        self,
        encoder_outputs: Any,
        decoder_input_ids: Any,
        decoder_attention_mask: Any,
        past_key_values: Any,
        attention_mask: Any = None,
        **options: Any,
    ) -> Any:
        """The logits of a step, and keys and values."""
        outputs = self.decoder(
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            encoder_hidden_states=encoder_outputs[0],
            encoder_attention_mask=attention_mask,
            past_key_values=past_key_values,
            **options,
        )
        hidden = outputs.last_hidden_state * (self.config.d_model**-0.5 if self._is_scaled else 1)
        return SimpleNamespace(logits=self.lm_head(hidden), past_key_values=outputs.past_key_values)

    @property
    def _is_scaled(self) -> bool:
        """Whether what goes into the head is scaled: a field of newer configurations, told by the tied words of older ones."""
        is_tied = self.config.model_type == "t5" and self.config.tie_word_embeddings
        return bool(getattr(self.config, "scale_decoder_outputs", is_tied))
