"""From the EPContext nodes of a model to code that can be called. Sessions ask here; whoever opens a context trusts the code in it.

Whatever stands in the way (another CPU, another format, damage) raises `Refused` with the reason, and nothing has been run.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sardonyx.compiler import arrays, linking, pool, texts
from sardonyx.compiler.linking import Code
from sardonyx.errors import Fail
from sardonyx.formats.files import Files
from sardonyx.formats.onnx.external import ExternalFolder
from sardonyx.ir import Model, Node
from sardonyx.providers.native.aot import container, cpu
from sardonyx.providers.native.aot.container import BadContext, Container
from sardonyx.providers.native.aot.storing import Stored, restored
from sardonyx.providers.native.program.settled import TABLE_FORM
from sardonyx.startup.hashing import blake2b

OP_TYPE, DOMAIN = "EPContext", "com.microsoft"
SOURCE = "NativeExecutionProvider"
"""The value of the attribute `source` of our EPContext nodes."""
COMPATIBILITY_KEY = f"ep_compatibility_info.{SOURCE}"
"""Under which the metadata of a context model say for whom it is."""
DIGEST_NOTE = "payload "
"""What the notes of a node say before the checksum of the file that belongs to it."""
ABI = [pool.STEP_WORDS, pool.CALL_WORDS, pool.PLACE_WORDS, pool.POOL_WORDS, arrays.ARRAY_DATA, TABLE_FORM, texts.MEMORY_WORDS]
"""What generated code takes for granted about memory that Python lays out."""
POOL_KERNELS = 3
"""The last kernels of a context are so many of the pool of threads."""
TEXT_KERNELS = 2
"""Before these, where a program takes or gives strings, are those that read and make strings."""


ReadData = Callable[[str], memoryview]


class Refused(Exception):
    """A context cannot be used here; the text says why."""


def context_nodes(model: Model) -> list[Node]:
    """The nodes of a model that stand for programs of the native provider."""
    return [node for node in model.graph.all_nodes() if is_context(node)]


def is_context(node: Node) -> bool:
    return node.op_type == OP_TYPE and node.domain == DOMAIN and node.attribute("source") == SOURCE


def main_node(nodes: Sequence[Node]) -> Node:
    """The node that has the payload for all."""
    main_nodes = [node for node in nodes if node.attribute("main_context", 1) == 1]
    if len(main_nodes) != 1:
        raise Refused(f"there are {len(main_nodes)} main contexts instead of one")
    return main_nodes[0]


class Context:
    """An opened context: programs by name, and addresses of kernels and constants."""

    def __init__(
        self,
        opened: Container,
        programs: Mapping[str, Stored],
        kernels: Sequence[int],
        constants: Sequence[int],
        kept: Any,
        is_whole: bool,
    ):
        self.container = opened
        self.programs = programs
        self.kernels = kernels
        self.constants = constants
        self.kept = kept
        """What keeps kernels and constants in memory."""
        self.is_whole = is_whole
        """Whether the model has nothing else to compute."""

    @property
    def options(self) -> Mapping[str, str]:
        """The provider's options for which the programs were made."""
        return self.container.description["options"]


def open_context(
    model: Model,
    nodes: Sequence[Node],
    folder: Path | None,
    *,
    files: Files | None = None,
    read: ReadData | None = None,
    verify: bool = False,
) -> Context:
    """Make the code of a model's context ready to be called.

    `folder` is where the file of the context lies, or `read` gives its content. `files` are those of the model, sessions of the same
    file share its content. `verify` has all constants checked, too.
    """
    try:
        main = main_node(nodes)
        opened = container.read(_payload(main, ExternalFolder(folder, model.path, files), read))
        if main.attribute("embed_mode", 1) != 1 and main.attribute("notes", "") != f"{DIGEST_NOTE}{opened.digest.hex()}":
            raise Refused(f"{main.attribute('ep_cache_context')} belongs to another model")
        _check_machine(opened)
        if verify:
            opened.verify_constants()
        names = opened.description["kernels"]
        programs = restored(opened, opened.description["programs"], len(names))
        if _has_texts(programs) and not (arrays.OBJECTS_ARE_OPEN and len(names) >= POOL_KERNELS + TEXT_KERNELS):
            raise Refused("this interpreter has other strings than its code reads")
        by_name = {program.name: program for program in programs}
        for node in nodes:
            _check_node(node, by_name.get(node.attribute("partition_name", "")))
        kernels, code = _kernels(opened)
        constants, kept = _constants(opened)
    except (BadContext, linking.CannotLink) as error:
        raise Refused(str(error)) from error
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise Refused(f"its description is malformed ({type(error).__name__}: {error})") from error
    pool.use_code(kernels[-POOL_KERNELS:], code)
    if _has_texts(programs):
        texts.use_code(kernels[-POOL_KERNELS - TEXT_KERNELS : -POOL_KERNELS], code)
    return Context(opened, by_name, kernels, constants, (kept, code), all(map(is_context, model.graph.nodes)))


def _has_texts(programs: Sequence[Stored]) -> bool:
    return any(program.texts is not None for program in programs)


# --- the payload


def _payload(node: Node, folder: ExternalFolder, read: ReadData | None) -> memoryview:
    content = node.attribute("ep_cache_context", "")
    if node.attribute("embed_mode", 1) == 1:
        return memoryview(content.encode() if isinstance(content, str) else content)
    if not isinstance(content, str):
        raise Refused("the name of its file is no text")
    if read is not None:
        return read(content)
    try:
        return folder.find(content).contents()
    except Fail as error:
        raise Refused(error.message) from error
    except OSError as error:
        raise Refused(f"{content} cannot be read: {error.strerror}") from error


def _check_machine(opened: Container) -> None:
    description = opened.description
    if description["abi"] != ABI:
        raise Refused("it is for another build of Python or of sardonyx")
    reason = cpu.refusal(description["machine"], description["cpu"]["kind"], description["cpu"]["features"])
    if reason is not None:
        raise Refused(reason)


def _check_node(node: Node, program: Stored | None) -> None:
    if program is None:
        raise Refused(f"there is no program for {node}")
    input_count, output_count = len(node.inputs), len(node.outputs)
    if input_count != program.inputs or output_count != len(program.tables.outputs) or None in node.inputs:
        raise Refused(
            f"{node} has {input_count} inputs and {output_count} outputs, its program {program.inputs} and {len(program.tables.outputs)}"
        )


# --- code and constants


_code: weakref.WeakValueDictionary[tuple[bytes, tuple[int, ...]], Code] = weakref.WeakValueDictionary()
"""Code that programs use, by its checksum and the places of its functions: sessions of one file share it."""


def _kernels(opened: Container) -> tuple[list[int], object]:
    """Addresses of all kernels, and what keeps them in memory."""
    description = opened.description
    code = opened.section(description["sections"][description["code"]["section"]])
    places: Sequence[Any] = description["code"]["places"]
    if len(places) != len(description["kernels"]) or len(places) < POOL_KERNELS:
        raise BadContext("kernels are missing")
    if description["code"]["kind"] == "objects":
        return _linked(description["kernels"], [code[offset : offset + size] for offset, size in places])
    if not linking.can_map():
        raise Refused("its code is for another system")
    if not all(type(offset) is int and 0 <= offset < len(code) for offset in places):
        raise BadContext("a kernel is outside of the code")
    key = blake2b(code).digest(), tuple(places)
    loaded = _code.get(key)
    if loaded is None:
        image = linking.Image(bytes(code), {str(number): offset for number, offset in enumerate(places)})
        loaded = _code.setdefault(key, linking.load(image))
    return list(loaded.functions.values()), loaded


def _linked(names: Sequence[str], objects: Sequence[memoryview]) -> tuple[list[int], object]:
    """Addresses of kernels that are stored as object files, which LLVM links; and what keeps them in memory."""
    from sardonyx.compiler.jit import NoCompiler, jit

    try:
        functions = jit().link({name: bytes(code) for name, code in zip(names, objects, strict=True)})
    except NoCompiler as error:
        raise Refused(f"its code needs LLVM to be linked: {error}") from error
    return functions.addresses, functions


def _constants(opened: Container) -> tuple[list[int], Any]:
    """Addresses of all constants, and what keeps them in memory: the file itself, or a copy if they do not lie there as code likes it."""
    places = list(_extents(opened))
    whole: np.ndarray = np.frombuffer(opened.data, np.uint8)
    base = whole.ctypes.data
    if base % container.ALIGNMENT == 0 or not places:
        return [base + offset for offset, _ in places], whole
    start, end = places[0][0], places[-1][0] + places[-1][1]
    memory: np.ndarray = np.empty(end - start + container.ALIGNMENT, np.uint8)
    shift = -memory.ctypes.data % container.ALIGNMENT
    memory[shift : shift + end - start] = whole[start:end]
    first = memory.ctypes.data + shift
    return [first + offset - start for offset, _ in places], memory


def _extents(opened: Container) -> Iterator[tuple[int, int]]:
    last = 0
    for place in opened.description["constants"]:
        opened.section(place)
        if place[0] < last or place[0] % container.ALIGNMENT:
            raise BadContext("its constants are not where they should be")
        last = sum(place)
        yield place[0], place[1]
