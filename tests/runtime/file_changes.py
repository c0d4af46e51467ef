"""A program that makes sessions, changes their files underneath, and says what came of it: `test_files` runs it.

Arguments: the kind of file, the provider's option `native`, and a folder to work in. It prints one JSON object.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx.formats import files

ROWS, WIDTH, OUT = 5000, 1024, 96
IDS = np.arange(0, ROWS, 71)
CLEAR = ("has changed since it was opened", "cannot be compiled anew: the model that it was made from")
CONTEXT = {"session.allow_compiled_code": "1"}


@functools.cache
def weights() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(7)
    return random.standard_normal((ROWS, WIDTH)).astype(np.float32), random.standard_normal((WIDTH, OUT)).astype(np.float32)


def expected(ids: np.ndarray) -> np.ndarray:
    table, factor = weights()
    return table[ids].astype(np.float64) @ factor


def make(kind: str, folder: Path) -> Path:
    """A model of that kind, in a folder of its own; the largest file there is the one with the weights."""
    folder = folder / "made"
    folder.mkdir()
    table, factor = weights()
    nodes = [helper.make_node("Gather", ["table", "ids"], ["rows"]), helper.make_node("MatMul", ["rows", "factor"], ["out"])]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["n", OUT])],
        [numpy_helper.from_array(table, "table"), numpy_helper.from_array(factor, "factor")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path = folder / "m.onnx"
    if kind == "external":
        onnx.save(model, path, save_as_external_data=True, location="weights.bin")
        return path
    onnx.save(model, path)
    options = sardonyx.SessionOptions()
    if kind == "ort":
        options.optimized_model_filepath = str(folder / "saved.ort")
        sardonyx.InferenceSession(str(path), options)
    elif kind == "packed":
        options.optimized_model_filepath = str(folder / "saved.onnx")
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights.bin")
        options.add_session_config_entry("session.save_external_prepacked_constant_initializers", "1")
        sardonyx.InferenceSession(str(path), options)
    elif kind == "compiled":
        sardonyx.ModelCompiler(options, str(path)).compile_to_file(str(folder / "saved.onnx"))
    else:
        return path
    path.unlink()
    return Path(options.optimized_model_filepath or folder / "saved.onnx")


def session_of(path: Path, native: str, **entries: str) -> Any:
    options = sardonyx.SessionOptions()
    for key, value in {**CONTEXT, **entries}.items():
        options.add_session_config_entry(key, value)
    return sardonyx.InferenceSession(str(path), options, providers=[("CPUExecutionProvider", {"native": native})])


def outcome(session: Callable[[], Any], ids: np.ndarray = IDS) -> str:
    """What a run gives; `session` makes one, or has it."""
    try:
        (result,) = session().run(None, {"ids": ids})
    except sardonyx.capi.onnxruntime_pybind11_state.Fail as error:
        return "refused" if any(reason in str(error) for reason in CLEAR) else f"another error: {error}"
    return "right" if np.allclose(result, expected(ids), rtol=1e-4, atol=1e-4) else "wrong"


def largest(folder: Path) -> Path:
    return max(folder.iterdir(), key=lambda path: path.stat().st_size)


# --- what may happen to a file


def truncate(path: Path) -> None:
    os.truncate(path, 100)


def overwrite(path: Path) -> None:
    with open(path, "r+b") as file:
        file.write(b"\xff" * path.stat().st_size)


def replace(path: Path) -> None:
    other = path.with_name("new")
    other.write_bytes(b"\xff" * path.stat().st_size)
    os.replace(other, path)


def delete(path: Path) -> None:
    path.unlink()


CHANGES = (truncate, overwrite, replace, delete)


def copies(made: Path, names: Iterable[Any]) -> Iterator[Path]:
    """Copies of a model's folder, each for one change; yields the model in it."""
    for name in names:
        folder = made.parent.with_name(str(name))
        shutil.copytree(made.parent, folder)
        yield folder / made.name
        shutil.rmtree(folder)


def after_creation(kind: str, native: str, folder: Path) -> dict[str, list[str]]:
    """What runs give: before a change, after it with the same shapes, and with other shapes."""
    found = {}
    for change, path in zip(CHANGES, copies(make(kind, folder), range(len(CHANGES)))):
        session = functools.partial(lambda session: session, session_of(path, native))
        before = outcome(session)
        change(largest(path.parent))
        found[change.__name__] = [before, outcome(session), outcome(session, IDS[:9])]
    return found


def read_changing(usual: Any, change: Any, file: Path, left: list[int], descriptor: int, *rest: Any) -> int:
    """Read as usual, but let a file change when it has been read so often as `left` says."""
    if file.exists() and os.path.samestat(os.fstat(descriptor), file.stat()):
        if left[0] == 0:
            change(file)
        left[0] -= 1
    return int(usual(descriptor, *rest))


def while_reading(kind: str, native: str, folder: Path) -> dict[str, list[str]]:
    """What comes of a session if its file changes before the first, second, … time that it is read."""
    found: dict[str, list[str]] = {}
    usual = files._read_into
    moments = list(itertools.product(CHANGES, range(3)))
    for (change, moment), path in zip(moments, copies(make(kind, folder), range(len(moments)))):
        files._read_into = functools.partial(read_changing, usual, change, largest(path.parent), [moment])
        try:
            result = outcome(functools.partial(session_of, path, native))
        finally:
            files._read_into = usual
        found.setdefault(change.__name__, []).append(result)
    return found


def mapped_names(kind: str, native: str, folder: Path) -> dict[str, list[str]]:
    """Which of the model's files are mapped: by default, and if the session may."""
    path = make(kind, folder)
    found = {}
    for allowed in ("0", "1"):
        session = session_of(path, native, **{"session.map_files": allowed})
        result = outcome(functools.partial(lambda session: session, session))
        maps = Path("/proc/self/maps").read_text().splitlines()
        found[allowed] = [result, *sorted({os.path.basename(line) for line in maps if str(folder) in line})]
        del session
    return found


if __name__ == "__main__":
    subject, kind, native, folder = sys.argv[1:]
    functions = {"after": after_creation, "during": while_reading, "mapped": mapped_names}
    print(json.dumps(functions[subject](kind, native, Path(folder))))
