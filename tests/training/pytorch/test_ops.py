"""Each ATen op that has a lowering, forward and backward, beside eager torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is the extra 'train'; `make test-training` runs these tests")

from torch.nn import functional  # noqa: E402

from tests.training.pytorch.comparing import assert_same, numbers, positive, whole  # noqa: E402


def _changed(a: Any) -> Any:
    b = a.clone()
    b[1] = 2.0
    b[:, 1:3] += a[:, :2]
    return b * a


def _put(a: Any, i: Any, b: Any) -> Any:
    c, d = a.clone(), a.clone()
    c[:, i] = b
    d[:, i, i] = 2 * a[:, 0, :2]
    return c * a, d * a


def _masked(a: Any) -> Any:
    b = a.clone()
    b[a > 0] = 0.5
    return b * a


def _mask() -> Any:
    """Which key each query may see; one sees none."""
    mask = whole(2, 1, 5, 5) > 1
    mask[1, 0, 2] = False
    return mask


x, y, row = numbers(3, 4), numbers(3, 4, seed=1), numbers(4, seed=2)
image, labels = numbers(2, 4, 9, 8), whole(3, high=4)


SMOOTH = ["neg", "exp", "sin", "cos", "tan", "atan", "sinh", "cosh", "asinh", "tanh", "erf", "sigmoid", "relu", "abs", "square"]
UNARY = [*SMOOTH, "log1p", "expm1", "exp2", "erfc", "floor", "ceil", "round", "trunc", "sign", "isnan", "isinf", "logical_not"]
POSITIVE = ["log", "sqrt", "rsqrt", "reciprocal", "log2", "log10"]

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    **{f"{name}": (getattr(torch, name), (x,)) for name in UNARY},
    **{f"{name}": (getattr(torch, name), (positive(3, 4),)) for name in POSITIVE},
    "asin acos atanh": (
        lambda a: (torch.asin(a), torch.acos(a), torch.atanh(a)),
        (torch.tensor([-0.5, 0.1, 0.9], requires_grad=True),),
    ),
    "add alpha": (lambda a, b: torch.add(a, b, alpha=3), (x, row)),
    "sub alpha": (lambda a, b: torch.sub(a, b, alpha=2) - 1, (x, row)),
    "rsub": (lambda a: 2 - a, (x,)),
    "mul": (lambda a, b: a * b * 3, (x, row)),
    "div": (lambda a, b: a / b / 3, (x, positive(4))),
    "mixed types": (lambda a, i: a * i + i / 2 + i.double() * a, (x, whole(3, 4))),
    "integers": (lambda a, b: (a + b, a // b, a % b, a * b - 3, a & b, a | b, a ^ b, ~a), (whole(5) - 2, whole(5) + 1)),
    "floor divide": (
        lambda a: (a // 0.7, torch.div(a, 0.7, rounding_mode="trunc"), a % 0.7, torch.fmod(a, 0.7)),
        (x.detach(),),
    ),
    "pow": (lambda a: a**2 + a**3 + a**1.5 + a**-1 + 2**a + a**0.5, (positive(3, 4),)),
    "pow tensor": (lambda a, b: a**b, (positive(3, 4), row)),
    "extremes": (lambda a, b: (torch.maximum(a, b), torch.minimum(a, b)), (x, y)),
    "clamp": (lambda a: (a.clamp(-0.5, 0.5), a.clamp(min=0), a.clamp(max=0.2), a.clamp_min(0.1)), (x,)),
    "clamp tensor": (lambda a, b: torch.clamp(a, min=b), (x, y)),
    "addcmul": (lambda a, b: torch.addcmul(a, a, b, value=2) + torch.addcdiv(a, b, b * b + 1, value=3), (x, y)),
    "lerp": (lambda a, b: torch.lerp(a, b, 0.3) + torch.lerp(a, b, a), (x, y)),
    "comparisons": (lambda a, b: (a == b, a != b, a < b, a <= b, a > 0.1, a >= 0, a > 1), (x, y)),
    "logic": (
        lambda a, b: (torch.logical_and(a, b), torch.logical_or(a, b), torch.logical_xor(a, b), ~(a > b)),
        (x.detach(), y.detach()),
    ),
    "where": (lambda a, b: torch.where(a > b, a, b) + torch.where(a > 0, a, 0.5), (x, y)),
    "masked fill": (lambda a, b: a.masked_fill(b > 0, -2.0).masked_fill(b < -1, 3.0), (x, y)),
    "gelu": (lambda a: functional.gelu(a) + functional.gelu(a, approximate="tanh"), (x,)),
    "silu": (functional.silu, (x,)),
    "activations": (
        lambda a: (
            functional.leaky_relu(a, 0.2) + functional.elu(a, 1.3) + functional.hardtanh(a) + functional.softplus(a, 2.0, 3.0)
        ),
        (x,),
    ),
    "more activations": (
        lambda a: (
            functional.logsigmoid(a)
            + functional.mish(a)
            + functional.hardswish(a)
            + functional.hardsigmoid(a)
            + functional.selu(a)
        ),
        (x,),
    ),
    "glu": (functional.glu, (x,)),
    # --- reductions
    "sum": (lambda a: (a.sum(), a.sum(0), a.sum((0, 1), keepdim=True), a.sum(-1, dtype=torch.float64)), (x,)),
    "sum of integers": (lambda a: (a.sum(), (a > 2).sum(1)), (whole(3, 4),)),
    "mean": (lambda a: (a.mean(), a.mean(1), a.mean((0,), keepdim=True)), (x,)),
    "prod": (lambda a: (a.prod(), a.prod(1)), (x,)),
    "amax": (lambda a: (a.amax(1), a.amin((0, 1)), a.max(), a.min()), (x,)),
    "max dim": (lambda a: (*a.max(1), *a.min(0, keepdim=True), a.argmax(), a.argmin(1)), (x,)),
    "any all": (lambda a: ((a > 0).any(), (a > 0).all(1), a.any(0)), (x.detach(),)),
    "logsumexp": (lambda a: torch.logsumexp(a, 1), (x,)),
    "var std": (lambda a: (a.var(), a.std(1), a.var(1, correction=0), *torch.var_mean(a, 0)), (x,)),
    "norms": (lambda a: (a.norm(), a.norm(dim=1), a.norm(1), torch.linalg.vector_norm(a, float("inf"))), (x,)),
    "cumsum": (lambda a: (a.cumsum(1), a.flip(0).cumsum(0)), (x,)),
    "softmax": (lambda a: (a.softmax(1), a.softmax(0), a.log_softmax(-1)), (x,)),
    "topk sort": (lambda a: (*a.topk(2, 1), *a.sort(0, descending=True)), (x,)),
    # --- shapes
    "views": (lambda a: a.view(4, 3).t().reshape(-1).unsqueeze(0).squeeze().view(2, 6).transpose(0, 1) * 2, (x,)),
    "permute": (lambda a: a.permute(3, 0, 2, 1).contiguous() + 1, (image,)),
    "outputs that are views": (lambda a: (a.t(), (a * 2).t(), a[1], (a * 2)[1:]), (x,)),
    "expand": (lambda a: a.expand(3, 4) * 2 + a.repeat(3, 1), (row,)),
    "cat stack": (lambda a, b: (torch.cat([a, b, a], 1), torch.stack([a, b], 1), torch.cat([a, a.double()])), (x, y)),
    "split": (lambda a: (*a.split(2, 1), *a.split([1, 3], 1), *a.chunk(3), *a.unbind(1)), (x,)),
    "slices": (lambda a: (a[1:, ::2], a[-2:], a[:, 1], a[:, -1], a[..., 1:3]), (x,)),
    "slices and their gradients": (lambda a: a[1:, ::2].sum() * 2 + (a[-2:, 1] ** 2).sum(), (x,)),
    "pad": (lambda a: functional.pad(a, (1, 2, 0, 1), value=0.5), (x,)),
    "flip roll": (lambda a: (a.flip(0, 1), a.roll(1, 1)), (x,)),
    "triangles": (lambda a: (a.tril(), a.triu(1)), (x,)),
    "new tensors": (lambda a: a + torch.ones(4) + torch.zeros_like(a) + torch.full((3, 1), 2.0) + torch.arange(4), (x,)),
    "arange": (lambda a: a * torch.arange(1, 9, 2) + torch.arange(4, dtype=torch.float32) / 2 + torch.arange(0, 1, 0.25), (x,)),
    "casts": (lambda a: (a.double(), a.half().float(), a.int(), a.bool(), a.long()), (x,)),
    "changes in place": (lambda a: a.clone().add_(1).mul_(2).relu_(), (x,)),
    "parts changed in place": (_changed, (x,)),
    # --- products
    "mm": (lambda a, b: a @ b.t(), (x, y)),
    "bmm": (lambda a: a @ a.transpose(1, 2), (numbers(2, 3, 4),)),
    "batched products": (lambda a, b: a @ b, (numbers(2, 1, 3, 4), numbers(5, 4, 2))),
    "addmm": (lambda a, b, c: torch.addmm(a, b, c, beta=0.5, alpha=2), (numbers(5), x, numbers(4, 5))),
    "addmm matrix": (lambda a, b, c: torch.addmm(a, b, c, beta=0), (numbers(3, 5), x, numbers(4, 5))),
    "baddbmm": (lambda a, b, c: torch.baddbmm(a, b, c, beta=2), (numbers(2, 3, 3), numbers(2, 3, 4), numbers(2, 4, 3))),
    "vectors": (lambda a, b: (a @ b, torch.dot(b, b), torch.outer(b, b)), (x, row)),
    "einsum": (lambda a, b: torch.einsum("ij,kj->ki", a, b), (x, y)),
    "linear": (lambda a, w, b: functional.linear(a, w, b), (numbers(2, 3, 4), numbers(5, 4), numbers(5))),
    # --- indexing
    "embedding": (lambda w, i: functional.embedding(i, w), (numbers(6, 3), whole(2, 4))),
    "embedding with padding": (lambda w, i: functional.embedding(i, w, padding_idx=2), (numbers(6, 3), whole(2, 4))),
    "gather": (lambda a, i: a.gather(1, i), (x, whole(3, 2, high=4))),
    "index select": (lambda a, i: a.index_select(1, i), (x, whole(3, high=4))),
    "scatter": (lambda a, i, b: (a.scatter(1, i, b), a.scatter(0, i, 2.0)), (x, torch.tensor([[0, 1], [2, 0]]), numbers(2, 2))),
    "scatter add": (lambda a, i, b: a.scatter_add(1, i, b), (x, whole(3, 4, high=4), y)),
    "index": (lambda a, i: (a[i], a[:, i], a[i, i]), (x, whole(4, high=3))),
    "index put of other axes": (
        _put,
        (numbers(2, 4, 5), whole(2, high=4), numbers(2, 5)),
    ),
    "index put": (lambda a, i, b: a.index_put((i,), b, accumulate=True), (x, whole(2, high=3), row)),
    "mask put": (_masked, (x,)),
    # --- losses
    "cross entropy": (functional.cross_entropy, (x, labels)),
    "cross entropy sum": (lambda a, t: functional.cross_entropy(a, t, reduction="sum"), (x, labels)),
    "cross entropy none": (lambda a, t: functional.cross_entropy(a, t, reduction="none"), (x, labels)),
    "cross entropy weights": (
        lambda a, t, w: functional.cross_entropy(a, t, w, ignore_index=1),
        (x, torch.tensor([1, 0, 3]), positive(4, grad=False)),
    ),
    "cross entropy of images": (functional.cross_entropy, (image, whole(2, 9, 8, high=4))),
    "cross entropy smooth": (lambda a, t: functional.cross_entropy(a, t, label_smoothing=0.1), (x, labels)),
    "all ignored": (lambda a, t: functional.cross_entropy(a, t, ignore_index=0), (x, torch.zeros(3, dtype=torch.int64))),
    "mse": (lambda a, b: functional.mse_loss(a, b) + functional.mse_loss(a, b, reduction="sum"), (x, y)),
    "l1 huber": (lambda a, b: functional.l1_loss(a, b) + functional.smooth_l1_loss(a, b) + functional.huber_loss(a, b), (x, y)),
    "bce": (
        lambda a, b: (
            functional.binary_cross_entropy_with_logits(a, b.sigmoid())
            + functional.binary_cross_entropy(a.sigmoid(), b.sigmoid())
        ),
        (x, y.detach().sigmoid()),
    ),
    "kl": (lambda a, b: functional.kl_div(a.log_softmax(1), b.softmax(1), reduction="batchmean"), (x, y)),
    # --- convolutions and pools
    **{
        f"conv {name}": (
            lambda a, w, b, options=options: functional.conv2d(a, w, b, **options),
            (image, numbers(8, 4 // options.get("groups", 1), 3, 3), numbers(8)),
        )
        for name, options in {
            "plain": {},
            "padded": {"padding": 1},
            "stride 2": {"stride": 2, "padding": 1},
            "stride 3": {"stride": (3, 2), "padding": (0, 1)},
            "dilated": {"dilation": 2, "padding": 2},
            "groups": {"groups": 2, "padding": 1},
            "depthwise": {"groups": 4, "padding": 1},
            "depthwise stride 2": {"groups": 4, "padding": 1, "stride": 2},
        }.items()
    },
    "conv1d": (lambda a, w: functional.conv1d(a, w, stride=2, padding=1), (numbers(2, 3, 11), numbers(5, 3, 3))),
    "conv3d": (lambda a, w: functional.conv3d(a, w, padding=1), (numbers(1, 2, 4, 5, 3), numbers(3, 2, 3, 3, 3))),
    "conv transpose": (
        lambda a, w, b: functional.conv_transpose2d(a, w, b, stride=2, padding=1, output_padding=1),
        (image, numbers(4, 3, 3, 3), numbers(3)),
    ),
    "max pool": (lambda a: functional.max_pool2d(a, 3, 2, 1), (image,)),
    "max pool ceil": (lambda a: functional.max_pool2d(a, 2, ceil_mode=True), (image,)),
    "max pool without a batch": (lambda a: functional.max_pool2d(a, 2), (numbers(3, 8, 8),)),
    "avg pool": (
        lambda a: functional.avg_pool2d(a, 3, 2, 1) + functional.avg_pool2d(a, 3, 2, 1, count_include_pad=False),
        (image,),
    ),
    "adaptive pool": (lambda a: functional.adaptive_avg_pool2d(a, 1), (image,)),
    "adaptive pool of several windows": (lambda a: functional.adaptive_avg_pool2d(a, (3, 2)), (numbers(2, 3, 9, 8),)),
    "adaptive pool without a batch": (lambda a: functional.adaptive_avg_pool2d(a, 2), (numbers(3, 4, 6),)),
    # --- norms
    "layer norm": (lambda a, w, b: functional.layer_norm(a, (4,), w, b), (numbers(2, 3, 4), numbers(4), numbers(4, seed=1))),
    "layer norm of two axes": (lambda a: functional.layer_norm(a, (3, 4)), (numbers(2, 3, 4),)),
    "batch norm": (
        lambda a, w, b: functional.batch_norm(a, None, None, w, b, training=True),
        (image, numbers(4), numbers(4, seed=1)),
    ),
    "batch norm of inference": (
        lambda a, m, v, w, b: functional.batch_norm(a, m, v, w, b),
        (image, numbers(4, grad=False), positive(4, grad=False), numbers(4), numbers(4, seed=1)),
    ),
    "group norm": (lambda a, w, b: functional.group_norm(a, 2, w, b), (image, numbers(4), numbers(4, seed=1))),
    "instance norm": (lambda a: functional.instance_norm(a), (image,)),
    "rms norm": (lambda a, w: functional.rms_norm(a, (4,), w), (x, row)),
    # --- attention
    "attention": (functional.scaled_dot_product_attention, tuple(numbers(2, 3, 5, 4, seed=seed) for seed in range(3))),
    "causal attention": (
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        tuple(numbers(2, 3, 5, 4, seed=seed) for seed in range(3)),
    ),
    "attention with a mask": (
        lambda q, k, v, m: functional.scaled_dot_product_attention(q, k, v, m, scale=0.3),
        (*(numbers(2, 3, 5, 4, seed=seed) for seed in range(3)), _mask()),
    ),
    "float64": (
        lambda a, b: (a @ b.t()).softmax(1).log().sum(),
        (numbers(3, 4, dtype=torch.float64), numbers(3, 4, dtype=torch.float64)),
    ),
    "no elements": (lambda a: (a * 2, a.sum(0), a @ torch.ones(4, 3)), (torch.zeros(0, 4, requires_grad=True),)),
    "scalars": (lambda a: a.exp() * 2 + a.sum(), (torch.tensor(0.3, requires_grad=True),)),
    "not a number": (
        lambda a: (a.relu(), a.clamp(-1, 1), a.softmax(0), a.max()),
        (torch.tensor([1.0, float("nan"), float("inf")]),),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_op_gives_what_eager_torch_does(name: str) -> None:
    function, inputs = CASES[name]
    assert_same(function, *inputs)


def test_each_op_of_the_table_has_a_schema_of_torch() -> None:
    from sardonyx.training.torch import recurrent  # which defines ops of our own
    from sardonyx.training.torch.aten.table import supported_ops

    libraries = (torch.ops.aten, torch.ops.prims, getattr(torch.ops, recurrent.LIBRARY))
    for name in supported_ops():
        packet, _, overload = name.partition(".")
        spaces = [space for space in libraries if hasattr(space, packet)]
        assert any(overload in getattr(space, packet).overloads() for space in spaces), name
