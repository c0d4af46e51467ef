"""RawSession: a session under the names that the original's raw session has. It loads a model, prepares it and then runs as its engine.

`InferenceSession` holds one in `_sess`, and replaces it by a new one when it gets other providers.
"""

from __future__ import annotations

import copy
import functools
import logging
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sardonyx import settings
from sardonyx.errors import CODED, ModelLoadCanceled, door, is_strict
from sardonyx.formats import mapping
from sardonyx.providers.prepacking import PrepackedWeightsContainer
from sardonyx.runtime.api import arguments, patience
from sardonyx.runtime.api.devices import OrtDevice
from sardonyx.runtime.api.metadata import ModelMetadata, NodeArg
from sardonyx.runtime.api.options import SessionOptions
from sardonyx.runtime.api.profile import Profiler
from sardonyx.runtime.api.value import OrtValue
from sardonyx.runtime.execution.engine import Engine
from sardonyx.runtime.preparation import demands
from sardonyx.runtime.preparation.alternatives import Alternatives
from sardonyx.runtime.preparation.loading import load_model, open_files, options_from_model
from sardonyx.runtime.preparation.originals import Originals
from sardonyx.runtime.preparation.prepare import Prepared, prepare
from sardonyx.runtime.preparation.recipe import ProviderList, open_recipe

if TYPE_CHECKING:
    from sardonyx.providers.native.aot.writing import Written
    from sardonyx.runtime.saving.contexts import ContextFile
    from sardonyx.runtime.saving.remembered import Place

logger = logging.getLogger("sardonyx.runtime")


class RawSession(Engine):
    """A model that is loaded at once, and ready to run after `initialize_session`."""

    inputs_meta: list[NodeArg]
    outputs_meta: list[NodeArg]
    overridable_initializers: list[NodeArg]
    model_meta: ModelMetadata
    session_options: SessionOptions

    def __init__(
        self,
        options: SessionOptions,
        model: Any,
        from_file: bool = False,
        read_config: bool = False,
        place: Place | None = None,
    ):
        """`place` is where an earlier session may have left what it made of the model."""
        if not isinstance(options, SessionOptions):
            raise arguments.mismatch("__init__", "InferenceSession(options: SessionOptions, model, from_file: bool)", options)
        self._cancelled: Callable[[], bool] = lambda: options._cancelled  # another thread sets it on the caller's object
        self.session_options = copy.copy(options)
        demands.check_options(options)
        self._profiler = self._open_profiler()
        with self._scope(), self._event("model_loading_uri" if from_file else "model_loading_array"):
            self._check_cancelled()
            self._source = model
            self._files = open_files(self.session_options)
            self._place, self._remembered = place, None if place is None else place.find(self.session_options)
            with door("while the model is loaded"):
                self._model = (
                    self._remembered.model if self._remembered else load_model(model, self.session_options, self._files)
                )
            self._model.holds_all = True  # as this session does
            if read_config:
                options_from_model(self._model, self.session_options)
                self._profiler = self._profiler or self._open_profiler()
        self.compile_to: ContextFile | None = None
        """Where the compiled form of the model is to be written, if the configuration does not say so."""
        self.written: Written | None = None

    def _open_profiler(self) -> Profiler | None:
        if not self.session_options.enable_profiling:
            return None
        profiler = Profiler(self.session_options.profile_file_prefix)
        weakref.finalize(self, profiler.finish)
        return profiler

    def _check_cancelled(self) -> None:
        if self._cancelled():
            raise ModelLoadCanceled("Graph loading canceled due to user request.")

    def initialize_session(
        self,
        providers: Sequence[str] = (),
        provider_options: Sequence[Mapping[str, str]] = (),
        disabled_optimizers: Collection[str] = (),
        prepacked_weights_container: PrepackedWeightsContainer | None = None,
    ) -> None:
        """Prepare the model for providers, asked in this order, CPU last.

        `disabled_optimizers` names rewrites to leave out; packed weights are shared through `prepacked_weights_container`.
        """
        requested = list(zip(providers, provider_options or [{}] * len(providers), strict=True))
        try:
            self._initialize(requested, disabled_optimizers, prepacked_weights_container)
        except CODED as error:
            if self._remembered is None or is_strict() or self._cancelled():
                raise
            logger.warning("What was remembered of the model cannot be used, so it is prepared anew: %s", error)
            with door("while the model is loaded"):
                self._remembered, self._model = None, load_model(self._source, self.session_options, self._files)
            self._initialize(requested, disabled_optimizers, prepacked_weights_container)

    def _initialize(
        self,
        requested: Sequence[tuple[str, Mapping[str, str]]],
        disabled_optimizers: Collection[str],
        prepacked_weights_container: PrepackedWeightsContainer | None,
    ) -> None:
        providers = [name for name, _ in requested]
        with (
            self._scope(),
            self._event("session_initialization"),
            patience.shown("compiling the model; later sessions are quick"),
        ):
            logger.info("Initializing session.")
            self._check_cancelled()
            recipe, model = open_recipe(
                self._source,
                self._model,
                self.session_options,
                requested,
                files=self._files,
                disabled=disabled_optimizers,
                container=prepacked_weights_container,
                writes_context=self._writes_context,
                remembered=self._remembered,
            )
            model.holds_all = True  # this session, then its plan, hold it
            demands.check_fallback(self.session_options._config, providers)
            with door("while the model is prepared"):
                prepared = self._prepared(Prepared(recipe, model))
                demands.name_idle_providers(prepared)
                make_engine = functools.partial(_another, requested, prepared.recipe.disabled)
                self.take(prepared, Alternatives(prepared.recipe, make_engine))
            self._check_cancelled()
            logger.info("Session successfully initialized.")

    def _prepared(self, loaded: Prepared) -> Prepared:
        """The model as it will run. It is written where that is asked for, then what runs do not need is let go of."""
        if loaded.recipe.compiled is not None:
            prepared = prepare(loaded)
            demands.refuse_cpu(prepared)
            demands.refuse_numpy(prepared)
            return prepared
        optimized = prepare(loaded, upto="optimize")
        originals = Originals(optimized)
        mapping.give_back_pages()  # what was folded into other weights is not read again
        prepared = prepare(optimized)
        mapping.give_back_pages()
        demands.refuse_cpu(prepared)
        demands.refuse_numpy(prepared)
        demands.refuse_compiling(prepared)
        self._write(prepared)
        release = functools.partial(originals.release, prepared)
        if self._place is None:
            release()
        else:
            self._place.keep(prepared, release)
        return prepared

    @property
    def _writes_context(self) -> bool:
        return self.compile_to is not None or self.session_options._config.is_on(settings.EP_CONTEXT_ENABLE)

    def _write(self, prepared: Prepared) -> None:
        """Write the model as it will run, and with what was compiled of it, if that is asked for."""
        if self.session_options.optimized_model_filepath:
            from sardonyx.runtime.saving import files as saving

            saving.save_as_run(prepared)
            mapping.give_back_pages()
        if self._writes_context:
            from sardonyx.runtime.saving import contexts

            self.written = contexts.write(prepared, self.compile_to)

    def create_ortvalue_from_shape_and_type(self, shape: Sequence[int], element_type: Any, device: OrtDevice) -> OrtValue:
        """A tensor in the memory of one of the session's devices; `element_type` is one of NumPy or a number of ONNX."""
        if device.device_type() != OrtDevice.cpu():
            raise RuntimeError(f"No session allocator found for {device!r}")
        return OrtValue.ortvalue_from_shape_and_type(shape, element_type)

    create_ortvalue_from_shape_and_onnx_type = create_ortvalue_from_shape_and_type

    def is_webgpu_graph_capture_enabled(self) -> bool:
        """False: no step runs on WebGPU."""
        return False

    def webgpu_context_id(self) -> int:
        """-1, which is what sessions have that do not use WebGPU."""
        return -1


def _another(providers: ProviderList, disabled: Collection[str], options: SessionOptions, source: Any) -> RawSession:
    """A session of another source for the same providers."""
    session = RawSession(options, source)
    session.initialize_session(
        [name for name, _ in providers], [provider_options for _, provider_options in providers], disabled
    )
    return session
