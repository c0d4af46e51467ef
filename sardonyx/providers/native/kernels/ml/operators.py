"""Feature preparation of ai.onnx.ml on numbers: scaling, normalizing, imputing, binarizing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import F32, F64, I64, Type
from sardonyx.ir import Node, dim
from sardonyx.ops.reading import all_attributes
from sardonyx.providers.native.kernels.ml import linear as ml_linear
from sardonyx.providers.native.kernels.ml import svm as ml_svm
from sardonyx.providers.native.kernels.reduction.domain import row_grain
from sardonyx.providers.native.kernels.reduction.passes import Fold, fold_columns, sweep, unroll_of
from sardonyx.providers.native.program.arguments import Arguments, Operands, Pointer, Size, each, group
from sardonyx.providers.native.program.chain import Chain, ChainCode
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import element_of, shape_of
from sardonyx.providers.scalars.table import scalar
from sardonyx.startup.records import dataclass

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
    """Add the step that computes a function of the input's elements and constants, one for all or one for each column."""
    value = node.inputs[0]
    shape, result = None if value is None else shape_of(value), element_of(node.outputs[0])
    assert value is not None and shape is not None and result is not None
    groups = (len(shape) - 1, 1)
    source, sink = lowerer.source(value, groups), lowerer.sink(node, groups)
    spread = tuple(len(numbers) > 1 for numbers in constants)
    for numbers in constants:
        if len(numbers) > 1:
            lowerer.require(shape[-1], len(numbers))
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

        along(f, f.const(I64, 0), a.columns, lanes, emit)


def _scale(X: Value, constants: list[Value]) -> Value:
    with X.f.exact():
        return (X - constants[0]) * constants[1]


def _impute(X: Value, constants: list[Value]) -> Value:
    return X.f.select(constants[1] == X, constants[0], X)


def _impute_nan(X: Value, constants: list[Value]) -> Value:
    return X.f.select(X.f.is_nan(X), constants[0], X)


FUNCTIONS: dict[str, Callable[[Value, list[Value]], Value]] = {"scale": _scale, "impute": _impute, "impute NaN": _impute_nan}


def rank_of(node: Node) -> int:
    shape = None if node.inputs[0] is None else shape_of(node.inputs[0])
    return -1 if shape is None else len(shape)


def columns_of(node: Node) -> Any:
    assert node.inputs[0] is not None
    return (shape_of(node.inputs[0]) or (1,))[-1]


def _has_open_columns(node: Node) -> bool:
    return not isinstance(columns_of(node), int)


def input_type(node: Node) -> Type:
    type = None if node.inputs[0] is None else element_of(node.inputs[0])
    assert type is not None
    return type


def _claims_scaler(node: Node) -> bool:
    attributes = all_attributes(node)
    sizes = {len(attributes.get(name) or [0]) for name in ("offset", "scale")} - {1}
    return rank_of(node) in (1, 2) and (
        not sizes or sizes == {columns_of(node)} or (len(sizes) == 1 and _has_open_columns(node))
    )


@lower("Scaler", domain=DOMAIN, claims=_claims_scaler)
def scaler(lowerer: Lowerer, node: Node) -> None:
    attributes = all_attributes(node)
    type = F64 if input_type(node) == F64 else F32
    numbers = [np.asarray(attributes.get(name) or [default], np.float32) for name, default in (("offset", 0), ("scale", 1))]
    _by_column(
        lowerer, node, "scale", type, [constants.astype(np.float64 if type == F64 else np.float32) for constants in numbers]
    )


def _imputed(node: Node) -> tuple[list[Any], Any]:
    attributes = all_attributes(node)
    kind = "float" if input_type(node).is_float else "int64"
    return attributes.get(f"imputed_value_{kind}s") or [], attributes.get(f"replaced_value_{kind}", 0)


def _claims_imputer(node: Node) -> bool:
    values, _ = _imputed(node)
    return rank_of(node) in (1, 2) and bool(values)


@lower("Imputer", domain=DOMAIN, claims=_claims_imputer)
def imputer(lowerer: Lowerer, node: Node) -> None:
    """One value for each column if there are as many, else the first for all."""
    values, replaced = _imputed(node)
    type = input_type(node)
    dtype = np.dtype(f"{'f' if type.is_float else 'i'}{type.bytes}")
    has_own = _has_open_columns(node) or len(values) == columns_of(node)
    numbers = np.asarray(values if has_own else values[:1]).astype(dtype)
    if type.is_float and math.isnan(replaced):
        _by_column(lowerer, node, "impute NaN", type, [numbers])
    else:
        _by_column(lowerer, node, "impute", type, [numbers, np.asarray([replaced]).astype(dtype)])


# --- Normalizer


@lower(
    "Normalizer",
    domain=DOMAIN,
    claims=lambda node: rank_of(node) in (1, 2) and all_attributes(node)["norm"] in ("MAX", "L1", "L2"),
)
def normalizer(lowerer: Lowerer, node: Node) -> None:
    value = node.inputs[0]
    shape = None if value is None else shape_of(value)
    assert value is not None and shape is not None
    type = F64 if input_type(node) == F64 else F32
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


def along(f: KernelFunction, start: Value, stop: Value, lanes: int, emit: Callable[..., None]) -> None:
    """Emit whole vectors from a place to another, then the rest."""
    whole = start + ((stop - start) // lanes) * lanes
    with f.loop(start, whole, lanes) as column:
        emit(column)
    with f.if_(whole < stop):
        emit(whole, stop - whole)
