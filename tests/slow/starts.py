"""One model of a directory of models, started in every way; test_starts.py starts it as a process per model, with an empty cache.

python -m tests.slow.starts DIRECTORY NAME prints what differs as JSON: {"problems": [...], "hurried": ..., "remembered": ...}.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from sardonyx import settings
from sardonyx.startup import later
from tests.slow import closeness
from tests.slow.corpus import base_name, catalogue, open_session, run
from tests.slow.model_inputs import make_inputs

FOREVER = 1e9
"""Seconds that no test lasts: what is put off waits until it is asked for."""


def compare(directory: Path, name: str) -> dict[str, Any]:
    """What tells code that was compiled in a hurry, or comes out of a remembered model, from that of a session which waits for the best."""
    entry = catalogue(directory)[name]
    path, family = directory / entry["file"], entry["family"]
    later.DELAY = FOREVER
    session = _open(path, hurry="1", remember="all")
    is_hurried = any(work.in_children for work in later._waiting.values())
    declared = session.get_inputs()
    feeds = [make_inputs(declared, base_name(name), family, 0)]
    outputs = {"in a hurry": run(session, feeds)}
    later.finish()
    outputs["improved"] = run(session, feeds)
    names = [output.name for output in session.get_outputs()]
    fresh = run(_open(path, hurry="0", remember="off"), feeds)
    again = _open(path, hurry="0", remember="all")
    is_remembered = again._engine._compiled is not None
    outputs["remembered" if is_remembered else "prepared again"] = run(again, feeds)
    problems = [
        f"{way}: {problem}"
        for way, found in outputs.items()
        for problem in closeness.disagreements(names, found, fresh, closeness.for_family(family))
    ]
    return {"problems": problems, "hurried": is_hurried, "remembered": is_remembered}


def _open(path: Path, hurry: str, remember: str) -> Any:
    os.environ[settings.HURRY], os.environ[settings.REMEMBER_VARIABLE] = hurry, remember
    return open_session("sardonyx", path)


if __name__ == "__main__":
    print(json.dumps(compare(Path(sys.argv[1]), sys.argv[2])))
