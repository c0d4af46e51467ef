"""docs/adding.md as diffs: its blocks are put into the files that they name, in a copy of the package, and everything is there.

The table at the page's head says how many files each addition takes; the blocks are counted.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tests.docs.names import ROOT

PAGE = (ROOT / "docs" / "adding.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^<!-- file: (\S+?)(?:, before: ([^\n]+))? -->\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| (.+) \| (\d) \| .+ \|$", re.MULTILINE)

PROGRAM = """
import numpy as np
import onnx.parser

import sardonyx
from sardonyx import settings

HEAD = '<ir_version: 10, opset_import: ["": 21, "my.domain": 1]>'


def session(text):
    options = sardonyx.SessionOptions()
    options.add_session_config_entry(settings.RECORD_ASSIGNMENT, "1")
    options.add_session_config_entry("sardonyx.greeting", "hello")
    options.log_severity_level = 1
    return sardonyx.InferenceSession(onnx.parser.parse_model(HEAD + text), options)


def left_to_numpy(made):
    return [node.reason for part in made.get_provider_graph_assignment_info() for node in part.get_nodes() if node.reason]


x = np.arange(12, dtype=np.float32).reshape(3, 4)
added = session("g (float[N, 4] x) => (float[N, 4] y) { y = my.domain.ScaledAdd<alpha = 2.0>(x, x) }")
assert np.array_equal(added.run(None, {"x": x})[0], 3 * x) and not left_to_numpy(added)

summed = session("g (float[N, 4] x) => (float[N] y) { y = my.domain.RowSums(x) }")
assert np.array_equal(summed.run(None, {"x": x})[0], x.sum(axis=1)) and not left_to_numpy(summed), left_to_numpy(summed)

large = session("g (float[N] x) => (float[N] y) <float one = {1}> { e = Exp(x) s = Add(e, one) y = Log(s) }")
assert large.run(None, {"x": np.array([100], np.float32)})[0].tolist() == [100]
assert "softplus" in large.explain()
assert settings.GREETING.of({}) == ""
"""

ROW_SUMS = {
    "sardonyx/ops/contrib/elementwise.py": """
from sardonyx.ops.shapes import fresh_shape

define("my.domain", "RowSums", 1, "(X: T) -> (Y: T)", T=FLOATS)


@in_domain("my.domain")("RowSums")
def row_sums_shape(X):
    rows, _ = X.require_rank(2, name="X") or fresh_shape(2)
    return (rows,)
""",
    "sardonyx/providers/cpu/contrib/elementwise.py": """
@cpu.kernel("RowSums", domain="my.domain")
def row_sums(X):
    return X.sum(axis=1)
""",
}
"""The op of the page's native kernel, which it leaves to the reader; docs/ops.md has its inference."""


def sections() -> dict[str, set[str]]:
    """Heading: the files that the blocks below it belong to."""
    found = defaultdict(set)
    for part in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]:
        title = part.partition("\n")[0]
        found[title.lower().replace(" ", "-")].update(file for file, _, _ in BLOCK.findall(part))
    return found


def test_counts_of_files_are_true() -> None:
    counted = sections()
    rows = [(anchors, int(count)) for what, count in ROW.findall(PAGE) if (anchors := re.findall(r"\(#([a-z-]+)\)", what))]
    assert len(rows) == 7
    for anchors, count in rows:
        files = set().union(*(counted[anchor] for anchor in anchors))
        assert anchors == ["a-provider"] or len(files) == count, f"{anchors}: {sorted(files)}"


UNANNOTATED = re.compile(r"sardonyx/(ops|providers/cpu|providers/scalars)/")
"""Where the schema says what operands are."""


def test_functions_have_the_annotations_that_types_are_checked_by() -> None:
    blocks = [(file, text) for file, before, text in BLOCK.findall(PAGE) if not before and not UNANNOTATED.match(file)]
    functions = [node for _, text in blocks for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    assert len(functions) > 2
    for function in functions:
        assert function.returns and all(argument.annotation for argument in function.args.args), function.name


@pytest.fixture(scope="module")
def patched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with all blocks of the page in their files."""
    folder = tmp_path_factory.mktemp("adding")
    shutil.copytree(ROOT / "sardonyx", folder / "sardonyx", ignore=shutil.ignore_patterns("__pycache__"))
    for file, before, text in (*BLOCK.findall(PAGE), *((file, "", text) for file, text in ROW_SUMS.items())):
        path = folder / file
        source = path.read_text(encoding="utf-8") if path.exists() else ""
        at = source.index(before) if before else len(source)
        at = source.rindex("\n", 0, at) + 1 if before else at
        path.write_text(f"{source[:at]}{text if before else f'{chr(10) * 2}{text}'}{source[at:]}", encoding="utf-8")
    return folder


def test_what_is_added_works(patched: Path, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(patched), "SARDONYX_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-W", "error", "-c", PROGRAM]
    finished = subprocess.run(command, cwd=patched, env=environment, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    assert "hello" in finished.stderr
