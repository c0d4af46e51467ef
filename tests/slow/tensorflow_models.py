"""Loads, exports, measures and converts tiny models of TensorFlow with random weights: python tensorflow_models.py FOLDER.

Prints how far files and converted modules are from TensorFlow or from the weights that were written, and the rows of measurements.
"""

import json
import os
import sys
import zipfile
from pathlib import Path

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # which the models of the transformers package are made of
import numpy as np
import tensorflow
import torch
import transformers as hub

import sardonyx
from sardonyx.transformers import benchmark, convert_tf_models_to_pytorch, onnx_exporter
from sardonyx.transformers.benchmark_helper import ConfigModifier, OptimizerInfo, Precision

folder = Path(sys.argv[1])
os.chdir(folder)
SIZES = {"vocab_size": 50, "num_attention_heads": 2, "num_hidden_layers": 2, "max_position_embeddings": 16}
BERT = hub.BertConfig(**SIZES, hidden_size=20, intermediate_size=24)
GPT = hub.GPT2Config(vocab_size=50, n_embd=20, n_layer=2, n_head=2, n_positions=16)
results = {"differences": {}}

for name, model in (("bert", hub.TFBertModel(BERT)), ("gpt2", hub.TFGPT2Model(GPT))):
    model.build_in_name_scope()
    model.save_pretrained(folder / name)

sizes = ["-s", "4", "8", "64", "-t", "2", "-v", "-i", "1", "2", "-f", "fused.csv", "-d", "details.csv", "-r", "summary.csv"]
engines = ["-e", "onnxruntime", "tensorflow", "--model_source", "tf"]
rows = benchmark.main(["-m", str(folder / "bert"), str(folder / "gpt2"), *engines, *sizes])
results["rows"] = [(row["engine"], Path(row["model_name"]).name, row["inputs"], row["sequence_length"]) for row in rows]

for name, inputs in (("bert", ["input_ids", "attention_mask", "token_type_ids"]), ("gpt2", ["input_ids"])):
    how = [ConfigModifier(None), None, str(folder / "files"), inputs, False, Precision.FLOAT32, OptimizerInfo.BYSCRIPT]
    exported = onnx_exporter.export_onnx_model_from_tf(
        str(folder / name), 16, False, name, "AutoModel", *how, True, False, True, {}, None
    )
    path, is_valid, *_ = exported
    assert is_valid, name
    _, model = onnx_exporter.load_tf_model(str(folder / name), "AutoModel", None, ConfigModifier(None))
    words = {key: np.full((3, 5), value, np.int32) for key, value in zip(inputs, (7, 1, 1))}
    words["input_ids"] += np.arange(15, dtype=np.int32).reshape(3, 5)
    wanted = onnx_exporter.update_flatten_list(model(words, training=False), [])
    got = sardonyx.InferenceSession(path).run(None, words)
    pairs = zip(got, (value.numpy() for value in wanted), strict=True)
    results["differences"][name] = max(float(np.abs(mine - other).max()) for mine, other in pairs)

twice = benchmark.run_with_tf_optimizations(do_eager_mode=False, use_xla=True)(lambda x: x * 2)
results["differences"]["xla"] = float(np.abs(twice(tensorflow.constant([1.5])).numpy() - 3).max())

# a checkpoint as the first version of TensorFlow wrote them, packed as they are published
module = hub.BertForPreTraining(BERT).eval()
NAMES = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta", "layer.": "layer_"}
NAMES |= {f"{kind}_embeddings.weight": f"{kind}_embeddings" for kind in ("word", "position", "token_type")}
NAMES |= {"cls.predictions.bias": "cls.predictions.output_bias", "seq_relationship.": "seq_relationship.output_"}
NAMES["output_weight"] = "output_weights"
graph = tensorflow.Graph()
with graph.as_default():
    for name, weight in module.state_dict().items():
        if name in ("bert.embeddings.position_ids", "cls.predictions.decoder.weight", "cls.predictions.decoder.bias"):
            continue
        for old, new in NAMES.items():
            name = name.replace(old, new)
        if name.endswith(".weight"):
            name, weight = name.replace(".weight", ".kernel"), weight.T
        tensorflow.compat.v1.get_variable(name.replace(".", "/"), initializer=weight.numpy())
    with tensorflow.compat.v1.Session(graph=graph) as session:
        session.run(tensorflow.compat.v1.global_variables_initializer())
        tensorflow.compat.v1.train.Saver().save(session, str(folder / "written" / "bert_model.ckpt"), write_meta_graph=False)
BERT.to_json_file(folder / "written" / "bert_config.json")
with zipfile.ZipFile(folder / "bert.zip", "w") as archive:
    for path in (folder / "written").iterdir():
        archive.write(path, f"uncased/{path.name}")
entry = ("Bert", "bert", (folder / "bert.zip").as_uri())
convert_tf_models_to_pytorch.TFMODELS["tiny"] = entry
config, converted = onnx_exporter.load_pt_model_from_tf("tiny")
words = torch.arange(10)[None]
with torch.no_grad():
    pairs = zip(converted(words)[:2], module(words)[:2], strict=True)
    results["differences"]["checkpoint"] = max(float((mine - other).abs().max()) for mine, other in pairs)
module.save_pretrained(folder / "tiny")
convert_tf_models_to_pytorch.TFMODELS = {"tiny": entry}
results["differences"]["pipeline"] = convert_tf_models_to_pytorch.tf2pt_pipeline_test()["tiny"]
print(json.dumps(results))
