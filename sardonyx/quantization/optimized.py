"""A model through sardonyx's own optimizer, written back as ONNX. Pre-processing calls it."""

from __future__ import annotations

from pathlib import Path

from onnx import ModelProto, helper

from sardonyx.runtime.api.enums import GraphOptimizationLevel
from sardonyx.runtime.api.options import SessionOptions
from sardonyx.runtime.api.session import InferenceSession
from sardonyx.settings import OPTIMIZED_MODEL_EXTERNAL_FILE


def optimize_model(model_path: Path, opt_model_path: Path) -> None:
    """Write the model with constants folded and nodes fused that a quantized model would otherwise stumble over."""
    options = SessionOptions()
    options.optimized_model_filepath = Path(opt_model_path).as_posix()
    options.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.add_session_config_entry(OPTIMIZED_MODEL_EXTERNAL_FILE, f"{Path(opt_model_path).name}.data")
    InferenceSession(Path(model_path).as_posix(), options, providers=["CPUExecutionProvider"])


KNOWN_DOMAINS = {
    "ai.onnx.ml": 5,
    "ai.onnx.preview": 1,
    "ai.onnx.preview.training": 1,
    "ai.onnx.training": 1,
    "com.microsoft": 1,
    "com.microsoft.experimental": 1,
    "com.microsoft.nchwc": 1,
    "org.pytorch.aten": 1,
}
"""What a model that onnxruntime has optimized imports, whether it uses it or not."""


def import_known_domains(model: ModelProto) -> None:
    """Import the domains that tools behind pre-processing expect to find."""
    present = {opset.domain for opset in model.opset_import}
    for domain, version in KNOWN_DOMAINS.items():
        if domain not in present:
            model.opset_import.append(helper.make_opsetid(domain, version))
