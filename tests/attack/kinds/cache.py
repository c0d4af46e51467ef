"""The folder of object code in trouble: damaged, read-only, full, deleted under way, shared by processes. Results stay right.

Each session is made in a process of its own (`python -m tests.attack.kinds.cache NUMBER`), for a process compiles a kernel once.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.attack.kinds import shapes
from tests.attack.subject import Problem
from tests.fuzz import mutation

ROOT = Path(__file__).resolve().parents[3]


def run(rng: random.Random) -> None:
    number = rng.randrange(10**6)
    trouble = rng.choice((damaged, emptied, read_only, full, no_folder, deleted_under_way, shared))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "cache"
        folder.mkdir()
        if trouble is not shared:
            finish(start(folder, number), "with an empty cache")
        trouble(rng, folder, number)


def start(folder: Path | str, number: int, **more: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "SARDONYX_CACHE_DIR": str(folder), **more}
    command = [sys.executable, "-m", "tests.attack.kinds.cache", str(number)]
    return subprocess.Popen(command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def finish(process: subprocess.Popen[str], when: str) -> None:
    words, _ = process.communicate()
    if process.returncode:
        raise Problem(f"{when}: exit code {process.returncode}: {words[-1500:]}")


def entries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def damaged(rng: random.Random, folder: Path, number: int) -> None:
    for path in entries(folder):
        if rng.random() < 0.7:
            damage: Callable[..., bytes] = rng.choice(
                (mutation.flip_bit, mutation.flip_bytes, mutation.truncate, mutation.splice)
            )
            path.write_bytes(damage(rng, path.read_bytes(), [b"other" * 50]))
    finish(start(folder, number), "with damaged entries")


def emptied(rng: random.Random, folder: Path, number: int) -> None:
    """Entries become empty files, folders, or links to nowhere."""
    for path in entries(folder):
        path.unlink()
        match rng.randrange(4):
            case 0:
                path.touch()
            case 1:
                path.mkdir()
            case 2:
                path.symlink_to("nowhere")
    finish(start(folder, number), "with entries that are no files")


def read_only(rng: random.Random, folder: Path, number: int) -> None:
    for path in entries(folder)[::2]:
        path.unlink()
    for path in [folder, *folder.iterdir()]:
        path.chmod(0o500)
    try:
        finish(start(folder, number), "with a read-only folder")
    finally:
        for path in [folder, *folder.iterdir()]:
            path.chmod(0o700)


def full(rng: random.Random, folder: Path, number: int) -> None:
    """A bound that the first entry exceeds."""
    finish(start(folder, number + 1, SARDONYX_CACHE_BYTES=str(rng.choice((0, 1, 5000)))), "with a full cache")


def no_folder(rng: random.Random, folder: Path, number: int) -> None:
    """A file stands where the folder should be, or nothing can be there."""
    place = rng.choice((entries(folder)[0] if entries(folder) else folder, Path("/dev/null/cache"), Path("/proc/cache")))
    finish(start(place, number), f"with {place} for a cache")


def deleted_under_way(rng: random.Random, folder: Path, number: int) -> None:
    process = start(folder, number + 1)
    while process.poll() is None:
        with contextlib.suppress(OSError):
            shutil.rmtree(folder)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.02)
    finish(process, "with a cache that is deleted under way")


def shared(rng: random.Random, folder: Path, number: int) -> None:
    processes = [start(folder, number) for _ in range(2)]
    for process in processes:
        finish(process, "with a cache shared by two processes")


if __name__ == "__main__":
    shapes.judge(shapes.make(random.Random(int(sys.argv[1]))))
