"""Attacks sardonyx from outside with random and hostile cases: `python -m tests.attack --help`, or `make attack`.

Every case has a name, KIND:NUMBER, and is the same in each run: `--case graphs:1234` repeats it. The seed says with which numbers a run
begins. Exit code 1 if anything was found.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from tests.attack.supervision import ROOT, Finding, Tally, attack

SHARES = {
    "graphs": 12,
    "attributes": 12,
    "files": 12,
    "lies": 6,
    "outliers": 4,
    "shapes": 2,
    "threads": 1,
    "leaks": 1,
    "cache": 1,
}
"""How often each kind comes; the last ones take long."""
PER_SEED = 10_000_000
"""Numbers that one seed has to itself."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--cases", type=int, help="so many cases of each kind, instead of a time")
    parser.add_argument("--kinds", default=",".join(SHARES), help=f"of {', '.join(SHARES)}")
    parser.add_argument("--case", action="append", default=[], metavar="KIND:NUMBER", help="this case alone")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--save", type=Path, default=ROOT / "build" / "attack", help="where models of findings go")
    parser.add_argument("--json", action="store_true", help="the summary for programs")
    options = parser.parse_args()
    kinds = options.kinds.split(",")
    if unknown := set(kinds) - SHARES.keys():
        parser.error(f"there is no kind {', '.join(sorted(unknown))}")
    until = None if options.case or options.cases else time.monotonic() + 60 * options.minutes
    cases = named(options.case) if options.case else numbered(kinds, options.seed, options.cases)
    folder = options.save.resolve()
    tally = attack(cases, folder, options.workers, Progress(options.json), until)
    print(json.dumps(asdict(tally), indent=1) if options.json else summary(tally))
    return 1 if tally.findings else 0


def named(names: list[str]) -> Iterator[tuple[str, int]]:
    for name in names:
        kind, _, number = name.partition(":")
        yield kind, int(number)


def numbered(kinds: list[str], seed: int, count: int | None) -> Iterator[tuple[str, int]]:
    """Cases of all kinds in turn, by their shares; or so many of each."""
    if count is not None:
        yield from ((kind, seed * PER_SEED + at) for kind in kinds for at in range(count))
        return
    counters = {kind: itertools.count(seed * PER_SEED) for kind in kinds}
    while True:
        for kind in kinds:
            for _ in range(SHARES[kind]):
                yield kind, next(counters[kind])


class Progress:
    """A line on a terminal that is written over; elsewhere one line for each finding."""

    def __init__(self, quiet: bool):
        self.quiet = quiet
        self.told = 0
        self.began = time.monotonic()

    def __call__(self, tally: Tally, case: str) -> None:
        if self.quiet:
            return
        for finding in tally.findings[self.told :]:
            self._clear()
            print(f"{finding.case}: {finding.problem.splitlines()[0][:200]}", file=sys.stderr, flush=True)
        self.told = len(tally.findings)
        if sys.stderr.isatty():
            minutes = (time.monotonic() - self.began) / 60
            line = f"{minutes:.1f} min, {sum(tally.cases.values())} cases, {len(tally.findings)} findings, {case}"
            print(f"\r{line:<100}", end="", file=sys.stderr, flush=True)

    def _clear(self) -> None:
        if sys.stderr.isatty():
            print(f"\r{'':<100}\r", end="", file=sys.stderr)


def summary(tally: Tally) -> str:
    """Cases by kind, and the findings, those that look alike together, the smallest first."""
    lines = ["", *(f"{kind:<12}{count:>8} cases" for kind, count in tally.cases.items())]
    groups: dict[str, list[Finding]] = defaultdict(list)
    for finding in tally.findings:
        groups[finding.likeness].append(finding)
    lines.append(f"{len(tally.findings)} findings" + (f", {len(groups)} that differ" if groups else ""))
    for findings in sorted(groups.values(), key=len, reverse=True):
        smallest = min(findings, key=lambda one: len(one.ops) or 10**6)
        lines += ["", f"{smallest.case}, and {len(findings) - 1} like it: {smallest.problem[:1500]}"]
        lines += [part for part in (smallest.where, smallest.model, smallest.text, smallest.traceback[-1500:]) if part]
        lines += ["  like it: " + " ".join(one.case for one in findings if one is not smallest)] if len(findings) > 1 else []
    if tally.peer_crashes:
        lines.append(f"onnxruntime itself died of: {' '.join(tally.peer_crashes)}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
