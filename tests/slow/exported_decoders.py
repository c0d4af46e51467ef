"""Exports tiny decoders with random weights, and compares them with PyTorch: python exported_decoders.py FOLDER."""

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from sardonyx.transformers.large_model_exporter import export_onnx, get_model_parameter_size
from sardonyx.transformers.models.gpt2 import convert_to_onnx
from sardonyx.transformers.onnx_model import OnnxModel

folder = Path(sys.argv[1])
torch.manual_seed(0)
torch.set_grad_enabled(False)
gpt = GPT2LMHeadModel(GPT2Config(vocab_size=60, n_embd=32, n_layer=2, n_head=4, n_positions=40)).eval()
sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48}
llama = LlamaForCausalLM(LlamaConfig(vocab_size=60, max_position_embeddings=40, **sizes)).eval()
assert get_model_parameter_size(llama) > 0
for name, model in (("gpt2", gpt), ("llama", llama)):
    model.save_pretrained(folder / name)
words = np.array([[5, 9, 1, 30, 2, 17], [0, 0, 44, 3, 21, 8]])
mask = np.array([[1] * 6, [0, 0, 1, 1, 1, 1]])
places = np.maximum(np.cumsum(mask, 1) - 1, 0)
seen = mask.astype(bool)


def wanted(model):
    outputs = model(
        input_ids=torch.from_numpy(words), attention_mask=torch.from_numpy(mask), position_ids=torch.from_numpy(places)
    )
    return outputs.logits.numpy()


def in_two_parts(path, model, empty, integers=np.int64):
    """Logits of a file that gets the first four words, then two with the keys and values of those."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    caches = [value.name for value in session.get_inputs() if "past" in value.name]
    cached = {name: np.zeros(empty, np.float32) for name in caches}
    logits = []
    for part in (slice(0, 4), slice(4, 6)):
        feeds = {"input_ids": words[:, part], "position_ids": places[:, part], "attention_mask": mask[:, : part.stop]}
        results = session.run(names, {name: value.astype(integers) for name, value in feeds.items()} | cached)
        logits.append(results[0])
        cached = dict(zip(caches, results[1:], strict=True))
    return float(np.abs(np.concatenate(logits, 1) - wanted(model))[seen].max())


results = {"differences": {}}
export_onnx(str(folder / "llama"), None, str(folder / "written"), True, 17)
plain = onnxruntime.InferenceSession(str(folder / "written" / "model.onnx"), providers=["CPUExecutionProvider"])
feeds = {"input_ids": words, "attention_mask": mask, "position_ids": places}
results["differences"]["llama"] = float(np.abs(plain.run(None, feeds)[0] - wanted(llama))[seen].max())
results["differences"]["llama with past"] = in_two_parts(str(folder / "written" / "model_with_past.onnx"), llama, (2, 2, 0, 8))
common = ["-m", str(folder / "gpt2"), "--output", str(folder / "gpt"), "-t", "8"]
raw = convert_to_onnx.main(common)
results["gpt2 raw size"] = raw["onnx_size_in_bytes"]
fused = convert_to_onnx.main([*common, "-o"])
results["gpt2 fused"] = OnnxModel(onnx.load(fused["onnx_path"])).get_operator_statistics()
for name, line in (("gpt2 raw", raw), ("gpt2 fp32", fused)):
    results["differences"][name] = in_two_parts(line["onnx_path"], gpt, (2, 2, 4, 0, 8), np.int32)
for precision in ("fp16", "int8"):
    results[f"gpt2 {precision}"] = convert_to_onnx.main([*common, "-o", "-p", precision])
print(json.dumps(results))
