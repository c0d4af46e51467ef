"""Optimized copies of pipelines: each model by its type, the rest as it is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import TensorProto, numpy_helper

from sardonyx.transformers.models.stable_diffusion import optimize_pipeline

GELU = """
<ir_version: 8, opset_import: ["": 17]>
block (float[batch, 8] x) => (float[batch, 8] y) <float two = {1.41421356}, float one = {1}, float half = {0.5}> {
    wide = MatMul(x, w)
    divided = Div(wide, two)
    error = Erf(divided)
    raised = Add(error, one)
    product = Mul(wide, raised)
    y = Mul(product, half)
}"""
FEEDS = np.linspace(-2, 2, 24, dtype=np.float32).reshape(3, 8)


def model(seed: int) -> onnx.ModelProto:
    made = onnx.parser.parse_model(GELU)
    weights = np.random.default_rng(seed).normal(size=(8, 8)).astype(np.float32) / 3
    made.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return made


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    for seed, name in enumerate(("unet", "vae_decoder", "text_encoder")):
        (folder / name).mkdir(parents=True)
        options = {"save_as_external_data": True, "location": "weights.pb", "size_threshold": 0} if name == "unet" else {}
        onnx.save_model(model(seed), str(folder / name / "model.onnx"), **options)
        (folder / name / "config.json").write_text(json.dumps({"name": name}))
    (folder / "tokenizer").mkdir()
    (folder / "tokenizer" / "vocab.txt").write_text("words")
    (folder / "model_index.json").write_text("{}")
    return folder


def results(path: Path, element: type = np.float32) -> np.ndarray:
    return onnxruntime.InferenceSession(str(path)).run(None, {"x": FEEDS.astype(element)})[0]


@pytest.mark.parametrize("words", [[], ["--inspect"], ["-e"], ["--float16"]])
def test_models_are_fused_and_the_rest_is_copied(source, tmp_path, words):
    target = tmp_path / "target"
    optimize_pipeline.main(["-i", str(source), "-o", str(target), *words])
    names = {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()}
    external = {"unet"} | ({"vae_decoder", "text_encoder"} if "-e" in words else set())
    wanted = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file() and path.name != "weights.pb"}
    assert names - wanted <= {f"{folder}/model.onnx.data" for folder in external} and wanted <= names
    for folder in ("unet", "vae_decoder", "text_encoder"):
        made = onnx.load(target / folder / "model.onnx")
        assert {node.op_type for node in made.graph.node} & {"Gelu", "BiasGelu"}, folder
        is_half = "--float16" in words
        assert made.graph.input[0].type.tensor_type.elem_type == (TensorProto.FLOAT16 if is_half else TensorProto.FLOAT)
        got = results(target / folder / "model.onnx", np.float16 if is_half else np.float32)
        tolerance = 2e-2 if is_half else 1e-5
        np.testing.assert_allclose(got, results(source / folder / "model.onnx"), rtol=tolerance, atol=tolerance)


def test_ops_stay_in_float32(source, tmp_path):
    words = ["-i", str(source), "-o", str(tmp_path / "t"), "--float16", "--force_fp32_ops", "unet:MatMul"]
    optimize_pipeline.main(words)
    types = {
        folder: {tensor.data_type for tensor in onnx.load(tmp_path / "t" / folder / "model.onnx").graph.initializer}
        for folder in ("unet", "vae_decoder")
    }
    assert TensorProto.FLOAT in types["unet"] and TensorProto.FLOAT not in types["vae_decoder"]
    with pytest.raises(ValueError, match="with a folder of unet, vae_decoder, text_encoder"):
        optimize_pipeline.main([*words[:3], str(tmp_path / "other"), "--force_fp32_ops", "encoder:MatMul"])


def test_folders_are_not_emptied_unasked(source, tmp_path):
    target = tmp_path / "target"
    target.mkdir()
    (target / "mine.txt").write_text("mine")
    with pytest.raises(RuntimeError, match="is not empty"):
        optimize_pipeline.main(["-i", str(source), "-o", str(target)])
    assert (target / "mine.txt").exists()
    optimize_pipeline.main(["-i", str(source), "-o", str(target), "--overwrite"])
    assert not (target / "mine.txt").exists() and (target / "unet" / "model.onnx").exists()
    for folder in (source, source.parent):
        with pytest.raises(RuntimeError, match="own folder"):
            optimize_pipeline.main(["-i", str(source), "-o", str(folder), "--overwrite"])
    assert (source / "unet" / "model.onnx").exists()
    with pytest.raises(RuntimeError, match="has none of unet/model.onnx"):
        optimize_pipeline.main(["-i", str(source / "tokenizer"), "-o", str(tmp_path / "none")])


@pytest.mark.parametrize(
    ("folders", "kinds"),
    [
        (("unet", "text_encoder"), (False, False, False)),
        (("unet", "text_encoder_2"), (True, False, False)),
        (("transformer", "text_encoder_2", "text_encoder_3"), (False, True, False)),
        (("transformer", "text_encoder_2"), (False, False, True)),
    ],
)
def test_kinds_of_pipelines(tmp_path, folders, kinds):
    for folder in folders:
        (tmp_path / folder).mkdir()
    asked = (optimize_pipeline.is_sdxl, optimize_pipeline.is_sd_3, optimize_pipeline.is_flux)
    assert tuple(ask(tmp_path) for ask in asked) == kinds
