"""Hands cases to worker processes, and lives on when one of them crashes, hangs or eats all memory: that is a finding of its case."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.patience import HANG_SECONDS

ROOT = Path(__file__).resolve().parents[2]
BATCH = 100
"""Cases that one process runs. A new one then starts clean, so that no case depends on thousands before it."""
IDLE_SECONDS = 120
"""A case of whose threads and children none wants the CPU for so long waits for something that will not come."""
TICK = 0.5


@dataclass
class Finding:
    """A case and what is wrong with it."""

    case: str
    problem: str
    where: str = ""
    ops: list[str] = field(default_factory=list)
    model: str = ""
    text: str = ""
    traceback: str = ""

    @property
    def likeness(self) -> str:
        """What findings of one cause probably share."""
        kind = self.case.split(":")[0]
        what = "elements differ" if "elements differ" in self.problem else " ".join(self.problem.split()[:8])
        place = self.where or ",".join(sorted(set(self.ops)))
        return f"{kind} | {what if not self.where else ''} | {place}"


@dataclass
class Tally:
    """What came of a run."""

    cases: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    peer_crashes: list[str] = field(default_factory=list)


class Worker:
    """One process at a time, replaced when it dies or has done its batch."""

    def __init__(self, folder: Path, *, without_peer: bool = False):
        self.folder = folder
        self.without_peer = without_peer
        self.process: subprocess.Popen[str] | None = None
        self.errors: Any = None
        self.answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.done = 0

    def start(self) -> None:
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the process
        command = [sys.executable, "-m", "tests.attack.worker", str(self.folder)]
        environment = {"OPENBLAS_NUM_THREADS": "1", **os.environ, "SARDONYX_STRICT": "1"}
        self.process = subprocess.Popen(
            command + ["--without-peer"] * self.without_peer,
            cwd=ROOT, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, start_new_session=True,
        )  # fmt: skip
        self.answers = queue.Queue()
        threading.Thread(target=_read, args=(self.process.stdout, self.answers), daemon=True).start()
        self.done = 0

    def stop(self) -> None:
        if self.process is None:
            return
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(HANG_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # children that hang, too
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.errors.close()
        self.process = None

    def run(self, kind: str, number: int, action: str = "run") -> dict[str, Any]:
        """What a case gives; if the process dies of it, how."""
        if self.process is None or self.done >= BATCH or self.process.poll() is not None:
            self.stop()
            self.start()
        self.done += 1
        process = self.process
        assert process is not None and process.stdin is not None
        try:
            process.stdin.write(f"{action} {kind} {number}\n")
            process.stdin.flush()
        except BrokenPipeError:
            return self._death("the process ended before the case")
        idle_since = time.monotonic()
        while True:
            try:
                answer = self.answers.get(timeout=TICK)
            except queue.Empty:
                if _wants_cpu(process.pid):
                    idle_since = time.monotonic()
                elif time.monotonic() - idle_since > IDLE_SECONDS:
                    process.send_signal(signal.SIGABRT)  # faulthandler then tells where all threads wait
                    return self._death(f"waits for {IDLE_SECONDS} s and computes nothing")
                continue
            if answer is None:
                return self._death("")
            if "end" in answer:
                return answer

    def _death(self, why: str) -> dict[str, Any]:
        assert self.process is not None
        code = self.process.wait()
        self.errors.seek(0)
        words = self.errors.read()[-6000:]
        self.stop()
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        reasons = {"SIGXCPU": "a hang inside machine code", "SIGKILL": "killed, perhaps for memory"}
        return {"problem": why or f"the process dies: {name} {reasons.get(name, '')}".strip(), "traceback": words, "died": True}


def _read(stream: Any, answers: queue.Queue[dict[str, Any] | None]) -> None:
    for line in stream:
        answers.put(json.loads(line))
    answers.put(None)


def _wants_cpu(pid: int) -> bool:
    """Whether any thread of a process or of its descendants runs, could run, or waits for a disk; a sample, taken twice a second."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        fields = _stat(path)
        if fields:
            parents.setdefault(int(fields[1]), []).append(int(path.parent.name))
    family = [pid]
    for member in family:
        family += parents.get(member, [])
    states = [_stat(path)[:1] for member in family for path in Path(f"/proc/{member}/task").glob("*/stat")]
    return any(state and state[0] in "RD" for state in states)


def _stat(path: Path) -> list[str]:
    """The fields behind a process's name: state, parent, and so on; nothing if it is gone."""
    try:
        return path.read_text().rpartition(")")[2].split()
    except OSError:
        return []


def attack(
    cases: Iterator[tuple[str, int]],
    folder: Path,
    workers: int,
    report: Callable[[Tally, str], None],
    until: float | None = None,
) -> Tally:
    """Run cases until there are no more, or the time is up."""
    tally, lock = Tally(), threading.Lock()

    def work() -> None:
        worker = Worker(folder)
        try:
            while until is None or time.monotonic() < until:
                with lock:
                    case = next(cases, None)
                if case is None:
                    return
                _account(worker, *case, folder, tally, lock, report)
        finally:
            worker.stop()

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return tally


def _account(
    worker: Worker, kind: str, number: int, folder: Path, tally: Tally, lock: Any, report: Callable[[Tally, str], None]
) -> None:
    answer = worker.run(kind, number)
    is_ours = True
    if answer.get("died"):
        # Alone in a process of its own, and without onnxruntime: was it the case, or those before it, or the peer?
        alone = Worker(folder, without_peer=True)
        again = alone.run(kind, number)
        saved = alone.run(kind, number, "save")
        alone.stop()
        is_ours = bool(again.get("problem")) or kind != "graphs"
        answer = {**saved, **again, "traceback": answer["traceback"]} if again.get("problem") else {**saved, **answer}
        if not again.get("problem"):
            answer["problem"] += ", but not when the case is repeated alone"
    with lock:
        tally.cases[kind] = tally.cases.get(kind, 0) + 1
        if "problem" in answer:
            if is_ours:
                names = Finding.__dataclass_fields__.keys() & answer.keys()
                tally.findings.append(Finding(f"{kind}:{number}", **{name: answer[name] for name in names}))
            else:
                tally.peer_crashes.append(f"{kind}:{number}")
        report(tally, f"{kind}:{number}")
