"""The ORT format files that onnxruntime 1.31.1 wrote, these with something changed, and sessions of them: for the tests of the reader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sardonyx
from sardonyx.formats.ort.decoding import decode
from sardonyx.formats.ort.encoding import encode
from tests.formats.ort_fixtures import HERE, MANIFEST

FILES = [(entry["name"], file) for entry in MANIFEST["models"] for file in entry["files"]]
"""Names of models with each of their files."""
NAMES = [file["file"].removesuffix(".ort") for _, file in FILES]

Tree = dict[str, Any]
REPLAY = {"session.enable_saved_runtime_optimizations": "1"}


def contents(name: str) -> bytes:
    """The bytes of a file, by its name without the ending."""
    return (HERE / "models" / f"{name}.ort").read_bytes()


def edited(name: str, edit: Callable[[Tree], object]) -> bytes:
    """The same with something changed in its tree."""
    tree = decode(contents(name))
    edit(tree)
    return bytes(encode(tree))


def session_of(
    source: Any, config: dict[str, str] | None = None, native: str = "0", **options: Any
) -> sardonyx.InferenceSession:
    settings = sardonyx.SessionOptions()
    settings.log_severity_level = 4
    for key, value in (config or {}).items():
        settings.add_session_config_entry(key, value)
    for name, value in options.items():
        getattr(settings, name)(*value)
    return sardonyx.InferenceSession(source, settings, providers=[("CPUExecutionProvider", {"native": native})])


def graph_of(tree: Tree) -> Any:
    return tree["model"]["graph"]


def node_of(tree: Tree, number: int = 0) -> Any:
    return graph_of(tree)["nodes"][number]


def value_of(tree: Tree, name: str) -> Any:
    return next(value for value in graph_of(tree)["node_args"] if value["name"] == name)


def initializer_of(tree: Tree) -> Any:
    return graph_of(tree)["initializers"][0]


def types_of(tree: Tree) -> Any:
    return tree["kernel_type_str_resolver"]["op_kernel_type_str_args"]


def changed(*path: Any, **values: Any) -> Callable[[Tree], None]:
    """An edit that sets fields of the table at `path`; those set to None are removed."""

    def edit(tree: Any) -> None:
        for step in path:
            tree = tree[step]
        tree.update(values)
        for name in [name for name, value in values.items() if value is None]:
            del tree[name]

    return edit


GRAPH = ("model", "graph")
NODE = (*GRAPH, "nodes", 0)
"""Paths for `changed`."""
