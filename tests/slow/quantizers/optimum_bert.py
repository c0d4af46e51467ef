"""optimum's ORTQuantizer, dynamic and static, on a small BERT that is made here. Run by test_quantizers.py.

What is printed: how many nodes of each op the quantized models have, and what they compute.
"""

import collections
import json
import os
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from datasets import Dataset
from optimum.onnxruntime import ORTQuantizer
from optimum.onnxruntime.configuration import AutoCalibrationConfig, AutoQuantizationConfig
from transformers import BertConfig, BertForSequenceClassification

FOLDER = Path(sys.argv[-1])
NAMES = ["input_ids", "attention_mask", "token_type_ids"]


def exported():
    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=120,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        attn_implementation="eager",
    )
    network = BertForSequenceClassification(config).eval()
    operands = tuple(torch.ones(1, 7, dtype=torch.int64) for _ in NAMES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network,
            operands,
            str(FOLDER / "model.onnx"),
            input_names=NAMES,
            output_names=["logits"],
            dynamic_axes={name: {0: "batch", 1: "length"} for name in NAMES},
            dynamo=False,
        )
    config.save_pretrained(FOLDER)


def sentences(count):
    rng = np.random.default_rng(5)
    ids = rng.integers(1, 120, (count, 9))
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}


def summary(path):
    model = onnx.load(path)
    counts = collections.Counter(node.op_type for node in model.graph.node)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return {"ops": dict(sorted(counts.items())), "logits": session.run(None, sentences(3))[0].tolist()}


def main():
    torch.set_num_threads(1)
    os.chdir(FOLDER)  # calibration leaves a model there
    exported()
    results = {}
    quantizer = ORTQuantizer.from_pretrained(FOLDER, file_name="model.onnx")
    dynamic = AutoQuantizationConfig.avx512_vnni(is_static=False, per_channel=False)
    quantizer.quantize(save_dir=FOLDER / "dynamic", quantization_config=dynamic)
    results["dynamic"] = summary(FOLDER / "dynamic" / "model_quantized.onnx")
    static = AutoQuantizationConfig.avx512_vnni(is_static=True, per_channel=False)
    dataset = Dataset.from_dict({name: array.tolist() for name, array in sentences(16).items()})
    calibration = AutoCalibrationConfig.minmax(dataset)
    ranges = quantizer.fit(dataset=dataset, calibration_config=calibration, operators_to_quantize=static.operators_to_quantize)
    quantizer.quantize(save_dir=FOLDER / "static", quantization_config=static, calibration_tensors_range=ranges)
    results["static"] = summary(FOLDER / "static" / "model_quantized.onnx")
    print(json.dumps(results))


main()
