"""Object code on disk: what is damaged, foreign or too much is as if it were not there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sardonyx.compiler import cache, jit, linking, sources
from sardonyx.compiler.cache import MAGIC, PARTS, ObjectCache, default_folder
from tests.patience import HANG_SECONDS

KEY = "ab" + "c" * 38


def file_of(folder: Path) -> Path:
    return folder / KEY[:2] / KEY[2:]


def test_what_is_put_is_found_again(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    assert cache.get(KEY) is None
    cache.put(KEY, b"code")
    assert cache.get(KEY) == b"code" and ObjectCache(tmp_path).get(KEY) == b"code"
    assert [path.name for path in file_of(tmp_path).parent.iterdir()] == [KEY[2:]]


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "other"])
def test_damaged_entries_count_as_absent(tmp_path: Path, damage: str) -> None:
    cache = ObjectCache(tmp_path)
    cache.put(KEY, b"code" * 100)
    whole = file_of(tmp_path).read_bytes()
    spoiled = {
        "cut": whole[:-1],
        "flipped": whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:],
        "empty": b"",
        "other": b"something else",
    }
    file_of(tmp_path).write_bytes(spoiled[damage])
    assert cache.get(KEY) is None
    cache.put(KEY, b"again")
    assert cache.get(KEY) == b"again"


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = ObjectCache(tmp_path / "file" / "folder")
    cache.put(KEY, b"code")
    assert cache.get(KEY) is None


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can give a file away")
def test_another_users_entry_is_not_run(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    cache.put(KEY, b"code")
    os.chown(file_of(tmp_path), 12345, 12345)
    assert cache.get(KEY) is None


def test_the_oldest_entries_go_when_there_is_too_much(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path, max_bytes=10_000)
    keys = [f"{number:040x}" for number in range(20)]
    for age, key in enumerate(keys):
        cache.put(key, bytes(1000))
        path = tmp_path / key[:2] / key[2:]
        os.utime(path, (1_000_000 + age, 1_000_000 + age))
    cache.shrink()
    left = [key for key in keys if cache.get(key) is not None]
    assert left and left == keys[-len(left) :]
    assert sum(path.stat().st_size for path in tmp_path.glob("??/*")) <= 7500


def test_the_whole_folder_is_gone_through_only_if_a_part_holds_more_than_its_share(tmp_path: Path) -> None:
    class Counting(ObjectCache):
        times = 0

        def shrink(self) -> None:
            self.times += 1

    cache = Counting(tmp_path, max_bytes=PARTS * 10_000)
    for key, size, times in (("00", 5000, 0), ("01", 90_000, 0), ("40", 5000, 0), ("00", 5000, 1)):
        cache.put(f"{key}{size + cache.times + times:038x}", bytes(size))
        assert cache.times == times


def test_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path))
    assert default_folder() == str(tmp_path)
    monkeypatch.setenv("SARDONYX_CACHE_DIR", "")
    assert default_folder() is None
    monkeypatch.delenv("SARDONYX_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if sys.platform == "linux":
        assert default_folder() == str(tmp_path / "sardonyx")


def write_nothing() -> str:
    return ""


def test_texts_have_a_name_if_nobody_else_can_change_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def name(*arguments: object, write: Callable[..., object] = linking.link) -> str | None:
        return jit.key_of(write, *arguments)

    monkeypatch.setattr(jit, "fingerprint", lambda: "these sources")
    assert name(1, "x") == name(1, "x") != name(2, "x")
    assert name(object()) is None and name(1, write=write_nothing) is None
    monkeypatch.setattr(jit, "fingerprint", lambda: "others")
    others = name(1, "x")
    monkeypatch.setattr(jit, "fingerprint", lambda: "these sources")
    assert name(1, "x") != others


def test_a_text_with_a_known_digest_is_not_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cache, "shared", lambda: ObjectCache(tmp_path))
    first, written = jit.Kernel("k", "text", key=jit.TextKey(KEY, KEY)), []
    again = jit.Kernel("k", lambda: written.append(1) or "text", key=jit.TextKey(KEY, KEY))
    assert first.digest == again.digest and not written
    assert again.text == "text" and written


def test_sources_that_were_edited_since_the_start_have_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    sources.fingerprint.cache_clear()
    monkeypatch.setattr(sources, "IMPORTED", 0.0)
    assert sources.fingerprint() is None
    sources.fingerprint.cache_clear()


PROGRAM = """
import numpy as np, onnx.parser, sardonyx
from sardonyx.compiler.jit import jit
model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 21]> g (float[N] x) => (float[N] y) { y = Add(x, x) }')
session = sardonyx.InferenceSession(model.SerializeToString())
assert session.run(None, {"x": np.ones(5, np.float32)})[0].tolist() == [2.0] * 5
import sys
print(jit().compilations, "llvmlite.binding" in sys.modules)
"""


def run(folder: Path) -> list[str]:
    """How many kernels a process had to compile, and whether it loaded LLVM."""
    environment = os.environ | {"SARDONYX_CACHE_DIR": str(folder)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


def compilations(folder: Path) -> int:
    return int(run(folder)[0])


@pytest.mark.skipif(not linking.can_map(), reason="LLVM links here")
def test_what_is_compiled_needs_no_llvm_any_more(tmp_path: Path) -> None:
    assert run(tmp_path)[1] == "True"
    assert run(tmp_path) == ["0", "False"]


def test_a_second_process_compiles_nothing_and_damage_is_mended(tmp_path: Path) -> None:
    first = compilations(tmp_path)
    assert first > 0
    assert compilations(tmp_path) == 0
    entries = sorted(tmp_path.glob("??/*"))
    assert len(entries) >= first and all(path.read_bytes().startswith(MAGIC) for path in entries)
    for path in entries:
        path.write_bytes(path.read_bytes()[:-20])
    assert compilations(tmp_path) == first
    assert compilations(tmp_path) == 0


def test_many_processes_may_share_a_folder(tmp_path: Path) -> None:
    environment = os.environ | {"SARDONYX_CACHE_DIR": str(tmp_path)}
    running = [subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE) for _ in range(4)]
    assert all(process.wait(timeout=HANG_SECONDS) == 0 for process in running)
    for process in running:
        assert process.stdout is not None
        process.stdout.close()
    assert compilations(tmp_path) == 0
