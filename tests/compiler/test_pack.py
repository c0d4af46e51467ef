"""Kernels that were compiled ahead are used where they fit this machine and these sources, and nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sardonyx
from sardonyx.compiler import jit as jit_module
from sardonyx.compiler import linking, pack
from sardonyx.compiler.cache import ObjectCache
from sardonyx.compiler.jit import LAYOUT_VERSION, Jit, Kernel, TextKey, host, packs
from sardonyx.compiler.pack import BadPack, Pack
from sardonyx.compiler.sources import content_digest
from sardonyx.compiler.target import X86_LEVELS
from tests.compiler.test_jit import call, kernel

ROOT = Path(sardonyx.__file__).parents[1]
pytestmark = pytest.mark.skipif(not linking.can_map(), reason="packs are for 64-bit x86 Linux")
OURS = "07" * pack.KEY_BYTES
"""Some arguments of a function that writes a text."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where packs are found."""
    found = tmp_path / pack.PACKAGE
    found.mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    packs.cache_clear()
    yield found
    packs.cache_clear()


def objects_for(level: str, folder: Path, *kernels: Kernel) -> dict[str, bytes]:
    compiled = Jit(X86_LEVELS[level], ObjectCache(folder.parent / "compiled", 1 << 24)).objects(kernels)
    return {kernel.digest: object_code for kernel, object_code in zip(kernels, compiled, strict=True)}


def write(folder: Path, level: str = "", *, layout: int = LAYOUT_VERSION, needs: list[str] | None = None, **more: str) -> Path:
    """A pack for a level, the host's by default, with the kernel that adds 5."""
    level = level or host().name
    path = folder / f"{level}{pack.ENDING}"
    sources = more.get("sources", content_digest() or "")
    texts = {OURS: kernel(5).digest}
    objects = objects_for("sse2", folder, kernel(5), kernel(6))
    pack.write(str(path), level, needs or [], texts, objects, layout=layout, sources=sources)
    packs.cache_clear()  # compiling has looked for them
    return path


def compilations(folder: Path, level: str = "", number: int = 5) -> int:
    """How many kernels a compiler with an empty cache compiles for the one that adds a number."""
    target = X86_LEVELS[level] if level else host()
    compiler = Jit(target, ObjectCache(folder.parent / "empty", 1 << 24))
    assert call(compiler.load([kernel(number)]).addresses[0], 10) == 10 + number
    for entry in compiler.cache.entries():
        Path(entry[2]).unlink()
    return compiler.compilations


def test_an_object_of_a_pack_is_used_when_the_cache_is_empty(folder: Path) -> None:
    write(folder)
    assert compilations(folder) == 0
    assert compilations(folder, number=7) == 1


def test_without_a_pack_all_is_compiled(folder: Path) -> None:
    assert compilations(folder) == 1 and packs() == []


def test_packs_of_lower_levels_are_used_and_those_of_higher_ones_are_not(folder: Path) -> None:
    write(folder, "sse2")
    assert compilations(folder) == 0
    assert compilations(folder, "sse2") == 0
    if host().name != "sse2":
        write(folder).rename(folder / "other")
        (folder / "sse2.kernels").unlink()
        (folder / "other").rename(folder / f"{host().name}{pack.ENDING}")
        packs.cache_clear()
        assert compilations(folder) == 0
        assert compilations(folder, "sse2") == 1


def test_a_pack_under_the_name_of_another_level_is_not_used(folder: Path) -> None:
    write(folder, "avx2").rename(folder / "sse2.kernels")
    assert compilations(folder) == 1


def test_a_pack_that_needs_what_this_cpu_lacks_is_not_used(folder: Path) -> None:
    write(folder, needs=["cx16", "a feature of other CPUs"])
    assert compilations(folder) == 1


def test_a_pack_of_another_layout_is_not_used(folder: Path) -> None:
    write(folder, layout=LAYOUT_VERSION + 1)
    assert compilations(folder) == 1


def test_texts_are_known_by_their_arguments_where_sources_are_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = ObjectCache(None, 0)
    monkeypatch.setattr(jit_module.cache, "shared", lambda: empty)
    key = TextKey("11" * 20, OURS)
    write(folder)
    assert key.find() == kernel(5).digest and TextKey("11" * 20, "08" * 20).find() is None
    write(folder, sources="other sources")
    assert key.find() is None


@given(st.data())
def test_damage_is_noticed(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("packs") / f"sse2{pack.ENDING}"
    objects = {f"{number:032x}": bytes([number]) * number for number in range(1, 20)}
    pack.write(str(path), "sse2", [], {OURS: "01" * 16}, objects, layout=LAYOUT_VERSION, sources="")
    whole = path.read_bytes()
    assert all(Pack(str(path), LAYOUT_VERSION).object_of(digest) == code for digest, code in objects.items())
    place = data.draw(st.integers(0, len(whole) - 1))
    cut = data.draw(st.booleans())
    path.write_bytes(whole[:place] if cut else whole[:place] + bytes([whole[place] ^ 64]) + whole[place + 1 :])
    try:
        damaged = Pack(str(path), LAYOUT_VERSION)
    except BadPack:
        return
    assert not cut
    assert all(damaged.object_of(digest) in (code, None) for digest, code in objects.items())


def test_what_is_no_pack_is_refused(tmp_path: Path) -> None:
    for content in (b"", b"something", pack.MAGIC, pack.MAGIC + b"\xff" * 8):
        (tmp_path / "file").write_bytes(content)
        with pytest.raises(BadPack):
            Pack(str(tmp_path / "file"), LAYOUT_VERSION)
    with pytest.raises(BadPack, match="cannot be read"):
        Pack(str(tmp_path / "nothing"), LAYOUT_VERSION)


PROGRAM = """
import sys
import numpy as np
import sardonyx
from sardonyx.compiler.jit import jit
session = sardonyx.InferenceSession(sys.argv[1])
assert session.run(None, {"X": np.ones((3, 2), np.float32)})[0].tolist() == [[1, 2], [3, 4], [5, 6]]
print(jit().compilations, "sardonyx_kernels" in sys.modules, "llvmlite.binding" in sys.modules)
"""


def test_the_packs_that_are_built_serve_a_fresh_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `make kernels` does, for one small model; then a process whose cache is empty compiles nothing."""
    model = ROOT / "sardonyx" / "datasets" / "mul_1.onnx"
    environment = {"SARDONYX_CPU": host().name, "SARDONYX_REMEMBER": "off", "SARDONYX_CORPUS": str(model.parent)}
    build = [sys.executable, ROOT / "packaging" / "kernels" / "compile_kernels.py", "mul_1", "--child", host().name]
    build += ["--folder", tmp_path / pack.PACKAGE]
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    subprocess.run(build, check=True, capture_output=True)
    monkeypatch.delenv("SARDONYX_CPU")
    found = {}
    for path in (tmp_path, tmp_path / "nowhere"):
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (ROOT, path))))
        monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path / "cache" / path.name))
        done = subprocess.run([sys.executable, "-c", PROGRAM, model], check=True, capture_output=True, text=True)
        compiled, imported, loads_llvm = done.stdout.split()
        found[path.name] = int(compiled), loads_llvm
        assert imported == "False"
    assert found.pop(tmp_path.name) == (0, "False") and found["nowhere"][0] > 0
