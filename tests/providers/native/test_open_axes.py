"""Every lowering takes any axis open: the cases of the ops run in native code with no size known before, as they do with all known.

Which nodes leave native code because an axis is open is counted: `OPEN` has the reasons.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

from docs.pages import coverage
from sardonyx import ops
from sardonyx.errors import CODED
from sardonyx.ir import Graph, Model
from sardonyx.ops import schemas
from sardonyx.providers.cpu.provider import CPUExecutionProvider, evaluate
from sardonyx.providers.native.provider import NativeExecutionProvider
from sardonyx.providers.random_state import set_seed
from sardonyx.runtime.execution.executor import execute
from sardonyx.runtime.preparation.plan import Plan, make_plan
from tests.ops.cases import Case, build, feeds_of, inputs_of, symbolic, takes, wanted_outputs
from tests.tolerance import assert_close

OPEN = {
    "filters of unknown sizes: these shape the code": """
        Conv ConvTranspose com.microsoft:FusedConv com.microsoft:NhwcConv com.microsoft:NhwcFusedConv
        com.microsoft:ConvTransposeWithDynamicPads CausalConvWithState com.microsoft:CausalConvWithState
        DeformConv
    """,
    "weights or heads of unknown sizes: these shape the code": """
        LSTM GRU RNN LinearAttention com.microsoft:LinearAttention Attention GroupNormalization RotaryEmbedding
        com.microsoft:Attention com.microsoft:MultiHeadAttention com.microsoft:GroupQueryAttention
        com.microsoft:RotaryEmbedding com.microsoft:EmbedLayerNormalization com.microsoft:QEmbedLayerNormalization com.microsoft:QAttention
        com.microsoft:PackedAttention com.microsoft:PackedMultiHeadAttention com.microsoft:MRotaryEmbedding
        com.microsoft:RelativePositionBias
    """,
    "lengths of transforms: these shape the code": "DFT STFT",
    "how many axes the result has depends on a size": "GatherND ScatterND com.microsoft:GatherND Squeeze",
    "whether operands have one shape is known in a run only": """
        SwiGLU LayerNormalization SimplifiedLayerNormalization com.microsoft:SkipLayerNormalization
        com.microsoft:SkipSimplifiedLayerNormalization
    """,
    "coordinates must be known to be as many as an image has axes": "AffineGrid RoiAlign",
    "which axes change, or how many channels there are, shapes the code": "Resize Col2Im",
    "features are counted when the session is made": """
        ai.onnx.ml:ArrayFeatureExtractor ai.onnx.ml:FeatureVectorizer ai.onnx.ml:Imputer ai.onnx.ml:LinearClassifier
        ai.onnx.ml:LinearRegressor ai.onnx.ml:SVMClassifier ai.onnx.ml:SVMRegressor ai.onnx.ml:Scaler
    """,
}
"""Why nodes may be left to NumPy if no size is known, and which."""
LISTED = {name for names in OPEN.values() for name in names.split()}


def _cases() -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = {}
    for case in coverage._cases():
        found.setdefault(f"{case.domain}:{case.op}" if case.domain else case.op, []).append(case)
    return found


CASES = _cases()


def _models(case: Case) -> Iterator[tuple[Model, Model, dict]]:
    """A case with all sizes of inputs known and with none, and what it is fed, in the first type that its op may have.

    Vectors and scalars, shapes and axes among them, are constants in both.
    """
    signature = coverage._newest(case.domain, case.op)
    for types in coverage._choices(signature)[:1]:
        if takes(signature, case, types):
            inputs, wanted = inputs_of(signature, case, types), wanted_outputs(case, signature, None)
            closed, opened = (build(signature, signature.since_version, case, inputs, wanted, "known") for _ in range(2))
            for value in opened.graph.inputs:
                value.type = symbolic(value.name, value.type)
            for model in (closed, opened):
                ops.infer(model, evaluate)
            fed = {value.name for value in closed.graph.inputs}
            yield closed, opened, {name: value for name, value in feeds_of(inputs).items() if name in fed}


def _is_native(graph: Graph) -> bool:
    native = NativeExecutionProvider(threads=1)
    (node,) = graph.nodes
    return native.can_lower(node)


def _plan(graph: Graph) -> Plan:
    return make_plan(graph, [NativeExecutionProvider(threads=1), CPUExecutionProvider()])


@pytest.mark.parametrize("name", sorted(CASES))
def test_open_axes_change_nothing(name: str) -> None:
    left = 0
    with warnings.catch_warnings(action="ignore"):  # of what is lost where operands are cast
        for case in CASES[name]:
            try:
                models = list(_models(case))
            except (*CODED, ArithmeticError, ValueError, TypeError, AttributeError):
                continue  # the case's operands cannot have this type
            for closed, opened, feeds in models:
                if not _is_native(closed.graph):
                    continue
                left += not _is_native(opened.graph)
                set_seed(0)
                wanted = execute(make_plan(closed.graph, [CPUExecutionProvider()]), feeds)
                set_seed(0)
                got = execute(_plan(opened.graph), feeds)
                assert_close(list(got), list(wanted), rtol=case.rtol, atol=case.atol or None, where=f"case at {case.where}")
    assert not left or name in LISTED, f"{left} nodes of {name} are left to NumPy if no size is known"


def test_the_list_names_ops_that_there_are() -> None:
    ops.load_families()
    for name in LISTED:
        domain, _, op = name.rpartition(":")
        assert schemas.versions(domain, op), f"there is no op {name}"
