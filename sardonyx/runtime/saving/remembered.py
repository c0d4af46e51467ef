"""Models that this machine has prepared before. A session keeps what became of its model, compiled, in the user's cache; the next session
of the same model opens that, and neither optimizes nor lowers nor packs.

An entry is a context model with its payload in one file. Its checksum covers the key that it stands for, so an entry under a wrong name
is none. It also tells the content of the model's other files, without which it is none either. Whatever is wrong with a file is as if it
were not there, and whatever is wrong with the disk is as if nothing were kept.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import struct
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx import settings
from sardonyx.compiler.cache import ObjectCache, default_folder, given_bytes
from sardonyx.errors import CODED, InvalidArgument, is_strict
from sardonyx.formats import mapping
from sardonyx.formats.mapping import FileIdentity
from sardonyx.ir import Model, Node, Type, Value
from sardonyx.providers.native.aot.opening import COMPATIBILITY_KEY, ReadData, context_nodes
from sardonyx.providers.native.execution.compiled import CompiledProgram
from sardonyx.runtime.api.metadata import NodeArg
from sardonyx.runtime.api.options import SessionOptions
from sardonyx.runtime.preparation.defaults import Defaults
from sardonyx.runtime.preparation.recipe import ProviderList
from sardonyx.runtime.preparation.specialized import Specialized
from sardonyx.runtime.preparation.suppositions import Suppositions
from sardonyx.runtime.saving import contexts, outlines, remembered_keys
from sardonyx.runtime.saving.contexts import Compiled
from sardonyx.runtime.saving.file_digests import digest_of, is_settled
from sardonyx.startup import later
from sardonyx.startup.hashing import blake2b
from sardonyx.startup.records import dataclass

if TYPE_CHECKING:
    from sardonyx.runtime.preparation.plan import Step
    from sardonyx.runtime.preparation.prepare import Prepared

MAGIC = b"sardonyx model 6"
_HEAD = struct.Struct("<16s32sQQQ")
"""Magic, checksum, and how many bytes each part has."""
ALIGNMENT = 64
SMALL = 32 << 20
"""How many bytes a model may have, and an entry, to be kept without being asked."""
WORTH_MAPPING = 1 << 20
"""Entries of more bytes are mapped, and their constants, like the weights of any model, not read before they are used."""
WORTH_KEEPING = 0.05
"""How many seconds a model must have taken: what is prepared in less is prepared again as soon as an entry is read."""
FOLDER = "models"

logger = logging.getLogger("sardonyx.runtime")


class RememberedCode(Compiled):
    """A context model out of the cache. It is trusted, and its source is what the session was given."""

    stands_in = True

    def __init__(
        self,
        model: Model,
        nodes: Sequence[Node],
        options: SessionOptions,
        payload: memoryview,
        source: Any,
        shown: Mapping[str, list[int | str | None]],
        defaults: Defaults | None,
        suppositions: Suppositions | None,
    ):
        super().__init__(model, nodes, options)
        self.shown = shown
        self.defaults = defaults
        self.suppositions = suppositions
        self._payload = payload
        self._source = source

    def _is_trusted(self) -> bool:
        return True

    def _reader(self) -> ReadData | None:
        return lambda name: self._payload

    def _say(self, reason: str) -> None:
        logger.info("What is remembered of the model is not used: %s.", reason)

    def say_recompiled(self, error: BaseException) -> None:
        logger.info("%s. The model is compiled for that.", error.__cause__)

    def source(self) -> Any:
        return self._source


@dataclass(frozen=True)
class Place:
    """Where the prepared model of a session is kept, or will be."""

    folder: str
    key: str
    source: str | bytes
    content: str
    """The digest of the source."""
    largest: int
    """How many bytes a model may have, and an entry, to be kept."""
    begun: float
    """When the session was begun, in seconds."""
    waits: bool
    """Whether first results come before an entry is written."""

    @property
    def path(self) -> str:
        return os.path.join(self.folder, self.key[:2], self.key[2:])

    def find(self, options: SessionOptions) -> RememberedCode | None:
        """What was kept, None if there is nothing that is whole."""
        later.finish(self.path)  # an earlier session of this process may not have written it yet
        content = _own_file(self.path)
        if content is None:
            return None
        try:
            names, model_bytes, payload = unpacked(content, self.key)
            *texts, shown, files, default_words, supposed, outline = json.loads(bytes(names))
            if not self._has(files):
                return None
            model = _read_model(model_bytes) if outline is None else outlines.model_of(outline)
            model.doc, model.graph.name, model.graph.doc = texts
            defaults, suppositions = Defaults.of_words(default_words), Suppositions.of_words(supposed)
        except (*CODED, ValueError, TypeError, KeyError) as error:
            logger.info("The remembered model %s is damaged: %s", self.path, error)
            return None
        model.metadata.pop(COMPATIBILITY_KEY, None)
        with contextlib.suppress(OSError):
            os.utime(self.path)  # what is used stays longest
        nodes = context_nodes(model)
        return RememberedCode(model, nodes, options, payload, self.source, shown, defaults, suppositions)

    def keep(self, prepared: Prepared, then: Callable[[], None]) -> None:
        """Keep a prepared model for later sessions, if it can be kept, `then` do something.

        Who asked for entries of any size waits for it. Others get their first results before.
        """
        if (
            time.perf_counter() - self.begun < WORTH_KEEPING
            or not _can_be_kept(prepared)
            or _constant_bytes(prepared) > self.largest
            or later.is_waiting(self.path)  # another session of the model will write it
        ):
            then()
        elif self.waits:
            later.put_off(self.path, lambda: self._keep(prepared, then))
        else:
            self._keep(prepared, then)

    def _keep(self, prepared: Prepared, then: Callable[[], None]) -> None:
        if any(program.awaits_code for program in _programs(prepared)):
            later.put_off(self.path, lambda: self._keep(prepared, then))  # only the best code is worth keeping
            return
        try:
            files = self._files_of(prepared)
            if files is not None:
                self._write(prepared, files)
        finally:
            then()

    def _write(self, prepared: Prepared, files: Mapping[str, str]) -> None:
        try:
            pieces = pieces_of(self.key, _parts(prepared, files))
        except Exception as error:  # a session does not fail because the next one will be slower
            if is_strict() and not isinstance(error, CODED):  # which say that no file can hold it
                raise
            logger.info("The model is not remembered: %s", error)
            return
        if sum(map(len, pieces)) <= self.largest:
            cache = models_cache(self.folder)
            cache.write(self.key, *pieces)
            cache.shrink()

    def _has(self, files: Mapping[str, str]) -> bool:
        """Whether the other files of the model are those whose digests these are."""
        if not files:
            return True
        if isinstance(self.source, bytes):
            return False
        folder = os.path.dirname(os.path.abspath(self.source))
        with contextlib.suppress(OSError):
            return all(digest_of(os.path.join(folder, name), self.largest) == digest for name, digest in files.items())
        return False

    def _files_of(self, prepared: Prepared) -> dict[str, str] | None:
        """The digests of the model's other files, by their paths as seen from its own.

        None if the files are too large together, or if one of them may have changed since it was read.
        """
        opened = {} if prepared.recipe.files is None else prepared.recipe.files.identities
        if isinstance(self.source, bytes):
            return None if opened else {}
        own = os.path.abspath(self.source)
        others = {path: identity for path, identity in opened.items() if path != own}
        try:
            if os.path.getsize(own) + sum(identity.size for identity in others.values()) > self.largest:
                return None
            if digest_of(own, self.largest) != self.content or not all(map(_is_still, others, others.values())):
                return None
            folder = os.path.dirname(own)
            return {os.path.relpath(path, folder): digest_of(path, self.largest) or "" for path in others}
        except (OSError, ValueError):
            return None


def place_of(
    wanted: str, source: Any, options: SessionOptions, providers: ProviderList, disabled: Collection[str]
) -> Place | None:
    """The place of a session's model; None if nothing of it is to be kept. `wanted` is what the setting says."""
    begun = time.perf_counter()
    largest = _largest(wanted)
    folder = default_folder()
    if not largest or folder is None or not isinstance(source, (str, bytes)):
        return None
    if not remembered_keys.describes_all(options, providers):
        return None
    try:
        content = remembered_keys.content_of(source, largest)
    except (OSError, ValueError):
        return None  # whoever loads it says what is wrong
    if content is None:
        return None
    key = remembered_keys.key_of(content, options, providers, disabled)
    return Place(os.path.join(folder, FOLDER), key, source, content, largest, begun, wanted != "all")


def _is_still(path: str, identity: FileIdentity) -> bool:
    """Whether a file is for certain what it was when it was opened."""
    descriptor = mapping.open_regular(path)
    try:
        return mapping.identity_of(descriptor) == identity and is_settled(identity)
    finally:
        os.close(descriptor)


def models_cache(folder: str) -> ObjectCache:
    """The folder of all entries, with its own limit."""
    return ObjectCache(folder, given_bytes(settings.MODELS_BYTES))


def _largest(wanted: str) -> int:
    """How many bytes an entry may have."""
    if not settings.REMEMBER_VARIABLE.takes(wanted):
        raise InvalidArgument(settings.REMEMBER_VARIABLE.complaint(wanted))
    return given_bytes(settings.MODELS_BYTES) if wanted == "all" else SMALL


def _own_file(path: str) -> memoryview | None:
    """A file of this user's own, at an address that code likes."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
    except OSError:
        return None
    with contextlib.suppress(OSError), os.fdopen(descriptor, "rb", buffering=0) as file:
        status = os.fstat(descriptor)
        if hasattr(os, "getuid") and status.st_uid != os.getuid():
            return None  # code that somebody else put there is not ours to run
        if status.st_size > WORTH_MAPPING:
            return mapping.mapped(descriptor, mapping.identity_of(descriptor))
        memory = np.empty(status.st_size + ALIGNMENT, np.uint8)
        shift = -memory.ctypes.data % ALIGNMENT
        content = memory[shift : shift + status.st_size].data
        return content if file.readinto(content) == len(content) else None
    return None


def _constant_bytes(prepared: Prepared) -> int:
    """How many bytes the constants of all programs have, which is nearly all that an entry has."""
    programs = [compiled.program for compiled in _programs(prepared)]
    arrays = [buffer.array for program in programs if program is not None for buffer in program.constants]
    return sum({(array.ctypes.data, array.nbytes): array.nbytes for array in arrays if array is not None}.values())


def _programs(prepared: Prepared) -> list[CompiledProgram]:
    return [step.call for step in prepared.steps() if isinstance(step.call, CompiledProgram)]


def _parts(prepared: Prepared, files: Mapping[str, str]) -> list[bytes | memoryview]:
    """What an entry for a prepared model consists of."""
    models: list[Model] = []
    payloads: list[memoryview] = []
    file = contexts.ContextFile(
        Path("model.ort"),
        required=True,
        write=lambda name, data: payloads.append(data._data),  # which is as large as the weights, and need not be copied
        take=models.append,
    )
    contexts.write(prepared, file)
    whole = prepared.model
    shown = {value.name: NodeArg._of(value, type).shape for value, type in _shown(prepared)}
    defaults = [] if prepared.defaults is None else prepared.defaults.as_words()
    supposed = [] if prepared.suppositions is None else prepared.suppositions.as_words()
    outline = outlines.outline_of(models[0])
    model_bytes = b"" if outline is not None else _written_model(models[0])
    texts = [whole.doc, whole.graph.name, whole.graph.doc]  # which the ORT format lacks
    names = [*texts, shown, dict(files), defaults, supposed, outline]
    return [json.dumps(names).encode(), model_bytes, *payloads]


def _written_model(model: Model) -> bytes:
    from sardonyx.runtime.saving.files import as_saved

    return bytes(as_saved(model, portable=False).encoded())


def _read_model(content: memoryview) -> Model:
    """A model that has more than programs: NumPy computes some of its nodes."""
    from sardonyx.formats.ort import reader

    return reader.read_model(content, directly=True)


def _shown(prepared: Prepared) -> Iterator[tuple[Value, Type | None]]:
    """Inputs and outputs with the types that users see: those of all runs, where sizes are supposed."""
    graph = prepared.model.graph
    yield from ((value, value.type) for value in graph.inputs)
    general = (prepared.journal.outputs if prepared.journal else ()) or [value.type for value in graph.outputs]
    yield from zip(graph.outputs, general, strict=True)


def packed(key: str, parts: Sequence[bytes | memoryview]) -> bytes:
    """The bytes of an entry."""
    return b"".join(pieces_of(key, parts))


def pieces_of(key: str, parts: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """An entry in pieces: a head and its three parts, each where code likes it."""
    head = _HEAD.pack(MAGIC, _checksum(key, parts), *map(len, parts))
    return [piece for part in (head, *parts) for piece in (part, bytes(-len(part) % ALIGNMENT))]


def unpacked(content: memoryview, key: str) -> list[memoryview]:
    """The parts of an entry; ValueError if it is not the whole one that the key stands for."""
    if len(content) < _HEAD.size or bytes(content[: len(MAGIC)]) != MAGIC:
        raise ValueError("it does not begin like one")
    _, checksum, *sizes = _HEAD.unpack_from(content)
    parts, start = [], -(-_HEAD.size // ALIGNMENT) * ALIGNMENT
    for size in sizes:
        parts.append(content[start : start + size])
        start += -(-size // ALIGNMENT) * ALIGNMENT
    if start != len(content):
        raise ValueError("it is cut off, or too long")
    if _checksum(key, parts) != checksum:
        raise ValueError("its checksum is wrong")
    return parts


def _checksum(key: str, parts: Sequence[bytes | memoryview]) -> bytes:
    """Over the key, and the parts with their lengths.

    A large payload has a checksum of its own over all but its constants, which the words or the model, the other parts, know.
    """
    *words, payload = parts
    hashed = blake2b(f"{key} {' '.join(str(len(part)) for part in parts)} ".encode(), digest_size=32)
    for part in (*words, *([payload] if len(payload) <= WORTH_MAPPING else [])):
        hashed.update(part)
    return hashed.digest()


def _can_be_kept(prepared: Prepared) -> bool:
    """Whether a session of what is kept would do all that this one does.

    It has no plans for shapes, a file can hold all its code, and that is as quick. What programs are given is no constant: a file
    would hold that as an initializer, which programs do not take.
    """
    plan = prepared.plan
    if plan is None or any(map(_is_given_constants, prepared.steps())):
        return False
    programs = _programs(prepared)
    is_stored = bool(programs) and all(program.can_be_stored for program in programs)
    is_quick = not any(program.is_quicker_by_nodes for program in programs)
    return is_stored and is_quick and Specialized.of(plan) is None


def _is_given_constants(step: Step) -> bool:
    makers = {value.producer for node in step.nodes for value in node.inputs if value is not None} if step.compiled else set()
    return any(maker is not None and maker.op_type == "Constant" and maker not in step.nodes for maker in makers)
