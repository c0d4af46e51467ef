"""Damaged ORT format models: the bytes of real ones, their offsets, or their trees with something changed. One seed, one damage."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sardonyx.formats.ort.decoding import decode
from sardonyx.formats.ort.encoding import encode
from sardonyx.formats.ort.tables import ROOT, TABLES, UNIONS, Field, FieldKind
from tests.fuzz.mutation import NUMBERS, WORDS, flip_bit, flip_bytes, splice, truncate

MODELS = Path(__file__).parent.parent / "formats" / "ort" / "models"
WIDTHS = {"?": (0, 1), "b": (-128, 127), "B": (0, 255), "i": (-(2**31), 2**31 - 1), "I": (0, 2**32 - 1)}
WIDTHS |= {"q": (-(2**63), 2**63 - 1), "Q": (0, 2**64 - 1)}
FLOATS = (0.0, -1.0, 1e30, float("nan"), float("inf"))

Tree = dict[str, Any]
Mutation = Callable[[random.Random, bytes, list[bytes]], bytes]


def seeds() -> list[bytes]:
    """Small models of all kinds, as onnxruntime wrote them."""
    return [path.read_bytes() for path in sorted(MODELS.glob("*.ort"))]


def mutate(rng: random.Random, models: list[bytes]) -> bytes:
    """One damaged model. Half of them are sound buffers with nonsense in them, which get further."""
    data = rng.choice(models)
    if rng.random() < 0.5:
        return damage_tree(rng, data, models)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        data = rng.choice(MUTATIONS)(rng, data, models)
    return data


def damage_offset(rng: random.Random, data: bytes, models: list[bytes]) -> bytes:
    """Change one aligned number of four bytes, as offsets and lengths are."""
    if len(data) < 8:
        return data
    at = 4 * rng.randrange(len(data) // 4)
    (old,) = struct.unpack_from("<I", data, at)
    chosen = (0, 4, len(data), len(data) - at, len(data) - at - 4, 2**31 - 1, 2**31, 2**32 - 1, 4 * rng.randrange(1024))
    new = rng.choice((*chosen, old + 4, old - 4, old + 1, old * 2, old + 4 * rng.randrange(64)))
    return data[:at] + struct.pack("<I", new % 2**32) + data[at + 4 :]


def damage_vtable(rng: random.Random, data: bytes, models: list[bytes]) -> bytes:
    """Change one aligned number of two bytes, as those in vtables are."""
    if len(data) < 8:
        return data
    at = 2 * rng.randrange(len(data) // 2)
    return (
        data[:at] + struct.pack("<H", rng.choice((0, 2, 4, 6, 8, 12, 16, 255, 2**16 - 1, rng.randrange(64)))) + data[at + 2 :]
    )


def share_offset(rng: random.Random, data: bytes, models: list[bytes]) -> bytes:
    """Let a few offsets lead where another does."""
    changed = bytearray(data)
    count = len(data) // 4
    if count < 4:
        return data
    source = 4 * rng.randrange(count)
    target = source + struct.unpack_from("<I", data, source)[0]
    for _ in range(rng.randint(1, 20)):
        at = 4 * rng.randrange(count)
        struct.pack_into("<I", changed, at, (target - at) % 2**32)
    return bytes(changed)


def damage_tree(rng: random.Random, data: bytes, models: list[bytes]) -> bytes:
    """Change a few fields of the tables, so that the buffer stays sound."""
    try:
        tree = decode(data)
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            name, table = rng.choice(list(_tables(ROOT, tree)))
            fields = [field for field in TABLES[name] if field.kind is not FieldKind.DEPRECATED]
            _damage(rng, tree, table, rng.choice(fields))
        return bytes(encode(tree))
    except Exception:  # damaged already beyond a sound buffer, or by a value that a field cannot have
        return data


MUTATIONS: tuple[Mutation, ...] = (
    flip_bytes,
    flip_bit,
    truncate,
    splice,
    damage_offset,
    damage_offset,
    damage_offset,
    damage_vtable,
    share_offset,
    damage_tree,
)


def _tables(name: str, table: Tree) -> Iterator[tuple[str, Tree]]:
    """All tables of a tree with their names in the schema."""
    yield name, table
    for field in TABLES[name]:
        value = table.get(field.name)
        match field.kind:
            case FieldKind.TABLE if value is not None:
                yield from _tables(field.table, value)
            case FieldKind.TABLES:
                for one in value or ():
                    yield from _tables(field.table, one)
            case FieldKind.UNION if value is not None:
                yield from _tables(UNIONS[table["value_type"]], value)


def _damage(rng: random.Random, tree: Tree, table: Tree, field: Field) -> None:
    if (
        field.kind in (FieldKind.SCALARS, FieldKind.STRINGS, FieldKind.STRUCTS, FieldKind.TABLES)
        and field.name in table
        and rng.random() < 0.85
    ):
        _damage_list(rng, tree, table[field.name], field)
    elif field.kind is FieldKind.SCALAR:
        table[field.name] = _scalar(rng, field)
    elif field.kind is FieldKind.STRING and rng.random() < 0.7:
        table[field.name] = _word(rng, tree)
    elif field.kind is FieldKind.BYTES and field.name in table and rng.random() < 0.7:
        table[field.name] = bytes(table[field.name])[: rng.randrange(64)] * rng.choice((1, 2, 100))
    elif field.name in table and not field.key:
        del table[field.name]
    else:
        others = [other for name, other in _tables(ROOT, tree) if name == field.table] or [{}]
        table[field.name] = rng.choice(others) if field.kind is FieldKind.TABLE else []


def _damage_list(rng: random.Random, tree: Tree, items: list[Any], field: Field) -> None:
    action = rng.choice(("delete", "repeat", "swap", "change", "add"))
    if not items or action == "add":
        items.insert(rng.randint(0, len(items)), _element(rng, tree, field))
    elif action == "delete":
        del items[rng.randrange(len(items))]
    elif action == "repeat":
        items.append(rng.choice(items))
    elif action == "swap":
        rng.shuffle(items)
    else:
        items[rng.randrange(len(items))] = _element(rng, tree, field)


def _element(rng: random.Random, tree: Tree, field: Field) -> Any:
    match field.kind:
        case FieldKind.SCALARS:
            return _scalar(rng, field)
        case FieldKind.STRINGS:
            return _word(rng, tree)
        case FieldKind.STRUCTS:
            return (rng.choice((0, 1, 7, 2**32 - 1)), rng.choice((0, -1, 2**31 - 1)), rng.choice((0, 1, -(2**31))))
    return rng.choice([table for name, table in _tables(ROOT, tree) if name == field.table] or [{}])


def _scalar(rng: random.Random, field: Field) -> Any:
    if field.code == "f":
        return rng.choice(FLOATS)
    low, high = WIDTHS[field.code]
    return rng.choice([number for number in (*NUMBERS, *range(14)) if low <= number <= high])


def _word(rng: random.Random, tree: Tree) -> str:
    graph = tree.get("model", {}).get("graph", {})
    names = [name for node in graph.get("nodes", ()) for name in (*node.get("inputs", ()), node.get("op_type", "Add"))]
    return str(rng.choice([*WORDS, ":Add:14", "::", "6", "5", "7", "\udcff", *names]))
