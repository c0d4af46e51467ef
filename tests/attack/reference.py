"""What a model should give: its nodes one by one in NumPy, and how far rounding may move each element of it.

A graph of random ops can magnify the last bit of a float as much as it likes: by cancellation, by Exp of Exp, by Floor at a step. So the
nodes are evaluated again a few times, and each float result is multiplied by noise of a few units in the last place. What the noise
moves, another order of summation may move; what it leaves alone must agree. Nobody is wrong, though, who is as near as these nodes to what
they give in double precision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

import sardonyx
from sardonyx import dtypes
from tests.attack.subject import Problem, session_of
from tests.tolerance import ATTACK, TOLERANCES

SAMPLES = ((0, 1), (0, -1), (1, 1), (1, -1))
"""Seeds of the noise and its sign. A value on a step (of Round, of a quantization) falls to the other side with one of both signs."""
FURTHER_SAMPLES = tuple((seed, sign) for seed in range(2, 8) for sign in (1, -1))
"""What is asked, too, where a result seems wrong: in few samples noise on an input and on the result may cancel."""
ULPS = 8
"""Size of the noise. A sum of a thousand numbers is some 8 units off; so many ops in a row that are off by one are rare."""
SPREAD = 16
"""How much farther than the noise moved an element a result may be, as a few samples seldom show the worst."""
EPSILON = {
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "float32": 2.0**-23,
    "float64": 2.0**-52,
}
INNER_ROUNDING = {
    "GRU": 1.0,
    "LSTM": 1.0,
    "DynamicQuantizeLSTM": 2.0**13,
    **dict.fromkeys(("Elu", "Celu", "Selu"), 1.0),
    **dict.fromkeys(("Gelu", "BiasGelu", "FastGelu", "GemmFastGelu"), 0.25),
    **dict.fromkeys(("GeluGrad", "FastGeluGrad", "BiasGeluGrad_dX", "BiasFastGeluGrad_dX"), 1.0),
}
"""Rounding inside a node that noise on its inputs does not show, in units in the last place of 1. Gates of GRU and LSTM are rounded at 1
where they let hardly anything through. A quantized state falls on either side of a step, a 127th of its largest element. A Gelu rounds
1 + erf(x) at 1, times x of at most 6 where that is not 0, and so does its gradient; onnxruntime has the same digits. It also rounds
e^x - 1 at 1, which we do not."""
VANISHING = dict.fromkeys(("Gelu", "BiasGelu", "FastGelu", "GemmFastGelu"), 3.0)
"""The largest result that may as well be 0, in the same units, where that is more than the rounding inside: 1 + tanh(x) is off by a
unit, times x / 2 of at most 3."""
QUANTIZED_INSIDE = {"DynamicQuantizeLSTM": (0, 5)}
"""Inputs (X, initial_h) that a node quantizes itself, as it does with what it computes of them and nobody sees. How far that goes when
one element falls to the other side of a step, steps of these inputs show."""
TRANSFORMS = {"DFT", "STFT"}
"""Ops that make NaN of an element that is not finite where they multiply it by 0, as a direct sum does, or do not, as a fast one does."""
STEP_SHARE = 1 / 4
"""How much of a step the noise on these inputs is: so many of their elements fall to the other side."""


def is_float(array: Any) -> bool:
    return isinstance(array, np.ndarray) and str(array.dtype) in EPSILON


def type_proto(value: Any) -> onnx.TypeProto:
    """The type that a value shows, with its rank and without its sizes, so that one session serves for all sizes."""
    if isinstance(value, list):
        return helper.make_sequence_type_proto(type_proto(value[0]) if value else _tensor_type(np.float32, None))
    return _tensor_type(value.dtype, value.ndim)


def _tensor_type(dtype: Any, rank: int | None) -> onnx.TypeProto:
    shape = None if rank is None else [None] * rank
    return helper.make_tensor_type_proto(dtypes.from_numpy(np.dtype(dtype)).code, shape)


def captured(node: onnx.NodeProto) -> list[str]:
    """Names that a node reads: its inputs, and what its graphs use of the graph around them."""
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        for graph in [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs:
            inside = {value.name for value in graph.input} | {one.name for one in graph.initializer}
            inside |= {name for one in graph.node for name in one.output}
            used = [name for one in graph.node for name in captured(one)] + [value.name for value in graph.output]
            names += [name for name in used if name not in inside]
    return list(dict.fromkeys(names))


def widened(value: Any) -> Any:
    """A value with floats of double precision in place of others."""
    if isinstance(value, list):
        return [widened(item) for item in value]
    return value.astype(np.float64) if is_float(value) else value


def narrowed(value: Any, like: Any) -> Any:
    """A value in double in the precision of another."""
    if isinstance(value, list) and isinstance(like, list) and len(value) == len(like):
        return [narrowed(one, other) for one, other in zip(value, like)]
    with np.errstate(all="ignore"):
        return value.astype(like.dtype) if is_float(value) and is_float(like) else value


class Noise:
    """Random numbers between -1 and 1, none so near to 0 that rounding takes it away; another sign gives the same ones, turned round."""

    def __init__(self, seed: int, sign: int):
        self._generator = np.random.default_rng(seed)
        self._sign = sign

    @property
    def is_negative(self) -> bool:
        return self._sign < 0

    def __call__(self, shape: tuple[int, ...]) -> np.ndarray:
        numbers = self._generator.uniform(-1, 1, shape)
        return self._sign * np.copysign((1 + (ULPS - 1) * np.abs(numbers)) / ULPS, numbers)


class Reference:
    """The nodes of a model as sessions of their own, in NumPy and without optimization."""

    def __init__(self, model: onnx.ModelProto):
        self.model = model
        self.constants = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
        self._sessions: dict[tuple[int, str], sardonyx.InferenceSession] = {}

    def values(self, feeds: Mapping[str, Any], noise: Noise | None = None) -> dict[str, Any]:
        """All values of the graph by name, with noise on every float result if a generator is given."""
        values = {**self.constants, **feeds}
        if noise is not None:
            values = {name: _shaken(value, noise) for name, value in values.items()}
        for position, node in enumerate(self.model.graph.node):
            names = captured(node)
            outputs = [name for name in node.output if name]
            given = {name: values[name] for name in names}
            if noise is not None:
                given |= _stepped(node, given, noise)
            results = self._session(position, node, names, values).run(outputs, given)
            for name, result in zip(outputs, results):
                values[name] = result if noise is None else _rounded_inside(result, noise, node.op_type)
                if noise is not None and node.op_type in TRANSFORMS and any(map(_has_no_number, given.values())):
                    values[name] = np.full_like(result, 0 if noise.is_negative else np.nan)
        return values

    def exact(self, feeds: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
        """All values in double precision, those of ops that do not take it from operands rounded to what they usually are."""
        values = {name: widened(value) for name, value in {**self.constants, **feeds}.items()}
        for position, node in enumerate(self.model.graph.node):
            names, outputs = captured(node), [name for name in node.output if name]
            given = {name: values[name] for name in names}
            try:
                results = self._session(position, node, names, values).run(outputs, given)
            except sardonyx.errors.CODED:
                given = {name: narrowed(values[name], usual[name]) for name in names}
                results = self._session(position, node, names, given).run(outputs, given)
            values |= zip(outputs, map(widened, results))
        return values

    def _session(
        self, position: int, node: onnx.NodeProto, names: Sequence[str], values: Mapping[str, Any]
    ) -> sardonyx.InferenceSession:
        types = [type_proto(values[name]) for name in names]
        key = position, "".join(one.SerializeToString().hex() for one in types)
        if key not in self._sessions:
            inputs = [helper.make_value_info(name, one) for name, one in zip(names, types)]
            outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
            model = onnx.ModelProto(ir_version=self.model.ir_version, opset_import=self.model.opset_import)
            model.functions.extend(self.model.functions)
            model.graph.CopyFrom(helper.make_graph([node], "node", inputs, outputs))
            self._sessions[key] = session_of(model, native="0", level=0)
        return self._sessions[key]


def _stepped(node: onnx.NodeProto, given: Mapping[str, Any], noise: Noise) -> dict[str, Any]:
    """The inputs that a node quantizes itself, moved by a part of a step."""
    names = [node.input[at] for at in QUANTIZED_INSIDE.get(node.op_type, ()) if at < len(node.input) and node.input[at]]
    moved = {}
    for name in names:
        value = given[name]
        step = np.abs(value[np.isfinite(value)]).max(initial=0) / 127
        moved[name] = (value + STEP_SHARE * step * noise(value.shape)).astype(value.dtype)
    return moved


def _has_no_number(value: Any) -> bool:
    return is_float(value) and not np.isfinite(value.astype(np.float64)).all()


def _rounded_inside(value: Any, noise: Noise, op: str) -> Any:
    """A result with its noise, and with that of what a node of this op rounds on the way.

    Noise of one sign leaves nothing of elements that are smaller than what was rounded, as it happens to 1 + erf(x): a quantization of
    zeros alone has another scale than that of any small numbers.
    """
    moved, inner = _shaken(value, noise), INNER_ROUNDING.get(op, 0)
    if not inner or not is_float(value):
        return moved
    unit = EPSILON[str(value.dtype)]
    with np.errstate(all="ignore"):
        moved = moved.astype(np.float64) + inner * unit * noise(value.shape)
        vanishes = noise.is_negative & (np.abs(value) < VANISHING.get(op, inner) * unit)
        return np.where(vanishes, 0, moved).astype(value.dtype)


def _shaken(value: Any, noise: Noise) -> Any:
    """A value with noise of some units in the last place of each element."""
    if isinstance(value, list):
        return [_shaken(item, noise) for item in value]
    if not is_float(value):
        return value
    unit = EPSILON[str(value.dtype)]
    with np.errstate(all="ignore"):
        return (value.astype(np.float64) * (1 + ULPS * unit * noise(value.shape))).astype(value.dtype)


class Expectation:
    """What the outputs of a model should be on some feeds, and what rounding leaves of it."""

    def __init__(self, reference: Reference, feeds: Mapping[str, Any], names: Iterable[str] | None = None):
        self.names = list(names or (value.name for value in reference.model.graph.output))
        self.values = reference.values(feeds)
        self._reference, self._feeds = reference, feeds
        self.samples = list(map(self._sample, SAMPLES))

    def _sample(self, noise: tuple[int, int]) -> dict[str, Any]:
        try:
            return self._reference.values(self._feeds, Noise(*noise))
        except sardonyx.errors.CODED:  # the noise made an index or a size of a float, and that one does not fit
            return {}

    def check(self, results: Sequence[Any], who: str) -> None:
        for name, result in zip(self.names, results, strict=True):
            if self._difference(name, result) and len(self.samples) == len(SAMPLES):
                self.samples += map(self._sample, FURTHER_SAMPLES)
            if self._difference(name, result) and (difference := self._difference(name, result, self._exact().get(name))):
                raise Problem(f"{who}: {name}: {difference}")

    def _exact(self) -> dict[str, Any]:
        """What the nodes give in double precision, as far as a float that is an index or a size there does not make it fail."""
        try:
            return self._reference.exact(self._feeds, self.values)
        except sardonyx.errors.CODED:
            return {}

    def _difference(self, name: str, result: Any, exact: Any = None) -> str:
        return difference_of(result, self.values[name], [sample.get(name) for sample in self.samples], exact)


def difference_of(got: Any, wanted: Any, samples: Sequence[Any], exact: Any = None) -> str:
    """How a result differs beyond what rounding explains, or nothing. `exact` is what double precision gives, if that is known."""
    if any(sample is None for sample in samples):
        return ""
    if isinstance(wanted, list):
        if len(got) != len(wanted):
            return "" if _lengths_vary(wanted, samples) else f"{len(got)} elements for {len(wanted)}"
        if _lengths_vary(wanted, samples):
            return ""
        parts = (difference_of(a, b, [one[at] for one in samples]) for at, (a, b) in enumerate(zip(got, wanted)))
        return next((part for part in parts if part), "")
    if not isinstance(wanted, np.ndarray):
        return ""  # maps and sparse tensors: tests/ops has them
    got = np.asarray(got)
    if any(sample.shape != wanted.shape for sample in samples):
        return ""  # a size depends on the last bit of a float
    if got.dtype != wanted.dtype or got.shape != wanted.shape:
        return f"{got.dtype}{list(got.shape)} for {wanted.dtype}{list(wanted.shape)}"
    if wanted.dtype.kind in "OUS":
        return "" if got.tolist() == wanted.tolist() else f"{got.tolist()} for {wanted.tolist()}"
    if not isinstance(exact, np.ndarray) or exact.shape != wanted.shape:
        exact = wanted
    if is_float(wanted):
        return _float_difference(got, wanted, samples, exact)
    return _discrete_difference(got, wanted, samples, exact)


def _lengths_vary(wanted: list[Any], samples: Sequence[Any]) -> bool:
    return any(len(sample) != len(wanted) for sample in samples)


def _discrete_difference(got: np.ndarray, wanted: np.ndarray, samples: Sequence[np.ndarray], exact: np.ndarray) -> str:
    if wanted.dtype.itemsize == 1 and wanted.dtype != np.bool_ and str(wanted.dtype) in ml_dtypes.__dict__:
        got, wanted, exact = (one.view(np.uint8) for one in (got, wanted, exact))
        samples = [sample.view(np.uint8) for sample in samples]
    if any(not np.array_equal(sample, wanted) for sample in samples):
        return ""
    wrong = np.asarray((got != wanted) & (got != exact))
    return _described(wrong, got, wanted) if wrong.any() else ""


def _float_difference(got: np.ndarray, wanted: np.ndarray, samples: Sequence[np.ndarray], exact: np.ndarray) -> str:
    name = str(wanted.dtype)
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    with np.errstate(all="ignore"):
        moved = [np.abs(sample.astype(np.float64) - b) for sample in samples]
        spread = np.max(moved, axis=0) if moved else np.zeros_like(b)
        finite = np.isfinite(b)
        spread = np.maximum(spread, _usual_share(spread, b, finite) * np.abs(b))
        scale = np.abs(b[finite]).max(initial=0)
        relative, _ = TOLERANCES[dtypes.from_numpy(wanted.dtype)]
        tiny = float(ml_dtypes.finfo(wanted.dtype).tiny)  # denormals may be flushed
        bound = SPREAD * spread + relative * np.abs(b) + ATTACK[name] * scale + tiny
        stable_non_finite = np.all([_same_place(sample, wanted) for sample in samples], axis=0) & ~finite
        wrong = np.where(finite, np.isfinite(spread) & ~(np.abs(a - b) <= bound), stable_non_finite & ~_same_place(got, wanted))
    limit = float(ml_dtypes.finfo(wanted.dtype).max)
    wrong &= ~(np.isinf(a) & (np.abs(b) > limit / 8))  # at the edge of the range
    wrong &= ~(np.isinf(b) & (np.abs(a) > limit / 8))
    wrong &= ~_is_nearer(got, wanted, exact)
    return _described(wrong, got, wanted) if wrong.any() else ""


def _usual_share(spread: np.ndarray, wanted: np.ndarray, finite: np.ndarray) -> float:
    """A quarter of the part of itself by which the noise moved the element in the middle: where it moved one by less, all samples of
    that one happened to be near 1.
    """
    moved = finite & np.isfinite(spread) & (wanted != 0)
    return float(np.median(spread[moved] / np.abs(wanted[moved]))) / 4 if moved.any() else 0.0


def _is_nearer(got: np.ndarray, wanted: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Where a result is as near as the expected one to the exact one; where only the expected one overflows, as near as rounding lets
    it.
    """
    relative, _ = TOLERANCES[dtypes.from_numpy(wanted.dtype)]
    a, b, e = (one.astype(np.float64) for one in (got, wanted, exact))
    with np.errstate(all="ignore"):
        error = np.abs(a - e)
        return np.isfinite(a) & np.isfinite(e) & (error <= np.where(np.isfinite(b), np.abs(b - e), relative * np.abs(e)))


def _same_place(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where both are NaN, or the same infinity, or both finite."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    return (np.isnan(a) & np.isnan(b)) | (a == b) | (np.isfinite(a) & np.isfinite(b))


def _described(wrong: np.ndarray, got: np.ndarray, wanted: np.ndarray) -> str:
    at = tuple(int(index) for index in np.argwhere(wrong)[0])
    return f"{int(wrong.sum())} of {wrong.size} elements differ, at {list(at)} {got[at]!r} for {wanted[at]!r}"
