"""Models of optimum's ORTModel classes and its optimizer: tiny ones with random weights, exported here; run by test_packages.py."""

import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from optimum.onnxruntime import (
    ORTModelForCausalLM,
    ORTModelForFeatureExtraction,
    ORTModelForImageClassification,
    ORTModelForSequenceClassification,
    ORTOptimizer,
)
from optimum.onnxruntime.configuration import OptimizationConfig
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    ViTConfig,
    ViTForImageClassification,
)

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
WORDS = {"vocab_size": 60, "max_position_embeddings": 40}
DECODER = {"vocab_size": 60, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 40, "bos_token_id": 1, "eos_token_id": 2}

chance = torch.Generator().manual_seed(4)
words = torch.randint(5, 60, (2, 9), generator=chance)
pictures = torch.rand((2, 3, 32, 32), generator=chance)
everywhere = torch.ones_like(words)
mask = torch.ones_like(words)
mask[1, 6:] = 0


def saved(model, folder):
    torch.manual_seed(1)
    model().save_pretrained(folder)
    return folder


results = {}
with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    path = saved(lambda: BertForSequenceClassification(BertConfig(num_labels=3, **SIZES, **WORDS)), folder / "classifier")
    classifier = ORTModelForSequenceClassification.from_pretrained(path, export=True)
    results["classifier"] = np.asarray(classifier(input_ids=words, attention_mask=mask).logits).tolist()

    path = saved(lambda: BertModel(BertConfig(**SIZES, **WORDS)), folder / "features")
    features = ORTModelForFeatureExtraction.from_pretrained(path, export=True)
    hidden = features(input_ids=words, attention_mask=mask).last_hidden_state
    results["features"] = np.asarray(hidden)[:, ::3, ::4].tolist()

    path = saved(lambda: GPT2LMHeadModel(GPT2Config(**DECODER)), folder / "decoder")
    decoder = ORTModelForCausalLM.from_pretrained(path, export=True)
    generated = decoder.generate(words, attention_mask=everywhere, max_new_tokens=8, do_sample=False, pad_token_id=0)
    results["generated"] = generated.tolist()
    results["next words"] = np.asarray(decoder(input_ids=words, attention_mask=everywhere).logits)[:, -1, ::5].tolist()

    path = saved(
        lambda: ViTForImageClassification(ViTConfig(image_size=32, patch_size=8, num_labels=4, **SIZES)), folder / "vit"
    )
    viewer = ORTModelForImageClassification.from_pretrained(path, export=True)
    results["pictures"] = np.asarray(viewer(pixel_values=pictures).logits).tolist()

    config = OptimizationConfig(optimization_level=2)
    ORTOptimizer.from_pretrained(classifier).optimize(save_dir=folder / "optimized", optimization_config=config)
    optimized = ORTModelForSequenceClassification.from_pretrained(folder / "optimized", file_name="model_optimized.onnx")
    results["optimized classifier"] = np.asarray(optimized(input_ids=words, attention_mask=mask).logits).tolist()
print(json.dumps(results))
