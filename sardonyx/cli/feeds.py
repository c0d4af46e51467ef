"""What goes into a model: feeds from `--input name=SPEC` and `--dim name=size`, random where nothing is said.

`run` and `bench` share this. A SPEC is a .npy or .npz file, a .pb file with a TensorProto, `random`, `zeros`, `ones`, or a JSON literal.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sardonyx import dtypes
from sardonyx.cli.lookups import row_count
from sardonyx.cli.terminal import UsageError
from sardonyx.dtypes import ElementType
from sardonyx.formats.onnx.external import ExternalFolder
from sardonyx.formats.onnx.messages import messages
from sardonyx.formats.onnx.tensors import read_tensor
from sardonyx.ir import MapType, OptionalType, SequenceType, TensorType, Type, Value, described, dim
from sardonyx.startup.records import dataclass

GENERATORS = ("random", "zeros", "ones")
RANDOM_INTEGERS = 10
"""Random integers are below this, and below the number of rows of a table that the graph looks them up in."""


@dataclass(frozen=True)
class Feed:
    """A value for one input, and where it came from."""

    value: Any
    source: str


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=SPEC",
        help="value of an input: a .npy, .npz or .pb file, random, zeros, ones, or a JSON literal (repeatable; random if left out)",
    )
    parser.add_argument(
        "--dim", action="append", default=[], metavar="NAME=SIZE", help="size of a symbolic dim (1 if left out, 0 of pasts)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of random inputs")


def make_feeds(inputs: Sequence[Value], options: argparse.Namespace) -> dict[str, Feed]:
    """Values for all `inputs` of a graph that the command line or the generator gives; initializers keep their own."""
    named = _pairs(options.input, "--input")
    sizes = _lengths_of_pasts(inputs) | sizes_given(options.dim)
    known = {value.name: value for value in inputs}
    for name in named:
        if name not in known:
            raise UsageError(f"--input {name}: the model's inputs are {', '.join(known) or 'none'}")
    _check_dims(sizes, inputs)
    given = {name: _given(known[name], spec) for name, spec in named.items() if spec not in GENERATORS}
    for name, feed in given.items():
        sizes = _sizes_of(known[name], feed.value) | sizes
    rng = np.random.default_rng(options.seed)
    return {
        name: given.get(name) or _made_up(value, named.get(name, "random"), sizes, rng)
        for name, value in known.items()
        if name in named or value.constant is None
    }


def _pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, separator, rest = text.partition("=")
        if not separator or not name:
            raise UsageError(f"{option} {text!r}: write NAME=VALUE")
        pairs[name] = rest
    return pairs


def sizes_given(texts: Sequence[str]) -> dict[str, int]:
    """What `--dim` says, by name."""
    sizes = {}
    for name, text in _pairs(texts, "--dim").items():
        if not text.isdecimal():
            raise UsageError(f"--dim {name}={text}: a size is a number from 0 on")
        sizes[name] = int(text)
    return sizes


def _check_dims(sizes: Mapping[str, int], inputs: Sequence[Value]) -> None:
    symbols = _symbols(inputs)
    for name in sizes:
        if name not in symbols:
            raise UsageError(f"--dim {name}: the inputs' symbolic dims are {', '.join(sorted(symbols)) or 'none'}")


def _symbols(inputs: Iterable[Value]) -> set[str]:
    """The names of sizes that inputs leave open."""
    shapes = [value.type.shape or () for value in inputs if isinstance(value.type, TensorType)]
    return {symbol.name for shape in shapes for size in shape for symbol in dim.symbols(size) if not symbol.is_anonymous}


def _lengths_of_pasts(inputs: Sequence[Value]) -> dict[str, int]:
    """0 for sizes of past keys and values that no other input has: a decoder's mask has then as many positions as its ids."""
    pasts = [value for value in inputs if value.name.lower().startswith("past")]
    return dict.fromkeys(_symbols(pasts) - _symbols(value for value in inputs if value not in pasts), 0)


def _sizes_of(value: Value, feed: Any) -> dict[str, int]:
    """What symbolic sizes are in an input's value; nothing if it does not have as many axes as are declared."""
    shape = (value.type.shape if isinstance(value.type, TensorType) else None) or ()
    if len(shape) != np.ndim(feed):
        return {}
    pairs = zip(shape, np.shape(feed), strict=True)
    return {size.symbol.name: actual for size, actual in pairs if not isinstance(size, int) and size.symbol is not None}


def _made_up(value: Value, how: str, sizes: Mapping[str, int], rng: np.random.Generator) -> Feed:
    below = min(RANDOM_INTEGERS, row_count(value) or RANDOM_INTEGERS)
    return Feed(_generated(value.name, value.type, how, sizes, rng, below), how)


def _given(value: Value, spec: str) -> Feed:
    dtype = value.type.dtype if isinstance(value.type, TensorType) else None
    path = Path(spec)
    if path.suffix in (".npy", ".npz", ".pb"):
        return Feed(_conformed(_from_file(value.name, path), dtype), spec)
    try:
        literal = json.loads(spec)
    except ValueError:
        raise UsageError(
            f"--input {value.name}={spec}: neither a .npy, .npz or .pb file nor {', '.join(GENERATORS)} nor JSON"
        ) from None
    return Feed(_conformed(np.asarray(literal), dtype) if dtype is not None else literal, "literal")


def _from_file(name: str, path: Path) -> Any:
    if not path.exists():
        raise UsageError(f"--input {name}={path}: there is no such file")
    if path.suffix == ".pb":
        proto = messages().TensorProto.FromString(path.read_bytes())
        return read_tensor(proto, ExternalFolder(path.parent), name).numpy()
    loaded = np.load(path, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        return loaded
    if name not in loaded:
        raise UsageError(f"--input {name}={path}: the file holds {', '.join(loaded) or 'nothing'}")
    return loaded[name]


def _conformed(array: np.ndarray, dtype: ElementType | None) -> np.ndarray:
    """An array in the type that the input declares. What was typed or saved as text or in another width is converted, as is what
    NumPy's files cannot hold (bfloat16 and the like)."""
    if dtype is None or array.dtype == dtype.numpy:
        return array
    return array.astype(str).astype(object) if dtype is dtypes.string else array.astype(dtype.numpy)


def _generated(name: str, type: Type | None, how: str, sizes: Mapping[str, int], rng: np.random.Generator, below: int) -> Any:
    match type:
        case TensorType(dtype, shape) if dtype is not None:
            if shape is None:
                raise UsageError(f"input {name!r} has no known rank: give it with --input {name}=file.npy")
            return generate(dtype, [_size(name, size, sizes) for size in shape], how, rng, below)
        case SequenceType(element):
            return [_generated(name, element, how, sizes, rng, below)]
        case OptionalType(element):
            return _generated(name, element, how, sizes, rng, below)
        case MapType(key, content):
            item = _generated(name, content, how, sizes, rng, below)
            return {"key" if key is dtypes.string else 0: item.item() if isinstance(item, np.ndarray) else item}
    raise UsageError(f"input {name!r} of type {described(type)} cannot be made up: give it with --input {name}=…")


def _size(name: str, size: dim.Dim, sizes: Mapping[str, int]) -> int:
    bindings = {symbol.name: sizes.get(symbol.name, 1) for symbol in dim.symbols(size)}
    return dim.evaluate(size, bindings)


def generate(
    dtype: ElementType, shape: Sequence[int], how: str, rng: np.random.Generator, below: int = RANDOM_INTEGERS
) -> np.ndarray:
    """An array of `dtype`: uniform in [0, 1) for floats, numbers `below` a limit for integers."""
    if dtype is dtypes.string:
        return np.full(shape, {"zeros": "0", "ones": "1"}.get(how, "text"), dtype=object)
    if how != "random":
        return np.full(shape, 1 if how == "ones" else 0).astype(dtype.numpy)
    if dtype is dtypes.bool_:
        return np.asarray(rng.integers(0, 2, size=shape)).astype(np.bool_)
    if dtype in dtypes.INTS:
        largest = 2 ** (dtype.bits - (1 if dtype in dtypes.SIGNED else 0))
        return np.asarray(rng.integers(0, min(below, largest), size=shape)).astype(dtype.numpy)
    return np.asarray(rng.random(size=shape)).astype(dtype.numpy)


def doubt(feeds: Mapping[str, Feed], inputs: Sequence[Value], options: argparse.Namespace) -> str:
    """What to try where a run fails on sizes or numbers that were made up; nothing if none were."""
    made_up = [name for name, feed in feeds.items() if feed.source in GENERATORS]
    numbers = [name for name in made_up if feeds[name].source == "random" and _is_integer(feeds[name].value)]
    told = [_sizes_of(value, feeds[value.name].value) for value in inputs if value.name in feeds.keys() - {*made_up}]
    sizes = (
        _symbols(value for value in inputs if value.name in made_up)
        - sizes_given(options.dim).keys()
        - {*itertools.chain(*told)}
    )
    ways = {
        "sizes that were left out": " ".join(f"--dim {name}=SIZE" for name in sorted(sizes)),
        "random numbers": " ".join(f"--input {name}=zeros" for name in numbers),
    }
    differing = "".join(f" ({text})" for text in _differing_sizes(feeds, inputs))
    return differing + "".join(f" ({reason} may be the reason: try {way})" for reason, way in ways.items() if way)


def _differing_sizes(feeds: Mapping[str, Feed], inputs: Sequence[Value]) -> list[str]:
    """Sizes of one name that are not the same in all inputs."""
    found: dict[str, dict[int, str]] = {}
    for value in inputs:
        if value.name in feeds:
            for symbol, size in _sizes_of(value, feeds[value.name].value).items():
                found.setdefault(symbol, {}).setdefault(size, value.name)
    return [
        f"the size {symbol} is " + " and ".join(f"{size} in {name}" for size, name in places.items())
        for symbol, places in found.items()
        if len(places) > 1
    ]


def _is_integer(value: Any) -> bool:
    return isinstance(value, np.ndarray) and dtypes.from_numpy(value.dtype) in dtypes.INTS
