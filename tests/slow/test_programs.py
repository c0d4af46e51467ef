"""Models that packages carry, and quantized ones, are one native program each: those of the directory that SARDONYX_CORPUS names.

carried.json lists the former; of generated.json the family "int8" is meant. A ZipMap at the end may stand behind the program. It makes
maps, which are objects of Python.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import sardonyx
from sardonyx.runtime.preparation.plan import all_steps

pytestmark = pytest.mark.slow

DIRECTORY = Path(os.environ.get("SARDONYX_CORPUS") or "nowhere").resolve()


def _listed(name: str) -> dict[str, Any]:
    path = DIRECTORY / name
    return json.loads(path.read_text()) if path.exists() else {}


QUANTIZED = {name: entry for name, entry in _listed("generated.json").items() if entry["family"] == "int8"}
FILES: dict[str, Path] = {
    name: DIRECTORY / entry["file"]
    for name, entry in {**_listed("carried.json"), **QUANTIZED}.items()
    if (DIRECTORY / entry["file"]).exists()
}
UNSET = pytest.mark.skipif(
    not os.environ.get("SARDONYX_CORPUS"),
    reason="SARDONYX_CORPUS is not set: it names a directory of models with carried.json and generated.json",
)


@pytest.mark.parametrize("name", sorted(FILES) or [pytest.param("any", marks=UNSET)])
def test_model_is_one_program(name: str) -> None:
    options = sardonyx.SessionOptions()
    options.add_session_config_entry("sardonyx.remember", "off")
    steps = list(all_steps(sardonyx.InferenceSession(FILES[name], options)._engine.plan))
    left = {step.node.op_type for step in steps if step.in_numpy} - {"ZipMap"}
    assert (sum(step.compiled for step in steps), left) == (1, set())
