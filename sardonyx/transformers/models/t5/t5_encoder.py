"""The encoder of T5 as a module, and its inputs."""

from __future__ import annotations

from typing import Any

from sardonyx.transformers.encoder_decoders import ENCODER, Part
from sardonyx.transformers.models.t5.pieces import Pieces
from sardonyx.transformers.torch_modules import TorchModule
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch


class T5Encoder(TorchModule):
    """What T5 makes of a source: hidden states."""

    def __init__(self, encoder: Any, config: Any):
        super().__init__()
        self.encoder, self.config = encoder, config

    @property
    def part(self) -> Part:
        """What becomes a file."""
        return Part(Pieces(self.config, self.encoder), *ENCODER)

    def forward(self, input_ids: Any, attention_mask: Any) -> Any:
        return self.part.call_in_order(input_ids, attention_mask)[0]


class T5EncoderInputs:
    """Words and a mask of them."""

    def __init__(self, input_ids: Any, attention_mask: Any):
        self.input_ids, self.attention_mask = input_ids, attention_mask

    @staticmethod
    def create_dummy(
        batch_size: int, sequence_length: int, vocab_size: int, device: Any, use_int32_inputs: bool = False
    ) -> T5EncoderInputs:
        """Random words, the first of which are masked out."""
        torch = loaded_torch()
        kind = torch.int32 if use_int32_inputs else torch.int64
        words = torch.randint(0, vocab_size - 1, (batch_size, sequence_length), dtype=kind, device=device)
        starts = torch.randint(0, max(sequence_length, 1), (batch_size, 1), device=device)
        mask = (torch.arange(sequence_length, device=device) >= starts).to(kind)
        return T5EncoderInputs(words, mask)

    def to_list(self) -> list[Any]:
        """What there is, in the order of the encoder's inputs."""
        return [tensor for tensor in (self.input_ids, self.attention_mask) if tensor is not None]
