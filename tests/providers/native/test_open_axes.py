"""Every lowering takes any axis open: the cases of the ops run in native code with no size known before, with all known, and with all
but one.

Which nodes leave native code because an axis is open is counted: `OPEN` has the reasons. A lowering must have a case that is native.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from docs.pages import coverage
from sardonyx import ops
from sardonyx.dtypes import ElementType
from sardonyx.errors import CODED
from sardonyx.ir import Graph, Model, TensorType, Type, Value
from sardonyx.ops import schemas
from sardonyx.ops.signatures import Signature
from sardonyx.providers.cpu.provider import CPUExecutionProvider, evaluate
from sardonyx.providers.native.program.table import lowerings
from sardonyx.providers.native.provider import NativeExecutionProvider
from sardonyx.providers.random_state import set_seed
from sardonyx.providers.scalars.table import scalars
from sardonyx.runtime.execution.executor import execute
from sardonyx.runtime.preparation.plan import make_plan
from tests.ops.cases import Case, build, feeds_of, inputs_of, symbolic, takes, wanted_outputs
from tests.tolerance import assert_close

OPEN = {
    "the last bit of a logarithm of the number of buckets decides, so NumPy makes their table before runs": """
        com.microsoft:RelativePositionBias
    """,
    "how many axes the result has depends on a size": "GatherND ScatterND com.microsoft:GatherND Squeeze",
    "integers between pixels, whose sums are NumPy's to the bit; proportions that are kept; crops": "Resize",
}
"""Why nodes may be left to NumPy if no size is known, and which."""
LISTED = {name for names in OPEN.values() for name in names.split()}


INSIDE = {
    "sequences lie inside of a program alone (test_sequences.py)": "SequenceErase SequenceInsert SequenceLength",
    "a layer for training and its way back run together, also with open sizes (test_recurrent_gradients.py)": """
        com.microsoft:LSTMTraining com.microsoft:LSTMGrad sardonyx:LSTMStepsGrad
        com.microsoft:GRUTraining com.microsoft:GRUGrad sardonyx:GRUStepsGrad
    """,
    "the cases branch on what is known, or to ranks that differ (test_control.py)": "If",
}
"""Why cases of a lowering are never native by themselves, and which."""
NOT_ALONE = {name for names in INSIDE.values() for name in names.split()}


def _cases() -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = {}
    for case in coverage._cases():
        found.setdefault(f"{case.domain}:{case.op}" if case.domain else case.op, []).append(case)
    return found


def _lowered() -> set[str]:
    """All ops that have native code for some node."""
    for table in (lowerings, scalars):
        table.load_all()
    return {f"{entry.domain}:{entry.op}" if entry.domain else entry.op for table in (lowerings, scalars) for entry in table}


CASES = _cases()
LOWERED = _lowered()


@dataclass(frozen=True)
class Form:
    """How a case becomes a model: in which version and element types, and which operands are constant."""

    signature: Signature
    types: Mapping[str, ElementType]
    view: str

    def model(self, case: Case, opened: Opened | None = None) -> Model:
        """All sizes of inputs are known but those of the opened axes, as (input, axis); vectors and scalars among them are constant."""
        signature, inputs = self.signature, inputs_of(self.signature, case, self.types)
        wanted = wanted_outputs(case, signature, None)
        model = build(signature, signature.since_version, case, inputs, wanted, self.view)
        for value in model.graph.inputs:
            value.type = _opened(value, opened or ())
        ops.infer(model, evaluate)
        return model

    def feeds(self, case: Case, graph: Graph) -> dict[str, Any]:
        fed = {value.name for value in graph.inputs}
        return {name: value for name, value in feeds_of(inputs_of(self.signature, case, self.types)).items() if name in fed}


Opened = Collection[tuple[str, int]]


def _opened(value: Value, axes: Opened) -> Type | None:
    if not isinstance(value.type, TensorType) or value.type.shape is None:
        return value.type
    opened = symbolic(value.name, value.type).shape
    shape = [new if (value.name, axis) in axes else old for axis, (old, new) in enumerate(zip(value.type.shape, opened))]
    return TensorType(value.type.dtype, tuple(shape))


def _forms(name: str) -> Iterator[Form]:
    """The newest version in the first type that the op may have comes first; then all others."""
    domain, _, op = name.rpartition(":")
    for _, signature in sorted(schemas.versions(domain, op).items(), reverse=True):
        for types in coverage._choices(signature):
            for view in ("known", "weights"):
                yield Form(signature, types, view)


def _native_cases(name: str) -> list[tuple[Case, Form]]:
    """The cases that are native with all sizes known, in the first form in which any is."""
    for form in _forms(name):
        found = [(case, form) for case in CASES[name] if _can_be_native(case, form)]
        if found or name not in LOWERED:
            return found
    return []


def _can_be_native(case: Case, form: Form) -> bool:
    try:
        return takes(form.signature, case, form.types) and _is_native(form.model(case).graph)
    except (*CODED, ArithmeticError, ValueError, TypeError, AttributeError):
        return False  # the case's operands cannot have these types


def _is_native(graph: Graph) -> bool:
    native = NativeExecutionProvider(threads=1)
    (node,) = graph.nodes
    return native.can_lower(node)


def _run(graph: Graph, feeds: dict[str, Any], *, is_native: bool) -> list[Any]:
    providers = [NativeExecutionProvider(threads=1), CPUExecutionProvider()] if is_native else [CPUExecutionProvider()]
    set_seed(0)
    return list(execute(make_plan(graph, providers), feeds))


def _openings(graph: Graph, number: int) -> Iterator[Opened]:
    """All axes of a case, and each alone; of all cases but the first one axis alone, another one each time."""
    axes = [
        (value.name, axis)
        for value in graph.inputs
        if isinstance(value.type, TensorType)
        for axis in range(len(value.type.shape or ()))
    ]
    yield axes
    if len(axes) > 1:
        yield from ([axis] for axis in (axes if number == 0 else [axes[number % len(axes)]]))


@pytest.mark.parametrize("name", sorted(CASES))
def test_open_axes_change_nothing(name: str) -> None:
    left = 0
    with warnings.catch_warnings(action="ignore"):  # of what is lost where operands are cast
        found = _native_cases(name)
        for number, (case, form) in enumerate(found):
            closed = form.model(case).graph
            feeds = form.feeds(case, closed)
            wanted = _run(closed, feeds, is_native=False)
            for opened in ((), *_openings(closed, number)):
                graph = form.model(case, opened).graph
                left += not _is_native(graph)
                got = _run(graph, feeds, is_native=True)
                where = f"case at {case.where}, open: {opened}"
                assert_close(got, wanted, rtol=case.rtol, atol=case.atol or None, where=where)
    assert bool(found) or name not in LOWERED - NOT_ALONE, f"no case of {name} is native"
    assert not (found and name in NOT_ALONE), f"cases of {name} are native: it need not be listed"
    assert not left or name in LISTED, f"{left} nodes of {name} are left to NumPy if sizes are unknown"


def test_every_lowering_has_cases() -> None:
    assert sorted(LOWERED - set(CASES) - NOT_ALONE) == []


def test_the_list_names_ops_that_there_are() -> None:
    ops.load_families()
    for name in LISTED:
        domain, _, op = name.rpartition(":")
        assert schemas.versions(domain, op), f"there is no op {name}"
