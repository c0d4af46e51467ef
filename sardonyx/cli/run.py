"""`sardonyx run`: run a model once, show its outputs, save them if asked."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import sardonyx
from sardonyx import dtypes, errors, formats
from sardonyx.cli import feeds, nans
from sardonyx.cli.terminal import FATAL, Terminal, time_text
from sardonyx.formats.filenames import FileNames, stem_of

SHOWN_VALUES = 6
JSON_VALUES = 64
"""Larger tensors are summed up in the JSON, not listed."""


def add_parser(commands: Any, shared: argparse.ArgumentParser) -> None:
    parser = commands.add_parser("run", parents=[shared], help="run a model and show its outputs", description=__doc__)
    feeds.add_options(parser)
    parser.add_argument("--output", type=Path, metavar="DIR", help="save every output there (.npy; maps as .json)")
    parser.add_argument("--fetch", action="append", metavar="NAME", help="what to return: any value of the graph (repeatable)")
    parser.add_argument("--provider", action="append", metavar="NAME", help="execution provider (repeatable, in this order)")
    parser.add_argument("--find-nan", action="store_true", help="also find the first node whose result holds NaN")
    parser.set_defaults(execute=execute)


def execute(options: argparse.Namespace, terminal: Terminal) -> int:
    settings = sardonyx.SessionOptions()
    settings.log_severity_level = FATAL
    with terminal.working("loading"):
        declared = formats.load(options.model).graph.inputs
        inputs = feeds.make_feeds(declared, options)
        session = sardonyx.InferenceSession(options.model, settings, providers=options.provider)
    values = {name: feed.value for name, feed in inputs.items()}
    names = options.fetch or [output.name for output in session.get_outputs()]
    with terminal.working("running"):
        start = time.perf_counter()
        try:
            results = session.run(names, values)
        except errors.CODED as error:
            raise type(error)(error.message + feeds.doubt(inputs, declared, options)) from error
        seconds = time.perf_counter() - start
    outputs = dict(zip(names, results, strict=True))
    saved = save(outputs, options.output) if options.output is not None else {}
    result = _show(terminal, inputs, outputs, saved, session.get_providers(), seconds)
    finding = nans.find(options.model, values) if options.find_nan else None
    if options.find_nan:
        result["nan"] = nans.show(finding, outputs, terminal)
    terminal.result(result)
    return 0 if finding is None else 1


def _show(
    terminal: Terminal,
    inputs: Mapping[str, feeds.Feed],
    outputs: Mapping[str, Any],
    saved: Mapping[str, list[Path]],
    providers: list[str],
    seconds: float,
) -> dict[str, Any]:
    """Print what came of a run; the same for JSON."""
    terminal.table(
        "inputs", ("name", "value", "from"), [(name, shape_text(feed.value), feed.source) for name, feed in inputs.items()]
    )
    terminal.table("outputs", ("name", "value", "content"), [(name, shape_text(v), _content(v)) for name, v in outputs.items()])
    terminal.table("saved", ("output", "file"), [(name, path) for name, paths in saved.items() for path in paths])
    terminal.line(f"{time_text(seconds)} on {', '.join(providers)}")
    return {
        "inputs": {name: {"value": shape_text(feed.value), "from": feed.source} for name, feed in inputs.items()},
        "outputs": {name: summary(value) for name, value in outputs.items()},
        "saved": {name: [str(path) for path in paths] for name, paths in saved.items()},
        "providers": providers,
        "seconds": seconds,
    }


def shape_text(value: Any) -> str:
    """Type and shape of a value: `float[1, 10]`."""
    if isinstance(value, np.ndarray):
        return f"{dtypes.from_numpy(value.dtype)}{list(value.shape)}"
    if isinstance(value, list):
        return f"sequence of {len(value)}" + (f" × {shape_text(value[0])}" if value else "")
    if isinstance(value, dict):
        return f"map of {len(value)}"
    return "nothing" if value is None else type(value).__name__


def _content(value: Any) -> str:
    if isinstance(value, list):
        return "; ".join(_content(item) for item in value[:3])
    if not isinstance(value, np.ndarray):
        return str(value)[:80]
    flat = value.reshape(-1)
    shown = ", ".join(_number(item) for item in flat[:SHOWN_VALUES].tolist())
    text = shown + (", …" if flat.size > SHOWN_VALUES else "")
    numbers = _numbers(value)
    if flat.size <= SHOWN_VALUES or numbers is None:
        return text
    return f"{text}   min {_number(numbers.min())}, max {_number(numbers.max())}, mean {_number(numbers.mean())}"


def _number(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, (float, np.floating)) else str(value)


def _numbers(value: np.ndarray) -> np.ndarray | None:
    """The tensor as float64, None for texts, complex numbers and empty tensors."""
    dtype = dtypes.from_numpy(value.dtype)
    is_number = dtype is not dtypes.string and dtype not in dtypes.COMPLEX and value.size > 0
    return value.astype(np.float64) if is_number else None


def summary(value: Any) -> Any:
    """A value for JSON: small ones whole, large ones by their extremes. NaN and infinities are written as text."""
    if isinstance(value, list):
        return [summary(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if not isinstance(value, np.ndarray):
        return None if value is None else str(value)
    description: dict[str, Any] = {"type": str(dtypes.from_numpy(value.dtype)), "shape": list(value.shape)}
    numbers = _numbers(value)
    if numbers is not None:
        description |= {"min": _plain(numbers.min()), "max": _plain(numbers.max()), "mean": _plain(numbers.mean())}
    if value.size <= JSON_VALUES:
        description["values"] = [_plain(item) for item in value.reshape(-1).tolist()]
    return description


def _plain(item: Any) -> Any:
    if isinstance(item, (np.generic, np.ndarray)):
        item = item.item()
    if isinstance(item, float) and not np.isfinite(item):
        return str(item)
    return item if isinstance(item, (int, float, str, bool)) else str(item)


def save(outputs: Mapping[str, Any], folder: Path) -> dict[str, list[Path]]:
    """Write outputs into `folder`, one file each, one per element for sequences; the files by output."""
    folder.mkdir(parents=True, exist_ok=True)
    files = FileNames(folder)
    return {name: _save(value, stem_of(name), files) for name, value in outputs.items()}


def _save(value: Any, stem: str, files: FileNames) -> list[Path]:
    if isinstance(value, list):
        return [path for index, item in enumerate(value) for path in _save(item, f"{stem}_{index}", files)]
    if isinstance(value, np.ndarray):
        path = files.new(stem, ".npy")
        with open(path, "wb") as file:
            np.save(file, storable(value), allow_pickle=False)
        return [path]
    path = files.new(stem, ".json")
    path.write_text(json.dumps(summary(value), indent=1), encoding="utf-8")
    return [path]


def storable(value: np.ndarray) -> np.ndarray:
    """An array that a .npy file can hold without pickling: texts as fixed width, types foreign to NumPy in a wider one of its own."""
    dtype = dtypes.from_numpy(value.dtype)
    if dtype is dtypes.string:
        return value.astype(str)
    if dtype in dtypes.SUB_BYTE_INTS:
        return value.astype(np.int8)
    if dtype in dtypes.WIDENED and dtype is not dtypes.float16:
        return value.astype(np.float32)
    return value
