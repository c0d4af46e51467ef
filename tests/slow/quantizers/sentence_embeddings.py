"""sentence-transformers' export of a model in 8 bits, for a small BERT that is made here. Run by test_quantizers.py."""

import collections
import json
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from optimum.onnxruntime import ORTModelForFeatureExtraction
from sentence_transformers.backend import export_dynamic_quantized_onnx_model
from transformers import BertConfig, BertModel

FOLDER = Path(sys.argv[-1])
NAMES = ["input_ids", "attention_mask", "token_type_ids"]


def exported():
    torch.manual_seed(7)
    config = BertConfig(
        vocab_size=90,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=48,
        attn_implementation="eager",
    )
    network = BertModel(config, add_pooling_layer=False).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network,
            tuple(torch.ones(1, 5, dtype=torch.int64) for _ in NAMES),
            str(FOLDER / "model.onnx"),
            input_names=NAMES,
            output_names=["last_hidden_state"],
            dynamic_axes={name: {0: "batch", 1: "length"} for name in (*NAMES, "last_hidden_state")},
            dynamo=False,
        )
    config.save_pretrained(FOLDER)


class Wrapped:
    """What the export asks of a sentence-transformers model: its first module's ONNX model."""

    def __init__(self, model):
        self.auto_model = model
        self.backend = "onnx"
        self.transformers_model = model

    def __getitem__(self, number):
        return self


def main():
    torch.set_num_threads(1)
    exported()
    model = ORTModelForFeatureExtraction.from_pretrained(FOLDER, file_name="model.onnx", provider="CPUExecutionProvider")
    ids = np.random.default_rng(1).integers(1, 90, (2, 6))
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    hidden = model(**{name: torch.from_numpy(array) for name, array in feeds.items()}).last_hidden_state
    export_dynamic_quantized_onnx_model(Wrapped(model), "avx512_vnni", str(FOLDER / "exported"))
    (path,) = (FOLDER / "exported").rglob("*.onnx")
    counts = collections.Counter(node.op_type for node in onnx.load(path).graph.node)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    quantized = session.run(None, feeds)[0]
    print(
        json.dumps(
            {"ops": dict(sorted(counts.items())), "float": hidden.detach().numpy().tolist(), "quantized": quantized.tolist()}
        )
    )


main()
