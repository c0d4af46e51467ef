"""Encoders of ai.onnx.ml between numbers: LabelEncoder and OneHotEncoder."""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import F32, F64, I64, Type
from sardonyx.ir import Node, TensorType, dim
from sardonyx.ops import checking
from sardonyx.ops.reading import all_attributes
from sardonyx.providers.native.kernels.ml.operators import DOMAIN, along, input_type, rank_of
from sardonyx.providers.native.kernels.reduction.domain import PIECE_ELEMENTS
from sardonyx.providers.native.program.arguments import Arguments, Operands, Pointer, Size, group, when
from sardonyx.providers.native.program.chain import Chain, ChainCode
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import element_of, shape_of
from sardonyx.startup.records import dataclass

DENSE_SPAN = 1024
"""Integer keys that lie no further apart become places in a table."""

# --- LabelEncoder


@dataclass(frozen=True)
class Labels:
    """Labels of numbers: sorted keys, their values and behind those the ones of unknown keys and of NaN."""

    keys: np.ndarray
    values: np.ndarray

    @property
    def is_dense(self) -> bool:
        return self.keys.dtype.kind == "i" and int(self.keys[-1]) - int(self.keys[0]) < DENSE_SPAN

    def by_place(self) -> np.ndarray:
        """A value for each number from the first key to the last one, then the one of unknown keys."""
        places = self.keys.astype(np.int64) - int(self.keys[0])
        table = np.full(places[-1] + 2, self.values[len(self.keys)])
        table[places] = self.values[: len(self.keys)]
        return table


def _labels_of(node: Node) -> Labels | None:
    """None if a LabelEncoder has strings, or is not as its types say."""
    attributes = all_attributes(node)
    keys, values = _numbers(attributes, "keys"), _numbers(attributes, "values")
    types = [_dtype(value) for value in (node.inputs[0], node.outputs[0])]
    if keys is None or values is None or len(keys) != len(values) or not len(keys) or types != [keys.dtype, values.dtype]:
        return None
    default = attributes.get("default_tensor", attributes.get("default_float" if values.dtype.kind == "f" else "default_int64"))
    places = np.arange(len(keys))
    # of equal keys the last counts from version 4 on, before the first did
    order = places[::-1] if checking.signature_of(node).since_version >= 4 else places
    known, first = np.unique(keys[order], return_index=True)
    chosen = values[order][first]
    default = np.asarray(default).reshape(-1)[:1].astype(values.dtype)
    nan = np.isnan(known) if keys.dtype.kind == "f" else np.zeros(len(known), bool)
    of_nan = chosen[nan] if nan.any() else default
    if nan.all():
        return None
    return Labels(known[~nan], np.concatenate([chosen[~nan], default, of_nan]))


def _dtype(value: Any) -> Any:
    known = value is not None and isinstance(value.type, TensorType) and value.type.dtype is not None
    return np.dtype(value.type.dtype.numpy) if known else None


def _numbers(attributes: dict[str, Any], name: str) -> np.ndarray | None:
    if f"{name}_tensor" in attributes:
        tensor = np.asarray(attributes[f"{name}_tensor"]).reshape(-1)
        return tensor if tensor.dtype in (np.float32, np.float64, np.int16, np.int32, np.int64) else None
    for suffix, dtype in (("floats", np.float32), ("int64s", np.int64)):
        if attributes.get(f"{name}_{suffix}") is not None:
            return np.asarray(attributes[f"{name}_{suffix}"], dtype)
    return None


@dataclass(frozen=True)
class LabelSpec:
    """What shapes the code of a LabelEncoder."""

    source: Chain
    sink: Chain
    type: Type
    """That of the keys."""
    result: Type
    dense: bool
    """Whether a key is a place in the table of values, rather than looked for among sorted ones."""


@lower("LabelEncoder", domain=DOMAIN, since=2, claims=lambda node: rank_of(node) >= 1 and _labels_of(node) is not None)
def label_encoder(lowerer: Lowerer, node: Node) -> None:
    labels = _labels_of(node)
    assert labels is not None
    encode_numbers(lowerer, node, labels)


def encode_numbers(lowerer: Lowerer, node: Node, labels: Labels) -> None:
    """Add the step that makes labels of a node's input."""
    value = node.inputs[0]
    shape, result = None if value is None else shape_of(value), element_of(node.outputs[0])
    assert value is not None and shape is not None and result is not None
    source, sink = lowerer.source(value, (len(shape),)), lowerer.sink(node, (len(shape),))
    spec = LabelSpec(source.chain, sink.chain, input_type(node), result, labels.is_dense)
    arguments = LabelArguments(
        count=len(labels.by_place()) - 1 if spec.dense else len(labels.keys),
        low=int(labels.keys[0]) if spec.dense else None,
        keys=None if spec.dense else lowerer.table(labels.keys),
        values=lowerer.table(labels.by_place() if spec.dense else labels.values),
        source=source.arguments,
        sink=sink.arguments,
    )
    total = dim.product(shape)
    lowerer.call(label_kernel(lowerer.target, spec), arguments, total, PIECE_ELEMENTS // 8, traffic=total * 16)


class LabelArguments(Arguments):
    count: Size
    """How many keys there are, or places in a dense table."""
    values: Pointer
    low: Size | None = when(lambda spec: spec.dense)
    """The smallest key of a dense table."""
    keys: Pointer | None = when(lambda spec: not spec.dense)
    source: Operands = group(lambda spec: spec.source.slots)
    sink: Operands = group(lambda spec: spec.sink.slots)


@kernel("labels", LabelArguments)
def label_kernel(f: KernelFunction, a: LabelArguments, spec: LabelSpec) -> None:
    """Items are elements."""
    row, results = ChainCode(f, spec.source, a.source).row([]), ChainCode(f, spec.sink, a.sink).row([])
    lanes = f.lanes(F64)

    def emit(place: Value, remaining: Value | None = None) -> None:
        value = row.lanewise(place, lanes, remaining)
        found = _place_of(f, value, a) if spec.dense else _find(f, value, a, spec.type)
        results.emit(place, lanes, remaining, given=[f.gather(a.values, found, spec.result)])

    along(f, f.begin, f.end, lanes, emit)


def _place_of(f: KernelFunction, value: Value, a: LabelArguments) -> Value:
    """The places of keys in a dense table; `count` for what is not there."""
    assert a.low is not None
    lanes = value.type.lanes
    key, low, count = f.convert(value, I64), f.splat(a.low, lanes), f.splat(a.count, lanes)
    return f.select((key >= low) & (key < low + count), key - low, count)


def _find(f: KernelFunction, value: Value, a: LabelArguments, type: Type) -> Value:
    """The places of values among sorted keys; `count` for what is not there, the next for NaN."""
    assert a.keys is not None
    keys, count, lanes = a.keys, a.count, value.type.lanes
    low, rest = f.variable(f.const(I64.vector(lanes), 0)), f.variable(count)
    with f.while_() as searching:
        searching.leave_if(rest.get() <= 1)
        half = rest.get() // 2
        middle = low.get() + f.splat(half, lanes)
        low.set(f.select(f.gather(keys, middle - 1, type) < value, middle, low.get()))
        rest.set(rest.get() - half)
    place = low.get()
    place = f.minimum(f.select(f.gather(keys, place, type) < value, place + 1, place), f.splat(count - 1, lanes))
    place = f.select(f.gather(keys, place, type) == value, place, f.splat(count, lanes))
    return f.select(f.is_nan(value), f.splat(count + 1, lanes), place) if type.is_float else place


# --- OneHotEncoder

INT64_RANGE = 2.0**63


def _claims_one_hot(node: Node) -> bool:
    attributes = all_attributes(node)
    categories = attributes.get("cats_int64s") or []
    is_plain = not attributes.get("cats_strings") and len(set(categories)) == len(categories) > 0
    # what no integer can hold becomes the smallest one in NumPy
    return is_plain and rank_of(node) >= 0 and (input_type(node).is_integer or -(2**63) not in categories)


@lower("OneHotEncoder", domain=DOMAIN, claims=_claims_one_hot)
def one_hot_encoder(lowerer: Lowerer, node: Node) -> None:
    assert node.inputs[0] is not None
    X, output = lowerer.contiguous(node.inputs[0]), lowerer.output(node.outputs[0])
    attributes = all_attributes(node)
    categories = np.array(attributes["cats_int64s"], np.int64)
    elements = dim.product(X.shape)
    spec = OneHotSpec(X.type, strict=not attributes["zeros"])
    arguments = OneHotArguments(
        X=X.place,
        categories=lowerer.table(categories),
        count=len(categories),
        output=output.place,
        status=lowerer.status() if spec.strict else None,
    )
    grain = max(1, PIECE_ELEMENTS // len(categories))
    lowerer.call(one_hot_kernel(lowerer.target, spec), arguments, elements, grain, traffic=elements * len(categories) * 4)


@dataclass(frozen=True)
class OneHotSpec:
    type: Type
    strict: bool
    """Whether an element of no category is an error, which NumPy raises."""


class OneHotArguments(Arguments):
    X: Pointer
    categories: Pointer
    count: Size
    """How many categories there are."""
    output: Pointer
    status: Pointer | None = when(lambda spec: spec.strict)


@kernel("one hot", OneHotArguments)
def one_hot_kernel(f: KernelFunction, a: OneHotArguments, spec: OneHotSpec) -> None:
    """Items are elements."""
    lanes = f.lanes(I64)
    with f.loop(f.begin, f.end) as item:
        element = f.load(a.X, item, spec.type)
        value = f.splat(f.convert(element, I64), lanes)
        is_whole = f.splat(_is_whole(f, element), lanes)
        place = f.address(a.output, item * a.count, F32)
        total = f.variable(f.const(F32.vector(lanes), 0.0))

        def emit(column: Value, remaining: Value | None = None) -> None:
            same = (f.load(a.categories, column, I64, lanes, remaining=remaining) == value) & is_whole
            hot = f.select(same, f.const(F32.vector(lanes), 1.0), 0.0)
            if remaining is not None:
                hot = f.select(f.first_lanes(remaining, lanes), hot, 0.0)
            total.set(total.get() + hot)
            f.store(hot, place, column, F32, remaining=remaining)

        along(f, f.const(I64, 0), a.count, lanes, emit)
        if a.status is not None:
            with f.if_(f.reduce("add", total.get()) == 0.0):
                f.store(1, a.status, 0, I64)


def _is_whole(f: KernelFunction, element: Value) -> Value:
    """Whether an int64 can hold an element, cut off behind the point."""
    if not element.type.is_float:
        return element == element
    return (element >= -INT64_RANGE) & (element < INT64_RANGE)
