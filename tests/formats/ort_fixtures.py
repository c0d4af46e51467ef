"""What onnxruntime wrote and computed for the models in tests/models: decoded trees, inputs and outputs, from tests/formats/ort."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sardonyx.formats.ort.tables import TABLES, UNIONS, FieldKind

HERE = Path(__file__).parent / "ort"
MODELS = Path(__file__).parents[1] / "models"
MANIFEST = json.loads((HERE / "manifest.json").read_text())
ENTRIES = {entry["name"]: entry for entry in MANIFEST["models"]}
UNORDERED = {
    "initializers": "name",
    "node_args": "name",
    "attributes": "name",
    "metadata_props": "key",
    "sparse_initializers": "dims",
    "implicit_inputs": "",
}
"""Vectors whose order says nothing, with the field to sort them by."""

Tree = dict[str, Any]


def decoded(file: str) -> Tree:
    """The tree of an .ort file in the form of `comparable`."""
    return comparable(_filled(json.loads((HERE / "decoded" / f"{file}.json").read_text()), "InferenceSession"))


def _filled(tree: Tree, table: str) -> Tree:
    """The stored tree, which leaves out default values, with all of them."""
    full: Tree = {}
    for field in TABLES[table]:
        value = tree.get(field.name)
        match field.kind:
            case FieldKind.SCALAR:
                full[field.name] = tree.get(field.name, field.default)
            case _ if value is None:
                continue
            case FieldKind.TABLE:
                full[field.name] = _filled(value, field.table)
            case FieldKind.TABLES:
                full[field.name] = [_filled(one, field.table) for one in value]
            case FieldKind.UNION:
                full[field.name] = _filled(value, UNIONS[tree["value_type"]])
            case FieldKind.STRUCTS:
                full[field.name] = [tuple(one) for one in value]
            case FieldKind.BYTES:
                full[field.name] = value["$bytes"], value["sha256"]
            case _:
                full[field.name] = value
    return full


def comparable(tree: Tree) -> Tree:
    """A tree with what has no order sorted, edges of implicit inputs by name, and payloads as their length and hash."""
    for graph in graphs(tree["model"]["graph"]):
        _name_implicit_inputs(graph)
    result: Tree = _sorted(tree, "")
    return result


def graphs(graph: Tree) -> Iterator[Tree]:
    """A graph and all graphs inside it."""
    yield graph
    for node in graph["nodes"]:
        for attribute in node["attributes"]:
            if "g" in attribute:
                yield from graphs(attribute["g"])


def _name_implicit_inputs(graph: Tree) -> None:
    nodes = {node["index"]: node for node in graph["nodes"]}

    def named(node: Tree, position: int) -> int | str:
        count = len(node["inputs"])
        return position if position < count else node["implicit_inputs"][position - count]

    for edge in graph["node_edges"]:
        own = nodes[edge["node_index"]]
        edge["input_edges"] = sorted(((a, b, named(own, c)) for a, b, c in edge["input_edges"]), key=str)
        edge["output_edges"] = sorted(((a, b, named(nodes[a], c)) for a, b, c in edge["output_edges"]), key=str)


def _sorted(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(one, key) for key, one in value.items()}
    if isinstance(value, (bytes, memoryview)):
        return len(value), hashlib.sha256(value).hexdigest()
    if not isinstance(value, list):
        return value
    items = [_sorted(one, "") for one in value]
    if name in UNORDERED:
        items.sort(key=lambda one: str(one[UNORDERED[name]] if isinstance(one, dict) else one))
    return items


def cases(name: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Feeds and expected outputs of a model; a sequence is a list."""
    entry, data = ENTRIES[name], np.load(HERE / "expected" / f"{name}.npz")
    for number, outputs in enumerate(entry["cases"]):
        start = f"c{number}.in."
        feeds = {key.removeprefix(start): data[key] for key in data.files if key.startswith(start)}
        for text in entry["string_inputs"]:
            feeds[text] = feeds[text].astype(object)
        yield feeds, {output: _expected(data, f"c{number}.out.{output}", about) for output, about in outputs.items()}


def _expected(data: Any, key: str, about: dict[str, Any]) -> Any:
    match about["kind"]:
        case "tensor":
            return data[key]
        case "sequence":
            return [data[f"{key}.{index}"] for index in range(about["len"])]
    return [dict(pairs) for pairs in about["value"]]


def assert_gives_expected(name: str, session: Any) -> None:
    """A session of any runtime computes what onnxruntime computed."""
    entry = ENTRIES[name]
    names = [output.name for output in session.get_outputs()]
    for feeds, expected in cases(name):
        got = dict(zip(names, session.run(None, feeds), strict=True))
        assert got.keys() == expected.keys()
        for output, want in expected.items():
            _assert_close(got[output], want, entry["rtol"], entry["atol"])


def _assert_close(got: Any, want: Any, rtol: float, atol: float) -> None:
    if isinstance(want, np.ndarray) and want.dtype.kind == "f":
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=atol)
    elif isinstance(want, np.ndarray):
        assert np.array_equal(np.asarray(got).astype(want.dtype), want)
    elif isinstance(want, dict):
        assert got.keys() == want.keys()
        np.testing.assert_allclose(list(got.values()), [want[key] for key in got], rtol=rtol, atol=atol)
    else:
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            _assert_close(one, other, rtol, atol)
