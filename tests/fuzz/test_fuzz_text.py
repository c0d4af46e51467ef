"""Damaged texts never get anything but our own errors out of the parser."""

from __future__ import annotations

import random
import re
from pathlib import Path

from sardonyx import errors, formats
from sardonyx.ir.text import parse_model, to_text
from sardonyx.ir.verify import verify

CASES = 2000
MARKS = (
    "{",
    "}",
    "<",
    ">",
    "(",
    ")",
    "[",
    "]",
    "=",
    ",",
    "@",
    ":",
    '"',
    "-",
    "?",
    "1",
    "1.5",
    "float",
    "seq",
    "nan",
    "#",
    "9" * 30,
)
TEXTS = [to_text(formats.load(path)) for path in sorted((Path(__file__).parent.parent / "models").glob("*.onnx"))]


def damaged(rng: random.Random) -> str:
    tokens = re.findall(r"\s+|\w+|.", rng.choice(TEXTS), re.DOTALL)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(tokens))
        match rng.choice(("delete", "repeat", "insert", "swap")):
            case "delete":
                del tokens[at]
            case "repeat":
                tokens.insert(at, tokens[at])
            case "insert":
                tokens.insert(at, rng.choice(MARKS))
            case _:
                other = rng.randrange(len(tokens))
                tokens[at], tokens[other] = tokens[other], tokens[at]
    return "".join(tokens)


def test_only_our_own_errors_come_out():
    refused = 0
    for case in range(CASES):
        try:
            verify(parse_model(damaged(random.Random(case))))
        except tuple(errors.BY_CODE.values()):
            refused += 1
    assert CASES / 2 < refused < CASES
