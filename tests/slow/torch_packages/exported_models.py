"""Models of the transformers package through onnxruntime's own exporter: tiny ones with random weights; run by test_packages.py."""

import json
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from onnxruntime.transformers.benchmark_helper import ConfigModifier, OptimizerInfo, Precision
from onnxruntime.transformers.onnx_exporter import (
    export_onnx_model_from_pt,
    load_pt_model,
    replace_torch_functions,
    restore_torch_functions,
    triu_onnx,
)
from onnxruntime.transformers.quantize_helper import QuantizeHelper, conv1d_to_linear
from onnxruntime.transformers.torch_onnx_export_helper import torch_onnx_export
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    BertTokenizer,
    GPT2Config,
    GPT2Model,
)

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
WORDS = {"vocab_size": 60, "max_position_embeddings": 40}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
INPUTS = ["input_ids", "attention_mask", "token_type_ids"]
FEEDS = {
    "input_ids": np.array([[2, 7, 9, 11, 3], [2, 8, 3, 0, 0]]),
    "attention_mask": np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]),
    "token_type_ids": np.zeros((2, 5), np.int64),
}


def saved(model, folder):
    folder.mkdir()
    torch.manual_seed(1)
    model().save_pretrained(folder)
    words = folder / "vocab.txt"
    words.write_text("\n".join(SPECIAL + [f"word{number}" for number in range(55)]))
    BertTokenizer(str(words), model_max_length=40).save_pretrained(folder)
    return str(folder)


def exported(name, folder, model_class, precision, optimizer):
    statistics = {}
    path, is_right, vocabulary, longest = export_onnx_model_from_pt(
        name,
        17,
        False,
        "bert",
        model_class,
        ConfigModifier(None),
        str(folder / "cache"),
        str(folder / f"{precision}"),
        INPUTS,
        False,
        precision,
        optimizer,
        True,
        True,
        True,
        statistics,
        None,
    )
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return [bool(is_right), vocabulary, longest, session.run(None, FEEDS)[0].tolist()]


torch.set_grad_enabled(False)  # onnxruntime's exporter compares outputs that would know of gradients
results = {}
with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    encoder = saved(lambda: BertModel(BertConfig(**SIZES, **WORDS)), folder / "encoder")
    results["plain"] = exported(encoder, folder, None, Precision.FLOAT32, OptimizerInfo.NOOPT)
    results["fused"] = exported(encoder, folder, "AutoModel", Precision.FLOAT32, OptimizerInfo.BYSCRIPT)
    judge = saved(lambda: BertForSequenceClassification(BertConfig(num_labels=3, **SIZES, **WORDS)), folder / "judge")
    results["judge"] = exported(judge, folder, "AutoModelForSequenceClassification", Precision.FLOAT32, OptimizerInfo.BYSCRIPT)
    config, model = load_pt_model(judge, "AutoModelForSequenceClassification", None, ConfigModifier(1))
    results["fewer layers"] = [config.num_hidden_layers, len(model.bert.encoder.layer)]

    torch.manual_seed(2)
    decoder = GPT2Model(GPT2Config(vocab_size=60, n_embd=32, n_layer=1, n_head=4, n_positions=40)).eval()
    ids = torch.from_numpy(FEEDS["input_ids"])
    before = decoder(ids).last_hidden_state
    conv1d_to_linear(decoder)
    after = decoder(ids).last_hidden_state
    results["linear"] = [type(decoder.h[0].mlp.c_fc).__name__, torch.allclose(before, after, atol=1e-5)]

    layer = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 4)).eval()
    path = str(folder / "layer.onnx")
    torch_onnx_export(layer, (torch.ones(2, 8),), path, input_names=["x"], output_names=["y"], dynamic_axes={"x": {0: "n"}})
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8)
    results["layer"] = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0].tolist()
    QuantizeHelper.quantize_onnx_model(path, str(folder / "small.onnx"))
    rounded = onnxruntime.InferenceSession(str(folder / "small.onnx"), providers=["CPUExecutionProvider"])
    results["rounded"] = np.allclose(rounded.run(None, {"x": x})[0], results["layer"], atol=0.05)
    replace_torch_functions()
    is_replaced = torch.triu is triu_onnx
    restore_torch_functions()
    square = torch.arange(16.0).reshape(4, 4)
    results["triangle"] = [is_replaced, torch.triu is triu_onnx, triu_onnx(square, 1).tolist()]
print(json.dumps(results))
