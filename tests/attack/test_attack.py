"""The harness finds faults that are planted, names their cases and goes on; and a few cases of each kind find nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest

from tests.attack import supervision
from tests.attack.kinds import planted
from tests.attack.supervision import ROOT, Tally, attack

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of memory and CPU time are judged by Linux's /proc")


def number_of(fault: Any) -> int:
    return planted.FAULTS.index(fault)


FINDINGS = {
    planted.other_exception: "KeyError",
    planted.crash: "SIGSEGV",
    planted.hang: "more than 2 s of CPU time",
    planted.memory_bomb: "MemoryError",
    planted.deadlock: "computes nothing",
}


def test_planted_faults_are_findings_and_the_work_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "IDLE_SECONDS", 3)
    cases = [("planted", 0), *(("planted", number) for fault in FINDINGS for number in (number_of(fault), 0))]
    tally = attack(iter(cases), tmp_path, 1, lambda tally, case: None)
    assert tally.cases == {"planted": len(cases)}
    assert [finding.case for finding in tally.findings] == [f"planted:{number_of(fault)}" for fault in FINDINGS]
    for finding, words in zip(tally.findings, FINDINGS.values()):
        assert words in finding.problem


@pytest.mark.parametrize("fault", [planted.wrong_number, planted.exception_of_a_node])
def test_a_wrong_model_is_saved_without_the_nodes_that_are_not_to_blame(tmp_path: Path, fault: Any) -> None:
    tally: Tally = attack(iter([("planted", number_of(fault))]), tmp_path, 1, lambda tally, case: None)
    (finding,) = tally.findings
    assert finding.ops == ["Sin"]
    assert [node.op_type for node in onnx.load(finding.model).graph.node] == ["Sin"]


def test_the_command_fails_if_anything_was_found(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.attack", "--json", "--workers", "1", "--save", str(tmp_path)]
    good = subprocess.run([*command, "--case", "planted:0"], cwd=ROOT, capture_output=True, text=True)
    bad = subprocess.run([*command, "--case", "planted:2"], cwd=ROOT, capture_output=True, text=True)
    assert (good.returncode, bad.returncode) == (0, 1), good.stderr + bad.stderr
    assert json.loads(bad.stdout)["findings"][0]["case"] == "planted:2"


def test_a_few_cases_of_each_kind_find_nothing(tmp_path: Path) -> None:
    kinds = ("graphs", "attributes", "files", "lies", "outliers", "shapes")
    cases = [(kind, number) for kind in kinds for number in range(3)]
    tally = attack(iter(cases), tmp_path, 1, lambda tally, case: None)
    assert tally.cases == dict.fromkeys(kinds, 3)
    assert not tally.findings, tally.findings
