"""nn.LSTM and nn.GRU are compiled with all that surrounds them; results and gradients are those of eager torch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is the extra 'train'; `make test-training` runs these tests")

from torch import nn  # noqa: E402

from sardonyx.training.torch import recurrent  # noqa: E402
from tests.training.pytorch.comparing import assert_close, assert_same, compiled, numbers  # noqa: E402

LAYERS = {"LSTM": nn.LSTM, "GRU": nn.GRU}


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "form",
    [
        {},
        {"batch_first": True},
        {"bias": False},
        {"bidirectional": True},
        {"num_layers": 2},
        {"num_layers": 2, "bidirectional": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("layer", LAYERS)
def test_layers_train_as_in_eager_torch(layer, form, dtype) -> None:
    model = LAYERS[layer](5, 7, **form).to(dtype)
    rows = numbers(4, 3, 5, dtype=dtype)
    ours, theirs = model, LAYERS[layer](5, 7, **form).to(dtype)
    theirs.load_state_dict(model.state_dict())
    fast = compiled(ours)
    for call, owner in ((fast, ours), (theirs, theirs)):
        output, states = call(rows)
        parts = [output, *(states if isinstance(states, tuple) else [states])]
        sum((part * torch.arange(part.numel(), dtype=dtype).reshape(part.shape)).sum() for part in parts).backward()
        owner.found = [part.detach() for part in parts], rows.grad.clone()
        rows.grad = None
    for mine, other in zip(ours.found[0], theirs.found[0]):
        assert_close(mine, other)
    assert_close(ours.found[1], theirs.found[1], "gradient of the input")
    for (name, mine), other in zip(ours.named_parameters(), theirs.parameters()):
        assert_close(mine.grad, other.grad, name)


@pytest.mark.parametrize("layer", LAYERS)
def test_states_may_be_given_and_have_gradients(layer) -> None:
    model = LAYERS[layer](4, 6)
    states = [numbers(1, 3, 6, seed=seed) for seed in range(2 if layer == "LSTM" else 1)]

    def run(rows, *states):
        return model(rows, states if layer == "LSTM" else states[0])

    assert_same(run, numbers(5, 3, 4), *states)


@pytest.mark.parametrize("layer", LAYERS)
def test_one_compilation_serves_all_lengths(layer) -> None:
    model = LAYERS[layer](4, 6, batch_first=True)
    fast = torch.compile(model, backend="sardonyx", dynamic=True)
    for batch, length in ((2, 3), (5, 9), (1, 2), (3, 1)):
        rows = torch.randn(batch, length, 4)
        assert_close(fast(rows)[0].detach(), model(rows)[0].detach())


def test_the_network_around_a_layer_is_one_graph() -> None:
    class Characters(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.lstm, self.head = nn.Embedding(10, 6), nn.LSTM(6, 8, batch_first=True), nn.Linear(8, 10)

        def forward(self, ids):
            return self.head(self.lstm(self.tokens(ids))[0])

    model, ids = Characters(), torch.randint(0, 10, (3, 5))
    assert_close(
        compiled(model)(ids).detach(), model(ids).detach()
    )  # `compiled` asks for one graph without anything left to torch


@pytest.mark.parametrize("layer", LAYERS)
def test_dropout_between_layers_has_the_masks_of_torch(layer) -> None:
    model = LAYERS[layer](4, 6, num_layers=2, dropout=0.5)
    rows, fast = torch.randn(3, 2, 4), compiled(model)
    fast(rows)
    torch.manual_seed(5)
    theirs = model(rows)[0]
    torch.manual_seed(5)
    assert_close(fast(rows)[0].detach(), theirs.detach())


@pytest.mark.filterwarnings("ignore:LSTM with projections")  # torch says so of itself
def test_projected_states_are_left_to_torch() -> None:
    model = nn.LSTM(4, 6, proj_size=3)
    rows = torch.randn(5, 2, 4)
    fast = torch.compile(model, backend="sardonyx")
    assert_close(fast(rows)[0].detach(), model(rows)[0].detach())


@pytest.mark.parametrize("op", ["lstm", "gru"])
@pytest.mark.parametrize("reverse", [False, True])
def test_torch_computes_the_ops_too(op, reverse) -> None:
    """Where a graph is not compiled; their gradients follow from differences in float64."""
    gates = 4 if op == "lstm" else 3
    states = [numbers(2, 3, dtype=torch.float64, seed=seed) for seed in range(2 if op == "lstm" else 1)]
    sizes = ((gates * 3, 4), (gates * 3, 3), (gates * 3,), (gates * 3,))
    weights = [numbers(*size, dtype=torch.float64, seed=7 + number) for number, size in enumerate(sizes)]
    count = 3 if op == "lstm" else 2

    def run(*inputs):
        return getattr(recurrent, f"{op}_op")(*inputs, reverse)[:count]

    torch.autograd.gradcheck(run, (numbers(3, 2, 4, dtype=torch.float64), *states, *weights))
