"""`python -m benchmarks.prepacking`: what packed weights cost and save, in memory and in time to load.

The model is one of `networks.py`, or one of the directory that SARDONYX_CORPUS names; without a name it is bert_base if that is there. Each
figure comes from a process of its own, contestants take turns. `--update` puts the tables into docs/prepacking.md.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "prepacking.md"
MARKS = re.compile(r"(<!-- prepacking -->).*(<!-- end -->)", re.DOTALL)
MODEL = "bert_base"
EXTERNAL = "session.optimized_model_external_initializers_file_name"
PACKED = "session.save_external_prepacked_constant_initializers"
MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Contestant:
    """A file, and who loads it."""

    title: str
    package: str
    file: str


CONTESTANTS = (
    Contestant("as it came", "sardonyx", "model.onnx"),
    Contestant("optimized, weights beside it", "sardonyx", "plain.onnx"),
    Contestant("the same with packed weights", "sardonyx", "packed.onnx"),
    Contestant("onnxruntime, as it came", "onnxruntime", "model.onnx"),
    Contestant("onnxruntime, `.ort`", "onnxruntime", "theirs.ort"),
)
ORIGINAL, PLAIN, WITH_PACKED, _, THEIRS = CONTESTANTS


# --- in a process of their own


def load(package: str, path: str, **given: Any) -> Any:
    """A session."""
    module = __import__(package)
    options = module.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.map_files", "1")  # onnxruntime maps external data unasked
    return module.InferenceSession(path, options, providers=["CPUExecutionProvider"], **given)


def times(package: str, folder: str, file: str) -> dict[str, Any]:
    """Seconds that the first session of a process takes, and a later one."""
    __import__(package).SessionOptions()
    found = []
    for _ in range(3):
        start = time.perf_counter()
        session = load(package, f"{folder}/{file}")
        found.append(time.perf_counter() - start)
        del session
    return {"first": found[0], "later": min(found[1:])}


def memory(package: str, folder: str, file: str, sessions: str, sharing: str) -> dict[str, Any]:
    """Memory of some sessions that have run. Waits until it has been looked at from outside, too."""
    import sardonyx

    container = sardonyx.PrepackedWeightsContainer() if sharing == "1" else None
    given = {"prepacked_weights_container": container} if package == "sardonyx" else {}
    kept = [load(package, f"{folder}/{file}", **given) for _ in range(int(sessions))]
    for session in kept:
        with np.load(f"{folder}/feeds.npz") as feeds:
            session.run(None, dict(feeds))
    print("ready", flush=True)
    sys.stdin.readline()
    return {}


CHILDREN = {"times": times, "memory": memory}


def child(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.prepacking", "--child", *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    output, _ = process.communicate("\n")
    if process.returncode:
        raise SystemExit(f"a measurement failed: {process.args}")
    found: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return found


# --- memory


def pages(process: subprocess.Popen[str]) -> dict[str, int]:
    """Resident memory of a process in bytes: all of it, and with what is shared divided by those who share it."""
    text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
    return {name: int(re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)[1]) << 10 for name in ("Rss", "Pss")}  # type: ignore[index]


def resident(folder: Path, file: str, sessions: int = 1, sharing: bool = False, processes: int = 1) -> list[dict[str, int]]:
    """What each of some processes with some sessions takes, all of them ready at the same time."""
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(child("memory", "sardonyx", str(folder), file, str(sessions), str(int(sharing))))
            for _ in range(processes)
        ]
        for process in started:
            assert process.stdout is not None
            if process.stdout.readline().strip() != "ready":
                raise SystemExit(f"a measurement failed: {process.args}")
        found = [pages(process) for process in started]
        for process in started:
            process.communicate("\n")
        return found


def memory_table(folder: Path) -> list[str]:
    (one,) = resident(folder, "model.onnx")
    (apart,) = resident(folder, "model.onnx", sessions=2)
    (shared,) = resident(folder, "model.onnx", sessions=2, sharing=True)
    (mapped,) = resident(folder, "packed.onnx", sessions=2)
    (alone,) = resident(folder, "packed.onnx")
    both = resident(folder, "packed.onnx", processes=2)
    unpacked = resident(folder, "plain.onnx", processes=2)

    def row(title: str, found: Sequence[dict[str, int]], base: dict[str, int]) -> str:
        cells = []
        for name in ("Rss", "Pss"):
            total = sum(one[name] for one in found)
            cells += [f"{total / MEGABYTE:.0f} MB", f"{total / base[name]:.2f}"]
        return f"| {title} | {' | '.join(cells)} |"

    return [
        "| sessions, each after a run | RSS | of one session's | PSS | of one session's |",
        "|---|---:|---:|---:|---:|",
        row("one", [one], one),
        row("two in one process, each for itself", [apart], one),
        row("two in one process with a container", [shared], one),
        row("one on saved packed weights", [alone], alone),
        row("two in one process on saved packed weights", [mapped], alone),
        row("two processes on saved packed weights, together", both, alone),
        row("two processes that pack for themselves, together", unpacked, one),
    ]


# --- time


def time_table(folder: Path, rounds: int) -> list[str]:
    found: dict[Contestant, list[dict[str, float]]] = {one: [] for one in CONTESTANTS}
    for _ in range(rounds):
        for one in CONTESTANTS:
            found[one].append(answer(child("times", one.package, str(folder), one.file)))
    medians = {
        one: {which: statistics.median(each[which] for each in measured) for which in ("first", "later")}
        for one, measured in found.items()
    }
    lines = ["| model | first session of a process | a later one |", "|---|---:|---:|"]
    for one, figures in medians.items():
        lines.append(f"| {one.title} | {figures['first'] * 1e3:.0f} ms | {figures['later'] * 1e3:.0f} ms |")
    for title, base in (("without them", PLAIN), ("the model as it came", ORIGINAL), ("onnxruntime's `.ort`", THEIRS)):
        ratios = (medians[WITH_PACKED][which] / medians[base][which] for which in ("first", "later"))
        lines.append(f"| packed weights, relative to {title} | {' | '.join(f'{ratio:.2f}' for ratio in ratios)} |")
    return lines


# --- files


def make_files(folder: Path, name: str) -> None:
    """The model, its feeds, and the files that are made of it."""
    import onnxruntime

    import sardonyx

    model, feeds = _network(name) if _corpus(name) is None else _corpus_model(name)
    (folder / "model.onnx").write_bytes(model)
    np.savez(folder / "feeds.npz", **feeds)
    for title, packed in (("plain", "0"), ("packed", "1")):
        options = sardonyx.SessionOptions()
        options.log_severity_level = 3
        options.optimized_model_filepath = str(folder / f"{title}.onnx")
        options.add_session_config_entry(EXTERNAL, f"{title}.bin")
        options.add_session_config_entry(PACKED, packed)
        sardonyx.InferenceSession(str(folder / "model.onnx"), options)
    theirs = onnxruntime.SessionOptions()
    theirs.log_severity_level = 3
    theirs.optimized_model_filepath = str(folder / "theirs.ort")
    onnxruntime.InferenceSession(str(folder / "model.onnx"), theirs, providers=["CPUExecutionProvider"])


def _corpus(name: str) -> Path | None:
    """The model of this name in the corpus."""
    directory = os.environ.get("SARDONYX_CORPUS")
    found = None if directory is None else Path(directory) / f"{name}.onnx"
    return found if found is not None and found.exists() else None


def _corpus_model(name: str) -> tuple[bytes, dict[str, np.ndarray]]:
    import sardonyx
    from tests.slow.corpus import catalogue
    from tests.slow.model_inputs import make_inputs

    path = _corpus(name)
    assert path is not None
    session = sardonyx.InferenceSession(str(path))
    family = catalogue(path.parent)[name]["family"]
    return path.read_bytes(), make_inputs(session.get_inputs(), name, family, 0)


def _network(name: str) -> tuple[bytes, dict[str, np.ndarray]]:
    from benchmarks.networks import NETWORKS

    if name not in NETWORKS:
        raise SystemExit(f"{name} is neither in the corpus nor among the networks: {', '.join(NETWORKS)}")
    network = NETWORKS[name]()
    return network.model, network.feeds


def machine() -> str:
    """The processor's name, as far as the system tells it, and how many cores there are."""
    found = None
    with contextlib.suppress(OSError):
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return f"{found[1] if found else platform.processor() or platform.machine()}, {os.cpu_count()} cores"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prepacking", description=__doc__)
    parser.add_argument("model", nargs="?", help="a model of the corpus or of networks.py")
    parser.add_argument("--rounds", type=int, default=5, help="how often each contestant loads")
    parser.add_argument("--update", action="store_true", help="put the tables into docs/prepacking.md")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        print(json.dumps(CHILDREN[options.child[0]](*options.child[1:])))
        return 0
    name = options.model or (MODEL if _corpus(MODEL) is not None else "encoder")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make_files(folder, name)
        sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
        text = "\n".join(
            [
                f"{datetime.date.today()}, {machine()}: {name}, {sizes['model.onnx'] / MEGABYTE:.0f} MB, with packed weights "
                f"{sizes['packed.bin'] / MEGABYTE:.0f} MB; medians of {options.rounds} processes each.",
                "",
                *memory_table(folder),
                "",
                *time_table(folder, options.rounds),
            ]
        )
    print(text)
    if options.update:
        PAGE.write_text(MARKS.sub(lambda marks: f"{marks[1]}\n{text}\n{marks[2]}", PAGE.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
