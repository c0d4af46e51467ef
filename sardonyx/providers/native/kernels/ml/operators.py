"""Feature preparation of ai.onnx.ml on numbers: scaling, normalizing, imputing, binarizing, encoding, extraction, concatenation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import F32, F64, I64, Type
from sardonyx.ir import Dim, Node, TensorType, dim
from sardonyx.ops import checking
from sardonyx.ops.reading import all_attributes
from sardonyx.providers.native.kernels.ml import linear as ml_linear
from sardonyx.providers.native.kernels.ml import svm as ml_svm
from sardonyx.providers.native.kernels.reduction.domain import PIECE_ELEMENTS, row_grain
from sardonyx.providers.native.kernels.reduction.passes import Fold, fold_columns, sweep, unroll_of
from sardonyx.providers.native.program.arguments import Arguments, Operands, Pointer, Size, each, group
from sardonyx.providers.native.program.chain import Chain, ChainCode
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import element_of, shape_of
from sardonyx.providers.scalars.table import scalar
from sardonyx.startup.records import dataclass, replace

DOMAIN = "ai.onnx.ml"
MODELS = (ml_linear, ml_svm)
"""Modules whose lowerings enter the table with those that stand here."""


@scalar("Binarizer", domain=DOMAIN)
def binarizer(X: Value, *, threshold: float, type: Type) -> Value:
    """Integers are compared as doubles, as NumPy has it."""
    f = X.f
    wide = X if X.type.is_float else f.convert(X, F64)
    limit = float(np.float32(threshold))
    return f.select(wide > limit, f.const(X.type, 1), f.const(X.type, 0))


# --- what has its own numbers for each column


@dataclass(frozen=True)
class ColumnSpec:
    """What shapes the code of a function of elements and constants by column."""

    function: str
    source: Chain
    sink: Chain
    type: Type
    """The type in which it is computed; the constants lie in memory so."""
    result: Type
    constants: tuple[bool, ...]
    """For each constant whether it has a number for each column, rather than one for all."""
    lanes_type: Type


def _by_column(lowerer: Lowerer, node: Node, function: str, type: Type, constants: list[np.ndarray]) -> None:
    """Add the step that computes a function of the input's elements and constants for their columns."""
    value = node.inputs[0]
    shape, result = None if value is None else shape_of(value), element_of(node.outputs[0])
    assert value is not None and shape is not None and result is not None
    groups = (len(shape) - 1, 1)
    source, sink = lowerer.source(value, groups), lowerer.sink(node, groups)
    spread = tuple(len(numbers) > 1 for numbers in constants)
    widest = max(
        (F32, type, result, *(item.type for item in (*source.chain.items, *sink.chain.items))),
        key=lambda type: type.computed.bits,
    )
    spec = ColumnSpec(function, source.chain, sink.chain, type, result, spread, widest)
    elements = dim.product(shape)
    lowerer.call(
        column_kernel(lowerer.target, spec),
        ColumnArguments(
            columns=shape[-1],
            constants=list(map(lowerer.constant, constants)),
            source=source.arguments,
            sink=sink.arguments,
        ),
        dim.product(shape[:-1]),
        row_grain(shape[-1]),
        flops=elements,
        traffic=elements * 2 * type.bytes,
    )


class ColumnArguments(Arguments):
    columns: Size
    constants: Sequence[Pointer] = each(lambda spec: spec.constants)
    source: Operands = group(lambda spec: spec.source.slots)
    sink: Operands = group(lambda spec: spec.sink.slots)


@kernel("by column", ColumnArguments)
def column_kernel(f: KernelFunction, a: ColumnArguments, spec: ColumnSpec) -> None:
    """Items are rows."""
    source, sink = ChainCode(f, spec.source, a.source), ChainCode(f, spec.sink, a.sink)
    lanes = f.lanes(spec.lanes_type)
    with f.loop(f.begin, f.end) as item:
        rows, results = source.row([item]), sink.row([item])

        def emit(column: Value, remaining: Value | None = None) -> None:
            value = rows.lanewise(column, lanes, remaining, spec.type)
            constants = [
                f.load(pointer, column, spec.type, lanes, remaining=remaining)
                if spread
                else f.splat(f.load(pointer, 0, spec.type), lanes)
                for pointer, spread in zip(a.constants, spec.constants)
            ]
            result = FUNCTIONS[spec.function](value, constants)
            results.emit(column, lanes, remaining, given=[f.convert(result, spec.result)])

        _along(f, a.columns, lanes, emit)


def _scale(X: Value, constants: list[Value]) -> Value:
    with X.f.exact():
        return (X - constants[0]) * constants[1]


def _impute(X: Value, constants: list[Value]) -> Value:
    return X.f.select(constants[1] == X, constants[0], X)


def _impute_nan(X: Value, constants: list[Value]) -> Value:
    return X.f.select(X.f.is_nan(X), constants[0], X)


FUNCTIONS: dict[str, Callable[[Value, list[Value]], Value]] = {"scale": _scale, "impute": _impute, "impute NaN": _impute_nan}


def _rank(node: Node) -> int:
    shape = None if node.inputs[0] is None else shape_of(node.inputs[0])
    return -1 if shape is None else len(shape)


def _columns(node: Node) -> Any:
    assert node.inputs[0] is not None
    return (shape_of(node.inputs[0]) or (1,))[-1]


def _input_type(node: Node) -> Type:
    type = None if node.inputs[0] is None else element_of(node.inputs[0])
    assert type is not None
    return type


def _claims_scaler(node: Node) -> bool:
    attributes = all_attributes(node)
    sizes = {len(attributes.get(name) or [0]) for name in ("offset", "scale")}
    return _rank(node) in (1, 2) and (sizes == {1} or (isinstance(_columns(node), int) and sizes <= {1, _columns(node)}))


@lower("Scaler", domain=DOMAIN, claims=_claims_scaler)
def scaler(lowerer: Lowerer, node: Node) -> None:
    attributes = all_attributes(node)
    type = F64 if _input_type(node) == F64 else F32
    numbers = [np.asarray(attributes.get(name) or [default], np.float32) for name, default in (("offset", 0), ("scale", 1))]
    _by_column(
        lowerer, node, "scale", type, [constants.astype(np.float64 if type == F64 else np.float32) for constants in numbers]
    )


def _imputed(node: Node) -> tuple[list[Any], Any]:
    attributes = all_attributes(node)
    kind = "float" if _input_type(node).is_float else "int64"
    return attributes.get(f"imputed_value_{kind}s") or [], attributes.get(f"replaced_value_{kind}", 0)


def _claims_imputer(node: Node) -> bool:
    values, _ = _imputed(node)
    columns = _columns(node)
    return _rank(node) in (1, 2) and (len(values) == 1 or (len(values) > 1 and isinstance(columns, int)))


@lower("Imputer", domain=DOMAIN, claims=_claims_imputer)
def imputer(lowerer: Lowerer, node: Node) -> None:
    """One value for each column if there are as many, else the first for all."""
    values, replaced = _imputed(node)
    type = _input_type(node)
    dtype = np.dtype(f"{'f' if type.is_float else 'i'}{type.bytes}")
    numbers = np.asarray(values if len(values) == _columns(node) else values[:1]).astype(dtype)
    if type.is_float and math.isnan(replaced):
        _by_column(lowerer, node, "impute NaN", type, [numbers])
    else:
        _by_column(lowerer, node, "impute", type, [numbers, np.asarray([replaced]).astype(dtype)])


# --- Normalizer


@lower(
    "Normalizer",
    domain=DOMAIN,
    claims=lambda node: _rank(node) in (1, 2) and all_attributes(node)["norm"] in ("MAX", "L1", "L2"),
)
def normalizer(lowerer: Lowerer, node: Node) -> None:
    value = node.inputs[0]
    shape = None if value is None else shape_of(value)
    assert value is not None and shape is not None
    type = F64 if _input_type(node) == F64 else F32
    groups = (len(shape) - 1, 1)
    source, sink = lowerer.source(value, groups), lowerer.sink(node, groups)
    spec = ColumnSpec(all_attributes(node)["norm"], source.chain, sink.chain, type, F32, (), F64)
    elements = dim.product(shape)
    lowerer.call(
        normalizer_kernel(lowerer.target, spec),
        ColumnArguments(columns=shape[-1], constants=[], source=source.arguments, sink=sink.arguments),
        dim.product(shape[:-1]),
        row_grain(shape[-1]),
        flops=elements * 2,
        traffic=elements * 8,
    )


@kernel("normalizer", ColumnArguments)
def normalizer_kernel(f: KernelFunction, a: ColumnArguments, spec: ColumnSpec) -> None:
    """Items are rows, gone through twice."""
    source, sink = ChainCode(f, spec.source, a.source), ChainCode(f, spec.sink, a.sink)
    lanes = f.lanes(spec.lanes_type)
    is_maximum = spec.function == "MAX"
    # a NaN is no maximum; where nothing else is, the quotients are NaN by themselves
    fold = Fold("max", spec.type, lenient=True) if is_maximum else Fold("add", spec.type)
    with f.loop(f.begin, f.end) as item:
        rows, results = source.row([item]), sink.row([item])

        def element(column: Value, remaining: Value | None) -> Value:
            x = rows.lanewise(column, lanes, remaining, spec.type)
            return x if is_maximum else f.abs(x) if spec.function == "L1" else x * x

        divisor = fold_columns(f, 0, a.columns, lanes, unroll_of(spec.source), fold, element)
        divisor = f.convert(f.sqrt(divisor) if spec.function == "L2" else divisor, spec.type)
        divisor = f.select(divisor == 0.0, 1.0, divisor)

        def write(copy: int, column: Value, remaining: Value | None) -> None:
            quotient = rows.lanewise(column, lanes, remaining, spec.type) / f.splat(divisor, lanes)
            results.emit(column, lanes, remaining, given=[f.convert(quotient, spec.result)])

        sweep(f, 0, a.columns, lanes, 1, write)


def _along(f: KernelFunction, columns: Value, lanes: int, emit: Callable[..., None]) -> None:
    """Emit whole vectors of columns, then the rest."""
    whole = (columns // lanes) * lanes
    with f.loop(0, whole, lanes) as column:
        emit(column)
    with f.if_(whole < columns):
        emit(whole, columns - whole)


# --- encoders


@dataclass(frozen=True)
class _Labels:
    """A LabelEncoder between numbers: sorted keys, their values and behind those the ones of unknown keys and of NaN."""

    keys: np.ndarray
    values: np.ndarray


def _labels_of(node: Node) -> _Labels | None:
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
    return _Labels(known[~nan], np.concatenate([chosen[~nan], default, of_nan]))


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


@lower("LabelEncoder", domain=DOMAIN, since=2, claims=lambda node: _rank(node) >= 1 and _labels_of(node) is not None)
def label_encoder(lowerer: Lowerer, node: Node) -> None:
    value, labels = node.inputs[0], _labels_of(node)
    shape, result = None if value is None else shape_of(value), element_of(node.outputs[0])
    assert value is not None and labels is not None and shape is not None and result is not None
    source, sink = lowerer.source(value, (len(shape) - 1, 1)), lowerer.sink(node, (len(shape) - 1, 1))
    spec = ColumnSpec("find", source.chain, sink.chain, _input_type(node), result, (), F64)
    arguments = LabelArguments(
        columns=shape[-1],
        constants=[],
        source=source.arguments,
        sink=sink.arguments,
        count=len(labels.keys),
        keys=lowerer.table(labels.keys),
        values=lowerer.table(labels.values),
    )
    grain = dim.maximum(1, dim.floordiv(PIECE_ELEMENTS // 8, dim.maximum(1, shape[-1])))
    lowerer.call(label_kernel(lowerer.target, spec), arguments, dim.product(shape[:-1]), grain, traffic=dim.product(shape) * 16)


class LabelArguments(ColumnArguments):
    count: Size
    """How many keys there are."""
    keys: Pointer
    values: Pointer


@kernel("labels", LabelArguments)
def label_kernel(f: KernelFunction, a: LabelArguments, spec: ColumnSpec) -> None:
    """Items are rows; their elements are looked up by binary search."""
    source, sink = ChainCode(f, spec.source, a.source), ChainCode(f, spec.sink, a.sink)
    lanes = f.lanes(spec.lanes_type)
    with f.loop(f.begin, f.end) as item:
        rows, results = source.row([item]), sink.row([item])

        def emit(column: Value, remaining: Value | None = None) -> None:
            place = _find(f, rows.lanewise(column, lanes, remaining), a.keys, a.count, spec.type)
            results.emit(column, lanes, remaining, given=[f.gather(a.values, place, spec.result)])

        _along(f, a.columns, lanes, emit)


def _find(f: KernelFunction, value: Value, keys: Value, count: Value, type: Type) -> Value:
    """The places of values among sorted keys; `count` for what is not there, the next for NaN."""
    lanes = value.type.lanes
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


def _claims_one_hot(node: Node) -> bool:
    attributes = all_attributes(node)
    categories = attributes.get("cats_int64s") or []
    plain = attributes["zeros"] != 0 and not attributes.get("cats_strings") and len(set(categories)) == len(categories) > 0
    return plain and _rank(node) >= 0 and _input_type(node).is_integer


@lower("OneHotEncoder", domain=DOMAIN, claims=_claims_one_hot)
def one_hot_encoder(lowerer: Lowerer, node: Node) -> None:
    assert node.inputs[0] is not None
    X, output = lowerer.contiguous(node.inputs[0]), lowerer.output(node.outputs[0])
    categories = np.array(all_attributes(node)["cats_int64s"], np.int64)
    elements = dim.product(X.shape)
    arguments = OneHotArguments(X=X.place, categories=lowerer.table(categories), count=len(categories), output=output.place)
    grain = max(1, PIECE_ELEMENTS // len(categories))
    lowerer.call(one_hot_kernel(lowerer.target, X.type), arguments, elements, grain, traffic=elements * len(categories) * 4)


class OneHotArguments(Arguments):
    X: Pointer
    categories: Pointer
    count: Size
    """How many categories there are."""
    output: Pointer


@kernel("one hot", OneHotArguments)
def one_hot_kernel(f: KernelFunction, a: OneHotArguments, type: Type) -> None:
    """Items are elements."""
    lanes = f.lanes(I64)
    with f.loop(f.begin, f.end) as item:
        value = f.splat(f.convert(f.load(a.X, item, type), I64), lanes)
        place = f.address(a.output, item * a.count, F32)

        def emit(column: Value, remaining: Value | None = None) -> None:
            same = f.load(a.categories, column, I64, lanes, remaining=remaining) == value
            f.store(f.select(same, f.const(F32.vector(lanes), 1.0), 0.0), place, column, F32, remaining=remaining)

        _along(f, a.count, lanes, emit)


# --- columns


@lower("ArrayFeatureExtractor", domain=DOMAIN, claims=lambda node: _rank(node) >= 1 and _extracts(node))
def array_feature_extractor(lowerer: Lowerer, node: Node) -> None:
    """Columns by their numbers. What is not among them is NumPy's to complain about."""
    X, Y = (lowerer.contiguous(value) for value in node.inputs if value is not None)
    output = lowerer.output(node.outputs[0])
    count = dim.product(Y.shape)
    rows = dim.product(X.shape[:-1])
    checked = CheckArguments(columns=X.shape[-1], Y=Y.place, status=lowerer.status())
    lowerer.call(column_check_kernel(lowerer.target), checked, count, PIECE_ELEMENTS)
    lowerer.call(
        extract_kernel(lowerer.target, X.type),
        ExtractArguments(X=X.place, columns=X.shape[-1], Y=Y.place, count=count, output=output.place, status=lowerer.status()),
        rows,
        row_grain(count),
        traffic=rows * count * (2 * X.type.bytes),
    )


def _extracts(node: Node) -> bool:
    shape = None if node.inputs[1] is None else shape_of(node.inputs[1])
    return shape is not None and isinstance(dim.product(shape), int) and dim.product(shape) != 0


class CheckArguments(Arguments):
    columns: Size
    Y: Pointer
    """The numbers of the columns that are wanted."""
    status: Pointer


@kernel("check columns", CheckArguments)
def column_check_kernel(f: KernelFunction, a: CheckArguments) -> None:
    """Items are numbers of columns. They are wrong even where there are no rows to take them from."""
    with f.loop(f.begin, f.end) as place:
        column = f.load(a.Y, place, I64)
        with f.if_((column < 0) | (column >= a.columns)):
            f.store(1, a.status, 0, I64)


class ExtractArguments(Arguments):
    X: Pointer
    columns: Size
    Y: Pointer
    """The numbers of the columns that are wanted."""
    count: Size
    """How many these are."""
    output: Pointer
    status: Pointer


@kernel("extract columns", ExtractArguments)
def extract_kernel(f: KernelFunction, a: ExtractArguments, type: Type) -> None:
    """Items are rows."""
    with f.loop(f.begin, f.end) as row, f.loop(0, a.count) as place:
        column = f.load(a.Y, place, I64)
        with f.if_else((column >= 0) & (column < a.columns)) as otherwise:
            f.store(f.load(a.X, row * a.columns + column, type), a.output, row * a.count + place, type)
            otherwise()
            f.store(1, a.status, 0, I64)


def _claims_vectorizer(node: Node) -> bool:
    shapes = [None if value is None else shape_of(value) for value in node.inputs]
    if any(shape is None or len(shape) != 2 or not isinstance(shape[1], int) for shape in shapes):
        return False
    attributes = all_attributes(node).get("inputdimensions")
    widths = [shape[1] for shape in shapes if shape is not None]
    return not attributes or list(attributes) == widths


@lower("FeatureVectorizer", domain=DOMAIN, claims=_claims_vectorizer)
def feature_vectorizer(lowerer: Lowerer, node: Node) -> None:
    """Inputs side by side, as float32."""
    output = lowerer.output(node.outputs[0])
    start: Dim = 0
    for value in node.inputs:
        assert value is not None
        view = lowerer.view(value)
        lowerer.require(view.shape[0], output.shape[0])
        lowerer.copy(view, replace(output, shape=view.shape, offset=output.offset + start))
        start = start + view.shape[1]
