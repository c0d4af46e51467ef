"""The list of modules that models need: a copy of the package without the others runs them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import sardonyx
from sardonyx import formats
from sardonyx.optimizer.pipeline import Level
from sardonyx.runtime.saving import files as saving
from sardonyx.runtime.saving.trimming import Trim
from sardonyx.settings import MINIMAL_BUILD_OPTIMIZATIONS
from tests.formats.ort_fixtures import MODELS

RUN = """
import sys, numpy as np, sardonyx
options = sardonyx.SessionOptions()
for path in sys.argv[1:]:
    for native in ("0", "1"):
        session = sardonyx.InferenceSession(path, options, [("CPUExecutionProvider", {"native": native})])
        shapes = {value.name: [size if isinstance(size, int) else 2 for size in value.shape] for value in session.get_inputs()}
        feeds = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
        assert all(np.isfinite(result).all() for result in session.run(None, feeds))
from sardonyx.providers.cpu import cpu
print(sardonyx.__file__, len(list(cpu.__iter__())))
"""


def test_a_copy_without_the_other_modules_runs_the_models(tmp_path: Path) -> None:
    trim, files = Trim(), []
    for name in ("conv_relu", "order_diamond"):
        model = formats.load(MODELS / f"{name}.onnx")
        saving.make_savable(model, Level.ALL)
        saved = saving.as_saved(model)
        trim.add(saved.model)
        saved.write(tmp_path / f"{name}.ort")
        files.append(str(tmp_path / f"{name}.ort"))
    lines = trim.text(files).splitlines()
    assert "op com.microsoft:FusedConv:1" in lines
    dropped = [line.removeprefix("drop ") for line in lines if line.startswith("drop ")]
    assert "keep sardonyx/providers/cpu/elementwise.py" in lines and "sardonyx/providers/cpu/image.py" in dropped
    assert len(dropped) > 40

    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(sardonyx.__file__).parent, tmp_path / "copy" / "sardonyx", ignore=ignored)
    for path in dropped:
        (tmp_path / "copy" / path).unlink()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "copy")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN, *files],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    where, kernels = done.stdout.split()
    assert where.startswith(str(tmp_path)) and int(kernels) < 900


def test_graphs_inside_and_saved_rewrites_count() -> None:
    trim = Trim()
    for name in ("nested_loop_if", "conv_relu"):
        model = formats.load(MODELS / f"{name}.onnx")
        saving.make_savable(model, Level.ALL, settings={MINIMAL_BUILD_OPTIMIZATIONS: "save"})
        trim.add(model)
    assert {"If", "Loop", "FusedConv", "Conv"} <= {op_id.split(":")[1] for op_id in trim.op_ids}
