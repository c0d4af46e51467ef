"""Every op that the standard defines through others is saved in both formats, in every opset in which it can be written.

Whoever saves a model may have put the body of an op in its place; bodies are written for opsets of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx.compose
import onnx.defs
import onnx.parser
import onnxruntime
import pytest

import sardonyx as rt
from sardonyx import cli, dtypes
from sardonyx.dtypes import ElementType
from sardonyx.errors import Fail
from sardonyx.formats.onnx.writer import write_model
from sardonyx.ops import schemas
from sardonyx.ops.signatures import Signature
from sardonyx.startup.records import dataclass, replace
from tests.ops.cases import Case, build, feeds_of, inputs_of, takes, wanted_outputs
from tests.tolerance import assert_close

rng = np.random.default_rng(7)


def numbers(*shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    return rng.uniform(low, high, shape).astype(np.float32)


X = numbers(2, 4, 3)
LABELS = np.int64([[0, 1, 2], [3, 1, 0]])
HEADS = numbers(1, 2, 3, 4)
PAIRS = {"A": numbers(2, 3), "B": numbers(2, 3)}
SUM = "b (float[2,3] a) => (float[2,3] r) { r = Add(a, a) }"

OPERANDS: dict[str, dict[str, Any]] = {
    "AffineGrid": {"theta": numbers(1, 2, 3), "size": np.int64([1, 1, 2, 3])},
    "Attention": {"Q": HEADS, "K": HEADS, "V": HEADS, "is_causal": 1},
    "BlackmanWindow": {"size": np.int64(6)},
    "CastLike": {"input": X, "target_type": np.int32([1])},
    "CausalConvWithState": {"input": numbers(1, 2, 6), "weight": numbers(2, 1, 3)},
    "Celu": {"X": X, "alpha": 0.7},
    "CenterCropPad": {"input_data": numbers(4, 3), "shape": np.int64([2, 5])},
    "Clip": {"input": X, "min": np.float32(-1), "max": np.float32(1)},
    "DepthToSpace": {"input": numbers(1, 4, 2, 2), "blocksize": 2},
    "DynamicQuantizeLinear": {"x": X},
    "Elu": {"X": X, "alpha": 0.5},
    "Gelu": {"X": X},
    "GreaterOrEqual": PAIRS,
    "GroupNormalization": {"X": X, "scale": numbers(4), "bias": numbers(4), "num_groups": 4},
    "HammingWindow": {"size": np.int64(6)},
    "HannWindow": {"size": np.int64(6)},
    "HardSigmoid": {"X": X},
    "HardSwish": {"X": X},
    "LayerNormalization": {"X": X, "Scale": numbers(3), "B": numbers(3)},
    "LeakyRelu": {"X": X},
    "LessOrEqual": PAIRS,
    "LinearAttention": {"query": HEADS, "key": HEADS, "value": HEADS},
    "LogSoftmax": {"input": X},
    "MeanVarianceNormalization": {"X": numbers(2, 3, 2, 2)},
    "Mish": {"X": X},
    "NegativeLogLikelihoodLoss": {"input": X, "target": LABELS},
    "PRelu": {"X": X, "slope": numbers(3)},
    "RMSNormalization": {"X": X, "scale": numbers(3)},
    "Range": {"start": np.float32(1), "limit": np.float32(5), "delta": np.float32(1.5)},
    "ReduceL1": {"data": X, "axes": np.int64([1])},
    "ReduceL2": {"data": X, "axes": np.int64([1])},
    "ReduceLogSum": {"data": abs(X), "axes": np.int64([1])},
    "ReduceLogSumExp": {"data": X, "axes": np.int64([1])},
    "ReduceSumSquare": {"data": X, "axes": np.int64([1])},
    "Relu": {"X": X},
    "RotaryEmbedding": {"X": HEADS, "cos_cache": numbers(1, 3, 2), "sin_cache": numbers(1, 3, 2)},
    "Selu": {"X": X},
    "SequenceMap": {"input_sequence": [numbers(2, 3), numbers(2, 3)], "body": SUM},
    "Shrink": {"input": X, "bias": 0.5},
    "Softmax": {"input": X},
    "SoftmaxCrossEntropyLoss": {"scores": X, "labels": LABELS},
    "Softplus": {"X": X},
    "Softsign": {"input": X},
    "SpaceToDepth": {"input": numbers(1, 1, 4, 4), "blocksize": 2},
    "SwiGLU": {"X": numbers(2, 4)},
    "Swish": {"X": X},
    "ThresholdedRelu": {"X": X},
    "FlexAttention": {"Q": HEADS, "K": HEADS, "V": HEADS},
}
RANDOM = {"Bernoulli": {"input": numbers(2, 3, low=0.0, high=1.0), "seed": 3.0}}
"""What they give is not compared, only its shape."""


def ops_with_body() -> set[tuple[str, str]]:
    found = onnx.defs.get_all_schemas_with_history()
    return {(one.domain, one.name) for one in found if one.has_function or one.has_context_dependent_function}


def test_all_ops_with_a_body_are_here():
    assert {name for _, name in ops_with_body()} == {*OPERANDS, *RANDOM}


Group = tuple[str, int, ElementType | None]
"""Ops that one model can hold: of one domain, in one opset, of one element type; None if that is each op's own."""


def groups() -> dict[Group, list[Case]]:
    """Every op in every opset; in other types in the first and the last one that its version is in force."""
    found: dict[Group, list[Case]] = {}
    for domain, op in sorted(ops_with_body()):
        case = Case(op=op, operands=OPERANDS.get(op) or RANDOM[op], where="", domain=domain, expect=0)
        for dtype in (None, dtypes.float16, dtypes.float64):
            versions = [one for one in range(1, schemas.newest_version(domain) + 1) if is_possible(case, one, dtype)]
            for version in versions if dtype is None else sorted({*versions[:1], *versions[-1:]}):
                found.setdefault((domain, version, dtype), []).append(case)
    return found


def is_possible(case: Case, version: int, dtype: ElementType | None) -> bool:
    signature = schemas.find(case.domain, case.op, version)
    if signature is None or not signature.has_function:
        return False
    allowed = replace(signature, deprecated=False)  # a version of GroupNormalization is, but models have it
    return takes(allowed, case, parameters(signature, dtype)) and (dtype is None or bool(parameters(signature, dtype)))


def parameters(signature: Signature, dtype: ElementType | None) -> dict[str, ElementType]:
    """The type parameters that get an element type: those of float inputs."""
    names = [
        one.type_string for one in signature.inputs if "tensor(float)" in one.types and one.type_string in signature.constraints
    ]
    return {} if dtype is None else dict.fromkeys(names, dtype)


GROUPS = groups()


@dataclass(frozen=True)
class Sample:
    """A model, and what it is given. Names begin with that of the op."""

    model: onnx.ModelProto
    feeds: dict[str, Any]


def sample_of(case: Case, version: int, dtype: ElementType | None = None) -> Sample:
    signature = schemas.find(case.domain, case.op, version)
    assert signature is not None
    inputs = inputs_of(signature, case, parameters(signature, dtype))
    model = write_model(build(signature, version, case, inputs, wanted_outputs(case, signature, None)))
    feeds = {f"{case.op}/{name}": array for name, array in feeds_of(inputs).items()}
    return Sample(onnx.compose.add_prefix(model, f"{case.op}/"), feeds)


def side_by_side(samples: Sequence[Sample]) -> Sample:
    """Many models as one."""
    whole = onnx.ModelProto()
    whole.CopyFrom(samples[0].model)
    for sample in samples[1:]:
        for name in ("node", "input", "output", "initializer", "value_info"):
            getattr(whole.graph, name).extend(getattr(sample.model.graph, name))
    return Sample(whole, {name: array for sample in samples for name, array in sample.feeds.items()})


def results(model: Path, feeds: dict[str, Any], saved: Path | None = None) -> list[Any]:
    options = rt.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = rt.GraphOptimizationLevel.ORT_ENABLE_BASIC
    if saved is not None:
        options.optimized_model_filepath = str(saved)
    session = rt.InferenceSession(str(model), options, providers=[("CPUExecutionProvider", {"native": "0"})])
    return session.run(None, feeds)


def peers_results(model: Path | bytes, feeds: dict[str, Any]) -> list[Any] | None:
    """What onnxruntime gives, None where it does not take the model."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    source = model if isinstance(model, bytes) else str(model)
    try:
        return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"]).run(None, feeds)
    except Exception:
        return None


def check(source: Path, feeds: dict[str, Any], rtol: float | None = None) -> None:
    """Save a model in each way, and compare what the files give in both runtimes; onnxruntime takes them if it takes the model."""
    expected, peers = results(source, feeds), peers_results(source, feeds)
    names = [output.name for output in onnx.load(source).graph.output]
    for suffix in (".ort", ".onnx"):
        saved, converted = source.with_name(f"saved{suffix}"), source.with_name(f"converted{suffix}")
        results(source, feeds, saved)
        assert cli.main(["convert", str(source), str(converted)]) == 0
        for path in (saved, converted):
            got = [results(path, feeds)]
            if peers is not None:
                by_peer = peers_results(path, feeds)
                assert by_peer is not None, f"onnxruntime does not take {path.name}"
                got.append(by_peer)
            for items in got:
                for name, item, wanted in zip(names, items, expected, strict=True):
                    where = f"{name} of {path.name}"
                    if name.partition("/")[0] not in RANDOM:  # bodies compute parts in float32, whatever the type
                        assert_close([item], [wanted], rtol=rtol, where=where)
                    assert np.shape(item) == np.shape(wanted), where


@pytest.mark.parametrize(
    ("domain", "version", "dtype"), GROUPS, ids=["-".join(map(str, filter(None, group))) for group in GROUPS]
)
def test_ops_with_a_body_are_saved_and_loaded_in_every_opset(domain, version, dtype, tmp_path):
    samples = [sample_of(case, version, dtype) for case in GROUPS[domain, version, dtype]]
    taken, refused = [], []
    for sample in samples:
        peers = peers_results(sample.model.SerializeToString(), sample.feeds)
        (refused if peers is None else taken).append(sample)
    for name, some in (("taken", taken), ("refused", refused)):
        if not some:
            continue
        whole, source = side_by_side(some), tmp_path / name / "model.onnx"
        source.parent.mkdir()
        source.write_bytes(whole.model.SerializeToString())
        assert (peers_results(source, whole.feeds) is not None) == (some is taken)
        check(source, whole.feeds, rtol=1e-5 if dtype is dtypes.float64 else None)


MEAN = """<ir_version: 10, opset_import: ["" : {model}, "local" : 1]>
g (float[2,3] x, bool c) => (float[N,M] y, float[K,L] z) {{
    y = local.f(x)
    z = If(c) <then_branch = t () => (float[I,J] p) {{ p = local.f(x) }}, else_branch = e () => (float[I,J] q) {{ q = Neg(x) }}>
}}
<domain: "local", opset_import: ["" : {function}]>
f (a) => (r) {{ {body} }}
"""


@pytest.mark.parametrize(
    ("function", "body"),
    [
        (13, "r = ReduceMean<axes=[1]>(a)"),
        (13, "n = Neg(a) r = ReduceMax<axes=[0], keepdims=1>(n)"),
        (11, "u = Unsqueeze<axes=[0]>(a) r = Squeeze<axes=[0]>(u)"),
        (12, "r = Dropout(a)"),
        (7, "r = Add(a, a)"),
    ],
)
@pytest.mark.parametrize("model", [18, 21, 25])
def test_functions_of_older_opsets_than_the_models_are_saved(function, body, model, tmp_path):
    text = MEAN.format(model=model, function=function, body=body)
    source = tmp_path / "model.onnx"
    source.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    check(source, {"x": numbers(2, 3), "c": np.array(True)})


def test_an_op_that_means_something_else_in_the_models_opset_is_refused(tmp_path):
    text = MEAN.format(model=18, function=11, body="u = Unsqueeze<axes=[0]>(a) s = Softmax<axis=1>(u) r = Squeeze<axes=[0]>(s)")
    source = tmp_path / "model.onnx"
    source.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    feeds = {"x": numbers(2, 3), "c": np.array(True)}
    (y, _), flat = results(source, feeds), np.exp(feeds["x"]).reshape(-1)
    assert_close(y.reshape(-1), flat / flat.sum(), where="Softmax of all that follows axis 1")
    with pytest.raises(Fail, match=r"Softmax .* is written for opset 11 .* the model imports 18"):
        results(source, feeds, tmp_path / "saved.ort")
