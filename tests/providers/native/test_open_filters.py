"""Convolutions by filters that a run computes and whose sizes it tells, such as gradients that slide over a batch of any size."""

from __future__ import annotations

import itertools

import numpy as np
import onnx.parser
import pytest

import sardonyx
from sardonyx.providers.cpu.provider import CPUExecutionProvider
from sardonyx.runtime.execution.executor import execute
from sardonyx.runtime.preparation.plan import make_plan
from tests.providers.native.agreement import (
    assert_agrees_or_refuses,
    compare,
    model_of,
    native_pair,
    native_plan,
    programs,
    without_fallback,
)
from tests.providers.native.networks import open_session, steps_of

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
    "numbers": ("N,4,8,9", "M,4,3,2", [((2, 4, 8, 9), (size, 4, 3, 2)) for size in (1, 7, 70, 0)]),
    "everything": (
        "N,C,H,W",
        "M,D,K,L",
        [
            ((2, 3, 7, 8), (5, 3, 5, 6)),
            ((1, 300, 6, 5), (40, 300, 6, 4)),
            ((1, 1, 30, 31), (1, 1, 1, 1)),
            ((2, 6, 9, 9), (96, 6, 3, 3)),
        ],
    ),
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


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    "attributes",
    [
        "kernel_shape=[3,2], strides=[2,1], pads=[1,0,1,2]",
        "kernel_shape=[1,1]",
        'auto_pad="SAME_UPPER", strides=[2,3]',
        'auto_pad="SAME_LOWER", dilations=[2,1]',
        'auto_pad="VALID", dilations=[1,2]',
    ],
)
def test_forms_of_windows(attributes: str, dtype: type[np.floating]) -> None:
    kind = {"float16": "float16", "float32": "float", "float64": "double"}[np.dtype(dtype).name]
    text = f"g ({kind}[N,C,H,W] x, {kind}[M,D,K,L] w, {kind}[P] b) => (y) {{ c = Conv<{attributes}>(x, w, b) y = Relu(c) }}"
    plan, reference = native_plan(text), make_plan(model_of(text).graph, [CPUExecutionProvider()])
    assert len(plan.steps) == len(programs(plan)) == 1
    without_fallback(plan)
    kernels = {"kernel_shape=[3": (3, 2), "kernel_shape=[1": (1, 1)}.get(attributes[:15])
    for count, depth, kernel in ((1, 1, (3, 3)), (9, 20, (2, 5)), (35, 4, (1, 1))):
        filters = (count, depth, *(kernels or kernel))
        feeds = {"x": numbers((2, depth, 11, 13), 0), "w": numbers(filters, 1) / depth, "b": numbers((count,), 2)}
        feeds = {name: array.astype(dtype) for name, array in feeds.items()}
        compare(execute(plan, feeds), execute(reference, feeds))
    feeds["b"] = feeds["b"][:-1]
    assert not assert_agrees_or_refuses(native_plan(text), reference, feeds)


@pytest.mark.parametrize(
    ("group", "filters"),
    [
        (2, (6, 4, 3, 3)),
        (3, (3, 1, 2, 5)),
        (5, (160, 2, 1, 1)),
        (8, (8, 1, 3, 3)),
        (8, (16, 3, 2, 3)),
        (33, (33, 1, 3, 3)),
        (40, (120, 1, 2, 2)),
    ],
)
def test_groups_of_open_filters(group: int, filters: Sizes) -> None:
    text = text_of("everything", "pads=[{}], strides=[{}]", group)
    plan, reference = native_plan(text, threads=2), make_plan(model_of(text).graph, [CPUExecutionProvider()])
    feeds = {"x": numbers((2, filters[1] * group, 9, 7), 0), "w": numbers(filters, 1)}
    wrong = {**feeds, "w": numbers((filters[0] + 1, *filters[1:]), 1)}
    assert not assert_agrees_or_refuses(native_plan(text), reference, wrong)
    without_fallback(plan)
    compare(execute(plan, feeds), execute(reference, feeds))


@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_many_groups_of_other_ranks_and_types(dtype: type[np.floating], rank: int) -> None:
    kind, axes, kernel = {np.float64: "double", np.float16: "float16"}[dtype], "HWL"[:rank], "IJK"[:rank]  # type: ignore[index]
    x, w = (f"{kind}[{','.join(letters)}]" for letters in (f"NC{axes}", f"MD{kernel}"))
    attributes = f"group=16, pads={[1] * (2 * rank)}, dilations={[2] * rank}"
    plan, reference = native_pair(f"g ({x} x, {w} w, {kind}[P] b) => (y) {{ c = Conv<{attributes}>(x, w, b) y = Relu(c) }}")
    for depth, count in ((1, 1), (2, 3)):
        feeds = {"x": numbers((2, 16 * depth, *(7, 6, 5)[:rank]), 0), "w": numbers((16 * count, depth, *(2, 3, 1)[:rank]), 1)}
        feeds |= {"b": numbers((16 * count,), 2)}
        feeds = {name: array.astype(dtype) for name, array in feeds.items()}
        compare(execute(plan, feeds), execute(reference, feeds))


@pytest.mark.parametrize(
    ("attributes", "group"),
    [
        ("strides=[2,3]", 1),
        ("strides=[2,2], pads=[1,0,1,2], dilations=[1,3]", 1),
        ('auto_pad="SAME_UPPER", strides=[2,2]', 1),
        ("strides=[3,2], output_padding=[1,0]", 1),
        ("strides=[2,2], output_shape=[20,21]", 1),
        ("kernel_shape=[3,2], strides=[3,2]", 1),
        ("group=2, strides=[2,4], dilations=[2,2]", 2),
    ],
)
def test_transposed_convolutions(attributes: str, group: int) -> None:
    operands = "float[N,C,H,W] x, float[D,M,K,L] w, float[P] b"
    text = f"g ({operands}) => (y) {{ c = ConvTranspose<{attributes}>(x, w, b) y = Relu(c) }}"
    plan, reference = native_pair(text, threads=2)
    for depth, count, kernel in ((2, 1, (3, 2)), (4, 9, (1, 5)), (20, 40, (4, 1)), (6, 3, (1, 1))):
        filters = (depth, count, *((3, 2) if "kernel_shape" in attributes else kernel))
        feeds = {"x": numbers((2, depth, 7, 9), 0), "w": numbers(filters, 1), "b": numbers((count * group,), 2)}
        compare(execute(plan, feeds), execute(reference, feeds))


@pytest.mark.parametrize(
    "wrong", ({"w": (5, 3, 2, 2)}, {"w": (4, 3, 0, 2)}, {"b": (4,)}, {"x": (2, 6, 7, 9)}, {"w": (4, 0, 2, 2)})
)
def test_transposed_convolutions_that_do_not_fit_are_numpys(wrong: dict[str, Sizes]) -> None:
    text = "g (float[N,C,H,W] x, float[D,M,K,L] w, float[P] b) => (y) { y = ConvTranspose<strides=[2,2]>(x, w, b) }"
    plan, reference = native_plan(text), make_plan(model_of(text).graph, [CPUExecutionProvider()])
    shapes = {"x": (2, 4, 7, 9), "w": (4, 3, 2, 2), "b": (3,), **wrong}
    assert_agrees_or_refuses(plan, reference, {name: numbers(shape, 0) for name, shape in shapes.items()})


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("group", [1, 2])
def test_deformed_windows(group: int, parts: int) -> None:
    attributes = f"group={group}, offset_group={parts}, strides=[2,1], pads=[1,0,1,2], dilations=[1,2]"
    operands = "float[N,C,H,W] x, float[M,D,K,L] w, float[N,O,A,B] o, float[P] b, float[N,Q,A,B] m"
    plan, reference = native_pair(f"g ({operands}) => (y) {{ y = DeformConv<{attributes}>(x, w, o, b, m) }}")
    for depth, count, (height, width) in ((2, 2, (3, 2)), (4, 10, (3, 2)), (20, 40, (1, 1)), (6, 4, (2, 3))):
        moved = (2, parts * height * width, (9 - height) // 2 + 1, 12 - 2 * width + 1)
        feeds = {"x": numbers((2, depth * group, 7, 9), 0), "w": numbers((count, depth, height, width), 1)}
        feeds |= {"o": numbers((2, 2 * moved[1], *moved[2:]), 2), "b": numbers((count,), 3), "m": numbers(moved, 4)}
        compare(execute(plan, feeds), execute(reference, feeds))
        refused = native_plan(f"g ({operands}) => (y) {{ y = DeformConv<{attributes}>(x, w, o, b, m) }}")
        assert not assert_agrees_or_refuses(refused, reference, {**feeds, "o": feeds["o"][:, 1:]})


@pytest.mark.parametrize("domain", ["", "com.microsoft."])
@pytest.mark.parametrize("filters", ["D,E,K", "6,1,3", "D,1,4"])
def test_causal_convolutions(filters: str, domain: str) -> None:
    operands = f"float[N,C,L] x, float[{filters}] w, float[B] b, float[N,C,P] p"
    call = f'{domain}CausalConvWithState<activation="silu">(x, w, b, p)'
    plan, reference = native_pair(
        f'<ir_version: 10, opset_import: ["": 27, "com.microsoft": 1]> g ({operands}) => (y, s) {{ y, s = {call} }}'
    )
    taps = [int(filters[-1])] if filters[-1].isdigit() else [1, 2, 9]
    for channels, length, count in itertools.product([6] if filters[0] == "6" else [1, 6, 33], (1, 5, 20), taps):
        feeds = {"x": numbers((2, channels, length), 0), "w": numbers((channels, 1, count), 1)}
        feeds |= {"b": numbers((channels,), 2), "p": numbers((2, channels, count - 1), 3)}
        compare(execute(plan, feeds), execute(reference, feeds))


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
