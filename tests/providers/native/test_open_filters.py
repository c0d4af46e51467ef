"""Convolutions by filters that a run computes and whose size it tells: gradients that slide over a batch of any size."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import sardonyx
from sardonyx.providers.cpu.provider import CPUExecutionProvider
from sardonyx.runtime.execution.executor import execute
from sardonyx.runtime.preparation.plan import make_plan
from tests.providers.native.agreement import assert_agrees_or_refuses, compare, model_of, native_plan, programs
from tests.providers.native.networks import open_session, steps_of
from tests.providers.native.test_open_rows import without_fallback

Sizes = tuple[int, ...]
FORMS: dict[str, tuple[str, str, list[tuple[Sizes, Sizes]]]] = {
    "channels": (
        "N,C,8,9",
        "6,C,3,2",
        [((2, 1, 8, 9), (6, 1, 3, 2)), ((1, 70, 8, 9), (6, 70, 3, 2)), ((2, 0, 8, 9), (6, 0, 3, 2))],
    ),
    "channels of two names": ("N,C,8,9", "6,D,3,2", [((2, 5, 8, 9), (6, 5, 3, 2))]),
    "kernel": (
        "N,4,H,W",
        "18,4,K,L",
        [((2, 4, 7, 8), (18, 4, 7, 8)), ((1, 4, 31, 29), (18, 4, 13, 27)), ((3, 4, 5, 5), (18, 4, 1, 1))],
    ),
    "all": (
        "N,C,H,W",
        "5,C,K,L",
        [((2, 3, 7, 8), (5, 3, 5, 6)), ((1, 300, 6, 5), (5, 300, 6, 4)), ((0, 3, 7, 8), (5, 3, 5, 6))],
    ),
    "lines": ("N,C,H", "33,C,K", [((2, 3, 40), (33, 3, 36)), ((1, 1, 3), (33, 1, 2))]),
    "volumes": ("N,C,A,B,D", "3,C,E,F,G", [((2, 3, 4, 5, 6), (3, 3, 2, 5, 3)), ((1, 2, 3, 3, 3), (3, 2, 3, 3, 3))]),
}
"""Images, filters, and what runs give for both."""
ATTRIBUTES = ("", "pads=[{}]", "strides=[{}]", "dilations=[{}]", "pads=[{}], strides=[{}], dilations=[{}]")


def text_of(name: str, attributes: str, group: int = 1) -> str:
    """A model whose filters nobody knows, with 1 or 2 for each axis of each attribute."""
    images, filters, _ = FORMS[name]
    rank = images.count(",") - 1
    for attribute in ("pads", "strides", "dilations"):
        numbers = [1 + axis % 2 for axis in range(2 * rank if attribute == "pads" else rank)]
        attributes = attributes.replace(f"{attribute}=[{{}}]", f"{attribute}={numbers}")
    attributes = ", ".join(filter(None, (attributes, f"group={group}")))
    return f"g (float[{images}] x, float[{filters}] w) => (y) {{ v = Neg(w) y = Conv<{attributes}>(x, v) }}"


def numbers(shape: Sizes, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("attributes", ATTRIBUTES)
@pytest.mark.parametrize("name", FORMS)
def test_filters_may_have_any_size(name: str, attributes: str) -> None:
    text = text_of(name, attributes)
    reference = make_plan(model_of(text).graph, [CPUExecutionProvider()])
    for threads in (1, 2):
        plan = native_plan(text, threads=threads)
        assert len(plan.steps) == len(programs(plan)) == 1
        for image, filters in FORMS[name][2]:
            feeds = {"x": numbers(image, 0), "w": numbers(filters, 1)}
            if assert_agrees_or_refuses(plan, reference, feeds):  # a dilated kernel may be larger than the image
                without_fallback(plan)
                execute(plan, feeds)
            plan = native_plan(text, threads=threads)


@pytest.mark.parametrize("group", [2, 3])
def test_groups_of_open_channels(group: int) -> None:
    text = text_of("all", "pads=[{}]", group).replace("float[5,", "float[6,")
    text = text.replace("float[6,C", "float[6,D")
    plan, reference = native_plan(text), make_plan(model_of(text).graph, [CPUExecutionProvider()])
    without_fallback(plan)
    for depth in (1, 4):
        feeds = {"x": numbers((2, depth * group, 9, 7), 0), "w": numbers((6, depth, 8, 6), 1)}
        compare(execute(plan, feeds), execute(reference, feeds))


@pytest.mark.parametrize(
    ("image", "filters"),
    [((2, 3, 7, 8), (5, 4, 2, 2)), ((2, 3, 7, 8), (5, 3, 8, 2)), ((2, 3, 7, 8), (5, 3, 0, 2)), ((2, 3, 0, 8), (5, 3, 1, 1))],
)
def test_filters_that_do_not_fit_are_numpys(image: Sizes, filters: Sizes) -> None:
    """Other channels, a kernel larger than the image, one of no taps, an image of no rows."""
    text = text_of("all", "").replace("5,C,K,L", "5,D,K,L")
    plan, reference = native_plan(text), make_plan(model_of(text).graph, [CPUExecutionProvider()])
    feeds = {"x": numbers(image, 0), "w": numbers(filters, 1)}
    assert_agrees_or_refuses(plan, reference, feeds)


@pytest.mark.parametrize("sizes", ["B,16,16", "B,H,W"])
@pytest.mark.parametrize(
    ("kernel", "stride", "group"), [(3, 1, 1), (3, 2, 1), (1, 1, 1), (1, 2, 1), (3, 1, 8), (3, 2, 2), (7, 2, 1)]
)
def test_gradients_of_convolutions_over_any_batch(sizes: str, kernel: int, stride: int, group: int) -> None:
    pads, rest = [kernel // 2] * 4, 8 // group
    form = f"kernel_shape=[{kernel},{kernel}], strides=[{stride},{stride}], pads={pads}, group={group}"
    text = (
        f"g (float[{sizes.replace('B', 'B,8')}] x, float[16,{rest},{kernel},{kernel}] w, float[B,16,P,Q] d) => (dx, dw, db) "
        f"{{ dx, dw, db = com.microsoft.ConvGrad<{form}>(d, x, w) }}"
    )
    header = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>'
    model = onnx.parser.parse_model(header + text).SerializeToString()
    session = open_session(model)
    reference = sardonyx.InferenceSession(model, providers=[("CPUExecutionProvider", {"native": "0"})])
    assert not {step.node.op_type for step in steps_of(session)[1]} & {"Conv", "ConvTranspose", "ReduceSum"}
    for count in (1, 5, 8):
        output = (16 + 2 * (kernel // 2) - kernel) // stride + 1
        feeds = {"x": numbers((count, 8, 16, 16), 0), "w": numbers((16, rest, kernel, kernel), 1)}
        feeds["d"] = numbers((count, 16, output, output), 2)
        for mine, wanted in zip(session.run(None, feeds), reference.run(None, feeds), strict=True):
            np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=1e-5 * float(np.abs(wanted).max()))
