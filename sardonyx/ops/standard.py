"""The signatures of the standard's ops, all versions, from the table that ships with the package; `schemas` asks here.

`standard.txt` is written by `python -m sardonyx.ops.onnx_schemas`. A line is one version of one op, fields separated by tabs:

    Gelu  20  (X: T, *, approximate: string = 'none') -> (Y: T)  T=4a  function

that is name, version, the text form of `signatures`, the set of types behind each constraint, and marks: "function" for ops that
have a body, "deprecated", "operands=" with the names that the inputs have in the newest version where these are others. Lines
"types 4a ..." name the sets, "domain ..." begins the ops of a domain. Only what is asked for is taken apart.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path

from sardonyx.ops import signatures
from sardonyx.ops.signatures import Signature
from sardonyx.startup.records import dataclass, field, replace

PATH = Path(__file__).with_name("standard.txt")
DEFAULT_DOMAIN = "ai.onnx"
"""What the table calls the domain without a name."""

NON_DETERMINISTIC = frozenset(
    ("RandomUniform", "RandomNormal", "RandomUniformLike", "RandomNormalLike", "Multinomial", "Bernoulli", "Dropout")
)


def versions(domain: str, name: str) -> Mapping[int, Signature]:
    """The signatures of an op by since_version; empty if the table has no such op."""
    return _table().histories.get((domain, name), {})


def operators(domain: str) -> frozenset[str]:
    """Names of all ops of a domain."""
    return frozenset(name for (other, name) in _table().histories if other == domain)


@dataclass
class _Table:
    histories: dict[tuple[str, str], _History] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)


@functools.cache
def _table() -> _Table:
    table, domain = _Table(), ""
    for line in PATH.read_text(encoding="utf-8").splitlines():
        name, _, rest = line.partition("\t")
        if name == "types":
            key, _, types = rest.partition("\t")
            table.types[key] = types
        elif name == "domain":
            domain = "" if rest == DEFAULT_DOMAIN else rest
        elif rest:
            since, _, fields = rest.partition("\t")
            history = table.histories.get((domain, name))
            if history is None:
                history = table.histories[domain, name] = _History(domain, name)
            history.lines[int(since)] = fields
    return table


class _History(Mapping[int, Signature]):
    """The versions of one op, each parsed when it is first asked for."""

    def __init__(self, domain: str, name: str):
        self.domain, self.name = domain, name
        self.lines: dict[int, str] = {}
        self._parsed: dict[int, Signature] = {}

    def __getitem__(self, since: int) -> Signature:
        signature = self._parsed.get(since)
        if signature is None:  # of threads that meet here, all get what the first has left
            signature = self._parsed.setdefault(since, _read(self.domain, self.name, since, self.lines[since]))
        return signature

    def __iter__(self) -> Iterator[int]:
        return iter(self.lines)

    def __len__(self) -> int:
        return len(self.lines)


def _read(domain: str, name: str, since: int, fields: str) -> Signature:
    text, constraints, *marks = fields.split("\t")
    pairs = (pair.split("=") for pair in constraints.split())
    signature = signatures.parse_with(domain, name, since, text, {key: _types(types) for key, types in pairs})
    operands = next((mark.removeprefix("operands=").split() for mark in marks if mark.startswith("operands=")), None)
    return replace(
        signature,
        deprecated="deprecated" in marks,
        has_function="function" in marks,
        deterministic=name not in NON_DETERMINISTIC,
        operand_names=signature.operand_names if operands is None else tuple(operands),
    )


@functools.cache
def _types(key: str) -> frozenset[str]:
    return frozenset(map(signatures.full_type, _table().types[key].split("|")))
