"""One model of a directory of models at every level of optimization; test_corpus.py starts it as a process per model.

python -m tests.optimizer.corpus DIRECTORY NAME prints {"problems": [...], "ops": {...}} as JSON: where a level's outputs differ from
those without optimization, and how many nodes of each op are left at the highest level.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from sardonyx import formats, ops
from sardonyx.ir import Model, edit, verify
from sardonyx.optimizer.pipeline import Level, run_level
from sardonyx.optimizer.rewrite import Journal
from sardonyx.optimizer.rewriting import Rewriting
from sardonyx.providers.cpu.provider import CPUExecutionProvider, evaluate
from sardonyx.runtime.api.metadata import NodeArg
from sardonyx.runtime.execution.executor import execute
from sardonyx.runtime.preparation.expand import expand_functions
from sardonyx.runtime.preparation.plan import make_plan
from tests.slow import closeness
from tests.slow.corpus import catalogue
from tests.slow.model_inputs import make_inputs, variant_count

RECOGNIZED = {
    "bert_base": {"MultiHeadAttention": 12, "SkipLayerNormalization": 24, "BiasGelu": 12},
    "distilbert": {"MultiHeadAttention": 6, "SkipLayerNormalization": 12, "BiasGelu": 6},
    "minilm": {"MultiHeadAttention": 6, "SkipLayerNormalization": 12, "BiasGelu": 6},
    "vit_b16": {"MultiHeadAttention": 12, "SkipLayerNormalization": 24, "BiasGelu": 12},
    "gpt2_tiny": {"MultiHeadAttention": 4, "SkipLayerNormalization": 8, "FastGelu": 4},
    "llama_small": {
        "MultiHeadAttention": 6,
        "RotaryEmbedding": 12,
        "SkipSimplifiedLayerNormalization": 12,
        "SimplifiedLayerNormalization": 1,
        "QuickGelu": 6,
    },
    "whisper_tiny_enc": {"MultiHeadAttention": 4, "SkipLayerNormalization": 8, "BiasGelu": 4, "Gelu": 2},
}
"""How many nodes the attention, normalizations and activations of a model become."""
ROUNDING = 1e-5
"""How far outputs of these models may move, relative to their largest magnitude. Weights that took over a normalization are rounded anew,
which moves those of convolutional networks a little further."""

OPTIONS = {"int8": {"session.disable_quant_qdq": "1"}}
"""By family. Integers in place of floats round elsewhere and near ties go another way, as in onnxruntime: tests/slow compares with that,
here such units stay as they are."""


def load(path: Path) -> Model:
    model = formats.load(path)
    edit.inline_functions(model)
    ops.infer(model, evaluate)
    return model


def run(model: Model, feeds: list[dict[str, Any]]) -> list[Any]:
    """The outputs of all feeds; ops without a kernel are expanded in a copy."""
    model = edit.clone_model(model)
    providers = [CPUExecutionProvider()]
    expand_functions(model, providers)
    plan = make_plan(model.graph, providers)
    return [output for feed in feeds for output in execute(plan, dict(feed))]


def compare(directory: Path, name: str) -> dict[str, Any]:
    """What each level changes of the outputs."""
    entry = catalogue(directory)[name]
    family, model = entry["family"], load(directory / entry["file"])
    declared = [NodeArg._of(value) for value in model.graph.inputs if value.constant is None]
    feeds = [make_inputs(declared, name.split(".")[0], family, variant) for variant in range(variant_count(declared))]
    names = [value.name for value in model.graph.outputs] * len(feeds)
    expected = run(model, feeds)
    rewriting = Rewriting(model, evaluate, OPTIONS.get(family, {}), Journal(strict=True))
    problems = []
    for level in Level:
        run_level(level, rewriting)
        verify.verify(model)
        got = run(model, feeds)
        problems += [f"{level.name}: {text}" for text in differences(names, got, expected, family, name in RECOGNIZED)]
    return {"problems": problems, "ops": Counter(node.op_type for node in model.graph.all_nodes())}


def differences(names: list[str], got: list[Any], expected: list[Any], family: str, precise: bool) -> list[str]:
    problems = closeness.disagreements(names, got, expected, closeness.for_family(family))
    if not precise:
        return problems
    for name, one, other in zip(names, got, expected, strict=True):
        if isinstance(other, np.ndarray) and other.dtype == np.float32 and other.size and one.shape == other.shape:
            moved = np.abs(np.nan_to_num(one) - np.nan_to_num(other)).max() / max(np.abs(np.nan_to_num(other)).max(), 1e-30)
            if moved > ROUNDING:
                problems.append(f"{name}: moved by {moved:.1e} of its magnitude")
    return problems


if __name__ == "__main__":
    print(json.dumps(compare(Path(sys.argv[1]), sys.argv[2])))
