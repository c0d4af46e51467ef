"""Every recorded run of onnxruntime's tools, repeated with ours."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest

from tests.quantization.recorded import compare, engine, models

RUNS = json.loads(lzma.decompress((Path(__file__).parent / "recorded" / "runs.json.xz").read_bytes()))
BETTER = {
    "debug_mlp": "onnxruntime subtracts the zero points of uint8 weights in uint8, where the difference wraps; ours does not",
}
"""Runs that come out otherwise on purpose."""


@pytest.fixture(scope="module", autouse=True)
def float_models(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("recorded")
    models.build_all(str(folder))
    engine.FOLDER[0] = str(folder)


@pytest.mark.parametrize("name", sorted(RUNS))
def test_run_gives_what_onnxruntime_gave(name: str) -> None:
    hard, _ = compare.check(RUNS[name])
    if name in BETTER:
        assert hard, f"{name} agrees now; take it from the list"
    else:
        assert not hard, "\n".join(hard)
