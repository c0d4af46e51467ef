"""ModelCompiler: a model compiled ahead of time, under the names that the original has for it; `sardonyx compile` goes this way, too."""

from __future__ import annotations

import copy
import functools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sardonyx import ir
from sardonyx.errors import Fail, InvalidArgument
from sardonyx.providers.native.aot.writing import Written
from sardonyx.runtime.api import arguments
from sardonyx.runtime.api.context_data import OrtEpContextData, WriteContextData
from sardonyx.runtime.api.enums import GraphOptimizationLevel, OrtCompileApiFlags
from sardonyx.runtime.api.metadata import OrtExternalInitializerInfo
from sardonyx.runtime.api.options import SessionOptions
from sardonyx.runtime.api.raw_session import RawSession
from sardonyx.runtime.api.value import OrtValue
from sardonyx.runtime.saving import contexts

LocateInitializer = Callable[[str, OrtValue, OrtExternalInitializerInfo | None], OrtExternalInitializerInfo | None]
"""Takes an initializer's name, its value and where its data was; says where that is now, None for in the model."""
CHUNK = 1 << 20
"""How many bytes `compile_to_stream` hands over at once."""


def make_get_initializer_location_func_wrapper(get_initializer_location_func: LocateInitializer) -> LocateInitializer:
    """The function itself: values need no wrapping here."""
    return get_initializer_location_func


class ModelCompiler:
    """Compiles a model for the providers of some session options.

    Unlike in the original the level of optimization is by default that of the session options: what is compiled is then as fast as
    what a session compiles.
    """

    def __init__(
        self,
        sess_options: SessionOptions,
        input_model_path_or_bytes: str | os.PathLike[str] | bytes,
        embed_compiled_data_into_model: bool = False,
        external_initializers_file_path: str | os.PathLike[str] | None = None,
        external_initializers_size_threshold: int = 1024,
        flags: int = OrtCompileApiFlags.NONE,
        graph_optimization_level: GraphOptimizationLevel | None = None,
        get_initializer_location_func: LocateInitializer | None = None,
    ):
        self._source = _checked_source(input_model_path_or_bytes)
        if get_initializer_location_func is not None:
            if external_initializers_file_path:
                raise ValueError(
                    "Cannot initialize ModelCompiler with both `external_initializers_file_path` and `get_initializer_location_func`"
                )
            if not callable(get_initializer_location_func):
                raise arguments.mismatch(
                    "__init__", "(…, get_initializer_location_func: Callable)", get_initializer_location_func
                )
        if not isinstance(sess_options, SessionOptions):
            raise arguments.mismatch("__init__", "ModelCompiler(sess_options: SessionOptions, …)", sess_options)
        self._options = copy.copy(sess_options)
        if graph_optimization_level is not None:
            self._options.graph_optimization_level = graph_optimization_level
        self._embed = bool(embed_compiled_data_into_model)
        self._external = os.fspath(external_initializers_file_path) if external_initializers_file_path else None
        self._locate = get_initializer_location_func
        self._threshold = arguments.integer(external_initializers_size_threshold, "__init__", bits=64)
        self._flags = int(flags)
        self._write: WriteContextData | None = None

    def set_ep_context_data_write_func(self, write_func: Callable[[str, OrtEpContextData], None]) -> None:
        """Have compiled data that is not in the model handed to a function, with the name by which the model calls it."""
        if not callable(write_func):
            raise arguments.mismatch("set_ep_context_data_write_func", "(write_func: Callable)", write_func)
        self._write = write_func

    def clear_ep_context_data_write_func(self) -> None:
        """Have compiled data written beside the model again."""
        self._write = None

    def compile_to_file(self, output_model_path: str | os.PathLike[str] | None = None) -> None:
        """Write the compiled model to a file, by default beside the model: `model_ctx.onnx` for `model.onnx`."""
        if output_model_path is None:
            if not isinstance(self._source, str):
                raise InvalidArgument("Output model path must not be empty.")
            path = contexts.default_path(Path(self._source))
        elif not isinstance(output_model_path, (str, os.PathLike)):
            raise TypeError(f"Output model's filepath is of unexpected type '{type(output_model_path)}'")
        elif not os.fspath(output_model_path):
            raise InvalidArgument("Output model path must not be empty.")
        else:
            path = Path(output_model_path)
        if self._flags & OrtCompileApiFlags.ERROR_IF_OUTPUT_FILE_EXISTS and path.exists():
            raise Fail(
                f"Failed to generate EP context model since the file '{path}' exists already. Please remove the EP context model if "
                "you want to re-generate it."
            )
        self.compile(path)

    def compile(self, path: Path) -> Written:
        """Write the compiled model to a file, and say what that took. Our own."""
        from sardonyx.runtime.saving import files as saving

        saving.check_names(os.fspath(path))
        return self._compile(path, self._embed)

    def compile_to_bytes(self) -> bytes:
        """The compiled model. Compiled data is in it, unless a function takes that."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model_ctx.onnx"
            self._compile(path, self._write is None)
            return path.read_bytes()

    def compile_to_stream(self, write_function: Callable[[bytes], None]) -> None:
        """Hand the compiled model to a function, piece by piece."""
        if not callable(write_function):
            raise arguments.mismatch("compile_to_stream", "(write_function: Callable)", write_function)
        model = memoryview(self.compile_to_bytes())
        for start in range(0, len(model), CHUNK):
            try:
                write_function(bytes(model[start : start + CHUNK]))
            except Exception as error:
                raise Fail(f"{type(error).__name__}: {error}") from error  # as the original tells it

    def _compile(self, path: Path, embed: bool) -> Written:
        session = RawSession(self._options, self._source, isinstance(self._source, str))
        session.compile_to = contexts.ContextFile(
            path,
            embed=embed,
            external_data=self._external,
            size_threshold=self._threshold,
            required=bool(self._flags & OrtCompileApiFlags.ERROR_IF_NO_NODES_COMPILED),
            write=self._write,
            place=None if self._locate is None else functools.partial(_place, self._locate),
        )
        names, options = zip(*self._options._providers, strict=True) if self._options._providers else ((), ())
        session.initialize_session(list(names), list(options))
        assert session.written is not None
        return session.written


def _place(locate: LocateInitializer, tensor: ir.Tensor, name: str) -> ir.ExternalLocation | None:
    """Where a function of the user's says that it has put the data of an initializer; None leaves it in the model."""
    known = tensor.external
    before = None if known is None else OrtExternalInitializerInfo(known.location, known.offset, known.length or tensor.nbytes)
    info = locate(name, OrtValue.ortvalue_from_numpy(tensor.numpy()), before)
    if info is None:
        return None
    if info.byte_size != tensor.nbytes:
        raise InvalidArgument(f"{name} takes {tensor.nbytes} bytes, its place was said to have {info.byte_size}.")
    return ir.ExternalLocation(info.filepath, info.file_offset, info.byte_size)


def _checked_source(source: Any) -> str | bytes:
    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        if not path:
            raise ValueError("Input model path is empty")
        if not os.path.exists(path):
            raise InvalidArgument(f"Input model path does not exist: {path}")
        return path
    if isinstance(source, bytes):
        if not source:
            raise ValueError("Input model bytes array is empty")
        return source
    raise TypeError(f"Unable to load from type '{type(source)}'")
