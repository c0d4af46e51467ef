"""Providers from other packages: a package as pip would install it, found through its entry point by a fresh interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent

PACKAGE = """
import numpy as np
from sardonyx.providers.kernel_table import KernelTable
from sardonyx.providers.provider import ExecutionProvider

table = KernelTable("PluginExecutionProvider")
calls = []


@table.kernel("Exp")
def exp(input):
    calls.append(input.shape)
    return np.exp(input)


class PluginExecutionProvider(ExecutionProvider):
    name = "PluginExecutionProvider"
    kernels = table
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of installed packages with one in it."""
    (tmp_path / "plugin.py").write_text(PACKAGE)
    info = tmp_path / "sardonyx_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sardonyx-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[sardonyx.providers]\nPluginExecutionProvider = plugin:PluginExecutionProvider\n")
    return tmp_path


def run(program: str, *folders: Path) -> str:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (*folders, ROOT)))}
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(program)]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_an_installed_provider_is_found_and_used(site):
    out = run(
        """
        import sys
        import numpy as np, onnx.parser, sardonyx
        assert sardonyx.get_available_providers()[0] == "PluginExecutionProvider"
        assert "plugin" not in sys.modules  # loaded when it is used, not before
        model = onnx.parser.parse_model(
            '<ir_version: 10, opset_import: ["" : 21]> g (float[2] x) => (float[2] y) { t = Exp(x) y = Neg(t) }'
        )
        session = sardonyx.InferenceSession(model, providers=[("PluginExecutionProvider", {"level": 3})])
        print(session.get_providers(), session.get_provider_options()["PluginExecutionProvider"])
        print(session.run(None, {"x": np.zeros(2, np.float32)})[0].tolist(), sys.modules["plugin"].calls)
        """,
        site,
    )
    assert out.splitlines() == [
        "['PluginExecutionProvider', 'CPUExecutionProvider'] {'level': '3'}",
        "[-1.0, -1.0] [(2,)]",
    ]


def test_without_the_package_the_name_is_unknown():
    out = run(
        """
        import sardonyx, sardonyx.runtime.preparation.providers as providers
        assert "PluginExecutionProvider" not in sardonyx.get_available_providers()
        try:
            providers.open_providers(["PluginExecutionProvider"], [{}])
        except RuntimeError as error:
            print(error)
        """
    )
    assert out == "Unknown Provider Type: PluginExecutionProvider\n"
