"""ModelProto -> Model: `read_model` is what `formats.load` calls for everything that is not in the ORT format.

A model is not trusted. What breaks the rules of the format raises one of `errors`, naming the place; what is merely untidy and
onnxruntime takes (unsorted nodes, an inner name that hides an outer one) is taken.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from sardonyx import errors, ir
from sardonyx.errors import Fail, InvalidArgument, InvalidGraph, InvalidProtobuf, NoSuchFile
from sardonyx.formats.files import File, Files, Part, Window
from sardonyx.formats.onnx import wire
from sardonyx.formats.onnx.attributes import read_attribute
from sardonyx.formats.onnx.external import ExternalFolder
from sardonyx.formats.onnx.graphs import Reading, read_body, read_graph
from sardonyx.formats.onnx.messages import messages
from sardonyx.formats.onnx.texts import metadata, normal_domain, text
from sardonyx.ir.opsets import NEWEST
from sardonyx.startup.records import dataclass, field

logger = logging.getLogger("sardonyx.formats")


@dataclass
class _Parsed:
    """A ModelProto, and the raw data of main-graph initializers that was left where it is."""

    proto: Any
    raw: dict[int, memoryview | Part] = field(default_factory=dict)


def read_model(source: Any, folder: str | os.PathLike[str] | None = None, files: Files | None = None) -> ir.Model:
    """The model in a file (by its path), in bytes, in a binary file object or in an `onnx.ModelProto`.

    `folder` is where external data lies, by default beside the file. Weights of a large file stay on disk until they are asked for;
    `files` are those that were opened before for the same model, and what may be mapped.
    """
    files = files or Files()
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        try:
            return _model(_parse_file(path, files), Path(folder) if folder is not None else path.parent, path, files)
        except errors.CODED as error:
            raise type(error)(f"Load model from {path} failed:{error.message}") from error
    return _model(_parse(source), Path(folder) if folder is not None else None, None, files)


def _parse_file(path: Path, files: Files) -> _Parsed:
    try:
        return _parse_bytes(_bytes_of(files.open(path)), "Protobuf parsing failed.")
    except FileNotFoundError:
        raise NoSuchFile(f"Load model {path} failed. File doesn't exist") from None
    except IsADirectoryError:
        raise InvalidProtobuf("Protobuf parsing failed.") from None
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        raise Fail(f"system error: {error}") from error


def _bytes_of(file: File) -> memoryview | Window:
    return Window(file) if file.is_read_in_parts else file.whole()


def _parse(source: Any) -> _Parsed:
    if hasattr(source, "SerializeToString"):
        return _parse_proto(source)
    data = source.read() if hasattr(source, "read") else source
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"a model is a path, bytes, a binary file or an onnx.ModelProto, not {type(source).__name__}")
    # bytes cannot change; anything else could under our views
    view = memoryview(data if isinstance(data, bytes) else bytes(data))
    return _parse_bytes(view, "Failed to load model because protobuf parsing failed.")


def _parse_proto(proto: Any) -> _Parsed:
    """Serialized, so that later changes of `proto` do not reach us; what is too large for that is used as it is."""
    from google.protobuf.message import EncodeError  # type: ignore[import-untyped]

    try:
        data = proto.SerializeToString()
    except (EncodeError, ValueError):
        return _Parsed(proto)
    return _parse_bytes(memoryview(data), "Failed to load model because protobuf parsing failed.")


def _parse_bytes(data: memoryview | Window, failure: str) -> _Parsed:
    proto = messages().ModelProto()
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    skeleton = wire.skeleton(data)
    if skeleton is None and len(data) >= 2**31:
        raise InvalidProtobuf(failure)
    try:
        proto.ParseFromString(bytes(data[:]) if skeleton is None else skeleton.data)
    except DecodeError as error:
        raise InvalidProtobuf(failure) from error
    spans = {} if skeleton is None else skeleton.spans
    cut = data.part if isinstance(data, Window) else lambda start, end: data[start:end]
    return _Parsed(proto, {position: cut(start, end) for position, (start, end) in spans.items()})


def _model(parsed: _Parsed, folder: Path | None, path: Path | None, files: Files) -> ir.Model:
    proto = parsed.proto
    try:
        if not proto.HasField("graph"):
            raise InvalidArgument("No graph was found in the protobuf.")
        _check_ir_version(proto)
        reading = Reading(ExternalFolder(folder, path, files), read_opsets(proto.opset_import), proto.ir_version)
        if not reading.opsets:
            raise Fail(
                "Missing opset in the model. All ModelProtos MUST have at least one entry that specifies which version of the ONNX "
                "OperatorSet is being imported."
            )
        check_opsets(reading.opsets)
        with ir.released_on_failure(read_graph(proto.graph, reading, raw=parsed.raw)) as graph:
            return ir.Model(
                graph=graph,
                opsets=reading.opsets,
                ir_version=proto.ir_version,
                functions=_read_functions(proto, reading),
                producer_name=text(proto.producer_name),
                producer_version=text(proto.producer_version),
                domain=text(proto.domain),
                model_version=proto.model_version if proto.HasField("model_version") else None,
                doc=text(proto.doc_string),
                metadata=metadata(proto.metadata_props),
                path=path,
                folder=folder,
            )
    except UnicodeDecodeError as error:
        raise InvalidProtobuf(f"Protobuf parsing failed. A name or text is not UTF-8: {error}") from error


def _check_ir_version(proto: Any) -> None:
    newest = messages().IR_VERSION
    if not proto.HasField("ir_version"):
        raise Fail("Missing model IR version.")
    if proto.ir_version > newest:
        raise Fail(f"Unsupported model IR version: {proto.ir_version}, max supported IR version: {newest}")


def read_opsets(imports: Any) -> dict[str, int]:
    """Versions by domain; of several the last one counts, as in onnxruntime."""
    opsets: dict[str, int] = {}
    for entry in imports:
        domain = normal_domain(entry.domain)
        if opsets.get(domain, entry.version) != entry.version:
            logger.warning(
                "Domain '%s' is imported with version %d and again with %d; the last one counts.",
                domain or "ai.onnx",
                opsets[domain],
                entry.version,
            )
        opsets[domain] = entry.version
    return opsets


def check_opsets(opsets: dict[str, int]) -> None:
    """Refuse versions of the standard domains that neither we nor the onnx package know yet."""
    for domain, version in opsets.items():
        if version <= NEWEST.get(domain, version):
            continue
        newest = max(NEWEST[domain], _newest_of_onnx(domain))
        if version > newest:
            raise Fail(
                "ONNX Runtime only *guarantees* support for models stamped with official released onnx opset versions. Opset "
                f"{version} is under development and support for this is limited. The operator schemas and or other functionality "
                "could possibly change before next ONNX release. "
                f"Current official support for domain {domain or 'ai.onnx'} is till opset {newest}."
            )


def _newest_of_onnx(domain: str) -> int:
    import onnx.defs

    versions = onnx.defs.C.schema_version_map().get(domain)
    return versions[1] if versions else 0


def _read_functions(proto: Any, reading: Reading) -> dict[ir.FunctionKey, ir.Function]:
    functions: dict[ir.FunctionKey, ir.Function] = {}
    for function_proto in proto.functions:
        function = _read_function(function_proto, reading)
        if function.key in functions:
            raise Fail(
                f"Duplicate definition of function ({function_proto.domain}:{function_proto.name}:{function_proto.overload})."
            )
        functions[function.key] = function
    return functions


def read_function(proto: Any) -> ir.Function:
    """A function by itself, from an `onnx.FunctionProto`."""
    return _read_function(proto, Reading(ExternalFolder(None), {}, ir_version=10, lenient=True))


def _read_function(proto: Any, outer: Reading) -> ir.Function:
    if not proto.name:
        raise InvalidGraph("This is an invalid model. A function has no name.")
    reading = Reading(outer.folder, read_opsets(proto.opset_import), outer.ir_version, text(proto.name), outer.lenient)
    check_opsets(reading.opsets)
    defaults = {}
    for attribute in proto.attribute_proto:
        defaults[text(attribute.name)] = read_attribute(attribute, f"function {proto.name}", reading, None)
    return ir.Function(
        domain=normal_domain(proto.domain),
        name=proto.name,
        graph=read_body(proto, reading),
        opsets=reading.opsets,
        required_attributes=[text(name) for name in proto.attribute],
        default_attributes=defaults,
        overload=text(proto.overload),
        doc=text(proto.doc_string),
        metadata=metadata(proto.metadata_props),
    )
