"""SessionOptions and RunOptions: what a user may set for a session and for one run.

Types are checked when a value is set, meaning when a session is made: some settings belong to providers or to later versions and are kept
as they are.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar, overload

from sardonyx.errors import Fail, InvalidArgument
from sardonyx.runtime.api import arguments
from sardonyx.runtime.api.configuration import Configuration
from sardonyx.runtime.api.devices import OrtEpDevice, get_ep_devices
from sardonyx.runtime.api.enums import ExecutionMode, ExecutionOrder, GraphOptimizationLevel, OrtExecutionProviderDevicePolicy
from sardonyx.runtime.api.value import OrtValue
from sardonyx.runtime.preparation import providers

T = TypeVar("T")


class Option(Generic[T]):
    """A typed property of an options object."""

    def __init__(self, default: T, convert: Callable[[Any], T], doc: str):
        self.default = default
        self.convert = convert
        self.__doc__ = doc

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Option[T]: ...
    @overload
    def __get__(self, instance: Any, owner: type) -> T: ...
    def __get__(self, instance: Any, owner: type) -> Option[T] | T:
        return self if instance is None else instance._values.get(self.name, self.default)

    def __set__(self, instance: Any, value: T) -> None:
        instance._values[self.name] = self.convert(value)

    def __delete__(self, instance: Any) -> None:
        raise AttributeError(f"property of '{type(instance).__name__}' object has no deleter")


class StopOption(Option[bool]):
    """A property that generated code reads too, while it runs."""

    def __set__(self, instance: Any, value: bool) -> None:
        super().__set__(instance, value)
        instance._stop.value = int(instance._values[self.name])


def _member(kind: type[T]) -> Callable[[Any], T]:
    """Conversion that takes members of an enum only."""

    def convert(value: Any) -> T:
        if not isinstance(value, kind):
            raise arguments.mismatch("", f"(value: {kind.__name__})", value)
        return value

    return convert


class RunOptions:
    """Options of one run, or of several: they are read while the run goes on, so another thread may set `terminate`."""

    __slots__ = ("_values", "_config", "_adapters", "_stop", "__weakref__")

    log_severity_level = Option(-1, arguments.integer, "0 verbose … 4 fatal; -1 means the session's.")
    log_verbosity_level = Option(0, arguments.integer, "How verbose messages of severity 0 are.")
    logid = Option("", arguments.text, "Shown in the log lines of the run.")
    terminate = StopOption(False, arguments.boolean, "Makes runs with these options stop as soon as they can.")
    only_execute_path_to_fetches = Option(False, arguments.boolean, "Skip what the fetched outputs do not need.")

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._config = Configuration("RunOptions")
        self._adapters: list[Any] = []
        self._stop = ctypes.c_int64(0)
        """`terminate`, where native code sees it."""

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Set a string setting."""
        self._config.add("add_run_config_entry", key, value)

    def get_run_config_entry(self, key: str) -> str:
        """The value of a setting; RuntimeError if it was not set."""
        return self._config.require("get_run_config_entry", key)

    def add_active_adapter(self, adapter: Any) -> None:
        """Let the parameters of a `LoraAdapter` take the place of inputs. Of two with the same name the one added first counts."""
        if adapter is not None and not isinstance(getattr(adapter, "_parameters", None), dict):
            raise arguments.mismatch("add_active_adapter", "(adapter: LoraAdapter)", adapter)
        self._adapters += [] if adapter is None else [adapter]

    def _adapted(self) -> dict[str, Any]:
        """Inputs that adapters give."""
        return {name: value for adapter in reversed(self._adapters) for name, value in adapter._parameters.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (RunOptions, {"_values": self._values, "_config": self._config, "_adapters": self._adapters})


class SessionOptions:
    """Options of a session. A session copies them when it is made."""

    __slots__ = (
        "_values",
        "_config",
        "_dims_by_name",
        "_dims_by_denotation",
        "_initializers",
        "_external_initializers",
        "_external_files",
        "_providers",
        "_custom_ops",
        "_cancelled",
        "_context_reader",
        "__weakref__",
    )

    enable_cpu_mem_arena = Option(True, arguments.boolean, "Keep freed memory for later runs.")
    enable_mem_pattern = Option(True, arguments.boolean, "Plan memory of later runs from the first.")
    enable_mem_reuse = Option(True, arguments.boolean, "Let values share memory that are not alive together.")
    enable_profiling = Option(False, arguments.boolean, "Write a trace of all runs.")
    profile_file_prefix = Option("onnxruntime_profile_", arguments.text, "How the trace's file name begins.")
    optimized_model_filepath = Option("", arguments.text, "Where to write the model as it will run.")
    logid = Option("", arguments.text, "Shown in the session's log lines.")
    log_severity_level = Option(-1, arguments.integer, "0 verbose … 4 fatal; -1 means the default logger's.")
    log_verbosity_level = Option(0, arguments.integer, "How verbose messages of severity 0 are.")
    use_per_session_threads = Option(True, arguments.boolean, "Own threads instead of the global pools.")
    intra_op_num_threads = Option(0, arguments.integer, "Threads inside an op; 0 lets us choose.")
    inter_op_num_threads = Option(0, arguments.integer, "Threads across ops; 0 lets us choose.")
    execution_mode = Option(ExecutionMode.ORT_SEQUENTIAL, _member(ExecutionMode), "Sequential or parallel.")
    execution_order = Option(ExecutionOrder.DEFAULT, _member(ExecutionOrder), "Which topological order.")
    graph_optimization_level = Option(
        GraphOptimizationLevel.ORT_ENABLE_ALL, _member(GraphOptimizationLevel), "How far the graph is rewritten."
    )
    use_deterministic_compute = Option(False, arguments.boolean, "Prefer kernels whose results never vary.")

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._config = Configuration("SessionOptions")
        self._dims_by_name: dict[str, int] = {}
        self._dims_by_denotation: dict[str, int] = {}
        self._initializers: dict[str, Any] = {}
        self._external_initializers: dict[str, Any] = {}
        self._external_files: dict[str, memoryview] = {}
        self._providers: list[tuple[str, dict[str, str]]] = []
        self._custom_ops: list[Any] = []
        self._cancelled = False
        self._context_reader: tuple[Callable[..., None], int] | None = None

    # --- settings by key

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Set a string setting."""
        self._config.add("add_session_config_entry", key, value)

    def get_session_config_entry(self, key: str) -> str:
        """The value of a setting; RuntimeError if it was not set."""
        return self._config.require("get_session_config_entry", key)

    # --- the model's free dimensions and constants

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Fix a symbolic dimension of the model's inputs."""
        function = "add_free_dimension_override_by_name"
        self._dims_by_name[arguments.text(name, function)] = arguments.integer(size, function, bits=64)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Fix the dimensions that the model marks with a denotation such as DATA_BATCH."""
        function = "add_free_dimension_override_by_denotation"
        self._dims_by_denotation[arguments.text(denotation, function)] = arguments.integer(size, function, bits=64)

    def add_initializer(self, name: str, value: Any) -> None:
        """Use the data of an OrtValue for an initializer, without a copy. Names that the model lacks are ignored."""
        name = arguments.text(name, "add_initializer")
        if not isinstance(value, OrtValue):
            raise RuntimeError("The provided Python object must be an OrtValue")
        _add_once(self._initializers, name, value)

    def add_external_initializers(self, names: Sequence[str], values: Sequence[Any]) -> None:
        """Supply initializers that the model stores in other files."""
        if not isinstance(names, list) or not isinstance(values, list):
            raise arguments.mismatch("add_external_initializers", "(names: list, values: list)", names, values)
        if len(names) != len(values):
            raise RuntimeError("Expecting names and ort_values lists to have equal length")
        for name, value in zip(names, values, strict=True):
            _add_once(self._external_initializers, arguments.text(name, "add_external_initializers"), value._ortvalue)

    def add_external_initializers_from_files_in_memory(
        self, names: Sequence[str], buffers: Sequence[Any], lengths: Sequence[int]
    ) -> None:
        """Supply the content of files of external data."""
        if not len(names) == len(buffers) == len(lengths):
            raise RuntimeError("add_external_initializers_from_files_in_memory() expects lists of equal length")
        for name, buffer, length in zip(names, buffers, lengths, strict=True):
            self._external_files[name] = memoryview(buffer).cast("B")[:length]

    # --- providers

    def add_provider(self, name: str, options: Mapping[str, str]) -> None:
        """Have sessions use a provider, after those added before."""
        name, checked = arguments.text(name, "add_provider"), arguments.texts(options, "add_provider")
        if name not in providers.get_available_providers():
            if name not in providers.get_all_providers():
                raise RuntimeError(f"Unknown Provider Type: {name}")
            raise InvalidArgument(
                f"Failed to add provider of type '{name}' to SessionOptions. Provider configuration is not supported."
            )
        self._providers.append((name, checked))

    def add_provider_for_devices(self, ep_devices: Sequence[Any], options: Mapping[str, str]) -> None:
        """Have sessions use the provider of these devices."""
        if not all(isinstance(device, OrtEpDevice) for device in ep_devices):
            raise arguments.mismatch("add_provider_for_devices", "(devices: Sequence[OrtEpDevice], options: dict)", ep_devices)
        names = {device.ep_name for device in ep_devices}
        if len(names) != 1:
            raise InvalidArgument(
                "Invalid EP devices: all must belong to one execution provider, and there must be one at least."
            )
        self.add_provider(names.pop(), options)

    def has_providers(self) -> bool:
        """Whether a provider was added."""
        return bool(self._providers)

    def set_provider_selection_policy(self, policy: OrtExecutionProviderDevicePolicy) -> None:
        """Let devices be chosen by a policy; with the CPU as the only device all choose it."""
        _member(OrtExecutionProviderDevicePolicy)(policy)

    def set_provider_selection_policy_delegate(self, delegate: Callable[..., Sequence[Any]]) -> None:
        """Let a function choose among the devices that there are; it is asked at once."""
        chosen = delegate(get_ep_devices(), {}, {}, 8)
        for name in dict.fromkeys(device.ep_name for device in chosen):
            self.add_provider(name, {})

    # --- the rest

    def register_custom_op(self, op: Any) -> None:
        """Let sessions made with these options, and no others, know an op made with `@sardonyx.custom_op`."""
        from sardonyx.runtime.api import custom_ops

        custom_ops.add_once(self._custom_ops, op)

    def _knows_custom_ops(self) -> contextlib.AbstractContextManager[None]:
        """Lets the ops of these options be found while a model is prepared."""
        if not self._custom_ops:
            return contextlib.nullcontext()
        from sardonyx.runtime.api import custom_ops

        return custom_ops.known(self._custom_ops)

    def register_custom_ops_library(self, path: str) -> None:
        """Load custom ops from a shared library. Libraries for the original's C interface cannot be used here."""
        path = arguments.text(path, "register_custom_ops_library")
        reason = (
            "it is written for the C interface of onnxruntime; write the ops in Python (sardonyx.custom_op) and use register_custom_op"
            if os.path.exists(path)
            else f"{path}: cannot open shared object file: No such file or directory"
        )
        raise Fail(f"Failed to load library {path} with error: {reason}")

    def set_load_cancellation_flag(self, cancel: bool) -> None:
        """Make sessions that are being created with these options give up."""
        self._cancelled = arguments.boolean(cancel, "set_load_cancellation_flag")

    def set_ep_context_data_read_func(self, read_func: Callable[..., None], max_data_size: int) -> None:
        """Have compiled data that a model keeps elsewhere come from a function.

        It is called with the data's name and an `OrtEpContextDataBuffer`, allocates that once, at most `max_data_size` bytes, and
        writes the data into it.
        """
        if not callable(read_func):
            raise arguments.mismatch("set_ep_context_data_read_func", "(read_func: Callable, max_data_size: int)", read_func)
        self._context_reader = read_func, arguments.integer(max_data_size, "set_ep_context_data_read_func", bits=64)

    def clear_ep_context_data_read_func(self) -> None:
        """Undo `set_ep_context_data_read_func`."""
        self._context_reader = None

    def __copy__(self) -> SessionOptions:
        copied = SessionOptions()
        for name, value in self._state().items():
            setattr(copied, name, value)
        return copied

    def _state(self) -> dict[str, Any]:
        """Everything set so far, in containers of its own."""
        values = {name: getattr(self, name) for name in self.__slots__ if name != "__weakref__"}
        return {name: _own(value) for name, value in values.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        state = self._state()
        state["_external_files"] = {name: bytes(data) for name, data in self._external_files.items()}  # views cannot be pickled
        return _restored, (SessionOptions, state)


def _own(value: Any) -> Any:
    """A container of its own with the same content."""
    if isinstance(value, Configuration):
        return Configuration(value.owner, value.entries)
    return type(value)(value) if isinstance(value, (dict, list)) else value


def _restored(kind: type, state: dict[str, Any]) -> Any:
    restored = kind()
    for name, value in state.items():
        setattr(restored, name, value)
    return restored


def _add_once(table: dict[str, Any], name: str, value: Any) -> None:
    if name in table:
        raise RuntimeError(f"An OrtValue for this name has already been added: {name}")
    table[name] = value
