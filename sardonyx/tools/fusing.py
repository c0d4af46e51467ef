"""Our optimizer on messages of the onnx package: whole levels, or chosen stages and rules, which onnxruntime has as classes."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import onnx
from onnx import ModelProto

from sardonyx import formats
from sardonyx.ir import edit
from sardonyx.optimizer.levels import LEVELS
from sardonyx.optimizer.pipeline import Level
from sardonyx.optimizer.rewrite import Rule, apply_rules
from sardonyx.runtime.preparation import opsets
from sardonyx.runtime.saving import files as saving
from sardonyx.tools.external_files import save_beside

DATA = "model.data"
REMOVE_UNUSED = "RemoveUnused"
"""The stage without which fusions leave nodes that nobody reads."""


def optimized(
    model: ModelProto,
    level: Level,
    disabled: Collection[str] = (),
    switches: Mapping[str, str] | None = None,
    rules: Sequence[Rule] = (),
) -> ModelProto:
    """A model as a session of this level has it, for any CPU; `rules` are applied behind what the level does."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "source.onnx", Path(folder) / "target.onnx"
        save_beside(model, source, "source.data")
        loaded = saving.load_savable(source, level, disabled={*saving.HARDWARE_BOUND, *disabled}, settings=switches)
        if apply_rules(loaded, rules):
            edit.remove_unused(loaded.graph)
            opsets.align(loaded.graph.nodes, loaded.opsets)
        formats.save(loaded, target, DATA)
        return onnx.load(str(target))


def fused(
    model: ModelProto, stages: Collection[str], switches: Mapping[str, str] | None = None, rules: Sequence[Rule] = ()
) -> ModelProto:
    """A model behind some stages of the extended level and some rules, and behind nothing else."""
    others = {stage.name for stages_of_level in LEVELS.values() for stage in stages_of_level} - {*stages, REMOVE_UNUSED}
    return optimized(model, Level.EXTENDED, others, switches, rules)
