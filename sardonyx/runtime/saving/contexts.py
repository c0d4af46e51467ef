"""Context models in sessions: whether the code in one is used, where its source is if not, and how one is written.

Machine code out of a file can do anything, so it is run only if the caller says that the file is trusted.
"""

from __future__ import annotations

import copy
import functools
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sardonyx import __version__, formats, settings
from sardonyx.errors import Fail, InvalidArgument
from sardonyx.formats.files import Files
from sardonyx.formats.onnx.external import ExternalFolder
from sardonyx.ir import ExternalLocation, Model, Node, Tensor, TensorType
from sardonyx.providers.accuracy import Accuracy
from sardonyx.providers.native.aot.opening import Context, ReadData, Refused, context_nodes, main_node, open_context
from sardonyx.providers.native.aot.provider import SourceNeeded
from sardonyx.providers.native.execution.compiled import CompiledProgram
from sardonyx.runtime.api.configuration import Configuration
from sardonyx.runtime.api.context_data import OrtEpContextData, OrtEpContextDataBuffer
from sardonyx.startup.records import dataclass

if TYPE_CHECKING:
    from sardonyx.providers.native.aot.writing import Written
    from sardonyx.runtime.api.context_data import ReadContextData, WriteContextData
    from sardonyx.runtime.api.options import SessionOptions
    from sardonyx.runtime.preparation.defaults import Defaults
    from sardonyx.runtime.preparation.prepare import Prepared
    from sardonyx.runtime.preparation.suppositions import Suppositions


logger = logging.getLogger("sardonyx.runtime")

MAX_KEPT_SOURCE = 1 << 29
"""How many bytes of a source go into its compiled model, which holds the weights once more and must stay below 2 GiB."""


class Compiled:
    """A model with contexts of ours: the nodes, and the file that it was compiled from."""

    stands_in = False
    """Whether the user gave the source, and knows nothing of the code."""
    shown: Mapping[str, list[int | str | None]] = {}
    """Shapes of inputs and outputs as sessions of the source show them, where they are known."""
    defaults: Defaults | None = None
    """Inputs of the source that are constants of the code."""
    suppositions: Suppositions | None = None
    """What must be true of a run, for the code to be right."""

    def __init__(self, model: Model, nodes: Sequence[Node], options: SessionOptions):
        self.model = model
        self.nodes = nodes
        self.config = options._config
        self._read = options._context_reader
        self.context: Context | None = None
        """The code, once it is open."""
        self.refusal = ""
        """Why the code is not used, if it is not."""

    @classmethod
    def of(cls, model: Model, options: SessionOptions) -> Compiled | None:
        """None for a model without contexts of ours."""
        nodes = context_nodes(model)
        return cls(model, nodes, options) if nodes else None

    def open(self, options: Mapping[str, str], files: Files | None) -> bool:
        """Open the code, to be run with these options of the provider; if it cannot be used, a line in the log says why."""
        if not self._is_trusted():
            self._say(
                f"its machine code is not trusted. If you know where the file comes from, set {settings.ALLOW_COMPILED_CODE} "
                f"(or the environment variable {settings.ALLOW_COMPILED_CODE_VARIABLE}) to 1"
            )
            return False
        try:
            read = self._reader()
            verify = self.config.is_on(settings.VERIFY_COMPILED_CONSTANTS)
            context = open_context(self.model, self.nodes, self._folder, files=files, read=read, verify=verify)
            _check_options(context, options)
            for node in self.nodes:
                _declare(node, context.programs[node.attribute("partition_name")].output_types)
        except Refused as error:
            self._say(str(error))
            return False
        self.context = context
        return True

    def _is_trusted(self) -> bool:
        return self.config.is_on(settings.ALLOW_COMPILED_CODE) or settings.ALLOW_COMPILED_CODE_VARIABLE.is_on(os.environ)

    def _reader(self) -> ReadData | None:
        """What gives the payload, if it is neither in the model nor in a file beside it."""
        return None if self._read is None else functools.partial(_read_data, *self._read)

    @property
    def _folder(self) -> Path | None:
        path = self.config.get(settings.EP_CONTEXT_FILE_PATH)
        return self.model.folder if self.model.path is not None or not path else Path(path).parent

    @property
    def _name(self) -> str:
        return str(self.model.path or "The model")

    def _say(self, reason: str) -> None:
        self.refusal = reason
        logger.warning("%s: the compiled code is not used: %s. The model is compiled anew from its source.", self._name, reason)

    def say_recompiled(self, error: BaseException) -> None:
        """Say that data came which the code does not take."""
        source = self.source()
        name = "The model inside of it" if isinstance(source, bytes) else source
        logger.warning("%s. %s is compiled for that.", error.__cause__, name)

    def source(self) -> Any:
        """The model that this one was compiled from: the path, or the bytes that it keeps of it.

        Raises `Fail` if a file is not there, or not what it was.
        """
        try:
            node = main_node(self.nodes)
        except Refused as error:
            raise Fail(f"{self._name} cannot be compiled anew: {error}.") from error
        configured, name = (
            self.config.get(settings.EP_CONTEXT_SOURCE_MODEL_PATH),
            str(node.attribute("onnx_model_filename", "")),
        )
        kept = node.attribute("__source_model", b"")
        if kept and not configured:
            return kept
        path = configured or self._beside(name)
        refusal = f" The compiled code is not used: {self.refusal}." if self.refusal else ""
        way_out = f"Compile it here with 'sardonyx compile', or name the source with {settings.EP_CONTEXT_SOURCE_MODEL_PATH}."
        if not path or not os.path.isfile(path):
            where = f"'{configured or name}', is not there" if configured or name else "is not known"
            raise Fail(f"{self._name} cannot be compiled anew: the model that it was made from, {where}. {way_out}{refusal}")
        from sardonyx.providers.native.aot.writing import checksum

        if checksum(Path(path)) != node.attribute("__source_checksum", ""):
            raise Fail(
                f"{self._name} cannot be compiled anew: {path} is not the model that it was made from. {way_out}{refusal}"
            )
        return path

    @staticmethod
    def is_needed(error: BaseException) -> bool:
        """Whether a run failed because its data is not what the code was compiled for."""
        return isinstance(error.__cause__, SourceNeeded)

    @staticmethod
    def plain_options(options: SessionOptions) -> SessionOptions:
        """Options for a session of the source that writes nothing."""
        copied = copy.copy(options)
        copied.optimized_model_filepath, copied.enable_profiling = "", False
        copied._config.entries.pop(settings.EP_CONTEXT_ENABLE, None)
        return copied

    def _beside(self, name: str) -> str:
        try:
            return ExternalFolder(self._folder, self.model.path).find(name).path if name else ""
        except Fail:
            return ""


def _read_data(read: ReadContextData, max_size: int, name: str) -> memoryview:
    """Compiled data out of a function that the session's options have for it."""
    buffer = OrtEpContextDataBuffer(max_size)
    read(name, buffer)
    return buffer.data


def _declare(node: Node, types: Sequence[TensorType]) -> None:
    """Let the outputs of a context be of the types that its program says; names of sizes that the file has stay."""
    for value, type in zip(node.outputs, types, strict=True):
        if isinstance(value.declared, TensorType) and value.declared.dtype is not type.dtype:
            raise Refused(f"{value.name} is declared {value.declared}, its program makes {type}")
        value.type = type


def _check_options(context: Context, options: Mapping[str, str]) -> None:
    """Code may be more exact than the session demands, not less."""
    used, demanded = Accuracy.of(context.options), Accuracy.of(options)
    if used > demanded:
        raise Refused(f"it was compiled with accuracy={used}, this session demands {demanded}")


# --- writing


def context_path(source: Any, config: Configuration) -> Path:
    """Where the context model of a session goes: where the configuration says, else beside the model."""
    configured = config.get(settings.EP_CONTEXT_FILE_PATH)
    if not configured and not isinstance(source, (str, os.PathLike)):
        raise InvalidArgument(
            f"The model was given as bytes, so {settings.EP_CONTEXT_FILE_PATH} must say where its compiled form goes."
        )
    path = Path(configured) if configured else default_path(Path(source))
    if path.exists():
        raise Fail(f"Failed to generate EP context model since the file '{path}' exist already.")
    return path


def default_path(source: Path) -> Path:
    return source.with_name(f"{source.stem}_ctx.onnx")


@dataclass(frozen=True)
class ContextFile:
    """Where and how a context model is written."""

    path: Path
    embed: bool = False
    """Whether compiled data goes into the model."""
    external_data: str | None = None
    """The file beside the model for initializers of nodes that are not compiled."""
    size_threshold: int = 1024
    prefix: str = ""
    required: bool = False
    """Whether it is an error if nothing can be compiled."""
    write: WriteContextData | None = None
    """What takes compiled data that is not in the model, instead of a file."""
    place: Callable[[Tensor, str], ExternalLocation | None] | None = None
    """What says where the data of initializers is, instead of `external_data`."""
    take: Callable[[Model], None] | None = None
    """What takes the model itself, instead of a file."""


def context_file_of(source: Any, config: Configuration) -> ContextFile:
    """What the configuration of a session says about the context model to be written."""
    embed = config.get(settings.EP_CONTEXT_EMBED_MODE)
    if embed not in ("0", "1"):
        raise InvalidArgument(f"{settings.EP_CONTEXT_EMBED_MODE} is 0 or 1, not {embed!r}")
    external = config.get(settings.EP_CONTEXT_EXTERNAL_FILE) or None
    return ContextFile(
        context_path(source, config), embed == "1", external, prefix=config.get(settings.EP_CONTEXT_NODE_NAME_PREFIX)
    )


def write(prepared: Prepared, file: ContextFile | None) -> Written:
    """Write the context model of a prepared one, by default where and how the session's options say."""
    recipe = prepared.recipe
    file = file or context_file_of(recipe.source, recipe.options._config)
    try:
        with recipe.options._knows_custom_ops():
            return _write(prepared, file)
    except OSError as error:
        raise InvalidArgument(f'open file "{file.path}" failed: {error.strerror}') from error


def _write(prepared: Prepared, file: ContextFile) -> Written:
    from sardonyx.providers.native.aot.writing import CompiledNodes, write_context, write_uncompiled

    model, source = prepared.model, prepared.recipe.source
    steps = [step for step in prepared.steps() if isinstance(step.call, CompiledProgram) and step.call.can_be_stored]
    parts = [CompiledNodes(step.nodes, step.call) for step in steps if isinstance(step.call, CompiledProgram)]
    if not parts:
        if file.required:
            raise Fail(
                "Unable to compile any nodes. Check that the session EPs support compilation and can execute at least one subgraph "
                "in the model."
            )
        logger.warning("Nothing of the model can be compiled; %s is the model as it would run.", file.path)
        return write_uncompiled(model, file.path, file.take or functools.partial(_save, file))
    jit = parts[0].program.jit
    assert jit is not None
    return write_context(
        model,
        parts,
        jit,
        file.path,
        options=steps[0].provider.options,
        version=__version__,
        embed=file.embed,
        source=_origin(source, file),
        prefix=file.prefix,
        save=file.take or functools.partial(_save, file),
        hand_over=None if file.write is None else functools.partial(_hand_over, file.write),
    )


def _origin(source: Any, file: ContextFile) -> Path | bytes | None:
    """What the written model can be compiled from anew: the name of a file, or the bytes that were given instead of one."""
    if isinstance(source, (str, os.PathLike)):
        return Path(source)
    is_kept = isinstance(source, bytes) and file.take is None and len(source) <= MAX_KEPT_SOURCE
    return source if is_kept else None


def _save(file: ContextFile, model: Model) -> None:
    if formats.is_ort(file.path):
        from sardonyx.runtime.saving.files import save_ort

        save_ort(model, file.path, portable=False)
    elif file.place is not None:
        from sardonyx.formats.onnx.saving import save_placed

        save_placed(model, file.path, file.place)
    else:
        formats.save(model, file.path, file.external_data, file.size_threshold)


def _hand_over(write: WriteContextData, name: str, data: memoryview) -> None:
    write(name, OrtEpContextData(data))
