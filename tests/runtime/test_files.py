"""Files of models that change while sessions use them. What could end the process runs in one of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sardonyx

from . import file_changes

KINDS = ("onnx", "external", "ort", "packed", "compiled")


def child(*arguments: str) -> Any:
    command = [sys.executable, "-W", "error", "-m", "tests.runtime.file_changes", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr)
    return json.loads(done.stdout)


@pytest.mark.parametrize("native", ["1", "0"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_live_session_does_not_see_what_happens_to_its_file(kind: str, native: str, tmp_path: Path) -> None:
    if (kind, native) == ("compiled", "0"):
        pytest.skip("compiled code is native; without it the session is one of the source")
    found = child("after", kind, native, str(tmp_path))
    for change, (before, same_shape, other_shape) in found.items():
        assert (before, same_shape) == ("right", "right"), change
        assert other_shape in (["right", "refused"] if change in ("truncate", "overwrite") else ["right"]), change


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_changes_while_it_is_read_gives_an_error_or_one_result(kind: str, tmp_path: Path) -> None:
    found = child("during", kind, "1", str(tmp_path))
    for change, results in found.items():
        assert {*results} <= ({"right", "refused"} if change in ("truncate", "overwrite") else {"right"}), (change, results)
    assert "refused" in found["truncate"] and "refused" in found["overwrite"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc/self/maps")
@pytest.mark.parametrize("kind", KINDS)
def test_files_are_mapped_only_if_the_session_may(kind: str, tmp_path: Path) -> None:
    found = child("mapped", kind, "1", str(tmp_path))
    assert found["0"] == ["right"]
    assert found["1"][0] == "right" and found["1"][1:]


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux's files in memory")
def test_a_sealed_file_is_mapped_without_being_asked(tmp_path: Path) -> None:
    import fcntl

    data = file_changes.make("onnx", tmp_path).read_bytes()
    descriptor = os.memfd_create("sealed-model", os.MFD_ALLOW_SEALING)
    try:
        os.write(descriptor, data)
        path = f"/proc/self/fd/{descriptor}"
        assert not sardonyx.formats.files.File(path).is_mapped
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE)
        assert sardonyx.formats.files.File(path).is_mapped
        (result,) = file_changes.session_of(Path(path), "1").run(None, {"ids": file_changes.IDS})
        np.testing.assert_allclose(result, file_changes.expected(file_changes.IDS), rtol=1e-4, atol=1e-4)
    finally:
        os.close(descriptor)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc/self/fd")
def test_sessions_of_one_file_share_what_they_have_read_and_its_descriptor(tmp_path: Path) -> None:
    path = file_changes.make("onnx", tmp_path)
    sessions = [file_changes.session_of(path, "0") for _ in range(4)]
    links = [Path("/proc/self/fd", number) for number in os.listdir("/proc/self/fd")]
    assert sum(link.exists() and link.samefile(path) for link in links) == 1
    tables = [session._sess._model.graph.initializers["table"].constant.numpy() for session in sessions]
    assert len({array.ctypes.data for array in tables}) == 1
