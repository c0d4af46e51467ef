"""Compiled models with strings compute what sessions compute that compile, in a process that cannot compile, and refuse what they must."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.errors import Fail
from sardonyx.providers.native.aot import container
from sardonyx.providers.native.aot.storing import restored
from sardonyx.providers.native.execution.texts import TextProgram
from tests.providers.native.aot_models import check, compile_model, options, payload_of, python, write
from tests.providers.native.test_texts import WORDS

LABELS = """
g (string[N] x, float[N, 2] f) => (string[N] y, int64[N] codes, string[N, 2] both, float[N, 2] z)
<string[1] mark = {"–"}, int64[1] one = {1}>
{
    lowered = StringNormalizer<case_change_action = "LOWER">(x)
    codes = ai.onnx.ml.LabelEncoder<keys_strings = ["a", "naïve", "日本語"], values_int64s = [1, 2, 3], default_int64 = -1>(lowered)
    y = StringConcat(lowered, mark)
    column = Unsqueeze(y, one)
    both = Concat<axis = 1>(column, column)
    numbers = Cast<to = 1>(codes)
    factors = Unsqueeze(numbers, one)
    z = Mul(f, factors)
}
"""
"""Strings go in, come out and are constants; numbers beside them."""


def _words(count: int) -> np.ndarray:
    return np.array((WORDS * (count // len(WORDS) + 1))[:count], object)


def _feeds(count: int) -> dict[str, Any]:
    return {"x": _words(count), "f": np.arange(2 * count, dtype=np.float32).reshape(count, 2) / 10}


@pytest.mark.parametrize("embed", [False, True])
def test_strings_go_in_and_out(tmp_path: Path, embed: bool) -> None:
    session = check(write(tmp_path / "m.onnx", LABELS), *map(_feeds, (1, 13, 400, 13)), embed=embed)
    (step,) = session._engine.plan.steps
    assert isinstance(step.call, TextProgram)


def test_without_a_compiler(tmp_path: Path) -> None:
    path = compile_model(write(tmp_path / "m.onnx", LABELS), target=tmp_path / "m_ctx.ort")
    (tmp_path / "m.onnx").unlink()
    program = f"""
import sys
sys.modules.update(dict.fromkeys(("llvmlite", "onnx", "google.protobuf")))
import numpy as np, sardonyx
options = sardonyx.SessionOptions()
options.add_session_config_entry("session.allow_compiled_code", "1")
session = sardonyx.InferenceSession({str(path)!r}, options)
y, codes, both, z = session.run(None, {{"x": np.array(["A", "NAÏVE"], object), "f": np.ones((2, 2), np.float32)}})
assert y.tolist() == ["a–", "naïve–"] and codes.tolist() == [1, 2] and both.shape == (2, 2) and z.tolist() == [[1, 1], [2, 2]]
print("done")
"""
    assert python(program).stdout == "done\n"


def test_what_is_no_string_is_left_to_the_source(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", LABELS)
    session = sardonyx.InferenceSession(compile_model(path), options())
    feeds = {"x": np.array(["half \ud800"], object), "f": np.zeros((1, 2), np.float32)}
    wanted = sardonyx.InferenceSession(path).run(None, feeds)
    assert [list(one.ravel()) for one in session.run(None, feeds)] == [list(one.ravel()) for one in wanted]


def test_inputs_that_are_no_strings_are_refused(tmp_path: Path) -> None:
    """The program would take numbers for objects."""
    target = compile_model(write(tmp_path / "m.onnx", LABELS))
    model = onnx.load(target)
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    onnx.save(model, target)
    with pytest.raises(Fail, match="other inputs are strings"):
        sardonyx.InferenceSession(target, options())


CHANGES = {
    "no list": {"constants": "a"},
    "no strings": {"constants": [1]},
    "a string twice": {"constants": ["a", "a"]},
    "the empty string": {"constants": [""]},
    "half a character": {"constants": ["\ud800"]},
    "an input too far": {"inputs": [2]},
    "an output too far": {"outputs": [0, 4]},
    "an output of another type": {"outputs": [3]},
    "no number": {"outputs": ["0"]},
    "nothing": None,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_malformed_descriptions_are_refused(tmp_path: Path, change: dict[str, Any] | None) -> None:
    opened = container.read(memoryview(payload_of(compile_model(write(tmp_path / "m.onnx", LABELS))).read_bytes()))
    description = json.loads(json.dumps(opened.description))
    (program,) = description["programs"]
    assert restored(opened, [program], len(description["kernels"]))[0].texts is not None
    program["texts"] = change if change is None else {**program["texts"], **change}
    with pytest.raises(container.BadContext):
        restored(opened, [program], len(description["kernels"]))
