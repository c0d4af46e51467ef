"""Encoders of ai.onnx.ml from strings and to strings: LabelEncoder, CategoryMapper, OneHotEncoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx.compiler.types import I64, Type
from sardonyx.ir import Node, dim
from sardonyx.ops import checking
from sardonyx.ops.reading import all_attributes
from sardonyx.providers.native.kernels.ml.encoders import (
    Labels,
    OneHotArguments,
    OneHotSpec,
    encode_numbers,
    one_hot_kernel,
)
from sardonyx.providers.native.kernels.ml.operators import DOMAIN, rank_of
from sardonyx.providers.native.kernels.reduction.domain import PIECE_ELEMENTS
from sardonyx.providers.native.kernels.text.bytes import LookupArguments, base_of, lookup, place_of
from sardonyx.providers.native.program.arguments import Arguments, Operands, Pointer, group
from sardonyx.providers.native.program.chain import Chain, ChainCode
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import element_of, has_texts, is_text, required
from sardonyx.startup.records import dataclass

GRAIN = PIECE_ELEMENTS // 64
"""Strings that are worth a thread."""


@dataclass(frozen=True)
class _Mapping:
    """What an encoder makes of which key, and of all others."""

    values: Mapping[Any, Any]
    default: Any


# --- what nodes say


def _label_mapping(node: Node) -> _Mapping | None:
    """None if the keys or the values are not as the types say."""
    attributes = all_attributes(node)
    keys, values = (_entries(attributes, name) for name in ("keys", "values"))
    text_keys, text_values = is_text(node.inputs[0]), is_text(node.outputs[0])
    fits = keys is not None and values is not None and len(keys) == len(values) > 0
    if not fits or (keys.dtype == object, values.dtype == object) != (text_keys, text_values) or keys.dtype.kind == "f":
        return None
    kind = {"O": "string", "i": "int64", "f": "float"}[values.dtype.kind]
    default = attributes.get("default_tensor", attributes.get(f"default_{kind}"))
    pairs = list(zip(keys.tolist(), values.tolist()))
    # of equal keys the last counts from version 4 on, before the first did
    ordered = pairs if checking.signature_of(node).since_version >= 4 else reversed(pairs)
    return _Mapping(dict(ordered), np.asarray(default, values.dtype).reshape(-1)[0])


def _entries(attributes: Mapping[str, Any], name: str) -> Any:
    """The one that is given of a tensor and lists of several types."""
    if attributes.get(f"{name}_tensor") is not None:
        return np.asarray(attributes[f"{name}_tensor"]).reshape(-1)
    spellings = (("floats", np.float32), ("int64s", np.int64), ("strings", object))
    return next(
        (np.array(attributes[f"{name}_{kind}"], dtype) for kind, dtype in spellings if attributes.get(f"{name}_{kind}")), None
    )


def _class_mapping(node: Node) -> _Mapping | None:
    """Of a LabelEncoder of version 1: strings become their places in a list, or places strings."""
    attributes = all_attributes(node)
    classes = attributes.get("classes_strings") or []
    if is_text(node.inputs[0]):
        return _Mapping({text: place for place, text in enumerate(classes)}, attributes["default_int64"])
    return _Mapping(dict(enumerate(classes)), attributes["default_string"]) if classes else None


def _category_mapping(node: Node) -> _Mapping | None:
    attributes = all_attributes(node)
    numbers, texts = attributes.get("cats_int64s") or [], attributes.get("cats_strings") or []
    if len(numbers) != len(texts) or not texts:
        return None
    if is_text(node.inputs[0]):
        return _Mapping(dict(zip(texts, numbers)), attributes["default_int64"])
    return _Mapping(dict(zip(numbers, texts)), attributes["default_string"])


def _mapping_of(node: Node) -> _Mapping | None:
    if node.op_type == "CategoryMapper":
        return _category_mapping(node)
    return _class_mapping(node) if checking.signature_of(node).since_version == 1 else _label_mapping(node)


# --- as steps


@lower(
    "LabelEncoder",
    "CategoryMapper",
    domain=DOMAIN,
    case="strings",
    text=True,
    claims=lambda node: has_texts(node) and rank_of(node) >= 0 and _mapping_of(node) is not None,
)
def encode(lowerer: Lowerer, node: Node) -> None:
    """Strings become what belongs to them, or numbers their strings."""
    mapping = _mapping_of(node)
    assert mapping is not None
    values = [*mapping.values.values(), mapping.default]
    if is_text(node.outputs[0]):
        results = lowerer.text_constants.references(values)
    else:
        results = np.array(values, _dtype(node))
    keys = list(mapping.values)
    if is_text(node.inputs[0]):
        _encode_texts(lowerer, node, keys, results)
    else:
        order = np.argsort(np.array(keys, np.int64))
        numbers = np.array(keys, np.int64)[order]
        encode_numbers(lowerer, node, Labels(numbers, np.append(results[:-1][order], [results[-1], results[-1]])))


def _dtype(node: Node) -> np.dtype[Any]:
    type = element_of(node.outputs[0])
    assert type is not None
    return np.dtype(f"{'f' if type.is_float else 'i'}{type.bytes}")


class EncodeArguments(Arguments):
    texts: Pointer
    source: Pointer
    values: Pointer
    """What belongs to each place, and behind these to all other strings."""
    table: LookupArguments
    sink: Operands = group(lambda sink: sink.slots)


@kernel("strings to labels", EncodeArguments)
def encode_kernel(f: KernelFunction, a: EncodeArguments, sink: Chain, result: Type) -> None:
    """Items are elements."""
    results, base = ChainCode(f, sink, a.sink).row([]), base_of(f, a.texts)
    with f.loop(f.begin, f.end) as item:
        place = place_of(f, base, f.load(a.source, item, I64), a.table)
        results.emit(item, 1, None, given=[f.load(a.values, place, result)])


def _encode_texts(lowerer: Lowerer, node: Node, keys: Sequence[str], results: np.ndarray) -> None:
    source = lowerer.contiguous(required(node.inputs[0]))
    sink = lowerer.sink(node, (len(source.shape),))
    result = element_of(node.outputs[0])
    assert result is not None
    arguments = EncodeArguments(
        texts=lowerer.text_memory(),
        source=source.place,
        values=lowerer.table(results),
        table=lookup(lowerer, keys),
        sink=sink.arguments,
    )
    lowerer.call(encode_kernel(lowerer.target, sink.chain, result), arguments, dim.product(source.shape), GRAIN)


# --- OneHotEncoder


class PlacesArguments(Arguments):
    texts: Pointer
    source: Pointer
    target: Pointer
    table: LookupArguments


@kernel("places of strings", PlacesArguments)
def places_kernel(f: KernelFunction, a: PlacesArguments) -> None:
    """Items are elements."""
    base = base_of(f, a.texts)
    with f.loop(f.begin, f.end) as item:
        f.store(place_of(f, base, f.load(a.source, item, I64), a.table), a.target, item, I64)


def _claims_one_hot(node: Node) -> bool:
    categories = all_attributes(node).get("cats_strings") or []
    return is_text(node.inputs[0]) and rank_of(node) >= 0 and len(set(categories)) == len(categories) > 0


@lower("OneHotEncoder", domain=DOMAIN, case="strings", text=True, claims=_claims_one_hot)
def one_hot_encoder(lowerer: Lowerer, node: Node) -> None:
    """Strings become their places, and these a row each."""
    attributes = all_attributes(node)
    X, output = lowerer.contiguous(required(node.inputs[0])), lowerer.output(node.outputs[0])
    elements, categories = dim.product(X.shape), attributes["cats_strings"]
    places = lowerer.scratch(elements * 8)
    arguments = PlacesArguments(texts=lowerer.text_memory(), source=X.place, target=places, table=lookup(lowerer, categories))
    lowerer.call(places_kernel(lowerer.target), arguments, elements, GRAIN)
    spec = OneHotSpec(I64, strict=not attributes["zeros"])
    rows = OneHotArguments(
        X=places,
        categories=lowerer.table(np.arange(len(categories))),
        count=len(categories),
        output=output.place,
        status=lowerer.status() if spec.strict else None,
    )
    grain = max(1, PIECE_ELEMENTS // len(categories))
    lowerer.call(one_hot_kernel(lowerer.target, spec), rows, elements, grain, traffic=elements * len(categories) * 4)
