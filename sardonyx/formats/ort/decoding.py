"""Bytes -> tree: `decode` reads an ORT format buffer, which nobody has to trust, and checks all of it on the way. `reader` calls it.

What `tables` lists is what can be there; the tree's form is explained there too. Checked as the format's own verifier does: bounds,
alignment, the zero byte after a string, keys, depth. Offsets only point forwards, so there are no cycles; but many may point at the same
place, and vectors may overlap. Therefore everything that is visited is counted, each time: a tree is never much larger than its buffer.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from sardonyx.errors import Fail
from sardonyx.formats.ort.tables import IDENTIFIER, ROOT, TABLES, UNIONS, Field, FieldKind

Tree = dict[str, Any]
Cut = Callable[[int, int], Any]

MAX_DEPTH = 64
"""How deep tables may stand inside tables: the bound of the format's own verifier."""
MAX_TABLES = 1_000_000
"""How many tables there may be: the same verifier's bound."""
SHARING = 2
"""How often, on average, a buffer's bytes may be visited. Writers share strings and nothing else."""
ALWAYS_ALLOWED = 1 << 16
"""Bytes that may be visited in even the smallest buffer."""
LAYOUT_COST = 256
"""What a new vtable counts for, in bytes. Writers let tables share theirs."""
FORWARD = 1 << 31
"""Offsets are less than this."""

_u16 = struct.Struct("<H").unpack_from
_u32 = struct.Struct("<I").unpack_from
_i32 = struct.Struct("<i").unpack_from
_struct = functools.cache(struct.Struct)


def decode(
    buffer: bytes | bytearray | memoryview, root: str = ROOT, identifier: bytes = IDENTIFIER, cut: Cut | None = None
) -> Tree:
    """The tree of a buffer whose root is a table `root`; Fail if it is not what it has to be.

    Bytes in it are views of the buffer, or what `cut` makes of a start and a length.
    """
    view = memoryview(buffer).cast("B")
    if len(view) < 12 or bytes(view[4:8]) != identifier:
        actual = bytes(view[4:8])
        raise _refused(f"the identifier at byte 4 is {actual!r}, not {identifier!r}" if len(view) >= 12 else "it is too short")
    return _Decoder(view, cut or (lambda start, length: view[start : start + length])).root(root)


def _refused(reason: str) -> Fail:
    return Fail(f"ORT model verification failed. {reason[0].upper()}{reason[1:]}.")


def _astray(position: int, offset: int, size: int) -> Fail:
    where = f"the offset {offset} at byte {position}"
    if not 0 < offset < FORWARD or position + offset > size - 4:
        return _refused(f"{where} leads outside the buffer of {size} bytes")
    return _refused(f"{where} leads to a place that is not aligned to 4 bytes")


class _Reference(NamedTuple):
    """A field that holds an offset, at `at` bytes into the table. `read` makes what stands there."""

    name: str
    at: int
    read: Reader
    detail: str


class _TableFields(NamedTuple):
    """Where the fields of tables with one vtable lie."""

    extent: int
    odd: int | None
    """What the position of a table must be modulo 8, so that its 8-byte numbers are aligned; None if it has none."""
    absent: Tree
    """Defaults of the scalars that are left out."""
    names: tuple[str, ...]
    unpack: Callable[[memoryview, int], tuple[Any, ...]]
    references: tuple[_Reference, ...]
    union: int | None
    """Where the offset of a union lies."""


class _Decoder:
    """One walk over a buffer."""

    def __init__(self, view: memoryview, cut: Cut):
        self.view = view
        self.cut = cut
        self.size = len(view)
        self.last = self.size - 4
        """The last place to which an offset can lead."""
        self.budget = SHARING * self.size + ALWAYS_ALLOWED
        self.tables = 0
        self.known_fields: dict[tuple[str, int], _TableFields] = {}
        self.texts: dict[tuple[int, str], str] = {}

    def root(self, name: str) -> Tree:
        return self.table(self.target(0), name, 1)

    # --- offsets and vectors

    def target(self, position: int) -> int:
        """Where the offset at `position` points."""
        (offset,) = _u32(self.view, position)
        target = int(position + offset)
        if not 0 < offset < FORWARD or target > self.last or target & 3:
            raise _astray(position, offset, self.size)
        return target

    def length(self, position: int, element: int, alignment: int) -> int:
        """The number of elements of the vector at `position`, whose bytes are in the buffer."""
        (count,) = _u32(self.view, position)
        if position + 4 + count * element > self.size:
            raise _refused(f"a vector of {count} elements at byte {position} does not fit the buffer of {self.size} bytes")
        if count and (position + 4) % alignment:
            raise _refused(f"elements of the vector at byte {position} are not aligned to {alignment} bytes")
        self.budget -= count * element
        if self.budget < 0:
            raise self.too_much(0)
        return int(count)

    def too_much(self, depth: int) -> Fail:
        if depth > MAX_DEPTH:
            return _refused(f"tables stand inside others more than {MAX_DEPTH} deep")
        if self.tables > MAX_TABLES:
            return _refused(f"there are more than {MAX_TABLES} tables")
        return _refused("too many of its parts are used more than once")

    # --- what offsets lead to; all with the same parameters: a position, what `_detail` says, the depth

    def text(self, position: int, errors: str, depth: int = 0) -> str:
        known = self.texts.get((position, errors))
        if known is not None:
            return known
        end = position + 4 + self.length(position, 1, 1)
        if end >= self.size or self.view[end]:
            raise _refused(f"the string at byte {position} has no zero byte at its end")
        try:
            text = self.texts[position, errors] = str(self.view[position + 4 : end], "utf-8", errors)
        except UnicodeDecodeError as error:
            raise _refused(f"the name or text at byte {position} is no UTF-8: {error}") from error
        return text

    def raw(self, position: int, _: str, depth: int) -> Any:
        return self.cut(position + 4, self.length(position, 1, 1))

    def scalars(self, position: int, code: str, depth: int) -> list[int | float]:
        size = struct.calcsize(code)
        count = self.length(position, size, size)
        return list(struct.unpack_from(f"<{count}{code}", self.view, position + 4))

    def structs(self, position: int, code: str, depth: int) -> list[tuple[int, ...]]:
        element = _struct("<" + code)
        count = self.length(position, element.size, 4)
        return list(element.iter_unpack(self.view[position + 4 : position + 4 + count * element.size]))

    def targets(self, position: int) -> list[int]:
        """Where the offsets of a vector point."""
        count = self.length(position, 4, 4)
        offsets = struct.unpack_from(f"<{count}I", self.view, position + 4)
        items = []
        for at, offset in enumerate(offsets):
            target = position + 4 + 4 * at + offset
            if not 0 < offset < FORWARD or target > self.last or target & 3:
                raise _astray(position + 4 + 4 * at, offset, self.size)
            items.append(target)
        return items

    def strings(self, position: int, errors: str, depth: int) -> list[str]:
        return [self.text(at, errors) for at in self.targets(position)]

    def vector(self, position: int, name: str, depth: int) -> list[Tree]:
        return [self.table(at, name, depth) for at in self.targets(position)]

    def table(self, position: int, name: str, depth: int) -> Tree:
        """The table at `position`, which is aligned and at least four bytes before the buffer's end."""
        view, last = self.view, self.last
        vtable = position - _i32(view, position)[0]
        extent, odd, absent, names, unpack, references, union = self.known_fields.get((name, vtable)) or self.fields(
            name, vtable
        )
        self.tables += 1
        self.budget -= extent
        if depth > MAX_DEPTH or self.tables > MAX_TABLES or self.budget < 0:
            raise self.too_much(depth)
        if position + extent > self.size or (odd is not None and position & 7 != odd):
            raise _refused(f"the {name} at byte {position} is not in the buffer of {self.size} bytes, or not aligned")
        tree = absent.copy()
        tree.update(zip(names, unpack(view, position)))
        for key, at, read, detail in references:
            offset = tree[key]
            target = position + at + offset
            if not 0 < offset < FORWARD or target > last or target & 3:
                raise _astray(position + at, offset, self.size)
            tree[key] = read(self, target, detail, depth + 1)
        if union is not None:
            self.choose(tree, position + union, depth)
        return tree

    def choose(self, tree: Tree, position: int, depth: int) -> None:
        """Read the table that the union's tag names. An unknown tag may be a later version's: it stays, without a value."""
        del tree["value"]
        name = UNIONS.get(tree["value_type"])
        if name is not None:
            tree["value"] = self.table(self.target(position), name, depth + 1)

    # --- vtables

    def fields(self, name: str, vtable: int) -> _TableFields:
        self.budget -= LAYOUT_COST
        places = self.places(name, vtable)
        here = [(places[field.slot], field) for field in TABLES[name] if field.slot < len(places) and places[field.slot]]
        used = sorted((entry for entry in here if entry[1].kind is not FieldKind.DEPRECATED), key=lambda entry: entry[0])
        table_fields = self.known_fields[name, vtable] = _table_fields(name, used)
        return table_fields

    def places(self, name: str, vtable: int) -> tuple[int, ...]:
        """Offsets of the fields by slot, 0 for what is left out."""
        if not 0 <= vtable <= self.size - 4 or vtable % 2:
            raise _refused(f"the vtable of a {name} at byte {vtable} is outside the buffer or not aligned")
        (size,) = _u16(self.view, vtable)
        if size < 4 or size % 2 or vtable + size > self.size:
            raise _refused(f"the vtable of a {name} at byte {vtable} has the impossible size {size}")
        return struct.unpack_from(f"<{size // 2 - 2}H", self.view, vtable + 4)


Reader = Callable[[_Decoder, int, str, int], Any]
_READERS: dict[FieldKind, Reader] = {
    FieldKind.STRING: _Decoder.text,
    FieldKind.TABLE: _Decoder.table,
    FieldKind.BYTES: _Decoder.raw,
    FieldKind.SCALARS: _Decoder.scalars,
    FieldKind.STRUCTS: _Decoder.structs,
    FieldKind.STRINGS: _Decoder.strings,
    FieldKind.TABLES: _Decoder.vector,
}


def _table_fields(name: str, fields: list[tuple[int, Field]]) -> _TableFields:
    """What `fields`, in the order of their places, say about tables."""
    code, end, odd, union = "<4x", 4, None, None
    references: list[_Reference] = []
    for at, field in fields:
        size = struct.calcsize(field.code) if field.kind is FieldKind.SCALAR else 4
        if at < end or at % min(size, 4) or (size == 8 and odd not in (None, -at % 8)):
            raise _refused(f"the field {field.name} of a {name} lies at {at}, where it overlaps another or is not aligned")
        code += f"{at - end}x{field.code if field.kind is FieldKind.SCALAR else 'I'}"
        end, odd = at + size, -at % 8 if size == 8 else odd
        if field.kind is FieldKind.UNION:
            union = at
        elif field.kind is not FieldKind.SCALAR:
            references.append(_Reference(field.name, at, _READERS[field.kind], _detail(field)))
    names = [field.name for _, field in fields]
    for field in TABLES[name]:
        if field.key and field.name not in names:
            raise _refused(f"a {name} has no {field.name}")
    absent = {field.name: field.default for field in TABLES[name] if field.kind is FieldKind.SCALAR and field.name not in names}
    return _TableFields(end, odd, absent, tuple(names), struct.Struct(code).unpack_from, tuple(references), union)


def _detail(field: Field) -> str:
    """What a reader has to know of a field: the name of its tables, the struct code of its elements, or what to do with bytes that are
    no UTF-8."""
    if field.kind in (FieldKind.STRING, FieldKind.STRINGS):
        return "surrogateescape" if field.any_bytes else "strict"
    return field.code or field.table
