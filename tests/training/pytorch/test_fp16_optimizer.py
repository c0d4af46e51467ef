"""FP16_Optimizer beside the same steps written in torch: masters in float32, and a loss that is scaled."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is the extra 'train'; `make test-training` runs these tests")

from sardonyx.training.amp import DynamicLossScaler  # noqa: E402
from sardonyx.training.optim import AdamWMode, FP16_Optimizer, FusedAdam  # noqa: E402

SIZES = ((1,), (3, 7), (16384,), (129, 130), (40000,), (0,))
HALVES = [torch.float16, torch.bfloat16]


def parameters(dtype: Any) -> list[Any]:
    torch.manual_seed(0)
    return [torch.nn.Parameter(torch.randn(size).to(dtype)) for size in SIZES]


def give_gradients(tensors: list[Any], scale: float = 1.0) -> list[Any]:
    """Gradients of a scaled loss, as backward leaves them."""
    for tensor in tensors:
        tensor.grad = (torch.randn(tensor.shape) * scale).to(tensor.dtype)
    return [tensor.grad.float() / scale for tensor in tensors]


def half_adam(tensors: list[Any], **keywords: Any) -> Any:
    return FP16_Optimizer(FusedAdam(tensors, lr=0.01, eps=1e-8, adam_w_mode=AdamWMode.ADAMW_TORCH), **keywords)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW, FusedAdam])
def test_masters_step_as_float32_does_and_parameters_follow(dtype: Any, kind: Any) -> None:
    ours = parameters(dtype)
    masters = [torch.nn.Parameter(one.detach().float()) for one in ours]
    optimizer, plain = FP16_Optimizer(kind(ours, lr=1e-4), static_loss_scale=128.0), kind(masters, lr=1e-4)
    for _ in range(5):
        for master, gradient in zip(masters, give_gradients(ours, 128.0)):
            master.grad = gradient
        optimizer.step()
        plain.step()
        for one, master in zip(ours, masters):
            assert one.dtype == dtype and torch.equal(one, master.detach().to(dtype))
    # the masters have what these small steps add up to, to the bit
    assert all(torch.equal(a, b) for a, b in zip(optimizer.param_groups[0]["params"], masters))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("wrong", [float("inf"), -float("inf"), float("nan")])
@pytest.mark.parametrize("place", [(0, 0), (2, 16383), (4, 39999)])
def test_an_overflow_skips_the_step_and_halves_the_scale(dtype: Any, wrong: float, place: tuple[int, int]) -> None:
    ours = parameters(dtype)
    before = [one.detach().clone() for one in ours]
    optimizer = half_adam(ours, dynamic_loss_scale=True, dynamic_loss_args={"init_scale": 1024.0, "scale_window": 2})
    give_gradients(ours, 1024.0)
    ours[place[0]].grad.view(-1)[place[1]] = wrong
    optimizer.update_master_grads()
    assert optimizer.overflow and optimizer.clip_master_grads(1.0) == -1 and optimizer.inspect_master_grad_data() is None
    optimizer.step()
    assert optimizer.loss_scale == 512 and all(torch.equal(a, b) for a, b in zip(ours, before))
    for expected in (512.0, 1024.0, 1024.0, 2048.0):
        give_gradients(ours, optimizer.loss_scale)
        optimizer.step()
        assert not optimizer.overflow and optimizer.loss_scale == expected
    assert not torch.equal(ours[2], before[2])


def test_a_result_that_is_too_large_for_float32_is_an_overflow() -> None:
    weight = torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    optimizer = half_adam([weight], static_loss_scale=0.25)
    weight.grad = torch.full((2,), 3e38, dtype=torch.bfloat16)
    optimizer.step()
    assert optimizer.overflow and torch.equal(weight, torch.ones(2, dtype=torch.bfloat16))


def test_a_network_of_bfloat16_learns_what_float32_does() -> None:
    losses = {}
    for dtype in (torch.float32, torch.bfloat16):
        torch.manual_seed(0)
        network = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 2)).to(dtype)
        x = torch.randn(64, 8).to(dtype)
        labels = (x[:, 0] > 0).long()
        plain = torch.optim.AdamW(network.parameters(), lr=3e-3)
        optimizer = plain if dtype is torch.float32 else FP16_Optimizer(plain, dynamic_loss_scale=True)
        for _ in range(40):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(network(x).float(), labels)
            loss.backward() if dtype is torch.float32 else optimizer.backward(loss)
            optimizer.step()
        losses[dtype] = loss.item()
    assert losses[torch.bfloat16] == pytest.approx(losses[torch.float32], rel=0.05)


def test_parameters_of_float32_and_strided_ones_beside_halves() -> None:
    torch.manual_seed(0)
    ours = [
        torch.nn.Parameter(torch.randn(6, 4).half().t()),
        torch.nn.Parameter(torch.randn(5)),
        torch.nn.Parameter(torch.randn(3, dtype=torch.float64)),
        torch.nn.Parameter(torch.randn(2).half()),
    ]
    wide = [torch.nn.Parameter(one.detach().double()) for one in ours]
    optimizer, plain = FP16_Optimizer(torch.optim.SGD(ours, lr=0.1), static_loss_scale=4.0), torch.optim.SGD(wide, lr=0.1)
    for tensor, master in zip(ours[:3], wide):
        gradient = torch.randn(tensor.shape).half()
        tensor.grad, master.grad = (gradient * 4).to(tensor.dtype), gradient.double()
    optimizer.step()
    plain.step()
    for mine, other in zip(ours, wide):
        torch.testing.assert_close(mine.double(), other.to(mine.dtype).double())


@pytest.mark.parametrize("norm_type", [1.0, 2, float("inf")])
def test_clipping_is_of_the_gradients_of_masters(norm_type: float) -> None:
    ours = [one for one in parameters(torch.float16) if one.numel()]
    optimizer = half_adam(ours, static_loss_scale=16.0)
    wide = [torch.nn.Parameter(one.detach().float()) for one in ours]
    for master, gradient in zip(wide, give_gradients(ours, 16.0)):
        master.grad = gradient
    expected = torch.nn.utils.clip_grad_norm_(wide, 0.5, norm_type)
    assert optimizer.clip_master_grads(0.5, norm_type) == pytest.approx(float(expected), rel=1e-5)
    for (mine,), other in zip(zip(*optimizer.inspect_master_grad_data()), wide):
        torch.testing.assert_close(mine, other.grad)


def test_states_are_saved_with_masters_and_scale() -> None:
    ours = parameters(torch.float16)
    optimizer = half_adam(ours, dynamic_loss_scale=True, dynamic_loss_args={"init_scale": 8.0, "scale_window": 1})
    give_gradients(ours, 8.0)
    optimizer.step()
    saved, again = copy.deepcopy(optimizer.state_dict()), [torch.nn.Parameter(one.detach().clone()) for one in ours]
    other = half_adam(again, dynamic_loss_scale=True)
    other.load_state_dict(saved)
    assert other.loss_scale == optimizer.loss_scale == 16
    torch.manual_seed(1)
    give_gradients(ours, 16.0)
    torch.manual_seed(1)
    give_gradients(again, 16.0)
    optimizer.step()
    other.step()
    masters = [one.param_groups[0]["params"] for one in (optimizer, other)]
    assert all(torch.equal(a, b) for a, b in zip(*masters)) and all(torch.equal(a, b) for a, b in zip(ours, again))
    with pytest.raises(ValueError, match="masters of other parameters"):
        half_adam(parameters(torch.float16)[:2]).load_state_dict(saved)


def test_weights_that_were_loaded_are_stepped_from() -> None:
    weight = torch.nn.Parameter(torch.ones(3).half())
    optimizer = FP16_Optimizer(torch.optim.SGD([weight], lr=1.0))
    with torch.no_grad():
        weight.copy_(torch.full((3,), 5.0))
    weight.grad = torch.ones(3).half()
    optimizer.step()
    assert weight.tolist() == [4.0] * 3


def test_schedules_groups_and_closures_work_around_it() -> None:
    ours = parameters(torch.bfloat16)
    optimizer = FP16_Optimizer(torch.optim.SGD(ours[:2], lr=0.5))
    optimizer.add_param_group({"params": ours[2:3], "lr": 0.25})
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    give_gradients(ours)
    assert optimizer.step(lambda: 3) == 3
    schedule.step()
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.125]
    assert optimizer.param_groups[1]["params"][0].dtype is torch.float32
    optimizer.zero_grad()
    assert ours[0].grad is None and optimizer.param_groups[0]["params"][0].grad is None


def test_stale_tensors_are_noticed() -> None:
    weight = torch.nn.Parameter(torch.ones(3).half())
    optimizer = FP16_Optimizer(torch.optim.SGD([weight], lr=1.0))
    loss = (weight * weight).sum()
    weight.grad = torch.ones(3).half()
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_scaler_of_ones_own_is_told_of_each_step() -> None:
    weight = torch.nn.Parameter(torch.ones(3).half())
    scaler = DynamicLossScaler(loss_scale=64.0, up_scale_window=1, max_loss_scale=128.0)
    optimizer = FP16_Optimizer(torch.optim.SGD([weight], lr=0.0), loss_scaler=scaler)
    for expected in (128.0, 128.0):
        optimizer.backward((weight * 2).sum())
        assert optimizer.param_groups[0]["params"][0].grad.tolist() == [2.0] * 3
        optimizer.step()
        optimizer.zero_grad()
        assert scaler.loss_scale == expected
    scaler.reset()
    assert scaler.loss_scale == 64


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="dynamic_loss_args takes"):
        half_adam(parameters(torch.float16), dynamic_loss_scale=True, dynamic_loss_args={"scale": 1})
    with pytest.raises(TypeError, match="unexpected keyword"):
        half_adam(parameters(torch.float16), loss_scale=1.0)
    with pytest.warns(UserWarning, match="stays as it is"):
        plain = torch.optim.SGD(parameters(torch.float32))
        assert FP16_Optimizer(plain) is plain
