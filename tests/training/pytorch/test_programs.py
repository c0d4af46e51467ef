"""Programs that need PyTorch: the example in all its ways, the code of docs/training.md, and what is imported when."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is the extra 'train'; `make test-training` runs these tests")

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"^```py\n(.*?)^```", re.MULTILINE | re.DOTALL)


def run(*arguments: str, folder: Path | None = None) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    finished = subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_the_code_of_the_page_runs(tmp_path: Path) -> None:
    blocks = BLOCK.findall((ROOT / "docs" / "training.md").read_text())
    assert len(blocks) >= 4
    (tmp_path / "page.py").write_text("\n".join(["import torch", "torch.manual_seed(0)", *blocks]))
    run("page.py", folder=tmp_path)


def test_all_ways_learn_alike() -> None:
    results = {}
    for way in ("eager", "files", "ortmodule", "compile"):
        lines = run(str(ROOT / "examples" / "train_digits.py"), "--with", way, "--epochs", "3").splitlines()
        results[way] = [float(line.split()[-1]) for line in lines]
    for way, numbers in results.items():
        assert numbers[-1] == pytest.approx(results["eager"][-1], abs=0.01), way
        assert numbers[:-1] == pytest.approx(results["eager"][:-1], abs=1e-3), way


def test_the_package_and_training_on_files_do_not_import_torch() -> None:
    code = "import sys, sardonyx; import sardonyx.training.api, sardonyx.training.artifacts; print('torch' in sys.modules)"
    assert run("-c", code).strip() == "False"
    assert run("-c", "import sys, sardonyx; print('sardonyx.training' in sys.modules)").strip() == "False"
