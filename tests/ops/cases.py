"""Op cases as data: `case` describes one application of an op, and every module under tests/ops is made of them.

A case becomes one test per opset and per element type (`tests/conftest.py` asks `variants`), for NumPy and native code. Each builds the
one-node model, infers its types three times (concrete sizes, small operands known, all sizes symbolic), runs it and compares
what comes out with the inferred types and with `expect`.
"""

from __future__ import annotations

import inspect
import itertools
import sys
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from sardonyx import dtypes, errors, ops
from sardonyx.dtypes import ElementType
from sardonyx.ir import (
    Attribute,
    Graph,
    Kind,
    MapType,
    Model,
    Node,
    SequenceType,
    SparseTensor,
    SparseTensorType,
    Tensor,
    TensorType,
    Type,
    Value,
    dim,
)
from sardonyx.ir.text import parse_graph
from sardonyx.ops import checking, schemas
from sardonyx.ops.signatures import Parameter, Signature
from sardonyx.providers.random_state import set_seed
from tests import onnxruntime_peer
from tests.ops import execution
from tests.tolerance import assert_close

# --- operands --------------------------------------------------------------------------------------------------------

_drawn: dict[str, int] = {}


def array(dtype: Any, *shape: int, low: float | None = None, high: float | None = None) -> np.ndarray:
    """Random numbers that are the same in each run: normal for floats, small for ints; or uniform in [low, high)."""
    return _array(dtype, shape, low, high)


def _array(dtype: Any, shape: tuple[int, ...], low: float | None, high: float | None) -> np.ndarray:
    frame = sys._getframe(2)
    module = str(frame.f_globals["__name__"])
    _drawn[module] = _drawn.get(module, 0) + 1
    rng = np.random.default_rng([zlib.crc32(module.encode()), _drawn[module]])
    dtype = np.dtype(dtype)
    if dtype.kind == "O":
        return np.array([f"s{n}" for n in rng.integers(0, 10, size=int(np.prod(shape)))], dtype=object).reshape(shape)
    if dtype == np.bool_:
        return rng.integers(0, 2, size=shape).astype(np.bool_)
    element = dtypes.from_numpy(dtype)
    if element in dtypes.INTS:
        smallest = 0 if element in dtypes.UNSIGNED else -9
        bits = min(element.bits, 5)
        start = max(smallest, -(2 ** (bits - 1))) if low is None else int(low)
        stop = min(10, 2**bits if element in dtypes.UNSIGNED else 2 ** (bits - 1)) if high is None else int(high)
        return np.asarray(rng.integers(start, stop, size=shape)).astype(dtype)
    if element in dtypes.COMPLEX:
        return np.asarray(rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)
    if low is not None or high is not None:
        drawn = rng.uniform(-1.0 if low is None else low, 1.0 if high is None else high, size=shape)
    else:
        drawn = rng.normal(size=shape)
    return np.asarray(drawn).astype(dtype)


def _maker(dtype: Any) -> Callable[..., np.ndarray]:
    def make(*shape: int, low: float | None = None, high: float | None = None) -> np.ndarray:
        return _array(dtype, shape, low, high)

    return make


f16, f32, f64, bf16 = _maker(np.float16), _maker(np.float32), _maker(np.float64), _maker(ml_dtypes.bfloat16)
i8, i16, i32, i64 = _maker(np.int8), _maker(np.int16), _maker(np.int32), _maker(np.int64)
u8, u16, u32, u64 = _maker(np.uint8), _maker(np.uint16), _maker(np.uint32), _maker(np.uint64)
booleans, strings = _maker(np.bool_), _maker(object)


@dataclass(frozen=True)
class Typed:
    """A value whose type its content does not show: an empty sequence, an empty optional."""

    value: Any
    type: Type


def typed(value: Any, type_string: str) -> Typed:
    """`typed([], "seq(tensor(float))")`, `typed(None, "optional(tensor(int64))")`."""
    return Typed(value, checking.type_from_string(type_string))


# --- cases -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One application of an op, still without opset and types."""

    op: str
    operands: Mapping[str, Any]
    where: str
    expect: Any = None
    satisfies: Callable[..., Any] | None = None
    domain: str = ""
    opsets: Collection[int] | None = None
    since: int = 1
    until: int = 2**31
    types: Mapping[str, Collection[ElementType]] = field(default_factory=dict)
    outputs: int | Sequence[int] | None = None
    sizes_known: bool = True
    against_onnxruntime: bool = False
    rtol: float | None = None
    atol: float | None = None
    refusal: tuple[type[Exception] | tuple[type[Exception], ...], str] | None = None


@dataclass(frozen=True)
class Variant:
    """A case in one opset, with one choice of element types."""

    case: Case
    version: int
    types: tuple[tuple[str, ElementType], ...]

    @property
    def label(self) -> str:
        types = "".join(f"-{dtype}" for _, dtype in self.types)
        operands = ",".join(f"{name}={_brief(value)}" for name, value in self.case.operands.items())
        return f"{self.case.op}-{self.version}{types}-{operands}"[:100]


def case(op: str, /, expect: Any = None, **keywords: Any) -> None:
    """Add a case to the calling module. Keywords that are no field of `Case` are operands by their newest names in the spec."""
    _add(op, {"expect": expect, **keywords}, inspect.currentframe())


REFUSALS = (errors.Fail, errors.InvalidArgument, errors.InvalidGraph)


def refuse(op: str, /, match: str, kind: Any = REFUSALS, **keywords: Any) -> None:
    """Add a case that must raise `kind` with words in which the pattern `match` is found, while loading or while running."""
    _add(op, {"refusal": (kind, match), **keywords}, inspect.currentframe())


def _add(op: str, keywords: dict[str, Any], frame: Any) -> None:
    caller = frame.f_back
    settings = {name: value for name, value in keywords.items() if name in Case.__dataclass_fields__}
    operands = {name: value for name, value in keywords.items() if name not in settings}
    where = f"{Path(caller.f_code.co_filename).name}:{caller.f_lineno}"
    module = caller.f_globals
    module.setdefault("CASES", []).append(Case(op=op, operands=operands, where=where, **settings))
    module["test_case"] = run_variant


def variants(cases: Iterable[Case]) -> Iterator[Variant]:
    """All tests that a module's cases stand for."""
    ops.load_families()  # ops that the onnx package does not know are defined there
    for one in cases:
        names = list(one.types)
        for choice in itertools.product(*(sorted(one.types[name], key=lambda dtype: dtype.code) for name in names)):
            types = tuple(zip(names, choice, strict=True))
            for version in _versions(one, dict(types)):
                yield Variant(one, version, types)


def _versions(one: Case, types: Mapping[str, ElementType]) -> list[int]:
    """The opsets asked for, or one per version of the op that takes these operands in these types."""
    if one.opsets is not None:
        return sorted(one.opsets)
    history = schemas.versions(one.domain, one.op)
    wanted = [since for since in history if one.since <= since <= one.until]
    found = [since for since in wanted if takes(history[since], one, types)]
    if not found and not (one.refusal and wanted):
        if not history:
            raise ValueError(f"{one.where}: there is no op {one.domain}:{one.op}")
        if types:
            return []  # this choice of types exists in no version
        raise ValueError(f"{one.where}: no version of {one.op} takes {', '.join(one.operands) or 'nothing'} in these types")
    return found or wanted[-1:]


def takes(signature: Signature, one: Case, types: Mapping[str, ElementType]) -> bool:
    given = {name for name, value in one.operands.items() if value is not None}
    required = {
        signature.operand_names[index]
        for index, parameter in enumerate(signature.inputs)
        if not parameter.optional and not (parameter.variadic and parameter.min_arity == 0)
    } | {name for name, attribute in signature.attributes.items() if attribute.required}
    if signature.deprecated or not required <= given <= {*signature.operand_names, *signature.attributes}:
        return False
    return all(
        checking.schema_string(type) in signature.input_at(index).types
        for index, (_, _, type) in enumerate(inputs_of(signature, one, types))
        if type is not None
    )


# --- from operands to a model ----------------------------------------------------------------------------------------

BODY_OPSET = 21
"""Opset of the standard domain beside an op of another one, for the nodes in its graph attributes."""

Input = tuple[str, Any, Type | None]
"""Name, value and type; type None where an optional input is left out."""


def inputs_of(signature: Signature, one: Case, types: Mapping[str, ElementType]) -> list[Input]:
    found: list[Input] = []
    for index, parameter in enumerate(signature.inputs):
        name = signature.operand_names[index]
        value = one.operands.get(name)
        if parameter.variadic:
            for position, item in enumerate(value if value is not None else ()):
                found.append(_input(f"{name}_{position}", item, parameter, types))
        else:
            found.append(_input(name, value, parameter, types))
    while found and found[-1][2] is None:
        found.pop()
    return found


def _input(name: str, value: Any, parameter: Parameter, types: Mapping[str, ElementType]) -> Input:
    if value is None:
        return "", None, None
    if isinstance(value, Typed):
        return name, value.value, value.type
    value = _as_value(value, parameter)
    if parameter.type_string in types:
        value = _cast(value, types[parameter.type_string])
    return name, value, type_of(value)


def _as_value(value: Any, parameter: Parameter) -> Any:
    """Python numbers, texts and lists of them as the array that the parameter takes; all else as it is."""
    if isinstance(value, (np.ndarray, SparseTensor, dict)):
        return value
    if isinstance(value, np.generic):
        return np.asarray(value)
    if isinstance(value, (list, tuple)) and any(isinstance(item, (np.ndarray, dict)) for item in value):
        return list(value)
    plain = np.asarray(value)
    if plain.dtype.kind in "US":
        return plain.astype(object)
    preferred = {"i": ("int64", "int32"), "f": ("float", "double"), "b": ("bool",)}[plain.dtype.kind]
    chosen = next((name for name in preferred if f"tensor({name})" in parameter.types), preferred[0])
    return plain.astype(dtypes.from_name(chosen).numpy)


def _cast(value: Any, dtype: ElementType) -> Any:
    if isinstance(value, list):
        return [_cast(item, dtype) for item in value]
    if dtype is dtypes.string:
        return value.astype(str).astype(object)
    with np.errstate(all="ignore"):
        return value.astype(dtype.numpy)


def type_of(value: Any) -> Type:
    """The type that a value shows by itself."""
    if isinstance(value, np.ndarray):
        return TensorType(dtypes.from_numpy(value.dtype), value.shape)
    if isinstance(value, SparseTensor):
        return SparseTensorType(dtypes.from_numpy(value.values.dtype), value.dense_shape)
    if isinstance(value, dict):
        key, content = next(iter(value.items()))
        text = "string" if isinstance(content, str) else "float" if isinstance(content, float) else "int64"
        return MapType(dtypes.string if isinstance(key, str) else dtypes.int64, TensorType(dtypes.from_name(text), ()))
    first = type_of(value[0])
    if isinstance(first, TensorType) and any(item.shape != value[0].shape for item in value):
        first = TensorType(first.dtype)
    return SequenceType(first)


def _attributes(signature: Signature, one: Case, opsets: Mapping[str, int]) -> dict[str, Attribute]:
    found = {}
    for name, definition in signature.attributes.items():
        value = one.operands.get(name)
        if value is not None and name not in signature.operand_names:
            found[name] = Attribute(definition.kind, _attribute_value(definition.kind, value, opsets))
    return found


def _attribute_value(kind: Kind, value: Any, opsets: Mapping[str, int]) -> Any:
    match kind:
        case Kind.FLOAT:
            return float(np.asarray(value).item())
        case Kind.INT:
            return int(np.asarray(value).item())
        case Kind.FLOATS | Kind.INTS:
            convert = float if kind is Kind.FLOATS else int
            return [convert(item) for item in np.asarray(value).reshape(-1).tolist()]
        case Kind.TENSOR:
            return Tensor.of(np.asarray(value))
        case Kind.GRAPH:
            return parse_graph(value, opsets)
    return value


def build(
    signature: Signature, version: int, one: Case, inputs: Sequence[Input], wanted: Sequence[bool], view: str = ""
) -> Model:
    """The one-node model.

    `view` "known" makes small operands constants, "weights" all but the first, and "symbolic" gives every size a name.
    """
    opsets = {"": version} if not one.domain else {"": BODY_OPSET, one.domain: version}
    graph = Graph("case")
    values: list[Value | None] = []
    for index, (name, value, type) in enumerate(inputs):
        if type is None:
            values.append(None)
        elif isinstance(value, np.ndarray) and (value.ndim <= 1 if view == "known" else index and view == "weights"):
            values.append(graph.add_initializer(name, Tensor.of(value, name)))
        else:
            values.append(graph.add_input(Value(name, symbolic(name, type) if view == "symbolic" else type)))
    outputs = [Value(f"out{index}" if is_wanted else "") for index, is_wanted in enumerate(wanted)]
    node = Node(one.op, values, outputs, _attributes(signature, one, opsets), domain=one.domain, version=version, name="case")
    graph.append(node)
    graph.outputs.extend(output for output in outputs if output.name)
    return Model(graph, opsets, ir_version=execution.ir_version(opsets))


def symbolic(name: str, type: Any) -> Any:
    """A type with a name of its own for every size."""
    if isinstance(type, TensorType) and type.shape is not None:
        return TensorType(type.dtype, tuple(dim.symbol(f"{name}.{axis}") for axis in range(len(type.shape))))
    return type


# --- running ---------------------------------------------------------------------------------------------------------


def run_variant(variant: Variant) -> None:
    """The test behind each case."""
    try:
        _run(variant)
    except (Exception, pytest.fail.Exception) as error:
        error.add_note(f"case at {variant.case.where}")
        raise


def _run(variant: Variant) -> None:
    one, types = variant.case, dict(variant.types)
    signature = schemas.find(one.domain, one.op, variant.version)
    if signature is None:
        raise ValueError(f"{one.op} does not exist in opset {variant.version}")
    inputs = inputs_of(signature, one, types)
    if one.refusal is not None:
        wanted = wanted_outputs(one, signature, None)
        for native in ("0", "1"):
            with pytest.raises(one.refusal[0], match=one.refusal[1]):
                execution.start(build(signature, variant.version, one, inputs, wanted), native)(feeds_of(inputs))
            for view in ("symbolic", "known"):
                model = build(signature, variant.version, one, inputs, wanted, view)
                fed = {value.name for value in model.graph.inputs}
                with pytest.raises(one.refusal[0]):  # a run refuses what inference cannot compare, in words of its own
                    execution.start(model, native)({name: value for name, value in feeds_of(inputs).items() if name in fed})
        return
    expected = _expected(one, signature, inputs)
    wanted = wanted_outputs(one, signature, expected)
    run = execution.start(build(signature, variant.version, one, inputs, wanted))
    set_seed(0)
    results = run(feeds_of(inputs))
    for view in ("", "known", "symbolic"):
        _check_inferred(build(signature, variant.version, one, inputs, wanted, view), inputs, results, view, one)
    _check_results(one, expected, results)
    set_seed(0)
    again = run(feeds_of(inputs, strange=True))
    assert_close(list(again), list(results), where="result for inputs with negative strides")
    native = execution.start_native(build(signature, variant.version, one, inputs, wanted))
    if native is not None:
        set_seed(0)
        compiled = native(feeds_of(inputs))
        assert_close(list(compiled), list(results), rtol=one.rtol, atol=one.atol or None, where="NumPy's result")
        set_seed(0)
        again = native(feeds_of(inputs, strange=True))
        assert_close(list(again), list(compiled), where="result for inputs with negative strides")
    if one.against_onnxruntime:
        peers = onnxruntime_peer.run(build(signature, variant.version, one, inputs, wanted, "known"), feeds_of(inputs))
        if peers is None:
            assert expected is not None or one.satisfies is not None, "onnxruntime has no kernel and the case expects nothing"
        else:
            assert_close(list(results), peers, rtol=one.rtol, atol=one.atol, where="onnxruntime's result")


def _expected(one: Case, signature: Signature, inputs: Sequence[Input]) -> tuple[Any, ...] | None:
    value = one.expect
    if value is None and one.satisfies is None and not one.against_onnxruntime:
        raise ValueError(f"{one.where}: a case needs expect=, satisfies= or against_onnxruntime=")
    if value is None:
        return None
    if callable(value):
        operands = {name: _widened(given) for name, given, type in inputs if type is not None}
        for index, parameter in enumerate(signature.inputs):
            name = signature.operand_names[index]
            if parameter.variadic:
                operands[name] = [_widened(given) for _, given, _ in inputs[index:]]
        operands = {name: given for name, given in one.operands.items() if given is not None} | operands
        taken = inspect.signature(value).parameters
        with np.errstate(all="ignore"):
            value = value(**{name: operands[name] for name in taken if name in operands})
    return value if isinstance(value, tuple) else (value,)


def _widened(value: Any) -> Any:
    """Narrow types as float32 and int32, so that NumPy's functions take them."""
    if isinstance(value, list):
        return [_widened(item) for item in value]
    if isinstance(value, np.ndarray):
        dtype = dtypes.from_numpy(value.dtype)
        wide = np.float32 if dtype in dtypes.WIDENED else np.int32 if dtype in dtypes.SUB_BYTE_INTS else None
        return value if wide is None else value.astype(wide)
    return value


def wanted_outputs(one: Case, signature: Signature, expected: tuple[Any, ...] | None) -> list[bool]:
    """Which outputs the node has, by position."""
    if isinstance(one.outputs, int):
        return [True] * one.outputs
    if one.outputs is not None:
        return [index in one.outputs for index in range(max(one.outputs) + 1)]
    return [True] * max(signature.min_outputs, len(expected) if expected is not None else 1)


def feeds_of(inputs: Sequence[Input], strange: bool = False) -> dict[str, Any]:
    return {name: _guarded(value, strange) for name, value, type in inputs if type is not None}


def _guarded(value: Any, strange: bool) -> Any:
    """An array that nobody may write into; a strange one runs backwards in memory along each axis."""
    if isinstance(value, list):
        return [_guarded(item, strange) for item in value]
    if not isinstance(value, np.ndarray):
        return value
    copy = np.flip(np.flip(value).copy()) if strange and value.ndim else value.copy()
    copy.flags.writeable = False
    return copy


def _check_results(one: Case, expected: tuple[Any, ...] | None, results: Sequence[Any]) -> None:
    if one.satisfies is not None:
        assert one.satisfies(*results), f"the outputs do not satisfy the condition: {results}"
    if expected is not None:
        assert len(expected) <= len(results), f"{len(results)} outputs, {len(expected)} expected"
        for index, (got, wanted) in enumerate(zip(results, expected, strict=False)):
            if wanted is not ...:
                assert_close(got, wanted, rtol=one.rtol, atol=one.atol, where=f"output {index}")


def _check_inferred(model: Model, inputs: Sequence[Input], results: Sequence[Any], view: str, one: Case) -> None:
    """What inference says of the outputs must be true of the results."""
    ops.infer(model)
    bindings = {
        f"{name}.{axis}": size
        for name, value, _ in inputs
        if isinstance(value, np.ndarray)
        for axis, size in enumerate(value.shape)
    }
    for value, result in zip(model.graph.outputs, results, strict=True):
        where = f"{value.name} inferred from {view or 'concrete'} inputs"
        assert value.type is not None, f"{where}: no type"
        _check_type(value.type, result, bindings, where, sizes_known=view == "known" and one.sizes_known)


def _check_type(type: Type, result: Any, bindings: Mapping[str, int], where: str, *, sizes_known: bool) -> None:
    if isinstance(type, SequenceType) and isinstance(result, list):
        for item in result:
            _check_type(type.element, item, bindings, where, sizes_known=False)
    elif isinstance(type, (TensorType, SparseTensorType)):
        assert type.dtype is not None, f"{where}: the element type is not known"
        is_sparse = isinstance(result, SparseTensor)
        shape = result.dense_shape if is_sparse else result.shape
        given = (result.values if is_sparse else result).dtype
        assert given == type.dtype.numpy, f"{where}: {type.dtype} inferred, {given} came"
        if type.shape is None:
            assert not sizes_known, f"{where}: the rank is not known"
            return
        assert len(type.shape) == len(shape), f"{where}: rank {len(type.shape)} inferred, shape {list(shape)} came"
        for axis, (inferred, actual) in enumerate(zip(type.shape, shape, strict=True)):
            if sizes_known:
                assert isinstance(inferred, int), f"{where}: size of axis {axis} is not known ({inferred})"
            if isinstance(inferred, int) or all(symbol.name in bindings for symbol in dim.symbols(inferred)):
                size = dim.evaluate(inferred, bindings)
                assert size == actual, f"{where}: axis {axis} inferred as {inferred} = {size}, {actual} came"


def _brief(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{dtypes.from_numpy(value.dtype)}{list(value.shape)}".replace(" ", "")
    if isinstance(value, (list, tuple)) and any(isinstance(item, np.ndarray) for item in value):
        return "[" + ",".join(map(_brief, value)) + "]"
    return str(value).replace(" ", "")[:24]
