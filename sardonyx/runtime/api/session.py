"""InferenceSession: what users hold. It finds the model and the providers, falls back where it is asked to, and runs.

The work is an `Engine`'s; a session can be given other providers, pickled and copied, which an engine cannot.
"""

from __future__ import annotations

import copy
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from sardonyx import settings
from sardonyx.errors import EPFail
from sardonyx.providers.prepacking import PackingCounts, PrepackedWeightsContainer
from sardonyx.runtime.api import arguments
from sardonyx.runtime.api.devices import OrtDevice, OrtDeviceVendorId, OrtEpDevice, OrtMemoryInfo
from sardonyx.runtime.api.iobinding import IOBinding
from sardonyx.runtime.api.metadata import ModelMetadata, NodeArg, OrtEpAssignedSubgraph
from sardonyx.runtime.api.options import RunOptions, SessionOptions
from sardonyx.runtime.api.raw_session import RawSession
from sardonyx.runtime.api.value import OrtValue, OrtValueVector
from sardonyx.runtime.execution.engine import Engine
from sardonyx.runtime.preparation.providers import CPU_PROVIDER, check_and_normalize_provider_args, get_available_providers
from sardonyx.startup.garbage import rarely_collected

if TYPE_CHECKING:
    from sardonyx.runtime.api.memory_report import MemoryReport
    from sardonyx.runtime.saving.remembered import Place

Providers = Sequence[str | tuple[str, Mapping[Any, Any]]]


class Session:
    """Runs a model; `InferenceSession` is how one is made."""

    _sess: RawSession | None

    def __init__(self, enable_fallback: bool = True):
        self._sess = None
        self._enable_fallback = enable_fallback

    @property
    def _engine(self) -> RawSession:
        if self._sess is None:
            raise RuntimeError("The session has no model; it failed to get one from set_providers. Call set_providers again.")
        return self._sess

    # --- what it is

    def get_session_options(self) -> SessionOptions:
        """A copy of the options that the session was made with."""
        return self._sess_options

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that must be fed, in the model's order."""
        return self._inputs_meta

    def get_outputs(self) -> list[NodeArg]:
        """The outputs in the model's order."""
        return self._outputs_meta

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Inputs with a default, which may be fed."""
        return self._overridable_initializers

    def get_modelmeta(self) -> ModelMetadata:
        """What the model's file says about itself."""
        return self._model_meta

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        """The memory of each input."""
        return self._engine.input_meminfos

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        """The memory of each output."""
        return self._engine.output_meminfos

    def get_input_epdevices(self) -> list[OrtEpDevice]:
        """The provider and device that each input goes to."""
        return self._engine.input_epdevices

    def get_providers(self) -> list[str]:
        """Names of the providers in the order in which they are asked."""
        return self._providers

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Options of each provider."""
        return self._provider_options

    def get_provider_graph_assignment_info(self) -> list[OrtEpAssignedSubgraph]:
        """Which provider got which nodes; "session.record_ep_graph_assignment_info" must be "1"."""
        return self._engine.get_provider_graph_assignment_info()

    def explain(self) -> str:
        """Who runs which nodes and why, and what the optimizer did: each rewrite applied, and each refused with its reason.

        After the first run it also says how much of the time was spent outside of machine code.
        """
        from sardonyx.runtime.api.explanation import explanation

        engine = self._engine.of_whole_model()
        return explanation(engine.plan, engine.journal, self._engine.shares)

    def prepacking_counts(self) -> PackingCounts:
        """How many weights were packed when the session was made, and how many were there already: shared, or with the model."""
        return copy.copy(self._engine.prepacking.counts)

    def memory_plan(self) -> MemoryReport:
        """Where each value of a run will lie and how much memory that takes; it prints as a table.

        `memory_plan().peak(N=8)` is the peak for a size, `.at(N=8)` the table with offsets, `.html()` and `.svg()` a picture of it.
        """
        from sardonyx.runtime.api.memory_report import MemoryReport

        return MemoryReport.of(self._engine.of_whole_model().plan)

    def set_providers(
        self, providers: Providers | None = None, provider_options: Sequence[Mapping[Any, Any]] | None = None
    ) -> None:
        """Prepare the model anew for other providers. If that fails, the session cannot run until it succeeds."""
        self._reset_session(providers, provider_options)

    def _reset_session(self, providers: Providers | None, provider_options: Sequence[Mapping[Any, Any]] | None) -> None:
        raise NotImplementedError("a bare Session has no model")

    def disable_fallback(self) -> None:
        """Let failures of providers be seen."""
        self._enable_fallback = False

    def enable_fallback(self) -> None:
        """Try again on the CPU when a provider fails."""
        self._enable_fallback = True

    # --- running

    def run(
        self, output_names: Iterable[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """Compute outputs.

        `output_names` may name any values of the main graph, also inner ones; None or nothing means the model's outputs. Arrays that
        come back are new, C-contiguous and writeable. bfloat16 and other types beyond NumPy's come back as ml_dtypes arrays.
        """
        engine = self._engine
        if engine.direct is not None and run_options is None and (output_names is None or output_names == engine.output_list):
            outputs = engine.direct(input_feed)
            if outputs is not None:
                return outputs
        self._require(engine, input_feed)
        names = None if output_names is None else _names("run", output_names)
        if run_options is not None and not isinstance(run_options, RunOptions):
            raise arguments.mismatch("run", "(output_names, input_feed, run_options: RunOptions)", run_options)
        try:
            return engine.compute(names or None, input_feed, run_options)
        except EPFail as error:
            if not self._enable_fallback:
                raise
            self._fall_back(error)
            return self._engine.compute(names or None, input_feed, run_options)

    def _require(self, engine: Engine, feed: Mapping[str, Any]) -> None:
        names = feed.keys()
        for name in engine.required_names:
            if name not in names:
                missing = [name for name in engine.required_names if name not in names]
                raise ValueError(f"Required inputs ({missing}) are missing from input feed ({list(names)}).")
        if not all(isinstance(name, str) for name in names):
            raise arguments.mismatch("run", "(output_names: Sequence[str], input_feed: Mapping[str, object])", feed)

    def _fall_back(self, error: Exception) -> None:
        sys.stdout.write(
            f"EP Error: {error} using {self._providers}\nFalling back to {self._fallback_providers} and retrying.\n"
        )
        self.set_providers(self._fallback_providers)
        self.disable_fallback()

    def run_async(
        self,
        output_names: Iterable[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], None],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Start a run; another thread calls `callback(results, user_data, error)`, where `error` is "" if all went well."""
        engine = self._engine
        self._require(engine, input_feed)
        names = [] if output_names is None else _names("run_async", output_names)
        engine.run_async(names, input_feed, callback, user_data, run_options)

    def run_with_ort_values(
        self,
        output_names: Iterable[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Compute outputs from and to OrtValues."""
        engine = self._engine
        self._require(engine, input_dict_ort_values)
        feeds = {name: value._get_c_value() for name, value in input_dict_ort_values.items()}
        names = [] if output_names is None else _names("run_with_ort_values", output_names)
        return list(engine.run_with_ort_values(feeds, names, run_options))

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Run with inputs and outputs bound before."""
        if iobinding._session is not self:
            raise ValueError("IOBinding must be used with the session that created it.")
        self._engine.run_with_iobinding(iobinding._iobinding, run_options)

    def run_with_ortvaluevector(
        self,
        run_options: RunOptions,
        feed_names: Sequence[str],
        feeds: OrtValueVector,
        fetch_names: Sequence[str],
        fetches: OrtValueVector,
        fetch_devices: Sequence[OrtDevice],
    ) -> None:
        """Run on vectors of OrtValues; results are added to `fetches`, or written into what is there."""
        self._engine.run_with_ortvaluevector(run_options, feed_names, feeds, fetch_names, fetches, fetch_devices)

    def io_binding(self) -> IOBinding:
        """An object to bind inputs and outputs with."""
        return IOBinding(self)

    # --- profiling, and what only devices need

    def end_profiling(self) -> str:
        """Stop profiling; returns the name of the trace's file, "" if there is none."""
        return self._engine.end_profiling()

    def get_profiling_start_time_ns(self) -> int:
        """When profiling began, 0 if it did not."""
        return self._profiling_start_time_ns

    def set_ep_dynamic_options(self, options: dict[str, str]) -> None:
        """Change options of providers that can change after a session is made; ours have none."""
        self._engine.set_ep_dynamic_options(options)

    def get_tuning_results(self) -> list[dict[str, Any]]:
        """What was found by tuning kernels; nothing here."""
        return self._engine.get_tuning_results()

    def set_tuning_results(self, results: list[dict[str, Any]], *, error_on_invalid: bool = False) -> None:
        """Use what was found by tuning kernels; nothing here does."""
        self._engine.set_tuning_results(results, error_on_invalid)

    def create_ortvalue_from_shape_and_type(
        self,
        shape: Sequence[int],
        element_type: Any,
        device_type: str,
        device_id: int = 0,
        vendor_id: int | OrtDeviceVendorId = -1,
    ) -> OrtValue:
        """A tensor in the memory of one of the session's devices."""
        device = OrtDevice.make(device_type, device_id, vendor_id)
        return self._engine.create_ortvalue_from_shape_and_type(shape, element_type, device)

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Release a graph that a device captured; the CPU captures none."""
        self._engine.release_captured_graph(graph_annotation_id)

    # set when a model is there; third-party code reads them
    _sess_options: SessionOptions
    _sess_options_initial: SessionOptions | None
    _inputs_meta: list[NodeArg]
    _outputs_meta: list[NodeArg]
    _overridable_initializers: list[NodeArg]
    _model_meta: ModelMetadata
    _providers: list[str]
    _provider_options: dict[str, dict[str, str]]
    _fallback_providers: list[str]
    _profiling_start_time_ns: int


class InferenceSession(Session):
    """A model, loaded and ready to run.

    `path_or_bytes` is a path or a serialized model; also an `onnx.ModelProto`, a bytearray, a memoryview or a binary file. Sessions
    that are given the same `prepacked_weights_container` hold equal packed weights once.
    """

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: SessionOptions | None = None,
        providers: Providers | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None,
        *,
        prepacked_weights_container: PrepackedWeightsContainer | None = None,
        **kwargs: Any,
    ):
        super().__init__(enable_fallback=bool(kwargs.get("enable_fallback", True)))
        self._model_path, self._model_bytes = _source(path_or_bytes)
        self._sess_options_initial = sess_options
        self._sess_options = sess_options if sess_options is not None else SessionOptions()
        self._read_config_from_model = settings.CONFIG_FROM_MODEL.is_on(os.environ)
        self._fallback_providers = [CPU_PROVIDER]
        disabled = kwargs.get("disabled_optimizers")
        self._disabled_optimizers = set() if disabled is None else set(disabled)
        if not isinstance(prepacked_weights_container, (PrepackedWeightsContainer, type(None))):
            wanted = "(…, prepacked_weights_container: PrepackedWeightsContainer)"
            raise arguments.mismatch("__init__", wanted, prepacked_weights_container)
        self._prepacked_weights_container = prepacked_weights_container
        try:
            self._create_inference_session(providers, provider_options)
        except (ValueError, RuntimeError) as error:
            if not self._enable_fallback:
                raise
            _announce_fallback(error, providers, self._fallback_providers)
            try:
                self._create_inference_session(self._fallback_providers, None)
            except Exception as second:
                raise second from error
            self.disable_fallback()

    def _create_inference_session(
        self, providers: Providers | None, provider_options: Sequence[Mapping[Any, Any]] | None
    ) -> None:
        options = self._sess_options
        names, normalized = check_and_normalize_provider_args(providers, provider_options, _available(providers))
        if isinstance(options, SessionOptions) and options.has_providers():
            if names:
                warnings.warn(
                    "Specified 'providers'/'provider_options' when creating InferenceSession but SessionOptions has already been "
                    "configured with providers. InferenceSession will only use the providers passed to InferenceSession().",
                    stacklevel=3,
                )
            else:
                names, normalized = (list(part) for part in zip(*options._providers, strict=True))
        self._requested_providers = list(zip(names, normalized, strict=True))
        model: Any = self._model_bytes if self._model_path is None else self._model_path
        with rarely_collected("sessions"):
            place = None if self._read_config_from_model else self._place(model)
            session = RawSession(options, model, self._model_path is not None, self._read_config_from_model, place)
            session.initialize_session(names, normalized, self._disabled_optimizers, self._prepacked_weights_container)
        self._adopt(session)

    def _place(self, model: Any) -> Place | None:
        """Where what earlier sessions made of the model may be, unless this session wants it made anew."""
        options = self._sess_options
        if not isinstance(options, SessionOptions) or self._prepacked_weights_container is not None:
            return None
        wanted = options._config.entries.get(settings.REMEMBER) or settings.REMEMBER_VARIABLE.of(os.environ)
        if wanted == "off":
            return None  # and what remembers need not be imported
        from sardonyx.runtime.saving.remembered import place_of

        return place_of(wanted, model, options, self._requested_providers, self._disabled_optimizers)

    def _adopt(self, engine: RawSession) -> None:
        self._sess = engine
        self._sess_options = engine.session_options
        self._inputs_meta = engine.inputs_meta
        self._outputs_meta = engine.outputs_meta
        self._overridable_initializers = engine.overridable_initializers
        self._model_meta = engine.model_meta
        self._providers = engine.get_providers()
        self._provider_options = engine.get_provider_options()
        self._profiling_start_time_ns = engine.get_profiling_start_time_ns

    def _reset_session(self, providers: Providers | None, provider_options: Sequence[Mapping[Any, Any]] | None) -> None:
        self._sess = None
        if self._sess_options_initial is not None:
            self._sess_options = self._sess_options_initial
        self._create_inference_session(providers, provider_options)

    # --- other processes

    def __copy__(self) -> Self:
        """Another session over the same engine."""
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied

    def __getstate__(self) -> dict[str, Any]:
        """What it takes to make the session again elsewhere: the model or its path, options, providers."""
        return {
            "model": self._model_bytes if self._model_path is None else os.path.abspath(self._model_path),
            "options": copy.copy(self._sess_options),
            "providers": self._requested_providers,
            "disabled_optimizers": self._disabled_optimizers,
            "enable_fallback": self._enable_fallback,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        InferenceSession.__init__(
            self,
            state["model"],
            state["options"],
            state["providers"],
            disabled_optimizers=state["disabled_optimizers"],
            enable_fallback=state["enable_fallback"],
        )


def _available(providers: Providers | None) -> list[str]:
    """Names that need no warning. Asking other packages for theirs takes time, so who wants the CPU alone is not kept waiting."""
    return [CPU_PROVIDER] if not providers or list(providers) == [CPU_PROVIDER] else get_available_providers()


def _source(source: Any) -> tuple[str | None, Any]:
    """(path, None) or (None, model): what a user may give for a model."""
    if isinstance(source, (str, os.PathLike)):
        if not os.fspath(source):
            raise TypeError("Unable to load from an empty path")
        return os.fspath(source), None
    if isinstance(source, bytes):
        return None, source
    if isinstance(source, (bytearray, memoryview)):
        return None, bytes(source)
    if hasattr(source, "SerializeToString") and hasattr(source, "graph"):
        return None, _serialized(source)
    if hasattr(source, "read"):
        return None, bytes(source.read())
    raise TypeError(f"Unable to load from type '{type(source)}'")


def _serialized(proto: Any) -> Any:
    """The bytes of a ModelProto; itself if it is too large to be one message."""
    try:
        return proto.SerializeToString()
    except Exception:
        return proto


def _names(function: str, output_names: Iterable[str]) -> list[str]:
    """Output names from a list, tuple, set or array of strings; a bare string is a mistake."""
    if isinstance(output_names, (Sequence, set, frozenset, np.ndarray)) and not isinstance(output_names, (str, bytes)):
        names = list(output_names)
        if all(isinstance(name, str) for name in names):
            return names
    raise arguments.mismatch(function, "(output_names: Sequence[str], …)", output_names)


def _announce_fallback(error: Exception, providers: Any, fallback: Sequence[str]) -> None:
    """The original writes this to stdout, and programs look for it there."""
    sys.stdout.write(
        "*************** EP Error ***************\n"
        f"EP Error {error} when using {providers}\n"
        f"Falling back to {fallback} and retrying.\n"
        "****************************************\n"
    )


def run(model: Any, feeds: Mapping[str, Any] | None = None, /, **inputs: Any) -> Any:
    """Run a model once: `run("model.onnx", x=array)`.

    Inputs whose names are no Python names go into `feeds`. Returns the output if there is one, else a dict of outputs by name. Whoever
    runs a model more than once should make an `InferenceSession` of it.
    """
    session = InferenceSession(model)
    outputs = session.run(None, {**(feeds or {}), **inputs})
    names = [output.name for output in session.get_outputs()]
    return outputs[0] if len(outputs) == 1 else dict(zip(names, outputs, strict=True))
