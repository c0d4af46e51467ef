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


BERT = """
import copy, sys
import sardonyx
sardonyx.install_as_onnxruntime()
import torch, transformers
import onnxruntime.training
from onnxruntime.training.ortmodule import DebugOptions, LogLevel, ORTModule
from onnxruntime.training.optim.fused_adam import AdamWMode, FusedAdam

assert onnxruntime.training.ORTModule is ORTModule and onnxruntime.training.is_ortmodule_available()
assert "sardonyx" in ORTModule.__module__
torch.manual_seed(0)
config = transformers.BertConfig(
    vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, num_labels=2
)
theirs = transformers.BertForSequenceClassification(config).train()
ours = ORTModule(copy.deepcopy(theirs), DebugOptions(LogLevel.ERROR))
optimizers = [
    FusedAdam(ours.parameters(), lr=1e-3, eps=1e-8, adam_w_mode=AdamWMode.ADAMW_TORCH, weight_decay=0.01),
    torch.optim.AdamW(theirs.parameters(), lr=1e-3, weight_decay=0.01),
]
for step in range(6):
    ids = torch.randint(0, 60, (4, 7 + step % 3))
    mask = torch.ones_like(ids)
    mask[1, 4:] = 0
    labels = (ids[:, 0] > 30).long()
    losses = []
    for model, optimizer in zip((ours, theirs), optimizers):
        torch.manual_seed(step)  # for dropout
        result = model(input_ids=ids, attention_mask=mask, labels=labels)
        assert isinstance(result, transformers.modeling_outputs.SequenceClassifierOutput)
        result.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(result.loss.item())
    print(*losses)
assert not ours._fallback.is_active
"""


def test_a_bert_learns_in_ortmodule_under_the_name_of_onnxruntime(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is no dependency; `make test-training` has it")
    (tmp_path / "program.py").write_text(BERT)
    rows = [[float(number) for number in line.split()] for line in run("program.py", folder=tmp_path).splitlines()]
    assert len(rows) == 6
    for ours, theirs in rows:
        assert ours == pytest.approx(theirs, abs=1e-3)
