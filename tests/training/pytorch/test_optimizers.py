"""FusedAdam and clipping beside torch's own, FusedLamb beside its formula."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is the extra 'train'; `make test-training` runs these tests")

from sardonyx.training import optim  # noqa: E402
from sardonyx.training.optim import AdamWMode, FP16_Optimizer, FusedAdam, FusedLamb, clip_grad_norm_  # noqa: E402

SIZES = ((1,), (3, 7), (16384,), (129, 130), (40000,))


def parameters(dtype: Any = torch.float32) -> list[Any]:
    torch.manual_seed(0)
    return [torch.nn.Parameter(torch.randn(size, dtype=dtype)) for size in SIZES]


def give_gradients(*groups: list[Any]) -> None:
    for tensors in zip(*groups):
        gradient = torch.randn_like(tensors[0])
        for tensor in tensors:
            tensor.grad = gradient.clone()


def assert_follow(ours: list[Any], theirs: list[Any], bound: float = 1e-6) -> None:
    for mine, other in zip(ours, theirs):
        torch.testing.assert_close(mine, other, rtol=bound, atol=bound)


@pytest.mark.parametrize(
    ("mode", "other"), [(AdamWMode.ADAM_L2_REGULARIZATION, torch.optim.Adam), (AdamWMode.ADAMW_TORCH, torch.optim.AdamW)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_steps_are_those_of_torch(mode: Any, other: Any, dtype: Any) -> None:
    ours, theirs = parameters(dtype), parameters(dtype)
    fused = FusedAdam(ours, lr=0.01, eps=1e-8, adam_w_mode=mode, weight_decay=0.1)
    plain = other(theirs, lr=0.01, weight_decay=0.1)
    for _ in range(5):
        give_gradients(ours, theirs)
        fused.step()
        plain.step()
        assert_follow(ours, theirs, 1e-5 if dtype is torch.float32 else 1e-12)


@pytest.mark.parametrize("corrected", [True, False])
def test_the_mode_of_transformers_decays_last(corrected: bool) -> None:
    ours, theirs = parameters(), [parameter.detach().double() for parameter in parameters()]
    fused = FusedAdam(ours, lr=0.01, weight_decay=0.1, bias_correction=corrected)
    means, squares = [0.0] * len(ours), [0.0] * len(ours)
    for step in range(1, 4):
        give_gradients(ours)
        fused.step()
        first, second = (1 - 0.9**step, 1 - 0.999**step) if corrected else (1.0, 1.0)
        for number, mine in enumerate(ours):
            gradient = mine.grad.double()
            means[number] = 0.9 * means[number] + 0.1 * gradient
            squares[number] = 0.999 * squares[number] + 0.001 * gradient**2
            moved = theirs[number] - 0.01 * second**0.5 / first * means[number] / (squares[number] ** 0.5 + 1e-6)
            theirs[number] = moved - 0.01 * 0.1 * moved
        assert_follow([one.detach().double() for one in ours], theirs, 2e-6)


def test_tensors_of_other_kinds_and_without_gradients() -> None:
    torch.manual_seed(0)
    ours = [torch.nn.Parameter(torch.randn(6, 4).t()), torch.nn.Parameter(torch.randn(3)), torch.nn.Parameter(torch.randn(2))]
    theirs = copy.deepcopy(ours)
    fused = FusedAdam(ours, lr=0.01, eps=1e-8, adam_w_mode=AdamWMode.ADAMW_TORCH)
    plain = torch.optim.AdamW(theirs, lr=0.01, weight_decay=0)
    for _ in range(2):
        give_gradients(ours[:2], theirs[:2])
        fused.step()
        plain.step()
    assert_follow(ours, theirs)


def test_states_are_saved_and_schedulers_work() -> None:
    ours = parameters()
    fused = FusedAdam(ours, lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(fused, 1, 0.5)
    give_gradients(ours)
    fused.step()
    schedule.step()
    again = copy.deepcopy(ours)
    other = FusedAdam(again, lr=1.0)
    other.load_state_dict(copy.deepcopy(fused.state_dict()))
    give_gradients(ours, again)
    fused.step()
    other.step()
    assert fused.param_groups[0]["lr"] == 0.005 and all(torch.equal(a, b) for a, b in zip(ours, again))
    fused.zero_grad()
    assert all(parameter.grad is None for parameter in ours)


def test_several_groups_and_closures() -> None:
    ours = parameters()
    fused = FusedAdam([{"params": ours[:2]}, {"params": ours[2:], "lr": 0.0}], lr=0.1)
    before = [one.detach().clone() for one in ours]
    give_gradients(ours)
    assert fused.step(lambda: 3) == 3
    assert all(not torch.equal(a, b) for a, b in zip(ours[:2], before)) and torch.equal(ours[3], before[3])


def test_stale_tensors_are_noticed() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    loss = (weight * weight).sum()
    weight.grad = torch.ones(3)
    FusedAdam([weight]).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_change_no_bit(threads: int) -> None:
    before = torch.get_num_threads()
    results = []
    try:
        for count in (1, threads):
            torch.set_num_threads(count)
            ours = parameters()
            give_gradients(ours)
            norm = clip_grad_norm_(ours, 1.0)
            FusedAdam(ours).step()
            results.append([norm, *ours])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(*results))


@pytest.mark.parametrize("most", [0.5, 1e6])
def test_clipping_is_that_of_torch(most: float) -> None:
    ours, theirs = parameters(), parameters()
    give_gradients(ours, theirs)
    torch.testing.assert_close(clip_grad_norm_(ours, most), torch.nn.utils.clip_grad_norm_(theirs, most))
    assert_follow([one.grad for one in ours], [one.grad for one in theirs])


def test_bad_numbers_are_refused() -> None:
    for numbers in ({"lr": float("nan")}, {"betas": (1.0, 0.9)}, {"eps": float("inf")}):
        with pytest.raises(ValueError, match="must be"):
            FusedAdam(parameters(), **numbers)
    with pytest.warns(UserWarning, match="stays as it is"):
        fused = FusedAdam(parameters())
        assert FP16_Optimizer(fused) is fused


@pytest.mark.parametrize("kind", ["constant", "linear", "cosine", "polynomial_decay"])
def test_warm_ups_are_those_of_transformers(kind: str) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is no dependency; `make test-training` has it")
    steps, warmup = 20, 0.25
    plain = torch.optim.SGD(parameters(), lr=0.5)
    counts = {"num_warmup_steps": int(steps * warmup)} | ({} if kind == "constant" else {"num_training_steps": steps})
    theirs = getattr(transformers, f"get_{kind}_schedule_with_warmup")(plain, **counts)
    name = {"polynomial_decay": "Poly"}.get(kind, kind.capitalize())
    ours = getattr(optim, f"{name}WarmupLRScheduler")(steps, warmup=warmup)
    for number in range(steps + 1):
        step = SimpleNamespace(optimization_step=number, optimizer_config=optim.AdamConfig(lr=0.5))
        assert ours.get_lr(step) == pytest.approx(theirs.get_last_lr())
        plain.step()
        theirs.step()


def lamb_by_its_formula(weight: Any, gradient: Any, state: dict[str, Any], step: int, corrected: bool, ratios: Any) -> Any:
    state["m"] = 0.9 * state.get("m", 0.0) + 0.1 * gradient
    state["v"] = 0.999 * state.get("v", 0.0) + 0.001 * gradient**2
    first, second = (1 - 0.9**step, 1 - 0.999**step) if corrected else (1.0, 1.0)
    direction = state["m"] / first / ((state["v"] / second).sqrt() + 1e-6) + 0.1 * weight
    norms = weight.norm(), direction.norm()
    ratio = 1.0 if 0 in norms else (norms[0] / norms[1]).clamp(*ratios)
    return weight - 0.01 * ratio * direction


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("corrected", "ratios"), [(True, (-float("inf"), float("inf"))), (False, (0.5, 2.0))])
def test_lamb_follows_its_formula(dtype: Any, corrected: bool, ratios: Any) -> None:
    ours = [
        *parameters(dtype),
        torch.nn.Parameter(torch.zeros(5, dtype=dtype)),
        torch.nn.Parameter(torch.zeros(0, dtype=dtype)),
    ]
    theirs, states = [parameter.detach().double() for parameter in ours], [{} for _ in ours]
    form = {"ratio_min": ratios[0], "ratio_max": ratios[1], "bias_correction": corrected}
    fused = FusedLamb(ours, lr=0.01, weight_decay=0.1, **form)
    for step in range(1, 4):
        give_gradients(ours)
        theirs = [
            lamb_by_its_formula(weight, mine.grad.double(), state, step, corrected, ratios)
            for weight, mine, state in zip(theirs, ours, states)
        ]
        fused.step()
        assert_follow([mine.double() for mine in ours], theirs, 1e-5 if dtype is torch.float32 else 1e-12)


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_change_no_bit_of_lamb(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        ours = parameters()
        torch.manual_seed(1)
        give_gradients(ours)
        FusedLamb(ours, lr=0.01).step()
    finally:
        torch.set_num_threads(before)
    alone = parameters()
    torch.manual_seed(1)
    give_gradients(alone)
    torch.set_num_threads(1)
    FusedLamb(alone, lr=0.01).step()
    torch.set_num_threads(before)
    assert all(torch.equal(mine, other) for mine, other in zip(ours, alone))


def test_bad_numbers_of_lamb_are_refused() -> None:
    for form, message in (
        ({"eps": 0.0}, "eps must be above 0"),
        ({"ratio_min": 2.0, "ratio_max": 1.0}, "ratio_min"),
        ({"lr": float("nan")}, "finite"),
    ):
        with pytest.raises(ValueError, match=message):
            FusedLamb(parameters(), **form)
