"""Sessions made, run and dropped over and over: memory, mappings and open files stop growing."""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Callable
from pathlib import Path

from sardonyx import errors
from tests.attack.kinds import files, graphs, lies, shapes
from tests.attack.subject import Problem, session_of

WARM = 6
ROUNDS = 24
BYTES = 48 << 20
"""What allocators and caches of compiled code may still add after the first rounds; a leak of one model's size per session is more."""
MAPPINGS = 64
FILES = 4


def run(rng: random.Random) -> None:
    name, attempt = rng.choice((("graphs", graph), ("lies", lie), ("files", damaged), ("shapes", open_sizes)))
    seed = rng.getrandbits(32)
    action = attempt(random.Random(seed))
    for _ in range(WARM):
        action()
    before = usage()
    for _ in range(ROUNDS):
        action()
    after = usage()
    grown = {what: after[what] - before[what] for what in before}
    if grown["bytes"] > BYTES or grown["mappings"] > MAPPINGS or grown["files"] > FILES:
        raise Problem(
            f"{ROUNDS} rounds of {name} leave {grown['bytes'] >> 20} MiB, {grown['mappings']} mappings, {grown['files']} files"
        )


def usage() -> dict[str, int]:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "bytes": pages * os.sysconf("SC_PAGE_SIZE"),
        "mappings": Path("/proc/self/maps").read_text().count("\n"),
        "files": len(os.listdir("/proc/self/fd")),
    }


def graph(rng: random.Random) -> Callable[[], None]:
    subject = graphs.make(rng)

    def action() -> None:
        for level in subject.levels:
            try:
                session_of(subject.model, level=level, threads=subject.threads).run(None, dict(subject.feeds))
            except errors.CODED:
                pass

    return action


def lie(rng: random.Random) -> Callable[[], None]:
    subject = lies.make(rng)

    def action() -> None:
        try:
            session_of(subject.model, threads=subject.threads).run(None, dict(subject.feeds))
        except errors.CODED:
            pass

    return action


def damaged(rng: random.Random) -> Callable[[], None]:
    seed = rng.getrandbits(32)
    return lambda: files.run(random.Random(seed))


def open_sizes(rng: random.Random) -> Callable[[], None]:
    subject = shapes.make(rng)

    def action() -> None:
        session = session_of(subject.model, level=subject.levels[0], threads=subject.threads)
        for feeds in subject.notes["feeds"]:
            try:
                session.run(None, dict(feeds))
            except errors.CODED:
                pass

    return action
