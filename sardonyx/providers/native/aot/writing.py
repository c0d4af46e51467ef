"""From a prepared model to a context model: the native provider's clusters become EPContext nodes, their programs go into a payload.

A session hands over its model with the steps that it compiled; the model itself stays as it is.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from sardonyx.compiler import linking, pool_code, text_code
from sardonyx.compiler.jit import Jit, Kernel
from sardonyx.compiler.target import Target
from sardonyx.errors import Fail, InvalidArgument
from sardonyx.formats.onnx.saving import replacing
from sardonyx.ir import Attribute, Dim, Graph, Model, Node, TensorType, Value, dim, edit
from sardonyx.providers.native.aot import cpu
from sardonyx.providers.native.aot.container import Writer
from sardonyx.providers.native.aot.opening import ABI, COMPATIBILITY_KEY, DIGEST_NOTE, DOMAIN, OP_TYPE, SOURCE
from sardonyx.providers.native.aot.storing import store
from sardonyx.providers.native.execution.compiled import CompiledProgram
from sardonyx.startup.records import dataclass

MAX_EMBEDDED = 2**31 - (1 << 24)
"""Protobuf's limit, less what the rest of a model may take."""


@dataclass(frozen=True)
class CompiledNodes:
    """Nodes of a model that became one program."""

    nodes: Sequence[Node]
    program: CompiledProgram


@dataclass(frozen=True)
class Written:
    """What a context model took."""

    model: Path
    payload: Path | None
    """The file beside the model, None if the payload is inside."""
    payload_bytes: int
    code_bytes: int
    constant_bytes: int
    programs: int
    kernels: int
    compiled: int
    """How many nodes are in programs."""
    left: Mapping[str, int]
    """How many nodes of which ops are not."""


class Payload:
    """Programs, code and constants on their way into a file."""

    def __init__(self, parts: Sequence[CompiledNodes], jit: Jit, options: Mapping[str, str], version: str):
        self.writer = Writer()
        self.kernels = _all_kernels(parts)
        numbers = {kernel.symbol: number for number, kernel in enumerate(self.kernels)}
        programs = [store(part.program, self.writer, numbers) for part in parts]
        for number, program in enumerate(programs):
            program["name"] = f"{SOURCE}_{number}"
        self.names = [program["name"] for program in programs]
        code, described = _code(self.kernels, jit)
        self.code_bytes = len(code)
        self.description: dict[str, Any] = {
            "sardonyx": version,
            "abi": ABI,
            "machine": platform.machine(),
            "cpu": {"kind": jit.target.name, "name": jit.compiled_for.cpu, "features": cpu.needed_by(jit.compiled_for)},
            "options": dict(options),
            "kernels": [kernel.symbol for kernel in self.kernels],
            "code": {**described, "section": self.writer.add(code)},
            "programs": programs,
        }

    def write(self, file: IO[bytes]) -> int:
        return self.writer.write(file, self.description)

    @property
    def constant_bytes(self) -> int:
        return sum(size for _, size in self.description["constants"])


def _all_kernels(parts: Sequence[CompiledNodes]) -> list[Kernel]:
    """The kernels of all programs, each once, behind them those of strings, if there are any, and those that every context has."""
    kernels: dict[str, Kernel] = {}
    for part in parts:
        assert part.program.program is not None
        kernels.update((kernel.symbol, kernel) for kernel in part.program.program.kernels)
    crossings = text_code.kernels() if _has_texts(parts) else []
    return [*kernels.values(), *crossings, *pool_code.kernels()]


def _has_texts(parts: Sequence[CompiledNodes]) -> bool:
    return any(part.program.texts is not None for part in parts)


def _code(kernels: Sequence[Kernel], jit: Jit) -> tuple[bytes, dict[str, Any]]:
    """Machine code with what describes it: one image where that can be, else the objects one behind the other."""
    objects = {kernel.symbol: code for kernel, code in zip(kernels, jit.objects(kernels))}
    if linking.can_map():
        with contextlib.suppress(linking.CannotLink):
            image = linking.link(objects)
            return image.data, {"kind": "image", "places": [image.offsets[kernel.symbol] for kernel in kernels]}
    data, places = bytearray(), []
    for code in objects.values():
        places.append([len(data), len(code)])
        data += code
    return bytes(data), {"kind": "objects", "places": places}


# --- the model around


def write_context(
    model: Model,
    parts: Sequence[CompiledNodes],
    jit: Jit,
    path: Path,
    *,
    options: Mapping[str, str],
    version: str,
    embed: bool = False,
    source: Path | bytes | None = None,
    prefix: str = "",
    save: Callable[[Model], None],
    hand_over: Callable[[str, memoryview], None] | None = None,
) -> Written:
    """Write the payload of a context model at `path` into it or beside it, and have the model saved.

    `source` is the file that the model came from, or the model itself, which is kept then. With `hand_over` the payload is no file:
    the function gets it, with the name that a file would have.
    """
    payload = Payload(parts, jit, options, version)
    beside = None if embed else path.with_name(f"{path.name}.bin")
    shell, nodes = _shell(model, parts, payload, prefix)
    _describe(shell, nodes, payload, path, source, jit)
    if beside is None:
        size = _embed(nodes[0], payload, path)
    else:
        size = _put(payload, beside, hand_over)
        for node in nodes:
            _set(node, embed_mode=0, ep_cache_context=beside.name, notes=f"{DIGEST_NOTE}{payload.writer.digest.hex()}")
    save(shell)
    left: dict[str, int] = {}
    for node in shell.graph.all_nodes():
        if node not in nodes:
            left[node.op_id] = left.get(node.op_id, 0) + 1
    compiled = sum(len(part.nodes) for part in parts)
    counts = len(parts), len(payload.kernels), compiled
    return Written(path, beside, size, payload.code_bytes, payload.constant_bytes, *counts, left)


def _put(payload: Payload, path: Path, hand_over: Callable[[str, memoryview], None] | None) -> int:
    if hand_over is None:
        with replacing(path) as file:
            return payload.write(file)
    buffer = io.BytesIO()
    size = payload.write(buffer)
    hand_over(path.name, buffer.getbuffer())
    return size


def write_uncompiled(model: Model, path: Path, save: Callable[[Model], None]) -> Written:
    """Write a model of which nothing could be compiled."""
    save(model)
    left: dict[str, int] = {}
    for node in model.graph.all_nodes():
        left[node.op_id] = left.get(node.op_id, 0) + 1
    return Written(path, None, 0, 0, 0, 0, 0, 0, left)


def _set(node: Node, **attributes: Any) -> None:
    for name, value in attributes.items():
        node.attributes[name] = Attribute.of(value)


def _shell(model: Model, parts: Sequence[CompiledNodes], payload: Payload, prefix: str) -> tuple[Model, list[Node]]:
    """A copy of the model with a node for each program, the first of which is the main one."""
    values: dict[Value, Value | None] = {}
    copied: dict[Node, Node] = {}
    shell = edit.clone_model(model)
    pairs = zip(edit.all_graphs(model.graph), edit.all_graphs(shell.graph), strict=True)
    for theirs, ours in pairs:
        values.update(zip(theirs.values(), ours.values(), strict=True))
        copied.update(zip(theirs.nodes, ours.nodes, strict=True))
    names = edit.Names(shell.graph)
    nodes: list[Node] = []
    for part, name in zip(parts, payload.names, strict=True):
        program = part.program.program
        assert program is not None
        attributes = {"main_context": int(not nodes), "partition_name": name, "source": SOURCE}
        outputs = [_taken(_known(values[value])) for value in program.outputs]
        inputs = [values[value] for value in program.inputs]
        node = Node(OP_TYPE, inputs, outputs, attributes, domain=DOMAIN, version=1, name=names.node(f"{prefix}{name}"))
        _replace([copied[member] for member in part.nodes], node)
        nodes.append(node)
    for graph in edit.all_graphs(shell.graph):
        _forget_constants(graph)
    shell.opsets.setdefault(DOMAIN, 1)
    _show_types(shell.graph)
    return shell, nodes


def _known(value: Value | None) -> Value:
    assert value is not None
    return value


def _taken(value: Value) -> Value:
    """A value that its node makes no longer, for another one to make."""
    node = value.producer
    assert node is not None
    return edit.replace_output(node, list(node.outputs).index(value), Value(""))


def _replace(old: Sequence[Node], node: Node) -> None:
    graph = old[0].graph
    assert graph is not None
    graph.insert_after(old[-1], node)
    edit.remove_nodes(old)
    edit.topological_sort(graph)


def _forget_constants(graph: Graph) -> None:
    """Remove the initializers that only programs read."""
    outputs = set(graph.outputs)
    for value in list(graph.initializers.values()):
        if not value.uses and not value.is_input and value not in outputs:
            graph.remove_initializer(value)


def _show_types(graph: Graph) -> None:
    """Declare inputs and outputs as sessions show them: sizes that are known as numbers, others by the names that the model has."""
    for value in {*graph.inputs, *graph.outputs}:
        type, declared = value.type, value.declared
        if isinstance(type, TensorType) and type.shape is not None:
            names = declared.shape if isinstance(declared, TensorType) and declared.shape is not None else type.shape
            names = names if len(names) == len(type.shape) else type.shape
            value.type = TensorType(type.dtype, tuple(map(_shown, type.shape, names)))


def _shown(inferred: Dim, declared: Dim) -> Dim:
    for size in (inferred, declared):
        if isinstance(size, int):
            return size
    for size in (declared, inferred):
        if not isinstance(size, int) and size.symbol is not None and not dim.is_anonymous(size):
            return size
    return dim.fresh()


def architecture_of(target: Target) -> str:
    """For which machine code is, in words."""
    return f"{platform.machine()} {target.name} ({target.cpu})"


def _describe(shell: Model, nodes: Sequence[Node], payload: Payload, path: Path, source: Path | bytes | None, jit: Jit) -> None:
    """Say who compiled what, for whom."""
    description = payload.description
    architecture = architecture_of(jit.target)
    for node in nodes:
        _set(node, ep_sdk_version=description["sardonyx"], hardware_architecture=architecture)
        if isinstance(source, Path):
            _set(node, onnx_model_filename=_relative(source, path), __source_checksum=checksum(source))
    if isinstance(source, bytes):
        _set(nodes[0], __source_model=source)
    shell.metadata[COMPATIBILITY_KEY] = f"sardonyx {description['sardonyx']}; {architecture}"


def _relative(source: Path, path: Path) -> str:
    """Where the source is, if that is in the context model's own folder; else its mere name, for somebody to put it there."""
    inside = os.path.relpath(os.path.realpath(source), os.path.realpath(path.parent))
    return source.name if inside.startswith("..") or os.path.isabs(inside) else Path(inside).as_posix()


def checksum(path: Path) -> str:
    """What tells whether a file is still the same."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()[:64]


def _embed(node: Node, payload: Payload, path: Path) -> int:
    if path.suffix == ".ort":
        raise InvalidArgument("An ORT format model cannot hold compiled code; leave it in a file beside the model.")
    buffer = io.BytesIO()
    size = payload.write(buffer)
    if size > MAX_EMBEDDED:
        raise Fail(
            f"The compiled data takes {size} bytes, too many to be put into a model file; leave it in a file beside the model."
        )
    _set(node, embed_mode=1, ep_cache_context=buffer.getvalue())
    return size
