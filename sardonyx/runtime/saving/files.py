"""Models into files, as sessions and the command line save them: `.onnx`, or the ORT format with all that it asks for beside the graph.

An ORT file is taken as it is by who loads it, so everything that a session would do to an `.onnx` model before it looks for kernels is
done here: functions are inlined, types inferred, and what onnxruntime computes in other words only is put into these.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from sardonyx import settings
from sardonyx.errors import Fail, InvalidArgument
from sardonyx.formats.onnx.saving import save as save_onnx
from sardonyx.formats.ort import writer
from sardonyx.formats.ort.derived import Definition
from sardonyx.ir import Attribute, Graph, Model, Node, SavedOptimizations, edit
from sardonyx.ops import checking, schemas
from sardonyx.ops.signatures import Signature
from sardonyx.optimizer.pipeline import Level
from sardonyx.providers.cpu.provider import CPUExecutionProvider
from sardonyx.providers.matching import SCHEMAS, OpId
from sardonyx.runtime.api.enums import GraphOptimizationLevel
from sardonyx.runtime.api.options import SessionOptions
from sardonyx.runtime.preparation import opsets
from sardonyx.runtime.preparation.expand import expand_functions
from sardonyx.runtime.preparation.prepare import Prepared, prepare
from sardonyx.runtime.preparation.providers import CPU_PROVIDER
from sardonyx.runtime.preparation.recipe import Recipe
from sardonyx.runtime.saving.portable import make_portable
from sardonyx.startup.records import dataclass

logger = logging.getLogger("sardonyx.runtime")

ProviderOf = Callable[[Node], str]
HARDWARE_BOUND = frozenset({"NchwcTransformer"})
"""What makes a model faster on one kind of CPU and useless on others."""


def is_ort_path(path: str | os.PathLike[str], entries: Mapping[str, str]) -> bool:
    """Whether a model that is saved at `path` is to be in the ORT format; the setting counts more than the name."""
    format = settings.SAVE_MODEL_FORMAT.of(entries)
    return bool(path) and (format == "ORT" if format else os.fspath(path).lower().endswith(".ort"))


def save_as_run(prepared: Prepared) -> None:
    """Write a session's model as it will run, where and how its options say; in the ORT format with what is compiled still as nodes."""
    with prepared.recipe.options._knows_custom_ops():
        _save_as_run(prepared)


def _save_as_run(prepared: Prepared) -> None:
    model, options, packing = prepared.model, prepared.recipe.options, prepared.recipe.packing
    config, path = options._config, options.optimized_model_filepath
    if is_ort_path(path, config.entries):
        if config.is_on(settings.SAVE_PREPACKED):
            logger.warning("An ORT format model has no pre-packed weights beside it; %s is ignored.", settings.SAVE_PREPACKED)
        providers = {node: step.provider.public_name for step in prepared.steps() for node in step.nodes}
        _save_ort_as_run(model, path, options, lambda node: providers.get(node, CPU_PROVIDER))
        return
    external = config.get(settings.OPTIMIZED_MODEL_EXTERNAL_FILE) or None
    if not opsets.is_aligned(model.graph.all_nodes(), model.opsets):
        model = edit.clone_model(model)  # the session goes on with its own
        opsets.align(model.graph.nodes, model.opsets)
    smallest = config.size(settings.OPTIMIZED_MODEL_EXTERNAL_MIN_SIZE)
    check_names(path, *([external] if external else []))
    try:
        save_onnx(model, path, external, smallest, packing.packed_weights_of)
    except OSError as error:
        raise InvalidArgument(f"SystemError : {error.errno} ({os.fspath(path)}: {error.strerror})") from error


def check_names(*names: str) -> None:
    """Refuse what no file can be called; what Python raises for it does not say which name is meant."""
    for name in names:
        if "\0" in name or not Path(name).name:
            raise InvalidArgument(f"{name!r} is no name of a file")


def _save_ort_as_run(model: Model, path: str, options: SessionOptions, provider: ProviderOf) -> None:
    check_names(path)
    try:
        save_ort(
            model,
            path,
            portable=options._config.get(settings.SAVE_PORTABLE_ORT) != "0",
            fold=int(options.graph_optimization_level) > Level.DISABLE_ALL,
            provider=provider,
        )
    except OSError as error:
        raise Fail(f"Failed to save ORT format model to file: {path}: {error.strerror}") from error


def save_ort(
    model: Model,
    path: str | os.PathLike[str],
    *,
    portable: bool = True,
    fold: bool = True,
    provider: ProviderOf = lambda node: CPU_PROVIDER,
) -> None:
    """Write a typed model, which stays as it is, in the ORT format; see `as_saved`."""
    as_saved(model, portable=portable, fold=fold, provider=provider).write(path)


def as_saved(
    model: Model, *, portable: bool = True, fold: bool = True, provider: ProviderOf = lambda node: CPU_PROVIDER
) -> Savable:
    """A copy of a typed model as an ORT file holds it.

    `portable` puts what onnxruntime's CPU has no kernel for into other words, `fold` lets it store weights in the type in which they
    are used, `provider` says who computes a node.
    """
    copy = _Copy(model)
    providers = {copy.nodes[node]: provider(node) for node in model.graph.all_nodes()}
    opsets.align(copy.model.graph.nodes, copy.model.opsets)
    if portable:
        make_portable(copy.model, fold=fold)
    return Savable(copy.model, providers)


@dataclass(frozen=True)
class Savable:
    """A model that can be written as it is, and who computes its nodes."""

    model: Model
    providers: Mapping[Node, str]

    def write(self, path: str | os.PathLike[str]) -> None:
        writer.save_model(self.model, path, KnownOps(self.model), self._provider)

    def encoded(self) -> bytearray:
        return writer.write_model(self.model, KnownOps(self.model), self._provider)

    def _provider(self, node: Node) -> str:
        return self.providers.get(node, CPU_PROVIDER)


def load_savable(
    source: str | os.PathLike[str],
    level: Level,
    *,
    disabled: Collection[str] = (),
    settings: Mapping[str, str] | None = None,
) -> Model:
    """The model of a file, as far as a session takes it before it looks for kernels. One in the ORT format has come so far."""
    return _savable(_saving_recipe(source, level, disabled, settings))


def make_savable(model: Model, level: Level, *, settings: Mapping[str, str] | None = None) -> None:
    """Take a model that was loaded as far as `load_savable` does."""
    _savable(Prepared(_saving_recipe(None, level, (), settings), model))


def _saving_recipe(source: Any, level: Level, disabled: Collection[str], settings: Mapping[str, str] | None) -> Recipe:
    options = SessionOptions()
    options.graph_optimization_level = GraphOptimizationLevel(int(level))
    options._config.entries.update(settings or {})
    return Recipe(source, options, [CPUExecutionProvider()], disabled=frozenset(disabled))


def _savable(begun: Recipe | Prepared) -> Model:
    prepared = prepare(begun, upto="optimize")
    expand_functions(prepared.model, prepared.recipe.providers)
    opsets.align(prepared.model.graph.nodes, prepared.model.opsets)
    return prepared.model


class _Copy:
    """A copy of a model, and which nodes of it stand for which of the original."""

    def __init__(self, model: Model):
        self.model = edit.clone_model(model)
        self.nodes = dict(zip(model.graph.all_nodes(), self.model.graph.all_nodes(), strict=True))
        graphs = dict(zip(edit.all_graphs(model.graph), edit.all_graphs(self.model.graph), strict=True))
        self.model.stored_types = model.stored_types
        self.model.saved_optimizations = [
            self._records(saved, graphs) for saved in model.saved_optimizations if saved.graph in graphs
        ]

    def _records(self, saved: SavedOptimizations, graphs: Mapping[Graph, Graph]) -> SavedOptimizations:
        nodes = {number: self.nodes[node] for number, node in saved.nodes.items() if node in self.nodes}
        return SavedOptimizations(graphs[saved.graph], nodes, saved.by_optimizer)


# --- what an op is, for files


class KnownOps:
    """Tells of nodes of `model` what their ops are: by their signatures, or by what the file said from which the model came."""

    def __init__(self, model: Model):
        self._opsets = model.opsets
        self._stored = model.stored_types or {}

    def of(self, node: Node) -> Definition:
        signature = schemas.find(node.domain, node.op_type, node.version)
        if signature is not None:
            _check_version(node, signature, self._opsets)
            return _definition(signature)
        strings = self._stored.get(f"{node.domain}:{node.op_type}:{node.version}")
        if strings is None:
            checking.signature_of(node)  # raises, and says what is not known
        return Definition(node.domain, node.op_type, node.version, strings or {})

    def of_id(self, op_id: str) -> Definition | None:
        op = OpId.parse(op_id)
        signature = schemas.versions(op.domain, op.name).get(op.since_version)
        if signature is not None:
            return _definition(signature)
        strings = self._stored.get(op_id)
        return None if strings is None else Definition(*op, strings)


def _definition(signature: Signature) -> Definition:
    defaults = {
        attribute.name: Attribute(attribute.kind, attribute.default)
        for attribute in signature.attributes.values()
        if attribute.default is not None
    }
    return Definition(signature.domain, signature.name, signature.since_version, SCHEMAS.of(signature), defaults)


def _check_version(node: Node, signature: Signature, opsets: Mapping[str, int]) -> None:
    """A full build finds a node's op by the version that the model imports, so a node of another one is refused if they differ."""
    version = opsets.get(node.domain, node.version)
    imported = schemas.find(node.domain, node.op_type, version)
    if imported is not None and imported.since_version != signature.since_version:
        raise Fail(
            f"{node} is written for opset {node.version} of domain '{node.domain or 'ai.onnx'}', the model imports {version}, "
            "and the op differs between the two."
        )
