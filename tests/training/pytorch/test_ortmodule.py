"""ORTModule: one line around a module, and the loop stays as it is."""

from __future__ import annotations

import copy
import io
import json
import logging
import pickle
import threading
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is the extra 'train'; `make test-training` runs these tests")

from torch import nn  # noqa: E402

from sardonyx.training import ORTModule, is_ortmodule_available, ortmodule, utils  # noqa: E402
from sardonyx.training.ortmodule import DebugOptions, LogLevel  # noqa: E402
from sardonyx.training.ortmodule.experimental.hierarchical_ortmodule import HierarchicalORTModule  # noqa: E402
from sardonyx.training.ortmodule.experimental.json_config import load_from_json  # noqa: E402
from tests.training.pytorch.comparing import assert_close  # noqa: E402


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


class Net(nn.Module):
    """A module with a method, a buffer and a structure of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)
        self.register_buffer("offset", torch.ones(8))
        self.factor = 2.0

    def forward(self, x: Any, scale: float = 1.0, extra: Any = None) -> Any:
        hidden = torch.relu(self.norm(self.first(x)) + self.offset) * scale
        result = self.last(hidden if extra is None else hidden + extra["bias"])
        return {"scores": result, "hidden": (hidden, None)}

    def doubled(self, x: Any) -> Any:
        return self(x)["scores"] * self.factor


def pair() -> tuple[Any, Any]:
    theirs = Net()
    return ORTModule(copy.deepcopy(theirs)), theirs


def trained(model: Any, x: Any, *arguments: Any, **keywords: Any) -> Any:
    model.zero_grad()
    result = model(x, *arguments, **keywords)["scores"]
    result.square().sum().backward()
    return result.detach()


def assert_alike(ours: Any, theirs: Any, x: Any, *arguments: Any, **keywords: Any) -> None:
    assert_close(trained(ours, x, *arguments, **keywords), trained(theirs, x, *arguments, **keywords))
    for (name, mine), (other_name, other) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        assert name == other_name and (mine.grad is None) == (other.grad is None)
        if other.grad is not None:
            assert_close(mine.grad, other.grad, name)
    for (name, mine), other in zip(ours.named_buffers(), theirs.buffers(), strict=True):
        assert_close(mine, other, name)


def test_a_wrapped_module_trains_as_the_module_does() -> None:
    ours, theirs = pair()
    for rows in (5, 5, 7, 9):
        x = torch.randn(rows, 4, requires_grad=True)
        assert_alike(ours, theirs, x)
    assert is_ortmodule_available()


def test_arguments_of_all_kinds() -> None:
    ours, theirs = pair()
    x, bias = torch.randn(5, 4), torch.randn(8)
    assert_alike(ours, theirs, x, 2.0)
    assert_alike(ours, theirs, x, scale=0.5, extra={"bias": bias})
    assert_alike(ours, theirs, x, 3, extra={"bias": bias, "name": "unused"})
    assert_alike(ours, theirs, x)


def test_results_keep_their_structure() -> None:
    Point = namedtuple("Point", ["x", "y"])

    class Structured(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x: Any) -> Any:
            return Point(x * self.weight, [x, None, {"weight": self.weight}]), "text", 3

    module = Structured()
    x = torch.randn(3)
    (point, text, number) = ORTModule(module)(x)
    assert type(point) is Point and text == "text" and number == 3
    assert point.y[0] is x and point.y[1] is None and point.y[2]["weight"] is module.weight


def test_evaluation_and_no_grad() -> None:
    ours, theirs = pair()
    x = torch.randn(6, 4)
    assert_alike(ours, theirs, x)
    assert ours.eval() is ours and not ours.training and not ours.module.training
    theirs.eval()
    with torch.no_grad():
        result = ours(x)["scores"]
        assert not result.requires_grad
        assert_close(result, theirs(x)["scores"])
    ours.train()
    assert ours.training and ours.module.training


def test_it_looks_like_the_module_inside() -> None:
    ours, theirs = pair()
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert [name for name, _ in ours.named_parameters()] == [name for name, _ in theirs.named_parameters()]
    assert [name for name, _ in ours.named_modules()] == [name for name, _ in theirs.named_modules()]
    assert ours.factor == 2.0 and ours.first is ours.module.first
    ours.factor = 3.0
    assert ours.module.factor == 3.0
    assert_close(ours.doubled(torch.ones(2, 4)).detach(), ours(torch.ones(2, 4))["scores"].detach() * 3)
    assert ours.doubled.__self__ is ours
    ours.load_state_dict(theirs.state_dict())
    assert ours.double() is ours and ours.first.weight.dtype is torch.float64
    with pytest.raises(AttributeError):
        ours.nothing  # noqa: B018
    with pytest.raises(NotImplementedError):
        ours.add_module("more", nn.Linear(1, 1))


def test_copies_and_pickles_train() -> None:
    ours, theirs = pair()
    x = torch.randn(5, 4)
    assert_alike(ours, theirs, x)
    stored = io.BytesIO()
    torch.save(ours, stored)
    stored.seek(0)
    for again in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours)), torch.load(stored, weights_only=False)):
        assert isinstance(again, ORTModule) and again.module is not ours.module
        assert_alike(again, copy.deepcopy(theirs), x)


def test_parameters_that_change_between_calls() -> None:
    ours, theirs = pair()
    x = torch.randn(5, 4)
    assert_alike(ours, theirs, x)
    for model in (ours, theirs):
        model.first.weight.requires_grad_(False)
    assert_alike(ours, theirs, x)
    for model in (ours, theirs):
        model.last = nn.Linear(8, 2)
    theirs.last.load_state_dict(ours.last.state_dict())
    assert_alike(ours, theirs, x)
    with torch.no_grad():
        for model in (ours, theirs):
            model.last.weight.mul_(2)
    assert_alike(ours, theirs, x)
    ours, theirs = ours.double(), theirs.double()
    ours.load_state_dict(theirs.state_dict())
    assert_alike(ours, theirs, x.double())


def test_forward_twice_and_accumulation() -> None:
    ours, theirs = pair()
    for model in (ours, theirs):
        model.eval()
        a, b = model(torch.ones(2, 4))["scores"], model(torch.zeros(2, 4))["scores"]
        (a.sum() * 2 + b.sum()).backward()
        model(torch.ones(3, 4))["scores"].sum().backward()
    for mine, other in zip(ours.parameters(), theirs.parameters()):
        assert_close(mine.grad, other.grad)


def test_modules_without_parameters_and_without_gradients() -> None:
    ours = ORTModule(nn.ReLU())
    x = torch.randn(3, requires_grad=True)
    ours(x).sum().backward()
    assert_close(x.grad, (x > 0).float())
    assert not ORTModule(nn.Linear(2, 2).requires_grad_(False))(torch.ones(1, 2)).requires_grad


def test_empty_batches_not_a_number_and_inputs_with_gaps() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    ours = ORTModule(copy.deepcopy(model))
    inputs = (torch.zeros(0, 4), torch.tensor([[float("nan"), float("inf"), 0, 1]]), torch.randn(4, 6)[:, ::2][:, :3])
    for x in (*inputs[:2], torch.randn(4).expand(3, 4), torch.randn(4, 5).t()[:, :4], torch.randn(6, 8)[::2, ::2]):
        ours.zero_grad(), model.zero_grad()
        for one in (ours, model):
            one(x).sum().backward()
        assert_close(ours(x).detach(), model(x).detach())
        for mine, other in zip(ours.parameters(), model.parameters()):
            assert_close(mine.grad, other.grad)


def test_another_thread_may_train() -> None:
    ours, theirs = pair()
    x = torch.randn(5, 4)
    assert_alike(ours, theirs, x)
    failures: list[BaseException] = []

    def run() -> None:
        try:
            assert_alike(ours, theirs, x)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert not failures


class Thing:
    """A type that nobody knows."""


class TakesThing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x: Any, thing: Any = None) -> Any:
        return self.linear(x)


def test_the_policy_decides_about_arguments_of_other_types(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    x = torch.ones(1, 2)
    model = TakesThing()
    ours = ORTModule(model)
    with caplog.at_level(logging.WARNING, "sardonyx.training"):
        assert_close(ours(x, Thing()).detach(), model(x).detach())
        ours(x, Thing())
    told = [record for record in caplog.records if "Fallback to PyTorch" in record.getMessage()]
    assert len(told) == 1 and "Thing" in told[0].getMessage()
    monkeypatch.setenv("ORTMODULE_FALLBACK_POLICY", "FALLBACK_DISABLE")
    with pytest.raises(ortmodule.ORTModuleIOError, match="Thing"):
        ORTModule(model)(x, Thing())
    monkeypatch.setenv("ORTMODULE_FALLBACK_POLICY", "FALLBACK_UNSUPPORTED_DEVICE|FALLBACK_NONSENSE")
    with pytest.raises(ValueError, match="FALLBACK_NONSENSE"):
        ORTModule(model)


def test_constants_may_be_assigned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ORTMODULE_FALLBACK_POLICY", raising=False)
    before = ortmodule.ORTMODULE_FALLBACK_POLICY
    ortmodule.ORTMODULE_FALLBACK_POLICY = "FALLBACK_FORCE_TORCH_FORWARD"
    try:
        model = nn.Linear(2, 2)
        assert_close(ORTModule(model)(torch.ones(1, 2)).detach(), model(torch.ones(1, 2)).detach())
    finally:
        ortmodule.ORTMODULE_FALLBACK_POLICY = before
    assert ortmodule.ONNX_OPSET_VERSION == 17 and ortmodule.ORTMODULE_FALLBACK_RETRY is False


def test_debug_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnx

    with pytest.raises(TypeError, match="LogLevel"):
        DebugOptions(log_level=2)
    with pytest.raises(ValueError, match=r"onnx_prefix must be provided when save_onnx is set\."):
        DebugOptions(save_onnx=True, save_path=str(tmp_path))
    with pytest.raises(TypeError, match="name prefix"):
        DebugOptions(save_onnx=True, onnx_prefix=3, save_path=str(tmp_path))
    with pytest.raises(OSError, match="not writable"):
        DebugOptions(save_onnx=True, onnx_prefix="a", save_path=str(tmp_path / "nowhere"))
    monkeypatch.setenv("ORTMODULE_LOG_LEVEL", "ERROR")
    options = DebugOptions(LogLevel.INFO, True, "net", str(tmp_path))
    assert options.logging.log_level is LogLevel.ERROR and options.save_onnx_models.name_prefix == "net"
    ORTModule(nn.Linear(2, 2), options)(torch.ones(1, 2)).sum().backward()
    written = sorted(path.name for path in tmp_path.glob("net_*.onnx"))
    assert [name.split("_")[1] for name in written] == ["backward", "forward"]
    for name in written:
        onnx.load(tmp_path / name)


def test_hierarchies_are_modules_too() -> None:
    ours = HierarchicalORTModule(nn.Sequential(nn.Linear(3, 3), nn.Tanh()))
    ours(torch.ones(2, 3)).sum().backward()
    assert ours.module[0].weight.grad is not None


class Cube(torch.autograd.Function):  # type: ignore[misc]
    """A function whose gradient is not the true one, so that it can be told apart."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (x,) = ctx.saved_tensors
        return gradient * x * 100


class Opaque(torch.autograd.Function):  # type: ignore[misc]
    """One that cannot be traced: it leaves torch in both directions."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return torch.from_numpy(np.sin(x.detach().numpy()))

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return torch.from_numpy(gradient.numpy() * 7)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # torch's own, behind a graph break
@pytest.mark.filterwarnings("ignore:.* should not be instantiated:DeprecationWarning")  # torch's own, while it traces
@pytest.mark.parametrize("function", [Cube, Opaque])
def test_functions_with_gradients_of_their_own(function: Any) -> None:
    class Custom(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            return (function.apply(self.linear(x)) * x).sum()

    theirs = Custom()
    ours, x = ORTModule(copy.deepcopy(theirs)), torch.randn(4, 3)
    for model in (ours, theirs):
        model(x).backward()
    assert not ours._fallback.is_active
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_close(mine.grad, other.grad)


def test_data_and_its_structure() -> None:
    data = {"a": torch.ones(1), "b": [torch.zeros(2), "text", None, (3, torch.ones(3))]}
    tensors, schema = utils.extract_data_and_schema(data)
    assert [tensor.numel() for tensor in tensors] == [1, 2, 3]
    again = utils.unflatten_data_using_schema([2 * tensor for tensor in tensors], schema)
    assert again["b"][1:3] == ["text", None] and again["b"][3][0] == 3 and again["a"].item() == 2
    with pytest.raises(ortmodule.ORTModuleIOError):
        utils.unflatten_data_using_schema(tensors[:1], schema)


def test_a_transformers_model_trains_as_in_eager_torch() -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is no dependency; `make test-training` has it")
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, num_labels=3
    )
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    theirs = transformers.BertForSequenceClassification(config).train()
    ours = ORTModule(copy.deepcopy(theirs))
    ids, labels = torch.randint(0, 50, (4, 7)), torch.tensor([0, 1, 2, 1])
    mask = torch.ones(4, 7, dtype=torch.int64)
    mask[1, 4:] = 0
    results = [model(input_ids=ids, attention_mask=mask, labels=labels) for model in (ours, theirs)]
    assert type(results[0]) is type(results[1])
    assert_close(results[0].loss.detach(), results[1].loss.detach())
    for result in results:
        result.loss.backward()
    for (name, mine), other in zip(ours.named_parameters(), theirs.parameters()):
        assert_close(mine.grad, other.grad, name)


def test_settings_come_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, path = ORTModule(nn.Linear(2, 2)), tmp_path / "settings.json"

    def load(settings: Any) -> None:
        path.write_text(json.dumps(settings))
        load_from_json(ours, path)

    debug = {"LogLevel": "ERROR", "SaveONNX": True, "ONNXPrefix": "from_file", "SaveONNXPath": str(tmp_path)}
    load({"DebugOptions": debug, "FallbackPolicy": ["FALLBACK_DISABLE"], "UseStaticShape": True, "OnnxOpsetVersion": 14})
    ours(torch.ones(1, 2)).sum().backward()
    assert len(list(tmp_path.glob("from_file_*.onnx"))) == 2
    with pytest.raises(ortmodule.ORTModuleIOError, match="Thing"):
        ours(Thing())
    for settings, kind, message in [
        ({"Nonsense": 1}, KeyError, "'Nonsense' is no setting of ORTModule"),
        ({"UseStaticShape": 1}, ValueError, "'UseStaticShape' must be of type bool"),
        ({"DebugOptions": {"LogLevel": "LOUD"}}, ValueError, "LogLevel must be one of VERBOSE"),
        ({"DebugOptions": {"Colour": 1}}, KeyError, "DebugOptions has no Colour"),
        ({"FallbackPolicy": ["NEVER"]}, ValueError, "'NEVER' is no fallback policy"),
        ([1], ValueError, "must hold one JSON object"),
    ]:
        with pytest.raises(kind, match=message):
            load(settings)
    assert ours._options.save_onnx_models.name_prefix == "from_file"
    with pytest.raises(ValueError, match="Path to json is not provided"):
        load_from_json(ours)
    path.write_text(json.dumps({"DebugOptions": {"LogLevel": "INFO"}}))
    monkeypatch.setenv("ORTMODULE_JSON_CONFIG_PATH", str(path))
    load_from_json(ours)
    assert ours._options.logging.log_level is LogLevel.INFO
