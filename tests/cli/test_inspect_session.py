"""`sardonyx inspect --after STAGE` shows what a session with the same options runs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx.parser
import pytest

import sardonyx
from sardonyx.cli.inspect import plan_text
from sardonyx.cli.native import program_text
from sardonyx.providers.provider import Capability, ExecutionProvider
from sardonyx.runtime.preparation.plan import all_steps
from tests.runtime.test_copies import ToyExecutionProvider
from tests.runtime.test_layouts import LastExecutionProvider


class StandardExecutionProvider(ExecutionProvider):
    """Takes Erf and Tanh, one by one, and wants no ops but ONNX's."""

    name = "StandardExecutionProvider"
    standard_ops_only = True

    def get_capability(self, graph, nodes):
        return [Capability([node], fused=True) for node in nodes if node.op_type in ("Erf", "Tanh")]

    def compile(self, cluster):
        return lambda inputs: list(inputs)


PROVIDERS = (LastExecutionProvider, StandardExecutionProvider, ToyExecutionProvider)

HEADER = '<ir_version: 10, opset_import: ["" : 21, "own" : 1]>'
GELU = """g (float[N, 4] x) => (float[N, 4] y) <float[4] b = {1, 2, 3, 4}, float r = {1.4142135}, float o = {1}, float h = {0.5}> {
    t = Add(x, b) d = Div(t, r) e = Erf(d) s = Add(e, o) m = Mul(t, s) y = Mul(m, h)
}"""
MODELS = {
    "a product": "g (float[N, 3] x) => (float[N, 2] y) <float[3, 2] w = {1, 2, 3, 4, 5, 6}> { p = MatMul(x, w) y = Relu(p) }",
    "a convolution": """g (float[N, 2, 6, 6] x, float[3, 2, 3, 3] w, float[3, 3, 1, 1] v) => (float[N, 3, 2, 2] y) {
        a = Conv(x, w) b = Relu(a) c = Conv(b, v) y = MaxPool<kernel_shape = [3, 3]>(c)
    }""",
    "a fusion": GELU,
    "a function": """g (float[N] x) => (float[N] y) { y = own.twice(x) }
        <domain: "own", opset_import: ["" : 21]> twice (a) => (b) { b = Add(a, a) }""",
    "a body": "g (float[2, 3] x) => (float[2, 3] y) { y = MeanVarianceNormalization<axes = [1]>(x) }",
    "a default": "g (float[N] x, float[2] w) => (float[N] y) <float[2] w = {1, 2}> { t = Neg(w) y = Add(x, t) }",
    "a branch": """g (bool c, float[2] x) => (float[2] y) {
        y = If(c) <then_branch = t () => (float[2] p) { p = Sqrt(x) }, else_branch = e () => (float[2] q) { q = Neg(x) }>
    }""",
}
SETTINGS: dict[str, list[str]] = {
    "as it is": [],
    "without optimization": ["--level", "disable"],
    "in NumPy": ["--numpy"],
    "with channels last": ["--provider", "LastExecutionProvider", "--numpy"],
    "with ONNX's ops": ["--provider", "StandardExecutionProvider"],
    "on a device": ["--provider", "ToyExecutionProvider", "--numpy"],
}
"""Each as the command line says it."""


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    for provider in PROVIDERS:
        sardonyx.register_provider(provider.name, provider)
    yield
    for provider in PROVIDERS:
        sardonyx.unregister_provider(provider.name)


@pytest.fixture(params=MODELS.values(), ids=MODELS)
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    path.write_bytes(onnx.parser.parse_model(f"{HEADER} {request.param}").SerializeToString())
    return path


def unnumbered(text: str) -> str:
    """A text without the numbers in names that the optimizer makes, which count on through a process."""
    return re.sub(r"_\d+(?![0-9a-zA-Z])", "_#", text)


def session_of(model: Path, arguments: list[str]) -> Any:
    options = sardonyx.SessionOptions()
    if "disable" in arguments:
        options.graph_optimization_level = sardonyx.GraphOptimizationLevel.ORT_DISABLE_ALL
    names = [argument for argument in arguments if argument.endswith("Provider")]
    cpu = ("CPUExecutionProvider", {"native": "0" if "--numpy" in arguments else "1"})
    return sardonyx.InferenceSession(str(model), options, providers=[*names, cpu])


@pytest.mark.parametrize("arguments", SETTINGS.values(), ids=SETTINGS)
def test_partition_shows_the_steps_of_the_session(model: Path, arguments: list[str], call: Any) -> None:
    shown = call("inspect", model, "--after", "partition", *arguments)
    assert shown.code == 0, shown.err
    steps = list(all_steps(session_of(model, arguments)._engine.plan))
    expected = Counter(
        (step.provider.name, unnumbered(", ".join(map(str, step.nodes))) + (f" ({step.reason})" if step.reason else ""))
        for step in steps
    )
    found: Counter[tuple[str, str]] = Counter()
    for line in unnumbered(shown.out).splitlines():
        who, nodes = re.fullmatch(r"\s*([\w#]+):(?: (.*))?", line).groups()  # type: ignore[union-attr]
        if nodes is not None:  # else the name of a graph inside a node
            found[re.sub(r"_\w+_#$", "", who), nodes] += 1
    assert found == expected


@pytest.mark.parametrize("arguments", SETTINGS.values(), ids=SETTINGS)
def test_the_plan_and_its_programs_are_those_of_the_session(model: Path, arguments: list[str], call: Any) -> None:
    plan = session_of(model, arguments)._engine.plan
    shown = unnumbered(call("inspect", model, "--after", "plan", *arguments).out)
    assert shown.startswith(unnumbered(plan_text(plan)) + "\n")
    shown = unnumbered(call("inspect", model, "--after", "native", *arguments).out)
    assert shown == unnumbered(program_text(plan)) + "\n"
