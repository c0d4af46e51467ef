"""One-node models with something wrong: op cases of `tests/ops` with an operand, an attribute or a shape changed. One seed, one model."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sardonyx import dtypes
from sardonyx.formats.onnx.writer import write_model
from sardonyx.ir import Kind, TensorType, Value
from sardonyx.ops import schemas
from sardonyx.ops.signatures import AttributeDef, Signature
from tests.ops import cases
from tests.ops.cases import Case, Variant

ROOT = Path(__file__).parent.parent
INTEGERS = (0, 1, -1, 2, -2, 3, 5, 7, 64, -100, 2**31 - 1, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63))
FLOATS = (0.0, -1.0, 0.5, 3.0, 1e-40, 1e30, -1e30, float("nan"), float("inf"), -float("inf"))
TEXTS = (
    *(
        "",
        "no such mode",
        "linear",
        "cubic",
        "nearest",
        "constant",
        "reflect",
        "wrap",
        "edge",
        "SAME_UPPER",
        "VALID",
        "ij,jk->ik",
    ),
    *(
        "sum",
        "mean",
        "none",
        "add",
        "max",
        "DCR",
        "bidirectional",
        "reverse",
        "Tanh",
        "int64",
        "ij->",
        "...i,i->",
        "[",
        "(a",
        "é\0",
    ),
)
SIZES = (0, 1, 2, 3, 4, 5, 8, 17)
ENDLESS = (("Loop", "M"), ("Loop", "cond"))
"""What makes a model run for ever, which is its right."""
VIEWS = ("", "", "known", "symbolic", "rankless")


@dataclass(frozen=True)
class Wrong:
    """A model that is perhaps wrong, what to feed it, and what was changed."""

    model: bytes
    feeds: Mapping[str, Any]
    op: str
    label: str


def seeds() -> list[Variant]:
    """All op cases."""
    names = [".".join(path.relative_to(ROOT.parent).with_suffix("").parts) for path in sorted(ROOT.glob("ops/**/test_*.py"))]
    modules = [importlib.import_module(name) for name in names]
    return [variant for module in modules for variant in cases.variants(getattr(module, "CASES", ()))]


def by_op(variants: list[Variant]) -> list[list[Variant]]:
    """The same, in groups of one op each, so that ops with many cases do not crowd out the others."""
    groups: dict[tuple[str, str], list[Variant]] = {}
    for variant in variants:
        groups.setdefault((variant.case.domain, variant.case.op), []).append(variant)
    return list(groups.values())


def make(rng: random.Random, groups: list[list[Variant]]) -> Wrong | None:
    """One model; None if what was changed cannot be written down at all."""
    variant = rng.choice(rng.choice(groups))
    signature = schemas.find(variant.case.domain, variant.case.op, variant.version)
    assert signature is not None
    operands = dict(variant.case.operands)
    types = dict(variant.types)
    changes = [_change(rng, operands, signature) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    case = replace(variant.case, operands=operands)
    outputs = rng.choice((signature.min_outputs, min(signature.max_outputs, 3), len(signature.outputs), 0))
    wanted = [True] * outputs if rng.random() < 0.2 else cases.wanted_outputs(case, signature, None)
    view = rng.choice(VIEWS)
    try:
        inputs = cases.inputs_of(signature, case, types if rng.random() < 0.9 else {})
        model = cases.build(signature, variant.version, case, inputs, wanted, "" if view == "rankless" else view)
        if view == "rankless":
            for value in model.graph.inputs:
                _forget_shape(value)
        data = write_model(model).SerializeToString()
    except (ValueError, TypeError, OverflowError, AttributeError):
        return None
    feeds = {value.name: given for value in model.graph.inputs for name, given, _ in inputs if name == value.name}
    return Wrong(data, feeds, variant.case.op, f"{variant.label} ({variant.case.where}) {view}: {', '.join(changes)}")


def _forget_shape(value: Value) -> None:
    if isinstance(value.type, TensorType):
        value.type = value.declared = TensorType(value.type.dtype)


def _change(rng: random.Random, operands: dict[str, Any], signature: Signature) -> str:
    """Change an operand or attribute in place."""
    names = [*signature.operand_names, *signature.attributes, *signature.attributes]
    names = [name for name in names if (signature.name, name) not in ENDLESS]
    name = rng.choice(names) if names else ""
    if name in signature.operand_names:
        operands[name] = _changed(rng, operands.get(name))
    elif name:
        operands[name] = _wrong_attribute(rng, signature.attributes[name], operands.get(name))
    return f"{name}={cases._brief(operands.get(name))}"


def _wrong_attribute(rng: random.Random, definition: AttributeDef, before: Any) -> Any:
    number = {Kind.INT: INTEGERS, Kind.INTS: INTEGERS, Kind.FLOAT: FLOATS, Kind.FLOATS: FLOATS}.get(definition.kind, TEXTS)
    match definition.kind:
        case Kind.INT | Kind.FLOAT | Kind.STRING:
            return rng.choice((*number, None))
        case Kind.INTS | Kind.FLOATS | Kind.STRINGS:
            items = list(before) if isinstance(before, (list, tuple)) else []
            if items and rng.random() < 0.5:
                items[rng.randrange(len(items))] = rng.choice(number)
                return items
            return [rng.choice(number) for _ in range(rng.choice((0, 1, 2, 3, 4, 6, 70)))]
        case Kind.TENSOR:
            return _changed(rng, np.asarray(before) if before is not None else np.arange(3.0, dtype=np.float32))
    return None


def _changed(rng: random.Random, value: Any) -> Any:
    if isinstance(value, list) and any(isinstance(item, np.ndarray) for item in value):
        return _changed_list(rng, value)
    if value is None:
        return np.ones([rng.choice(SIZES) for _ in range(rng.randrange(4))], rng.choice((np.float32, np.int64)))
    if isinstance(value, (int, float, str, list, tuple)):
        value = np.asarray(value, object if isinstance(np.asarray(value).reshape(-1)[:1].tolist()[:1], str) else None)
        if value.dtype.kind in "US":
            value = value.astype(object)
    if not isinstance(value, np.ndarray):
        return None
    return rng.choice(CHANGES)(rng, value)


def _changed_list(rng: random.Random, value: list[Any]) -> list[Any] | None:
    """The items of a variadic operand or a sequence; what is fed stays a list of tensors of one type, as Python's side has it."""
    position = rng.randrange(len(value))
    item = value[position]
    match rng.choice(("drop", "repeat", "change", "none")):
        case "drop":
            return value[:position] + value[position + 1 :] or None
        case "repeat":
            return [*value, item]
        case "change" if isinstance(item, np.ndarray):
            changed = rng.choice((_another_rank, _another_size, _empty, _wild_content))(rng, item)
            return [*value[:position], changed, *value[position + 1 :]]
    return None


def _drop(rng: random.Random, array: np.ndarray) -> Any:
    return None


def _another_rank(rng: random.Random, array: np.ndarray) -> np.ndarray:
    if array.ndim and rng.random() < 0.5:
        return array[..., 0] if array.shape[-1] else array.reshape(-1)
    return array[np.newaxis] if rng.random() < 0.5 else array[..., np.newaxis]


def _another_size(rng: random.Random, array: np.ndarray) -> np.ndarray:
    if not array.ndim:
        return np.full((rng.choice(SIZES),), array)
    axis, size = rng.randrange(array.ndim), rng.choice(SIZES)
    if not array.shape[axis]:
        return np.ones([size if n == axis else old for n, old in enumerate(array.shape)]).astype(array.dtype)
    return np.take(array, np.arange(size) % array.shape[axis], axis)


def _empty(rng: random.Random, array: np.ndarray) -> np.ndarray:
    return array[..., :0] if array.ndim else array.reshape(1)[:0]


def _turned(rng: random.Random, array: np.ndarray) -> np.ndarray:
    return array.T.copy()


def _another_type(rng: random.Random, array: np.ndarray) -> np.ndarray:
    if array.dtype == object:
        return np.zeros(array.shape, np.int64)
    with np.errstate(all="ignore"):
        return array.astype(rng.choice((np.float32, np.float64, np.float16, np.int64, np.int32, np.uint8, np.int8, np.bool_)))


def _wild_content(rng: random.Random, array: np.ndarray) -> np.ndarray:
    """One element, or all, far out of any range."""
    if not array.size:
        return array
    changed = array.copy()
    number: Any = rng.choice(TEXTS)
    if array.dtype != object:
        element = dtypes.from_numpy(array.dtype)
        number = rng.choice(INTEGERS if element in dtypes.INTS else FLOATS)
        with np.errstate(all="ignore"):
            number = np.asarray(number).astype(array.dtype) if element in dtypes.INTS else array.dtype.type(number)
    if rng.random() < 0.2:
        changed[...] = number
    else:
        changed.reshape(-1)[rng.randrange(array.size)] = number
    return changed


Change = Callable[[random.Random, np.ndarray], Any]
CHANGES: tuple[Change, ...] = (
    _drop,
    _another_rank,
    _another_size,
    _empty,
    _turned,
    _another_type,
    _wild_content,
    _wild_content,
)

__all__ = ["Case", "Wrong", "by_op", "make", "seeds"]
