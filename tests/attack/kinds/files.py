"""Damaged files: models of both formats, references to external data, and compiled contexts; loaded, and run if they load."""

from __future__ import annotations

import functools
import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import external_data_helper, helper, numpy_helper

import sardonyx
from sardonyx import dtypes, errors
from sardonyx.ir import TensorType
from sardonyx.ops import checking
from sardonyx.settings import ALLOW_COMPILED_CODE
from tests.attack.subject import Problem
from tests.fuzz import driver, mutation, ort_mutation

LOCATIONS = (
    "",
    ".",
    "..",
    "/",
    "/etc/passwd",
    "../weights.bin",
    "weights.bin",
    "absent.bin",
    "a/../weights.bin",
    "weights.bin\0",
)
NUMBERS = (
    "",
    "-1",
    "0",
    "1",
    "64",
    "4095",
    "4096",
    "9999999",
    str(2**31),
    str(2**62),
    str(2**64),
    "x",
    "1.5",
    " 8",
    "0x10",
    "٣",
)


def run(rng: random.Random) -> None:
    rng.choices((onnx_file, ort_file, external_data, context), (4, 4, 2, 2))[0](rng)


@functools.cache
def seeds() -> tuple[list[bytes], list[bytes]]:
    return mutation.seeds(), ort_mutation.seeds()


def onnx_file(rng: random.Random) -> None:
    attempt(rng, mutation.mutate(rng, seeds()[0]))


def ort_file(rng: random.Random) -> None:
    attempt(rng, ort_mutation.mutate(rng, seeds()[1]))


def attempt(rng: random.Random, source: bytes | str, options: sardonyx.SessionOptions | None = None) -> None:
    """Make a session and run it; only our own errors may come out."""
    try:
        session = sardonyx.InferenceSession(source, options or driver.OPTIONS, enable_fallback=False)
        feeds = {one.name: drawn(rng, one) for one in session.get_inputs()}
        if all(value is not None for value in feeds.values()):
            session.run(None, feeds)
    except errors.CODED:
        return
    except MemoryError as error:
        raise Problem(f"MemoryError: {error}") from error


def drawn(rng: random.Random, argument: Any) -> Any:
    """Numbers for a declared input; None for what is no tensor, or is larger than anybody could feed."""
    try:
        declared = checking.type_from_string(argument.type)
    except Exception:
        return None
    if not isinstance(declared, TensorType) or declared.dtype is None:
        return None
    named: dict[Any, int] = {}
    shape = [size if isinstance(size, int) else named.setdefault(size, rng.choice((1, 2, 3))) for size in argument.shape or ()]
    if any(size < 0 for size in shape) or np.prod([float(size) for size in shape]) > 1e6:
        return None
    if declared.dtype is dtypes.string:
        return np.full(shape, "text", object)
    return np.asarray(np.random.default_rng(rng.getrandbits(32)).integers(0, 4, shape)).astype(declared.dtype.numpy)


# --- external data


def external_data(rng: random.Random) -> None:
    """A model whose weights lie in a file beside it, with the reference or the file changed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        weights = np.arange(1024, dtype=np.float32).reshape(32, 32)
        graph = helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 32])],
            [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
            [numpy_helper.from_array(weights, "w")],
        )
        model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])
        tensor = model.graph.initializer[0]
        external_data_helper.set_external_data(tensor, "weights.bin", 0, weights.nbytes)
        tensor.ClearField("raw_data")
        (folder / "weights.bin").write_bytes(weights.tobytes()[: rng.choice((4096, 4096, 4095, 0, 100))])
        for _ in range(rng.choice((0, 1, 1, 2))):
            _change_reference(rng, tensor)
        path = folder / "model.onnx"
        path.write_bytes(model.SerializeToString())
        attempt(rng, str(path))


def _change_reference(rng: random.Random, tensor: onnx.TensorProto) -> None:
    entry = rng.choice(tensor.external_data) if tensor.external_data else tensor.external_data.add()
    match rng.randrange(5):
        case 0:
            entry.value = rng.choice(NUMBERS if entry.key != "location" else LOCATIONS)
        case 1:
            tensor.external_data.remove(entry)
        case 2:
            tensor.external_data.add(
                key=rng.choice(("offset", "length", "location", "checksum", "?")), value=rng.choice(NUMBERS)
            )
        case 3:
            tensor.dims[:] = [rng.choice((0, 1, 32, -1, 2**31, 2**62)) for _ in range(rng.randrange(4))]
        case 4:
            tensor.data_type = rng.choice((0, 1, 2, 7, 8, 10, 11, 16, 22, 99))


# --- compiled contexts


@functools.cache
def compiled() -> tuple[bytes, dict[str, bytes]]:
    """A model compiled ahead of time, and its files."""
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "m.onnx"
        text = """<ir_version: 8, opset_import: ["" : 17]> g (float[n,4] x) => (float[n,4] y)
            <float[4,4] w = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}> { a = MatMul(x, w) b = Exp(a) c = Relu(b) y = Softmax(c) }"""
        source.write_bytes(onnx.parser.parse_model(text).SerializeToString())
        sardonyx.ModelCompiler(sardonyx.SessionOptions(), str(source)).compile_to_file(str(Path(name) / "m_ctx.onnx"))
        files = {path.name: path.read_bytes() for path in Path(name).iterdir()}
    return files["m_ctx.onnx"], files


def context(rng: random.Random) -> None:
    """A compiled model of which one file is damaged. Machine code is covered by its checksum, so damage is always noticed."""
    _, files = compiled()
    with tempfile.TemporaryDirectory() as name:
        victim = rng.choice([one for one in files if one.startswith("m_ctx")])
        damage = rng.choice(
            (mutation.flip_bytes, mutation.flip_bit, mutation.truncate, mutation.splice, mutation.damage_fields)
        )
        for file, data in files.items():
            if file != "m.onnx" or rng.random() < 0.7:
                (Path(name) / file).write_bytes(damage(rng, data, list(files.values())) if file == victim else data)
        options = sardonyx.SessionOptions()
        options.log_severity_level = 4
        options.add_session_config_entry(ALLOW_COMPILED_CODE, "1")
        options.add_session_config_entry("session.verify_compiled_constants", "1")
        attempt(rng, str(Path(name) / "m_ctx.onnx"), options)
