"""ORT format buffer -> Model: `read_model` is what `formats.load` calls for files named `.ort` and for bytes with their identifier.

A file is not trusted: `decoding` checks the bytes, and here and in `graphs` and `tensors` what they say is checked.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Any

from sardonyx import ir
from sardonyx.errors import Fail, NoSuchFile
from sardonyx.formats.files import File, Files, Part
from sardonyx.formats.ort.decoding import Tree, decode
from sardonyx.formats.ort.graphs import Reading, read_graph
from sardonyx.formats.ort.tables import FIRST_VERSION_WITH_RESOLVER, UNSET_MODEL_VERSION, VERSION
from sardonyx.formats.ort.tensors import invalid

logger = logging.getLogger("sardonyx.formats")

WORTH_A_READ = 1024
"""Fewer bytes of a large file are copied when it is decoded."""


def read_model(source: Any, *, mapped: bool = False, directly: bool = False, files: Files | None = None) -> ir.Model:
    """The model in a file (by its path) or in bytes, of which its weights are views. Those of a large file are read when they are used.

    With `mapped` they are views of the mapped file, which must not be written to while the model is in use. A buffer that can change is
    copied first unless `directly`: then it is the caller who must not change it.
    """
    path = Path(source) if isinstance(source, (str, os.PathLike)) else None
    tree = decode(_buffer(source, directly)) if path is None else _decoded_file(path, files or Files(), mapped)
    return _model(tree, path)


def _decoded_file(path: Path, files: Files, mapped: bool) -> Tree:
    try:
        file = files.open(path, mapped=mapped)
        if not file.is_read_in_parts:
            return decode(file.whole())
        buffer = file.whole()  # to be let go of when all has been looked at
        return decode(buffer, cut=lambda start, length: _cut(file, buffer, start, length))
    except FileNotFoundError:
        raise NoSuchFile(f"Load model {path} failed. File doesn't exist") from None
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        raise Fail(f"Load model from {path} failed. {error}") from error


def _cut(file: File, buffer: memoryview, start: int, length: int) -> Part | memoryview:
    if length < WORTH_A_READ:
        return memoryview(bytes(buffer[start : start + length]))
    return Part(file, start, length)


def _buffer(source: Any, directly: bool) -> memoryview:
    if not isinstance(source, (bytes, bytearray, memoryview)):
        raise TypeError(f"an ORT format model is a path or bytes, not {type(source).__name__}")
    return memoryview(source if directly or isinstance(source, bytes) else bytes(source)).toreadonly()


def _model(session: Tree, path: Path | None) -> ir.Model:
    version = _read_version(session)
    if "model" not in session:
        raise invalid("Missing Model")
    tree: Tree = session["model"]
    if "graph" not in tree:
        raise invalid("Graph is null")
    reading = Reading(_read_opsets(tree), tree["ir_version"])
    with ir.released_on_failure(read_graph(tree["graph"], reading)) as graph:
        graph.doc = tree.get("graph_doc_string", "")
        return ir.Model(
            graph=graph,
            opsets=dict(reading.opsets),
            ir_version=tree["ir_version"],
            producer_name=tree.get("producer_name", ""),
            producer_version=tree.get("producer_version", ""),
            domain=tree.get("domain", ""),
            model_version=None if tree["model_version"] == UNSET_MODEL_VERSION else tree["model_version"],
            doc=tree.get("doc_string", ""),
            metadata={entry.get("key", ""): entry.get("value", "") for entry in tree.get("metadata_props", ())},
            path=path,
            folder=None if path is None else path.parent,
            ort_version=version,
            stored_types=_read_types(session, version),
            saved_optimizations=_optimizations(reading, version),
        )


def _optimizations(reading: Reading, version: int) -> list[ir.SavedOptimizations]:
    if version < FIRST_VERSION_WITH_RESOLVER and reading.optimizations:
        logger.warning("Saved runtime optimizations of ORT format version %d are ignored.", version)
        return []
    return reading.optimizations


def _read_version(session: Tree) -> int:
    """A text that is no number counts as a version before the first, as in the original."""
    text = session.get("ort_version")
    if text is None:
        raise invalid("Serialized version info is null")
    version = int(text) if re.fullmatch(r"-?[0-9]{1,10}", text) else 0
    if version > VERSION:
        raise Fail(f"The ORT format model version [{text}] is not supported, the newest that is known is {VERSION}.")
    return version


def _read_opsets(tree: Tree) -> dict[str, int]:
    if "opset_import" not in tree:
        raise invalid("Model must have opset imports")
    opsets: dict[str, int] = {}
    for entry in tree["opset_import"]:
        domain, version = entry.get("domain"), entry["version"]
        if domain is None:
            raise invalid("The domain of an opset import is null")
        if version < 1:
            raise invalid(f"Domain '{domain}' is imported with the version {version}")
        domain = "" if domain == "ai.onnx" else domain
        if opsets.setdefault(domain, version) != version:
            raise invalid(f"Domain '{domain}' is imported twice, with versions {opsets[domain]} and {version}")
    return opsets


# --- type strings of ops


def _read_types(session: Tree, version: int) -> ir.TypeStrings | None:
    """What the file says about type strings. One of an old version needs to say nothing; a later one that does not knows no op."""
    resolver = session.get("kernel_type_str_resolver")
    if resolver is None:
        return None if version < FIRST_VERSION_WITH_RESOLVER else {}
    return read_resolver(resolver)


def read_resolver(tree: Tree) -> ir.TypeStrings:
    """The table of type strings in a KernelTypeStrResolver."""
    if "op_kernel_type_str_args" not in tree:
        raise invalid("The table of kernel type strings has no entries")
    strings: ir.TypeStrings = {}
    for entry in tree["op_kernel_type_str_args"]:
        op = entry["op_id"]
        if not re.fullmatch(r"[^:]*:[^:]*:-?[0-9]{1,10}", op):
            raise invalid(f"Invalid operator identifier {op!r}, it must read domain:op_type:since_version")
        if op in strings:
            raise Fail(f"Duplicate entry for op id: {op}. Invalid ORT format model.")
        strings[op] = _read_arguments(entry, op)
    return strings


def _read_arguments(entry: Tree, op: str) -> dict[str, list[tuple[int, int]]]:
    arguments: dict[str, list[tuple[int, int]]] = {}
    if "kernel_type_str_args" not in entry:
        raise invalid(f"Type strings of {op} are null")
    for string in entry["kernel_type_str_args"]:
        key = string["kernel_type_str"]
        if key in arguments or "args" not in string:
            raise invalid(f"Type string {key!r} of {op} stands there twice or has no arguments")
        arguments[key] = [(argument["arg_type"], argument["index"]) for argument in string["args"]]
        if any(side not in (0, 1) for side, _ in arguments[key]):
            raise invalid(f"An argument of {op} is neither an input nor an output")
    return arguments
