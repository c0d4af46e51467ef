"""Damaged models: the bytes or the messages of real ones with something changed. One seed always gives the same damage."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor

MODELS = Path(__file__).parent.parent / "models"
TEXTS = (
    '<ir_version: 8, opset_import: ["" : 17, "my" : 1]> g (float[N] x) => (y) { t = my.F <k = 1.5> (x) y = my.G (t) }'
    '<domain: "my", opset_import: ["" : 17, "my" : 1]> F <k> (a) => (b) { c = my.G (a) b = LeakyRelu <alpha: float = @k> (c) }'
    '<domain: "my", opset_import: ["" : 17]> G (a) => (b) { b = Relu (a) }',
    '<ir_version: 8, opset_import: ["" : 17]> g (float[2,3] x, int64[1] a) => (y) <int64[2] s = {3, 2}, float[3] w = {1, 2, 3}>'
    " { r = Reshape (x, s) t = Transpose (r) u = Add (t, w) v = ReduceSum <keepdims = 0> (u, a) y = Softmax <axis = -1> (v) }",
)
NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    8,
    9,
    16,
    17,
    22,
    127,
    128,
    255,
    2**15,
    2**31 - 1,
    -(2**31),
    2**32,
    2**40,
    2**62,
    2**63 - 1,
    -(2**63),
)
WORDS = (
    "",
    "x",
    "y",
    "X",
    "Y",
    "a",
    "Add",
    "Relu",
    "If",
    "Loop",
    "Scan",
    "Constant",
    "ai.onnx",
    "ai.onnx.ml",
    "com.microsoft",
    "my",
    "\0",
    "é",
)
INTEGERS = (
    FieldDescriptor.CPPTYPE_INT32,
    FieldDescriptor.CPPTYPE_INT64,
    FieldDescriptor.CPPTYPE_UINT64,
    FieldDescriptor.CPPTYPE_ENUM,
)


def seeds() -> list[bytes]:
    """Small models of all kinds."""
    texts = [onnx.parser.parse_model(text).SerializeToString() for text in TEXTS]
    return [path.read_bytes() for path in sorted(MODELS.glob("*.onnx"))] + texts


def mutate(rng: random.Random, models: list[bytes]) -> bytes:
    """One damaged model; most of them are protobuf still, and get further."""
    data = rng.choice(models)
    if rng.random() < 0.75:
        return damage_fields(rng, data, models)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        data = rng.choice(MUTATIONS)(rng, data, models)
    return data


def flip_bytes(rng: random.Random, data: bytes, models: list[bytes]) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 8) if changed else 0):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def flip_bit(rng: random.Random, data: bytes, models: list[bytes]) -> bytes:
    changed = bytearray(data)
    if changed:
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def truncate(rng: random.Random, data: bytes, models: list[bytes]) -> bytes:
    return data[: rng.randint(0, len(data))]


def splice(rng: random.Random, data: bytes, models: list[bytes]) -> bytes:
    """Put a piece of another model somewhere, over what was there or in between."""
    other = rng.choice(models)
    start = rng.randrange(len(other))
    piece = other[start : start + rng.randint(1, 64)]
    at = rng.randint(0, len(data))
    return data[:at] + piece + data[at + rng.choice((0, len(piece), rng.randint(0, 64))) :]


def damage_fields(rng: random.Random, data: bytes, models: list[bytes]) -> bytes:
    """Change a few fields of the messages, so that the result is always protobuf."""
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            message, field = rng.choice(list(_fields(proto)))
            _damage(rng, proto, message, field)
        return proto.SerializeToString()
    except Exception:  # damaged already beyond protobuf, or by a value that a field cannot have
        return data


MUTATIONS: tuple[Callable[[random.Random, bytes, list[bytes]], bytes], ...] = (
    flip_bytes,
    flip_bit,
    truncate,
    splice,
    damage_fields,
)


def _fields(message: Any) -> Iterator[tuple[Any, FieldDescriptor]]:
    """All fields that are set, in all messages inside, and all fields of the outermost ones."""
    stack = [message]
    while stack:
        one = stack.pop()
        for field, value in one.ListFields():
            yield one, field
            if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
                stack.extend(value if _is_repeated(field) else [value])
        for field in one.DESCRIPTOR.fields:
            if not _is_repeated(field) and field.cpp_type != FieldDescriptor.CPPTYPE_MESSAGE:
                yield one, field


def _is_repeated(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated)


def _damage(rng: random.Random, proto: Any, message: Any, field: FieldDescriptor) -> None:
    if _is_repeated(field):
        _damage_list(rng, proto, getattr(message, field.name), field)
    elif field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE or rng.random() < 0.15:
        message.ClearField(field.name)
    else:
        setattr(message, field.name, _scalar(rng, proto, field))


def _damage_list(rng: random.Random, proto: Any, items: Any, field: FieldDescriptor) -> None:
    action = rng.choice(("delete", "repeat", "swap", "change", "add"))
    is_message = field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE
    position = rng.randrange(len(items)) if len(items) else None
    if position is None or action == "add":
        if is_message:
            items.add()
        else:
            items.append(_scalar(rng, proto, field))
    elif action == "delete":
        del items[position]
    elif action == "repeat":
        items.append(items[position])
    elif action == "swap" and is_message:
        items.sort(key=lambda _: rng.random())
    elif not is_message:
        items[position] = _scalar(rng, proto, field)


def _scalar(rng: random.Random, proto: Any, field: FieldDescriptor) -> Any:
    if field.cpp_type in INTEGERS:
        if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
            return rng.choice(field.enum_type.values).number
        small = field.cpp_type == FieldDescriptor.CPPTYPE_INT32
        return rng.choice([one for one in NUMBERS if not small or -(2**31) <= one < 2**31])
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        names = [name for node in proto.graph.node for name in (*node.input, *node.output, node.op_type)]
        text = rng.choice([*WORDS, *names])
        return text.encode() * rng.choice((1, 1, 3, 400)) if field.type == FieldDescriptor.TYPE_BYTES else text
    return rng.choice((0.0, -1.0, 1e30, float("nan"), float("inf")))
