"""Sentences as vectors with sentence-transformers on its onnx backend: a tiny model with random weights; run by test_packages.py."""

import json
import tempfile
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer, models
from transformers import BertConfig, BertModel, BertTokenizerFast

TEXTS = ["agate is banded", "onyx is black and white", "a red stone", "stone of many colours with bands"]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted({word for text in TEXTS for word in text.split()})]

with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    torch.manual_seed(3)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    BertModel(BertConfig(vocab_size=len(WORDS), max_position_embeddings=40, **sizes)).save_pretrained(folder / "bert")
    BertTokenizerFast(vocab_file=str(folder / "vocab.txt")).save_pretrained(folder / "bert")
    words = models.Transformer(str(folder / "bert"))
    SentenceTransformer(modules=[words, models.Pooling(words.get_word_embedding_dimension())]).save(str(folder / "sentences"))
    model = SentenceTransformer(str(folder / "sentences"), backend="onnx")
    vectors = model.encode(TEXTS)
    results = {"vectors": vectors.tolist(), "similarities": model.similarity(vectors, vectors).tolist()}
print(json.dumps(results))
