"""The sessions of commands: their options, and the model of one at any stage of its preparation."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.cli.terminal import FATAL
from sardonyx.optimizer.pipeline import Level
from sardonyx.runtime.api import log
from sardonyx.runtime.api.enums import GraphOptimizationLevel
from sardonyx.runtime.api.options import SessionOptions
from sardonyx.runtime.preparation.loading import load_model, open_files
from sardonyx.runtime.preparation.prepare import Prepared, prepare
from sardonyx.runtime.preparation.providers import CPU_PROVIDER
from sardonyx.runtime.preparation.recipe import open_recipe

LEVELS = {
    "disable": Level.DISABLE_ALL,
    "basic": Level.BASIC,
    "extended": Level.EXTENDED,
    "layout": Level.LAYOUT,
    "all": Level.ALL,
}


def session_options(level: str) -> SessionOptions:
    """Options of a session that optimizes so far, and leaves it to the command to say what goes wrong."""
    options = SessionOptions()
    options.log_severity_level = FATAL
    options.graph_optimization_level = GraphOptimizationLevel(int(LEVELS[level]))
    return options


def prepared(model: str, upto: str, options: SessionOptions, providers: Sequence[str] = (), *, native: bool = True) -> Prepared:
    """A model as a session with these options and providers has it after a stage; `native` is the CPU's option."""
    cpu = {"native": "1" if native else "0"}
    with log.scope(options.logid, options.log_severity_level):
        files = open_files(options)
        loaded = load_model(model, options, files)
        requested = [*((name, {}) for name in providers), (CPU_PROVIDER, cpu)]
        recipe, loaded = open_recipe(model, loaded, options, requested, files=files)
        return prepare(Prepared(recipe, loaded), upto)
