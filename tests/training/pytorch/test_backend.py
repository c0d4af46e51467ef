"""torch.compile(backend="sardonyx"): sizes that change, dropout, buffers, options, and ops that are left to torch."""

from __future__ import annotations

import copy
import gc
import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is the extra 'train'; `make test-training` runs these tests")

from torch import nn  # noqa: E402
from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402

from sardonyx.training.torch import graphs, partition, running  # noqa: E402
from tests.training.pytorch.comparing import assert_close, assert_same, compiled, numbers  # noqa: E402


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def step(model: Any, *inputs: Any) -> Any:
    loss = model(*inputs).square().mean()
    loss.backward()
    return loss.detach()


def assert_trains_alike(model: nn.Module, *inputs: Any, steps: int = 3, **options: Any) -> None:
    """Losses, gradients and buffers follow eager torch for a few steps of SGD."""
    ours = copy.deepcopy(model)
    fast = compiled(ours, **options)
    optimizers = [torch.optim.SGD(one.parameters(), 0.1) for one in (model, ours)]
    for _ in range(steps):
        for optimizer in optimizers:
            optimizer.zero_grad()
        state = torch.get_rng_state()
        theirs = step(model, *inputs)
        torch.set_rng_state(state)
        assert_close(step(fast, *inputs), theirs, "loss")
        for (name, mine), other in zip(ours.named_parameters(), model.parameters()):
            assert_close(mine.grad, other.grad, name)
        for (name, mine), other in zip(ours.named_buffers(), model.buffers()):
            assert_close(mine, other, name)
        for optimizer in optimizers:
            optimizer.step()


def test_the_backend_is_known_by_its_name() -> None:
    assert "sardonyx" in torch._dynamo.list_backends()


def test_batch_norm_changes_its_buffers_as_torch_does() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 2))
    assert_trains_alike(model, torch.randn(4, 3, 16, 16))


def test_dropout_draws_what_eager_torch_draws() -> None:
    model = nn.Sequential(nn.Linear(16, 64), nn.Dropout(0.3), nn.GELU(), nn.Linear(64, 16), nn.Dropout(0.5))
    assert_trains_alike(model, torch.randn(32, 16))


def test_a_transformer_of_torch_trains_alike() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    assert_trains_alike(layer, torch.randn(3, 5, 16))


def test_weights_that_are_used_twice_get_one_gradient() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(7, 4)

        def forward(self, ids: Any) -> Any:
            return self.embedding(ids) @ self.embedding.weight.t()

    assert_trains_alike(Tied(), torch.tensor([[1, 2], [3, 1]]))


def test_evaluation_and_no_grad() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2)).eval()
    x = torch.randn(5, 4)
    with torch.no_grad():
        assert_close(compiled(model)(x), model(x))


def test_float64_and_changing_precision() -> None:
    assert_same(lambda a: torch.softmax(a @ a.t(), 1).sum(), numbers(4, 4, dtype=torch.float64))


def test_autocast_computes_products_in_bfloat16() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    x = torch.randn(6, 8)
    fast = compiled(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        theirs, ours = model(x), fast(x)
    assert_close(ours.detach(), theirs.detach())


def test_checkpointed_parts_are_computed_again() -> None:
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))

        def forward(self, x: Any) -> Any:
            return checkpoint(self.inner, x, use_reentrant=False)

    assert_trains_alike(Checkpointed(), torch.randn(4, 8))


# --- sizes


def test_sizes_that_change_compile_once_more() -> None:
    counter = CompileCounterWithBackend("sardonyx")
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 4))
    fast = torch.compile(model, backend=counter)
    for rows in (3, 5, 7, 11, 2, 64):
        x = torch.randn(rows, 8)
        model.zero_grad()
        theirs, expected = step(model, x), [parameter.grad.clone() for parameter in model.parameters()]
        model.zero_grad()
        assert_close(step(fast, x), theirs, f"loss of {rows} rows")
        for parameter, other in zip(model.parameters(), expected):
            assert_close(parameter.grad, other, f"gradient of {rows} rows")
    assert counter.frame_count == 2


class Reader(nn.Module):
    """Attention over batches and lengths that change."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.attention = nn.Embedding(11, 8), nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 11)

    def forward(self, ids: Any) -> Any:
        x = self.tokens(ids) + torch.arange(ids.shape[1])[:, None] / 8
        mask = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).triu(1)
        return self.head(x + self.attention(x, x, x, attn_mask=mask, need_weights=False)[0])


def test_two_axes_may_change() -> None:
    model = Reader()
    fast = torch.compile(model, backend="sardonyx", dynamic=True, options={"fallback": "error"})
    for batch, length in ((2, 5), (3, 7), (4, 4), (2, 9)):
        ids = torch.randint(0, 11, (batch, length))
        model.zero_grad()
        theirs, expected = step(model, ids), [parameter.grad.clone() for parameter in model.parameters()]
        model.zero_grad()
        assert_close(step(fast, ids), theirs)
        for parameter, other in zip(model.parameters(), expected):
            assert_close(parameter.grad, other)


# --- what comes in and goes out


def test_inputs_may_lie_in_memory_in_any_order() -> None:
    function = lambda a, b, c, d: (a @ b + c).sum() * d.mean()  # noqa: E731
    channels_last = numbers(2, 3, 4, 5).detach().to(memory_format=torch.channels_last).requires_grad_()
    expanded = torch.randn(4).expand(3, 4).detach().requires_grad_()
    assert_same(function, numbers(3, 5), numbers(4, 5).t().detach().requires_grad_(), expanded, channels_last)
    assert_same(lambda a: a[:, ::2] * 2, numbers(4, 6)[::2].detach().requires_grad_())


def test_outputs_may_be_inputs_none_and_nested() -> None:
    def function(a: Any, b: Any) -> Any:
        return {"a": a, "none": None, "both": (a * b, [b, a + 1, a + 1]), "number": 3}

    fast, a, b = compiled(function), torch.randn(3), torch.randn(3)
    ours, theirs = fast(a, b), function(a, b)
    assert ours.keys() == theirs.keys() and ours["none"] is None and ours["number"] == 3
    assert ours["a"] is a and ours["both"][1][0] is b
    assert_close(ours["both"][0], theirs["both"][0])


def test_results_lie_in_memory_as_those_of_torch() -> None:
    def turned(x: Any) -> Any:
        y = (x * 2).transpose(0, 1)
        return y, y.exp()  # backward takes both as they lie

    x = numbers(4, 5, 6)
    for mine, other in zip(compiled(turned)(x), turned(x)):
        assert mine.stride() == other.stride()
    assert_same(turned, x)


def test_axes_of_one_element_lie_anywhere() -> None:
    filters = torch.empty_strided((8, 4, 1, 1), (4, 1, 4, 4))
    assert graphs._memory_order(filters) is None
    assert graphs._memory_order(filters.expand(8, 4, 2, 1)) is None
    assert graphs._memory_order(torch.empty(5, 2, 3).transpose(0, 2)) == (2, 1, 0)


def test_forward_and_backward_share_one_arena() -> None:
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64), nn.GELU(), nn.Linear(64, 8))
    fast, rows = compiled(model), torch.randn(32, 64)
    for _ in range(2):
        fast(rows).square().mean().backward()
    (arenas,) = running._in_use
    assert len(arenas._idle) == 1 and arenas.nbytes
    del fast, arenas
    torch._dynamo.reset()
    gc.collect()
    assert not running._in_use, "arenas outlive the graphs that use them"


def test_saved_views_are_no_copies() -> None:
    """Backward is handed the weight itself, not a transposed copy."""
    model = nn.Linear(8, 4)
    saved: list[Any] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda one: saved.append(one) or one, lambda one: one):
        compiled(model)(torch.randn(3, 8, requires_grad=True))
    weights = {one.data_ptr() for one in saved if isinstance(one, torch.Tensor) and one.numel() == 32}
    assert weights == {model.weight.data_ptr()}


def test_weights_changed_between_forward_and_backward_are_noticed() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    result = compiled(model)(torch.randn(2, 3)).sum()
    with torch.no_grad():
        model[1].weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()


def test_backward_twice_is_torchs_own_error() -> None:
    result = compiled(nn.Linear(3, 3))(torch.randn(2, 3)).square().sum()
    result.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        result.backward()


# --- ops that are left to torch


def test_ops_that_are_not_supported_are_named_once_and_computed_by_torch() -> None:
    def function(a: Any) -> Any:
        return torch.linalg.det(a @ a.t() + torch.eye(3)) * a.sum()

    partition._warned.clear()
    a, b = numbers(3, 3), numbers(3, 3)
    function(a).backward()
    with warnings.catch_warnings(record=True) as told:  # other ops of the determinant's gradient are named too
        warnings.simplefilter("always")
        fast = torch.compile(function, backend="sardonyx")
        fast(b).backward()
    assert_close(b.grad, a.grad)
    assert len([one for one in told if "_linalg_det" in str(one.message)]) == 1
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        torch.compile(function, backend="sardonyx")(numbers(3, 3))


def test_they_can_be_refused() -> None:
    with pytest.raises(Exception, match="does not support aten._linalg_det"):
        compiled(torch.linalg.det)(torch.eye(3))


def test_complex_numbers_are_left_to_torch() -> None:
    def function(a: Any) -> Any:
        return torch.fft.rfft(a).abs().sum() * a.mean()

    a, b = numbers(8), numbers(8)
    function(a).backward()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.compile(function, backend="sardonyx")(b).backward()
    assert_close(b.grad, a.grad)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"thread": 2}, "no option 'thread'. Did you mean 'threads'"),
        ({"memory_budget": 1.5}, "'memory_budget' must be a number from 0 to 1"),
        ({"memory_budget": True}, "'memory_budget' must be a number from 0 to 1"),
        ({"threads": "2"}, "whole number"),
        ({"threads": -1}, "whole number"),
        ({"fallback": "maybe"}, "must be one of warn, error"),
        ({"partition": "none"}, "must be one of min_cut, default"),
        ({"log_severity_level": 9}, "at most 4"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        torch.compile(lambda a: a + 1, backend="sardonyx", options=options)(torch.ones(2))


@pytest.mark.parametrize("partition_name", ["min_cut", "default"])
def test_partitions_give_the_same(partition_name: str) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    assert_trains_alike(model, torch.randn(5, 8), partition=partition_name)


def kept_bytes(call: Any, *inputs: Any) -> int:
    """How much memory waits between forward and backward, besides parameters and inputs."""
    kept: dict[int, int] = {}
    own = {one.untyped_storage().data_ptr() for one in inputs}

    def keep(tensor: Any) -> Any:
        if tensor.untyped_storage().data_ptr() not in own and not isinstance(tensor, nn.Parameter):
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = call(*inputs).square().mean()
    loss.backward()
    return sum(kept.values())


def test_a_smaller_budget_keeps_less_and_changes_no_gradient() -> None:
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    model, rows = nn.Sequential(layer, copy.deepcopy(layer)), torch.randn(2, 16, 32)
    kept = []
    for budget in (1.0, 0.5, 0.0):
        assert_trains_alike(copy.deepcopy(model), rows, steps=1, memory_budget=budget)
        kept.append(kept_bytes(compiled(copy.deepcopy(model), memory_budget=budget), rows))
    assert kept[0] > 1.5 * kept[1] > 1.5 * kept[2]
    assert kept[2] <= 0.6 * kept_bytes(model, rows)


@pytest.mark.parametrize("budget", [1.0, 0.5, 0.1, 0.0])
def test_random_numbers_are_not_drawn_again(budget: float) -> None:
    layers = (nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.3), nn.Linear(32, 32), nn.Dropout(0.5), nn.GELU(), nn.Linear(32, 4))
    assert_trains_alike(nn.Sequential(*layers), torch.randn(16, 8), memory_budget=budget)


def test_a_batch_norm_is_not_computed_again() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.Flatten(), nn.Linear(64, 2))
    assert_trains_alike(model, torch.randn(4, 3, 6, 6), memory_budget=0.0)


class Pictures(nn.Module):
    """Digits of 8 × 8 pixels; what lies before a batch norm has no bias, whose gradient would be nothing but rounding."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.down, self.point = nn.Conv2d(16, 32, 3, 2, 1, bias=False), nn.Conv2d(32, 32, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(32), nn.BatchNorm2d(32)])
        self.scores = nn.Linear(128, 10)

    def forward(self, x: Any) -> Any:
        x = nn.functional.dropout(torch.relu(self.norm(self.conv(x))), 0.1)
        x = torch.relu(self.norms[0](self.down(x)))
        x = nn.functional.max_pool2d(torch.relu(self.norms[1](self.point(x))), 2)
        return self.scores(nn.functional.dropout(x.flatten(1), 0.3))


def test_epochs_with_batch_norm_and_dropout_follow_eager_torch() -> None:
    """Also the last batch of an epoch, which is smaller, and all that come after it with an open size."""
    theirs = Pictures()
    ours = copy.deepcopy(theirs)
    fast, states = compiled(ours), [torch.get_rng_state()] * 2
    optimizers = [torch.optim.SGD(model.parameters(), 0.05) for model in (theirs, ours)]
    pictures, labels = torch.randn(110, 1, 8, 8), torch.randint(0, 10, (110,))
    for _ in range(3):
        for rows in torch.arange(110).split(25):
            losses = []
            for which, model in enumerate((theirs, fast)):
                torch.set_rng_state(states[which])
                optimizers[which].zero_grad()
                loss = nn.functional.cross_entropy(model(pictures[rows]), labels[rows])
                loss.backward()
                optimizers[which].step()
                losses.append(loss.item())
                states[which] = torch.get_rng_state()
            assert losses[1] == pytest.approx(losses[0], abs=1e-5)
    assert torch.equal(*states)
    for (name, mine), other in zip(ours.named_buffers(), theirs.buffers()):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}")


def test_gradients_have_the_same_bits_for_any_number_of_threads() -> None:
    model, pictures = Pictures(), torch.randn(24, 1, 8, 8)
    found = []
    for threads in (1, 2):
        ours = copy.deepcopy(model)
        torch.manual_seed(1)
        compiled(ours, threads=threads)(pictures).square().mean().backward()
        found.append([*(parameter.grad for parameter in ours.parameters()), *ours.buffers()])
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))
