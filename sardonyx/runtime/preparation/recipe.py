"""Recipes: all that decides what becomes of a model. `prepare` follows them; sessions, saving and the command line write them.

Whoever prepares a session's model once more (other shapes, other outputs, weights that were let go of) derives a recipe from the first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx import settings
from sardonyx.errors import door
from sardonyx.formats.files import Files
from sardonyx.ir import Model
from sardonyx.providers.accuracy import Accuracy
from sardonyx.providers.prepacking import PrepackedWeightsContainer, Prepacking
from sardonyx.providers.provider import ExecutionProvider
from sardonyx.runtime.api.enums import GraphOptimizationLevel
from sardonyx.runtime.api.options import SessionOptions
from sardonyx.runtime.preparation.loading import load_model
from sardonyx.runtime.preparation.providers import CPU_PROVIDER, open_providers
from sardonyx.startup.records import dataclass, field, replace

if TYPE_CHECKING:
    from sardonyx.runtime.saving.contexts import Compiled

LARGEST_WEIGHTS = 64 << 20
"""A model of more bytes is not prepared a second time for some inputs: each plan has weights of its own."""
Shapes = Mapping[str, tuple[int, ...]]
Values = Mapping[str, np.ndarray]
"""Both by the names of inputs."""
ProviderList = Sequence[tuple[str, Mapping[str, str]]]
"""Names and options, as users list providers."""


@dataclass(frozen=True)
class Recipe:
    """Where a model comes from, how far it is optimized, what is fixed beforehand, and who computes it."""

    source: Any
    """A path, bytes or an `onnx.ModelProto`; None if the model cannot be loaded again."""
    options: SessionOptions
    providers: Sequence[ExecutionProvider] = ()
    """In the order in which they are asked."""
    files: Files | None = None
    """Files of the source that are open already."""
    optimizes: bool = True
    """Whether the model is optimized as far as the options say, or not at all."""
    disabled: frozenset[str] = frozenset()
    """Names of optimizations to leave out."""
    fixes_defaults: bool = False
    """Whether inputs with defaults become constants."""
    shapes: Shapes = field(default_factory=dict)
    """Shapes of inputs that are fixed."""
    values: Values = field(default_factory=dict)
    """Inputs that are fixed."""
    packing: Prepacking = field(default_factory=Prepacking)
    """What keeps packed weights."""
    supposes: bool = False
    """Whether the optimizer may suppose sizes, which whoever runs the model compares."""
    compiled: Compiled | None = None
    """The model's own machine code, if it was compiled ahead of time. It needs no optimizer."""

    def for_inputs(self, shapes: Shapes, values: Values) -> Recipe:
        """The recipe for inputs of these shapes and values alone. Weights are packed once more."""
        return replace(self, shapes=shapes, values=values, packing=self.packing.another(), supposes=False)

    def for_weights(self) -> Recipe:
        """The recipe that makes the optimized weights again, and runs nothing."""
        return replace(self, providers=(), packing=Prepacking())

    def as_loaded(self) -> Recipe:
        """All values of the model can be fetched: nothing is optimized, and NumPy computes node by node."""
        source = self.source if self.compiled is None else self.compiled.source()
        cpu = [provider for provider in self.providers if provider.name == CPU_PROVIDER]
        cpu = cpu or open_providers([CPU_PROVIDER], [{"native": "0"}])
        return Recipe(source, self.options, cpu, self.files, optimizes=False)


def open_recipe(
    source: Any,
    model: Model,
    options: SessionOptions,
    providers: ProviderList = (),
    *,
    files: Files | None = None,
    disabled: Collection[str] = (),
    container: PrepackedWeightsContainer | None = None,
    writes_context: bool = False,
    remembered: Compiled | None = None,
) -> tuple[Recipe, Model]:
    """The recipe of a session with these options and providers, and the loaded model that it begins with.

    That is `model`, or what `model` was compiled from if its machine code cannot be used. Packed weights are shared through `container`.
    `writes_context` says that the session will compile the model ahead of time, `remembered` that `model` is what an earlier one made of
    the source.
    """
    cpu_options = dict(providers).get(CPU_PROVIDER, {})
    with door("while compiled code is opened"):
        if remembered is not None:
            compiled, model = _open_remembered(remembered, source, options, cpu_options, files)
        else:
            compiled, source, model = _open_code(source, model, options, cpu_options, files, writes_context)
    recipe = Recipe(
        source,
        options,
        _open_providers(providers, options, compiled),
        files,
        disabled=frozenset(disabled),
        fixes_defaults=compiled is None and not writes_context and _may_fix_defaults(options),
        packing=_open_packing(options, container),
        supposes=compiled is None and not writes_context and _may_suppose(options, model),
        compiled=compiled,
    )
    return recipe, model


def _open_remembered(
    remembered: Compiled, source: Any, options: SessionOptions, cpu_options: Mapping[str, str], files: Files | None
) -> tuple[Compiled | None, Model]:
    """The machine code of an earlier session, or the model itself."""
    if remembered.open({**_cpu_defaults(options), **cpu_options}, files):
        return remembered, remembered.model
    return None, load_model(source, options, files)


def _open_code(
    source: Any,
    model: Model,
    options: SessionOptions,
    cpu_options: Mapping[str, str],
    files: Files | None,
    writes_context: bool,
) -> tuple[Compiled | None, Any, Model]:
    """The machine code in a model, or the model that it was compiled from."""
    if not any(node.op_type == "EPContext" for node in model.graph.all_nodes()):
        return None, source, model
    from sardonyx.runtime.saving.contexts import Compiled

    compiled = Compiled.of(model, options)
    if compiled is None:
        return None, source, model
    is_wanted = settings.NATIVE.is_on(cpu_options) and not writes_context
    if is_wanted and compiled.open({**_cpu_defaults(options), **cpu_options}, files):
        return compiled, source, model
    origin = compiled.source()
    return None, origin, load_model(origin, options, files)


def _open_providers(providers: ProviderList, options: SessionOptions, compiled: Compiled | None) -> list[ExecutionProvider]:
    opened = open_providers(
        [name for name, _ in providers],
        [provider_options for _, provider_options in providers],
        options.intra_op_num_threads,
        options._config.get(settings.ALLOW_SPINNING) != "0",
        _cpu_defaults(options),
        None if compiled is None else compiled.context,
    )
    cpu = next((provider for provider in opened if provider.name == CPU_PROVIDER), None)
    if options._custom_ops and cpu is not None:  # they are NumPy functions
        from sardonyx.runtime.api import custom_ops

        cpu.custom_kernels.append(custom_ops.kernel_table(options._custom_ops))
    return opened


def _cpu_defaults(options: SessionOptions) -> dict[str, str]:
    """Options of the CPU where the user gives none."""
    entries = options._config.entries
    accuracy = entries.get(settings.ACCURACY, "exact" if settings.WINOGRAD.of(entries) == "off" else None)
    defaults: dict[str, str] = {}
    if accuracy is not None:
        defaults[settings.CPU_ACCURACY] = str(Accuracy.read(accuracy, settings.ACCURACY))
    if options.use_deterministic_compute:
        defaults[settings.CPU_HURRY] = "0"
    return defaults


def _open_packing(options: SessionOptions, container: PrepackedWeightsContainer | None) -> Prepacking:
    """How a session packs weights, as its options say."""
    config = options._config
    is_beside = bool(options.optimized_model_filepath and config.get(settings.OPTIMIZED_MODEL_EXTERNAL_FILE))
    saving = is_beside and config.is_on(settings.SAVE_PREPACKED)
    return Prepacking(container, enabled=not config.is_on(settings.DISABLE_PREPACKING), recording=saving)


def _may_suppose(options: SessionOptions, model: Model) -> bool:
    """Whether sizes may be supposed: not if the model is written, or is too large to be prepared once more."""
    weights = sum(value.constant.nbytes for value in model.graph.initializers.values() if value.constant is not None)
    return (
        not options.optimized_model_filepath and weights <= LARGEST_WEIGHTS and options._config.is_on(settings.SUPPOSES_SIZES)
    )


def _may_fix_defaults(options: SessionOptions) -> bool:
    """Whether defaults may be constants: not if the model is written with all its inputs, or nothing is optimized anyway."""
    is_left_alone = options.graph_optimization_level == GraphOptimizationLevel.ORT_DISABLE_ALL
    return not (
        options.optimized_model_filepath or is_left_alone or options._config.get(settings.DEFAULTS_ARE_CONSTANTS) == "0"
    )
