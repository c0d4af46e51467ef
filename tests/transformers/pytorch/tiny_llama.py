"""A tiny Llama with random weights, and a tokenizer of 40 words: w00, w01 (the end), ..."""

from __future__ import annotations

import json
from pathlib import Path

SHAPE = {"vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}


def save(path: Path, key_value_heads: int = 2) -> None:
    """Write the model and the tokenizer as the transformers package has them."""
    import torch
    import transformers as hub

    torch.manual_seed(0)
    config = hub.LlamaConfig(**SHAPE, num_key_value_heads=key_value_heads, max_position_embeddings=40)
    hub.LlamaForCausalLM(config).save_pretrained(path)
    save_tokenizer(path)


def save_tokenizer(path: Path) -> None:
    """Write a tokenizer of 40 words."""
    words = {f"w{number:02}": number for number in range(40)}
    model = {"type": "WordLevel", "vocab": words, "unk_token": "w00"}
    content = {"version": "1.0", "model": model, "pre_tokenizer": {"type": "Whitespace"}, "added_tokens": []}
    (path / "tokenizer.json").write_text(json.dumps(content | dict.fromkeys(("normalizer", "post_processor", "decoder"))))
    (path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "w01", "unk_token": "w00"})
    )
