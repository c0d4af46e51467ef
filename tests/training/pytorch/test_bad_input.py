"""What modules of PyTorch may do wrong while they are trained, and what comes of it. Which test holds what:

- no module, DataParallel: `test_what_is_no_module_is_refused`; arguments of other types, or on other devices:
  `test_arguments_of_other_types_are_refused`; arguments whose tree changes: `test_arguments_of_all_kinds` of test_ortmodule.py
- parameters added, replaced, frozen or moved: `test_parameters_that_change_between_calls`, `test_parameters_that_are_elsewhere`
- weights changed between forward and backward, backward twice: `test_misused_gradients_are_torchs_own_errors`; forward twice:
  `test_forward_twice_and_accumulation` of test_ortmodule.py
- no grad, no parameters, outputs that are inputs, parameters or None, empty batches, NaN and infinities, gaps and strides of zero,
  float64, another thread: test_ortmodule.py
- a batch of one in batch norm: `test_a_batch_of_one_in_batch_norm_is_torchs_error`
- indices and labels that are nowhere: `test_indices_that_are_nowhere_are_refused_as_in_eager_torch`
- results and inputs changed between forward and backward, gradients of gradients: `test_misused_gradients_are_torchs_own_errors`
- several threads at once: `test_threads_may_train_one_module_at_once`
- a failure while compiling: `test_the_policy_decides_about_failures_of_the_compiler`, `test_what_ran_before_a_failure_is_taken_back`,
  `test_torch_compile_never_hides_a_failure`, `test_a_failure_of_backward_alone_is_no_wrong_gradient`
"""

from __future__ import annotations

import copy
import logging
import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is the extra 'train'; `make test-training` runs these tests")

from torch import nn  # noqa: E402

from sardonyx.errors import Fail  # noqa: E402
from sardonyx.training import ORTModule, ortmodule  # noqa: E402
from sardonyx.training.torch import partition  # noqa: E402
from tests.training.pytorch.comparing import assert_close  # noqa: E402


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTMODULE_FALLBACK_POLICY", "FALLBACK_DISABLE")


class Normed(nn.Module):
    """Batch norm and dropout: a call changes buffers and the generator."""

    def __init__(self, breaks: bool = False) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)
        self.breaks = breaks

    def forward(self, x: Any, extra: Any = None) -> Any:
        hidden = torch.dropout(self.norm(self.first(x)), 0.5, True)
        if self.breaks:
            torch._dynamo.graph_break()
        return self.last(hidden)


def everything(model: Any) -> list[Any]:
    """All that an error must leave alone."""
    return [copy.deepcopy(model.state_dict()), torch.get_rng_state(), [p.grad for p in model.parameters()]]


def assert_untouched(model: Any, before: list[Any]) -> None:
    state, generator, gradients = before
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), generator)
    assert all(a is b for a, b in zip([p.grad for p in model.parameters()], gradients, strict=True))


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(
        ortmodule.ORTModuleTorchModelException, match="only supports torch.nn.Module, <class 'function'> was given"
    ):
        ORTModule(lambda x: x)
    with pytest.raises(ortmodule.ORTModuleTorchModelException, match="not compatible with torch.nn.DataParallel"):
        ORTModule(nn.DataParallel(nn.Linear(1, 1)))
    with pytest.raises(NotImplementedError, match="not compatible with torch.nn.DataParallel"):
        ORTModule(nn.Linear(1, 1))._replicate_for_data_parallel()


class Thing:
    """A type that nobody knows."""


@pytest.mark.parametrize(
    ("argument", "kind", "message"),
    [
        (Thing(), ortmodule.ORTModuleIOError, "arguments of type .*Thing"),
        ({1, 2}, ortmodule.ORTModuleIOError, "arguments of type <class 'set'>"),
        ([{"a": Thing()}], ortmodule.ORTModuleIOError, "arguments of type .*Thing"),
        (torch.eye(2).to_sparse(), ortmodule.ORTModuleIOError, "arguments of layout torch.sparse_coo"),
        (torch.ones(2, device="meta"), ortmodule.ORTModuleDeviceException, "an argument is on meta"),
    ],
    ids=["thing", "set", "nested", "sparse", "device"],
)
def test_arguments_of_other_types_are_refused(argument: Any, kind: Any, message: str, strict: None) -> None:
    ours = ORTModule(Normed())
    before = everything(ours)
    with pytest.raises(kind, match=message):
        ours(torch.randn(5, 4, generator=torch.Generator()), extra=argument)
    assert_untouched(ours, before)


def test_parameters_that_are_elsewhere(strict: None) -> None:
    ours = ORTModule(Normed())
    ours(torch.ones(5, 4))
    ours.to("meta")
    with pytest.raises(ortmodule.ORTModuleDeviceException, match="the parameter 'first.weight' is on meta"):
        ours(torch.ones(5, 4))


def test_parameters_that_are_added() -> None:
    model = nn.Linear(2, 2)
    ours = ORTModule(model)
    ours(torch.ones(1, 2)).sum().backward()
    ours.register_parameter("added", nn.Parameter(torch.ones(3)))
    ours(torch.ones(1, 2)).sum().backward()
    assert model.added.grad is None and torch.equal(model.bias.grad, torch.full((2,), 2.0))


def test_misused_gradients_are_torchs_own_errors() -> None:
    ours = ORTModule(nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3)))
    loss = ours(torch.ones(2, 3)).sum()
    with torch.no_grad():
        ours.module[2].weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    loss = ours(torch.ones(2, 3)).sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()
    ours, x = ORTModule(nn.Sequential(nn.Linear(3, 3), nn.Tanh())), torch.ones(2, 3)
    result = ours(x)
    result.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()
    result = ours(x)
    x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()
    x.requires_grad_(True)
    (gradient,) = torch.autograd.grad(ours(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        gradient.sum().backward()
    assert all(parameter.grad is None for parameter in ours.parameters())


def test_threads_may_train_one_module_at_once() -> None:
    """Their runs share weights and arenas, and backward may come in another thread than forward."""
    theirs = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 4))
    ours, wrong = ORTModule(copy.deepcopy(theirs)), []
    ours(torch.ones(8, 16)).sum().backward()

    def train(seed: int) -> None:
        x = torch.randn(8, 16, generator=torch.Generator().manual_seed(seed))
        expected = torch.autograd.grad(theirs(x).square().sum(), list(theirs.parameters()))
        for _ in range(20):
            try:
                found = torch.autograd.grad(ours(x).square().sum(), list(ours.parameters()))
                for mine, other in zip(found, expected, strict=True):
                    assert_close(mine, other)
            except BaseException as error:
                wrong.append(error)

    threads = [threading.Thread(target=train, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    loss = ours(torch.ones(8, 16)).sum()
    ours.zero_grad()
    elsewhere = threading.Thread(target=loss.backward)
    elsewhere.start()
    elsewhere.join()
    theirs(torch.ones(8, 16)).sum().backward()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_close(mine.grad, other.grad)


def test_a_batch_of_one_in_batch_norm_is_torchs_error() -> None:
    ours = ORTModule(Normed())
    before = everything(ours)
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        ours(torch.ones(1, 4))
    assert_untouched(ours, before)
    assert not ours._fallback.is_active, "the fault is the caller's, and no reason to leave the module to torch"


class Picking(nn.Module):
    """Looks up what indices say, behind parameters and in a loss."""

    def __init__(self, pick: Any):
        super().__init__()
        self.rows, self.norm, self.pick = nn.Embedding(5, 3), nn.BatchNorm1d(3), pick

    def forward(self, index: Any) -> Any:
        return self.pick(self.norm(self.rows.weight), index).sum()


PICKS = {
    "embedding": lambda rows, index: nn.functional.embedding(index, rows),
    "loss": lambda rows, index: nn.functional.cross_entropy(rows.t(), index),
    "loss with weights": lambda rows, index: nn.functional.cross_entropy(rows.t(), index, torch.ones(5)),
    "index_select": lambda rows, index: rows.index_select(0, index),
    "gather": lambda rows, index: rows.gather(0, index[:, None].expand(3, 3)),
    "scatter": lambda rows, index: rows.scatter(0, index[:, None].expand(3, 3), rows[:3]),
}


@pytest.mark.parametrize("name", PICKS)
def test_indices_that_are_nowhere_are_refused_as_in_eager_torch(name: str) -> None:
    """Also below zero, where ONNX counts from the end."""
    theirs = Picking(PICKS[name])
    ours = ORTModule(copy.deepcopy(theirs))
    for model in (ours, theirs):
        model(torch.tensor([0, 4, 2])).backward()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_close(mine.grad, other.grad)
    for wrong in (-1, -5, 5, 1 << 40):
        with pytest.raises(Exception, match="out of (bounds|range)"):
            theirs(torch.tensor([0, wrong, 2]))
        before = everything(ours)
        with pytest.raises(Exception, match="out of data bounds|outside|out of (bounds|range)|must be within"):
            ours(torch.tensor([0, wrong, 2]))
        assert_untouched(ours, before)
        assert not ours._fallback.is_active


# --- failures while compiling


def break_compiler(monkeypatch: pytest.MonkeyPatch, working: int = 0, only: str = "") -> None:
    """Let the compiler fail at graphs whose names begin with `only`, after so many that work."""
    whole, left = partition.lower_graph, [working]

    def lower(module: Any, name: str) -> Any:
        if name.startswith(only):
            left[0] -= 1
            if left[0] < 0:
                raise Fail(f"{name}: a fault of the compiler")
        return whole(module, name)

    monkeypatch.setattr(partition, "lower_graph", lower)


def test_the_policy_decides_about_failures_of_the_compiler(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    break_compiler(monkeypatch)
    theirs = Normed()
    ours, x = ORTModule(copy.deepcopy(theirs)), torch.randn(5, 4)
    generator = torch.get_rng_state()
    expected = [theirs(x).detach() for _ in range(2)]
    torch.set_rng_state(generator)
    with caplog.at_level(logging.WARNING, "sardonyx.training"):
        for result in expected:
            assert_close(ours(x).detach(), result)
    told = [record.getMessage() for record in caplog.records if "Fallback to PyTorch" in record.getMessage()]
    assert len(told) == 1 and "ORTModuleONNXModelException" in told[0] and "a fault of the compiler" in told[0]
    for mine, other in zip(ours.buffers(), theirs.buffers(), strict=True):
        assert_close(mine, other)


def test_without_a_policy_failures_of_the_compiler_are_raised(monkeypatch: pytest.MonkeyPatch, strict: None) -> None:
    break_compiler(monkeypatch)
    ours = ORTModule(Normed())
    before = everything(ours)
    with pytest.raises(ortmodule.ORTModuleONNXModelException, match="a fault of the compiler"):
        ours(torch.ones(5, 4))
    assert_untouched(ours, before)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # torch's own, behind a graph break
@pytest.mark.parametrize("policy", ["", "FALLBACK_DISABLE"])
def test_what_ran_before_a_failure_is_taken_back(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph with batch norm and dropout runs; the one behind it cannot be compiled."""
    break_compiler(monkeypatch, working=1, only="forward")
    monkeypatch.setenv("ORTMODULE_FALLBACK_POLICY", policy)
    theirs = Normed(breaks=True)
    ours, x = ORTModule(copy.deepcopy(theirs)), torch.randn(5, 4)
    before = everything(ours)
    if policy:
        with pytest.raises(ortmodule.ORTModuleONNXModelException, match="a fault of the compiler"):
            ours(x)
        assert_untouched(ours, before)
        return
    result = ours(x)
    torch.set_rng_state(before[1])
    assert_close(result.detach(), theirs(x).detach())
    assert int(ours.norm.num_batches_tracked) == 1
    for mine, other in zip(ours.buffers(), theirs.buffers(), strict=True):
        assert_close(mine, other)


def test_torch_compile_never_hides_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    break_compiler(monkeypatch)
    model = Normed()
    before = everything(model)
    with pytest.raises(Exception, match="a fault of the compiler"):
        torch.compile(model, backend="sardonyx")(torch.ones(5, 4))
    assert_untouched(model, before)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_failure_of_backward_alone_is_no_wrong_gradient(dynamic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With open sizes torch puts the compilation of backward off until it is called."""
    break_compiler(monkeypatch, only="backward")
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    with pytest.raises(Exception, match="a fault of the compiler"):
        torch.compile(model, backend="sardonyx", dynamic=dynamic)(torch.ones(5, 4)).sum().backward()
    assert all(parameter.grad is None for parameter in model.parameters())
