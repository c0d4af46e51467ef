"""Preferred layout: a provider that wants channels last gets them, Transposes stay at the borders only, results are the same."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

from sardonyx import formats, ops
from sardonyx.errors import EPFail
from sardonyx.ops.schemas import NHWC_DOMAIN
from sardonyx.providers.cpu.provider import CPUExecutionProvider, evaluate
from sardonyx.providers.kernel_table import KernelTable
from sardonyx.providers.provider import ExecutionProvider
from sardonyx.runtime.execution.executor import execute
from tests.runtime.models import plan_of

table = KernelTable("LastExecutionProvider")


def on_cpu(op: str, inputs: list[np.ndarray], **attributes) -> np.ndarray:
    """What the CPU's kernel makes of operands whose first has its channels last."""
    from sardonyx.ir import Node, Tensor, Value

    first = np.moveaxis(inputs[0], -1, 1)
    values = [Value(f"i{n}", Tensor.of(array).type) for n, array in enumerate([first, *inputs[1:]])]
    node = Node(op, values, [Value("y", values[0].type)], attributes, version=21)
    return np.moveaxis(evaluate(node, [first, *inputs[1:]])[0], 1, -1)


@table.kernel("Conv")
def never(X, W, B=None, **attributes):
    raise AssertionError("the layout was not changed")


@table.kernel("Conv", domain=NHWC_DOMAIN)
def conv(X, W, B=None, *, kernel_shape=None, pads=None, strides=None, dilations=None, group=1, auto_pad="NOTSET"):
    given = {"kernel_shape": kernel_shape, "pads": pads, "strides": strides, "dilations": dilations}
    return on_cpu("Conv", [X, W, *([] if B is None else [B])], **{k: v for k, v in given.items() if v is not None})


@table.kernel("MaxPool", domain="")
@table.kernel("MaxPool", domain=NHWC_DOMAIN)
def max_pool(X, kernel_shape, **attributes):
    return on_cpu("MaxPool", [X], kernel_shape=kernel_shape)


class LastExecutionProvider(ExecutionProvider):
    name = "LastExecutionProvider"
    kernels = table
    preferred_layout = "NHWC"


TEXT = """
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[N, 2, 6, 6] x, float[3, 2, 3, 3] w, float[3, 3, 1, 1] v) => (float[N, 3, 2, 2] y) <float[1] half = {0.5}> {
        a = Conv(x, w)
        b = Relu(a)
        c = Conv(b, v)
        d = Mul(c, half)
        e = Add(d, b)
        y = MaxPool<kernel_shape = [3, 3]>(e)
    }
"""


def planned(text: str, *providers: ExecutionProvider):
    model = formats.load(onnx.parser.parse_model(text))
    return plan_of(model, [*providers, CPUExecutionProvider()])


def ops_of(plan) -> list[str]:
    return [step.node.op_id for step in plan.steps]


def feeds() -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    shapes = {"x": (2, 2, 6, 6), "w": (3, 2, 3, 3), "v": (3, 3, 1, 1)}
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def test_transposes_stay_at_the_borders():
    plan = planned(TEXT, LastExecutionProvider())
    found = ops_of(plan)
    assert found.count("Transpose") == 2
    assert found[0] == "Transpose" and found[-1] == "Transpose"
    assert f"{NHWC_DOMAIN}::MaxPool" in found
    np.testing.assert_allclose(execute(plan, feeds())[0], execute(planned(TEXT), feeds())[0], rtol=1e-5, atol=1e-6)


def test_nothing_moves_without_a_wish():
    class First(LastExecutionProvider):
        preferred_layout = "NCHW"
        kernels = KernelTable("FirstExecutionProvider")

    assert "Transpose" not in ops_of(planned(TEXT, First()))


def test_a_provider_chooses_which_nodes_it_wants_moved():
    class Choosing(LastExecutionProvider):
        def wants_channels_last(self, node):
            return node.op_type == "Conv"

        def find_kernel(self, node):
            return None if node.op_type == "MaxPool" else super().find_kernel(node)

    found = ops_of(planned(TEXT, Choosing()))
    assert "MaxPool" in found and found.count(f"{NHWC_DOMAIN}::Conv") == 2


def test_a_value_that_somebody_else_reads_is_given_back():
    text = TEXT.replace("=> (float[N, 3, 2, 2] y)", "=> (float[N, 3, 2, 2] y, float[N, 3, 4, 4] b, s)").replace(
        "c = Conv", "s = ReduceSum(b) c = Conv"
    )
    plan = planned(text, LastExecutionProvider())
    for mine, theirs in zip(execute(plan, feeds()), execute(planned(text), feeds()), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_a_moved_node_must_be_taken():
    class Fickle(LastExecutionProvider):
        def find_kernel(self, node):
            return None if node.domain else super().find_kernel(node)

    class Everything(CPUExecutionProvider):
        def find_kernel(self, node):
            return super().find_kernel(node) or table.find(ops.checking.signature_of(node), {})

    model = formats.load(onnx.parser.parse_model(TEXT))
    with pytest.raises(EPFail, match="was moved to the layout NHWC for a provider that does not take it there"):
        plan_of(model, [Fickle(), Everything()])
