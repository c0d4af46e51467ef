"""Bytes of the ORT format -> trees: real files, and everything that a buffer can do wrong."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest

from sardonyx.errors import Fail
from sardonyx.formats.ort import decoding
from sardonyx.formats.ort.decoding import decode
from sardonyx.formats.ort.encoding import encode
from sardonyx.formats.ort.tables import IDENTIFIER, RESOLVER_IDENTIFIER
from tests.counting import executed_lines
from tests.formats.ort_files import NAMES, contents
from tests.formats.ort_fixtures import HERE, comparable, decoded


@pytest.mark.parametrize("name", NAMES)
def test_files_of_onnxruntime_have_the_trees_that_another_decoder_found(name):
    assert comparable(decode(contents(name))) == decoded(name)


@pytest.mark.parametrize("name", NAMES)
def test_what_was_decoded_can_be_encoded_and_decoded_again(name):
    tree = decode(contents(name))
    assert decode(encode(tree)) == tree


def test_scalars_are_there_with_their_defaults_and_nothing_else_is():
    tree = decode(encode({"model": {"graph": {"initializers": [{}], "nodes": []}}}))
    (tensor,) = tree["model"]["graph"]["initializers"]
    assert tensor == {"data_type": 0, "external_data_offset": -1}
    assert tree["model"]["graph"]["nodes"] == [] and "inputs" not in tree["model"]["graph"]


def test_payloads_are_views_of_the_buffer():
    buffer = bytearray(contents("basic.noopt"))
    (tensor,) = decode(buffer)["model"]["graph"]["initializers"]
    before = bytes(tensor["raw_data"])
    buffer[buffer.index(before)] ^= 0xFF
    assert bytes(tensor["raw_data"]) != before


def test_content_need_not_be_text_but_names_must():
    tensor = {"string_data": ["a\udcffb", "é"]}
    assert decode(encode({"model": {"graph": {"initializers": [tensor]}}}))["model"]["graph"]["initializers"][0] == {
        **tensor,
        "data_type": 0,
        "external_data_offset": -1,
    }
    with pytest.raises(Fail, match="no UTF-8"):
        decode(encode({"ort_version": "\udcff"}))


def test_a_resolver_can_stand_alone():
    tree = {"op_kernel_type_str_args": [{"op_id": ":Add:14", "kernel_type_str_args": []}]}
    assert (
        decode(encode(tree, "KernelTypeStrResolver", RESOLVER_IDENTIFIER), "KernelTypeStrResolver", RESOLVER_IDENTIFIER) == tree
    )


# --- buffers that are not sound


def test_every_truncation_is_refused_but_of_padding_at_the_end():
    data = contents("basic.noopt")
    whole = decode(data)
    assert decode(data + bytes(13)) == whole
    needed = len(data.rstrip(b"\0")) + 1
    for length in range(needed):
        with pytest.raises(Fail, match="ORT model verification failed"):
            decode(data[:length])
    assert decode(data[:needed]) == whole


def buffer_of(*words: int) -> bytes:
    """Words of four bytes after the root's offset and the identifier."""
    return b"\x08\0\0\0" + IDENTIFIER + b"".join(struct.pack("<i", word) for word in words)


ROOT_WITH_VERSION = struct.unpack("<i", struct.pack("<HH", 6, 8))[0], struct.unpack("<i", struct.pack("<HH", 4, 0))[0]
"""A vtable of 6 bytes whose one field lies at 4; the root's table comes after it."""


def sound(*after: int) -> bytes:
    """A root with an ort_version whose offset is the first word of `after`."""
    return b"\x10\0\0\0" + IDENTIFIER + struct.pack("<2i", *ROOT_WITH_VERSION) + struct.pack(f"<{1 + len(after)}i", 8, *after)


def test_a_buffer_can_be_made_by_hand():
    assert decode(sound(4, 1, ord("6"))) == {"ort_version": "6"}


UNSOUND = {
    "empty": (b"", "too short"),
    "another identifier": (b"\x0c\0\0\0ODTC" + bytes(8), "identifier"),
    "root outside": (b"\xff\xff\0\0ORTM" + bytes(8), "outside the buffer"),
    "root in front": (b"\0\0\0\0ORTM" + bytes(8), "outside the buffer"),
    "root not aligned": (b"\x09\0\0\0ORTM" + bytes(8), "not aligned"),
    "vtable before the buffer": (buffer_of(0x7FFF), "vtable"),
    "vtable after the buffer": (buffer_of(-0x7FFF), "vtable"),
    "vtable not aligned": (buffer_of(1, 0), "vtable"),
    "vtable too small": (buffer_of(-4, 2), "impossible size"),
    "vtable of an odd size": (buffer_of(-4, 7, 0, 0), "impossible size"),
    "vtable too long": (buffer_of(-4, 0x7FFE), "impossible size"),
    "field over the end": (buffer_of(-4, 0x00080006, 0x7FFC), "not in the buffer"),
    "field in the table's head": (buffer_of(-4, 0x00080006, 2), "overlaps"),
    "string outside": (sound(0x1000), "outside the buffer"),
    "string backwards": (sound(-8), "outside the buffer"),
    "string nowhere": (sound(0), "outside the buffer"),
    "string not aligned": (sound(5, 1, 1, 1), "not aligned"),
    "string longer than the buffer": (sound(4, 0x7FFFFFFF, 0), "does not fit"),
    "string of more than all memory": (sound(4, -1, 0), "does not fit"),
    "string without a zero byte": (sound(4, 3, 0x36363636), "no zero byte"),
    "string at the very end": (sound(4, 4, 0x36363636), "no zero byte"),
}


@pytest.mark.parametrize("what", UNSOUND)
def test_unsound_buffers_are_refused_with_the_reason(what):
    data, reason = UNSOUND[what]
    with pytest.raises(Fail, match=f"ORT model verification failed.*{reason}"):
        decode(data)


def test_numbers_of_eight_bytes_must_be_aligned():
    data = (HERE / "mutants" / "int64_aligned_to_4_only.ort").read_bytes()
    with pytest.raises(Fail, match="not aligned"):
        decode(data)
    words = [bytes(encode({"model": {"graph": {"initializers": [{"dims": [1, 2, 3]}]}}}))]
    at = words[0].index(struct.pack("<Iq", 3, 1))
    assert at % 8 == 4
    shifted = struct.pack("<I", struct.unpack_from("<I", words[0])[0] + 4) + words[0][4:8] + bytes(4) + words[0][8:]
    with pytest.raises(Fail, match="aligned"):
        decode(shifted)


def test_keys_must_be_there():
    tree = {"kernel_type_str_resolver": {"op_kernel_type_str_args": [{}]}}
    with pytest.raises(Fail, match="has no op_id"):
        decode(encode(tree))


def test_unknown_members_of_the_union_have_no_value():
    tree = {"type": {"value_type": 200}}
    (found,) = decode(encode({"model": {"graph": {"node_args": [tree]}}}))["model"]["graph"]["node_args"]
    assert found == tree


# --- bounds


def nested(depth: int) -> dict[str, Any]:
    """A type of `depth` sequences in each other."""
    type: dict[str, Any] = {"value_type": 1, "value": {"elem_type": 1}}
    for _ in range(depth):
        type = {"value_type": 2, "value": {"elem_type": type}}
    return {"model": {"graph": {"node_args": [{"name": "x", "type": type}]}}}


def test_tables_inside_each_other_have_a_bound():
    assert decode(encode(nested(20)))
    with pytest.raises(Fail, match="64 deep"):
        decode(encode(nested(1000 // 8)))


def test_the_number_of_tables_has_a_bound(monkeypatch):
    monkeypatch.setattr(decoding, "MAX_TABLES", 100)
    tree = {"model": {"graph": {"node_edges": [{"node_index": number} for number in range(97)]}}}
    assert decode(encode(tree)) and encode(tree)
    tree["model"]["graph"]["node_edges"].append({"node_index": 97})
    with pytest.raises(Fail, match="more than 100 tables"):
        decode(encode(tree))


def shared(data: bytes, vector: int, count: int, first: int = 0) -> bytes:
    """Let the offsets from `first` on, of the vector of `count` at `vector`, lead where the last one does."""
    changed = bytearray(data)
    last = vector + 4 * count
    target = last + struct.unpack_from("<I", data, last)[0]
    for at in range(vector + 4 + 4 * first, last, 4):
        struct.pack_into("<I", changed, at, target - at)
    return bytes(changed)


def work_until_refused(data: Any) -> int:
    def refuse() -> None:
        with pytest.raises(Fail, match="used more than once"):
            decode(data)

    return executed_lines(refuse)


def test_a_large_part_can_be_used_twice_but_not_a_thousand_times():
    node = {"name": "n", "inputs": [f"value {number}" for number in range(3000)]}
    others: list[dict[str, Any]] = [{"index": number} for number in range(1, 1000)]
    data = bytes(encode({"model": {"graph": {"nodes": [*others, node]}}}))
    vector = data.index(struct.pack("<I", 1000))
    assert work_until_refused(shared(data, vector, 1000)) < 100 * len(data)
    assert decode(shared(data, vector, 1000, first=998))["model"]["graph"]["nodes"][-2]["name"] == "n"


def test_graphs_that_hold_the_same_graph_twice_do_not_double_with_each_level():
    tree: dict[str, Any] = {"nodes": []}
    for _ in range(18):
        tree = {"nodes": [{"attributes": [{"type": 5}, {"type": 5, "g": tree}]}]}
    data = bytearray(encode({"model": {"graph": tree}}))
    # the attribute without a graph becomes the one with it, on each level
    for at in range(12, len(data) - 12, 4):
        count, first, second = struct.unpack_from("<3I", data, at)
        if count == 2 and 0 < first < len(data) - at and 0 < second < len(data) - at:
            struct.pack_into("<I", data, at + 4, second + 4)
    assert work_until_refused(data) < 1000 * len(data)


@pytest.mark.parametrize("seed", range(5))
def test_random_bytes_after_the_identifier_are_refused(seed):
    rng = random.Random(seed)
    for _ in range(200):
        data = struct.pack("<I", rng.choice((8, 12, 16, 64))) + IDENTIFIER + rng.randbytes(rng.randrange(4, 400))
        with pytest.raises(Fail, match="ORT model verification failed"):
            decode(data)
