"""Training on files against onnxruntime-training 1.19.2: its artifacts train here as there, and artifacts made here train alike."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import sardonyx
from sardonyx.dtypes import float32
from sardonyx.training import artifacts, onnxblock
from sardonyx.training.api import CheckpointState, LinearLRScheduler, Module, Optimizer

DATA = Path(__file__).parent / "data"
LOSSES = json.loads((DATA / "losses.json").read_text())
RATES = {"mlp_ce_adamw": 0.01, "cnn_batchnorm": 0.05, "custom_two_losses": 0.02, "op_mixture_2": 0.05}


def feeds(case: str, step: str) -> dict[str, np.ndarray]:
    data = np.load(DATA / case / "inputs.npz")
    return {key.partition("/")[2]: data[key] for key in data.files if key.startswith(f"{step}/")}


def recorded(case: str, key: str) -> dict[str, np.ndarray]:
    data = np.load(DATA / case / "recorded.npz")
    return {name.partition("/")[2]: data[name] for name in data.files if name.startswith(f"{key}/")}


def opened(case: str, folder: Path | None = None, evaluates: bool = False) -> tuple[CheckpointState, Module, Optimizer]:
    folder = folder or DATA / case
    state = CheckpointState.load_checkpoint(folder / "checkpoint")
    module = Module(folder / "training_model.onnx", state, folder / "eval_model.onnx" if evaluates else None)
    optimizer = Optimizer(folder / "optimizer_model.onnx", module)
    optimizer.set_learning_rate(RATES[case])
    return state, module, optimizer


def train(case: str, module: Module, optimizer: Optimizer, steps: range = range(1, 5)) -> list[float]:
    losses = []
    for step in steps:
        given = feeds(case, f"step{step}")
        result = module(*(given[name] for name in module.input_names()))
        losses.append(float(np.asarray(result[0] if isinstance(result, tuple) else result).reshape(())))
        optimizer.step()
        module.lazy_reset_grad()
    return losses


def assert_parameters(state: CheckpointState, expected: dict[str, np.ndarray]) -> None:
    for name, values in expected.items():
        np.testing.assert_allclose(state.parameters[name].data, values, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("case", ["custom_two_losses", "op_mixture_2"])
def test_artifacts_of_onnxruntime_train_as_there(case: str) -> None:
    state, module, optimizer = opened(case)
    np.testing.assert_allclose(train(case, module, optimizer), LOSSES[case], rtol=1e-5)
    assert_parameters(state, recorded(case, "param4"))


def test_artifacts_made_here_train_alike(tmp_path: Path) -> None:
    """With running statistics, which are frozen parameters that training changes."""
    case = "cnn_batchnorm"
    forward = onnx.load(DATA / case / "forward.onnx")
    frozen = ["bn1.running_mean", "bn1.running_var"]
    artifacts.generate_artifacts(
        forward,
        requires_grad=[tensor.name for tensor in forward.graph.initializer if tensor.name not in frozen],
        frozen_params=frozen,
        loss=artifacts.LossType.CrossEntropyLoss,
        optimizer=artifacts.OptimType.SGD,
        artifact_directory=tmp_path,
    )
    state, module, optimizer = opened(case, tmp_path, evaluates=True)
    np.testing.assert_allclose(train(case, module, optimizer), LOSSES[case], rtol=1e-5)
    assert_parameters(state, recorded(case, "param4"))
    given = feeds(case, "eval")
    assert np.isfinite(module.eval()(given["input"], given["labels"]))  # batch norm in its form for inference
    module.export_model_for_inferencing(tmp_path / "inference.onnx", ["output"])
    session = sardonyx.InferenceSession(tmp_path / "inference.onnx")
    assert [value.name for value in session.get_inputs()] == ["input"]
    assert session.run(None, {"input": given["input"]})[0].shape == (6, 5)


def test_checkpoints_go_both_ways_and_gradients_add_up(tmp_path: Path) -> None:
    case = "mlp_ce_adamw"
    state = CheckpointState.load_checkpoint(DATA / case / "checkpoint_after_2")
    assert dict(state.properties) == {"best": pytest.approx(0.35), "epoch": 2, "note": "after 2 é"}
    path = tmp_path / "again"
    CheckpointState.save_checkpoint(state, path, include_optimizer_state=True)
    state = CheckpointState.load_checkpoint(path)
    module = Module(DATA / case / "training_model.ort", state, DATA / case / "eval_model.onnx")
    optimizer = Optimizer(DATA / case / "optimizer_model.onnx", module)
    assert optimizer.get_learning_rate() == pytest.approx(0.001)
    optimizer.set_learning_rate(RATES[case])
    np.testing.assert_allclose(train(case, module, optimizer, range(3, 5)), LOSSES[case][2:], rtol=1e-5)
    assert_parameters(state, recorded(case, "param4"))
    vector = module.get_contiguous_parameters()
    np.testing.assert_allclose(vector.numpy(), np.load(DATA / case / "recorded.npz")["contiguous_all"], rtol=1e-5, atol=1e-5)
    given = feeds(case, "step1")
    module(given["input"], given["labels"])
    once = {name: parameter.grad.copy() for name, parameter in state.parameters}  # type: ignore[union-attr]
    module(given["input"], given["labels"])
    for name, parameter in state.parameters:
        np.testing.assert_allclose(parameter.grad, 2 * once[name], rtol=1e-6)
    value = module.eval()(
        sardonyx.OrtValue.ortvalue_from_numpy(given["input"]), sardonyx.OrtValue.ortvalue_from_numpy(given["labels"])
    )
    assert isinstance(value, sardonyx.OrtValue) and not module.training
    scheduler = LinearLRScheduler(optimizer, warmup_step_count=8, total_step_count=16, initial_lr=0.5)
    assert optimizer.get_learning_rate() == pytest.approx(0.25)  # 4 steps are done
    scheduler.step()
    assert optimizer.get_learning_rate() == pytest.approx(0.25)


def test_nominal_checkpoints_are_completed_and_external_ones_read() -> None:
    folder = DATA / "custom_two_losses"
    state = CheckpointState.load_checkpoint(folder / "nominal_checkpoint")
    module = Module(folder / "training_model.onnx", state)
    given = feeds("custom_two_losses", "step1")
    inputs = [given[name] for name in module.input_names()]
    with pytest.raises(RuntimeError, match="Cannot perform TrainStep with a nominal state. Please load the model parameters"):
        module(*inputs)
    full, complete, _ = opened("custom_two_losses")
    module.copy_buffer_to_parameters(complete.get_contiguous_parameters(), trainable_only=False)
    assert_parameters(state, {name: parameter.data for name, parameter in full.parameters})
    assert module(*inputs)[0] == pytest.approx(LOSSES["custom_two_losses"][0], rel=1e-5)
    outside = CheckpointState.load_checkpoint(DATA / "external" / "checkpoint")
    assert_parameters(outside, recorded("mlp_ce_adamw", "param0"))


class Weighted(onnxblock.Block):
    """A loss of blocks: 3 · mean |x - target| + mean (x - target)²."""

    def build(self, name: str) -> Any:
        blocks = onnxblock.blocks
        return blocks.Add()(blocks.Mul()(blocks.Constant(3.0)(), onnxblock.loss.L1Loss()(name)), onnxblock.loss.MSELoss()(name))


@pytest.mark.parametrize("loss", ["blocks", "bce", "none"])
def test_gradients_of_losses_are_those_of_closed_forms(loss: str, tmp_path: Path) -> None:
    """By the bias of one layer: sums over the batch of the loss's slope."""
    outputs, body = (
        ("float y", "a = Add(x, b) y = ReduceSum<keepdims=0>(a)") if loss == "none" else ("float[N,2] y", "y = Add(x, b)")
    )
    head = '<ir_version: 10, opset_import: ["": 18]> g (float[N,2] x)'
    model = onnx.parser.parse_model(f"{head} => ({outputs}) <float[2] b = {{0.5, -1}}> {{ {body} }}")
    block: Any = {
        "blocks": Weighted(),
        "bce": onnxblock.loss.BCEWithLogitsLoss(weight=np.float32([1, 2]), pos_weight=np.float32([3, 1]), reduction="sum"),
        "none": None,
    }[loss]
    artifacts.generate_artifacts(model, requires_grad=["b"], loss=block, artifact_directory=tmp_path)
    state = CheckpointState.load_checkpoint(tmp_path / "checkpoint")
    module = Module(tmp_path / "training_model.onnx", state)
    x = np.float32([[1, 2], [-100, 3], [0.25, 100]])
    target = np.float32([[0, 1], [1, 0], [1, 1]])
    module(*([x] if loss == "none" else [x, target]))
    shifted = x.astype(np.float64) + [0.5, -1]
    slopes = {
        "blocks": 3 * np.sign(shifted - target) / 6 + 2 * (shifted - target) / 6,
        "bce": np.array([1, 2]) * ((1 - target) / (1 + np.exp(-shifted)) - target * [3, 1] / (1 + np.exp(shifted))),
        "none": np.ones((3, 2)),
    }
    np.testing.assert_allclose(state.parameters["b"].grad, slopes[loss].sum(axis=0), rtol=1e-5)


def test_custom_ops_are_trained_through(tmp_path: Path) -> None:
    @sardonyx.custom_op("my.training::Square", "(X: T) -> (Y: T)", T={float32})
    def square(X: np.ndarray) -> np.ndarray:
        return X * X

    square.infer(lambda X: X.shape)
    square.gradient(lambda op, X, Y_grad: op.Mul(Y_grad, op.Add(X, X)))
    head = '<ir_version: 10, opset_import: ["": 18, "my.training": 1]> g () => (float y) <float[2] b = {0.5, -1}>'
    model = onnx.parser.parse_model(f"{head} {{ a = my.training.Square(b) y = ReduceSum<keepdims=0>(a) }}")
    sardonyx.register_custom_op(square)
    try:
        artifacts.generate_artifacts(model, requires_grad=["b"], artifact_directory=tmp_path)
        state = CheckpointState.load_checkpoint(tmp_path / "checkpoint")
        assert Module(tmp_path / "training_model.onnx", state)() == 1.25
    finally:
        sardonyx.unregister_custom_op(square)
    np.testing.assert_array_equal(state.parameters["b"].grad, [1, -2])
    with pytest.raises(Exception, match="Square"):
        artifacts.generate_artifacts(model, requires_grad=["b"], artifact_directory=tmp_path)


MODEL = """
<ir_version: 8, opset_import: ["": 17]>
g (float[N, 2] x) => (float[N, 1] y1, float[N, 1] y2) <float[1, 2] w1 = {0.5, -1}, float[1] b1 = {0}, float[1, 2] w2 = {0, 1}> {
    y1 = Gemm<transB = 1>(x, w1, b1)
    y2 = Gemm<transB = 1>(x, w2)
}
"""
PROGRAM = """
import sys
import sardonyx
sardonyx.install_as_onnxruntime()
import numpy as np, onnx.parser
import onnxruntime
import onnxruntime.training.onnxblock as onnxblock
from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, LinearLRScheduler, Module, Optimizer

class TwoLosses(onnxblock.Block):
    def __init__(self):
        super().__init__()
        self._losses = [onnxblock.loss.MSELoss(), onnxblock.loss.L1Loss()]
        self._shares = [onnxblock.blocks.Constant(share) for share in (0.4, 0.6)]
        self._add, self._mul = onnxblock.blocks.Add(), onnxblock.blocks.Mul()

    def build(self, first, second):
        parts = [self._mul(self._shares[0](), self._losses[0](first, target_name="target1"))]
        parts.append(self._mul(self._shares[1](), self._losses[1](second, target_name="target2")))
        return self._add(*parts)

artifacts.generate_artifacts(
    onnx.parser.parse_model(open("model.txt").read()),
    requires_grad=["w1", "b1"],
    frozen_params=["w2"],
    loss=TwoLosses(),
    optimizer=artifacts.OptimType.AdamW,
    artifact_directory=".",
    additional_output_names=["y1"],
)
state = CheckpointState.load_checkpoint("checkpoint")
module = Module("training_model.onnx", state, "eval_model.onnx")
optimizer = Optimizer("optimizer_model.onnx", module)
scheduler = LinearLRScheduler(optimizer, warmup_step_count=5, total_step_count=300, initial_lr=0.3)
x = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
target1, target2 = (x @ [[2], [3]] + 1).astype(np.float32), x[:, 1:].copy()
module.train()
for step in range(300):
    loss, outputs = module(x, target1, target2)
    optimizer.step()
    scheduler.step()
    module.lazy_reset_grad()
module.eval()
print(module(x, target1, target2)[0].item())
state.properties["epoch"] = 3
CheckpointState.save_checkpoint(state, "trained", include_optimizer_state=True)
module.export_model_for_inferencing("inference.onnx", ["y1"])
again = CheckpointState.load_checkpoint("trained")
assert again.properties["epoch"] == 3
np.testing.assert_array_equal(again.parameters["w2"].data, [[0, 1]])
session = onnxruntime.InferenceSession("inference.onnx", providers=["CPUExecutionProvider"])
(result,) = session.run(["y1"], {"x": x})
print(float(np.abs(result - target1).max()))
assert "torch" not in sys.modules and "sardonyx" in Module.__module__
"""


def test_a_program_that_follows_the_guide_of_onnxruntime(tmp_path: Path) -> None:
    """Artifacts with a loss of one's own, a module, an optimizer with a schedule, a checkpoint, a model for inference."""
    (tmp_path / "model.txt").write_text(MODEL)
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "program.py"]
    finished = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    loss, distance = map(float, finished.stdout.split())
    assert loss < 1e-3 and distance < 0.1
    peer = onnxruntime.InferenceSession(tmp_path / "inference.onnx", providers=["CPUExecutionProvider"])
    assert peer.run(None, {"x": np.float32([[1, 1]])})[0].item() == pytest.approx(6, abs=0.1)  # 2 + 3 + 1


@pytest.mark.parametrize("native", ["0", "1"])
def test_the_memory_plan_shows_both_halves_and_what_crosses(native: str) -> None:
    folder = DATA / "mlp_ce_adamw"
    model = str(folder / "training_model.onnx")
    report = sardonyx.InferenceSession(model, providers=[("CPUExecutionProvider", {"native": native})]).memory_plan()
    halves = report.halves(batch=8)
    assert halves is not None and halves.forward.kernels > 2 and halves.backward.kernels > 2
    assert {4 * 8 * 16, 4 * 8 * 4} <= set(halves.crossing.values())  # of Relu, and the log-probabilities
    assert max(halves.forward.peak, halves.backward.peak) <= report.peak(batch=8)
    assert min(halves.forward.peak, halves.backward.peak) >= sum(halves.crossing.values())
    text = str(report.at(batch=8))
    assert f"backward: {halves.backward.kernels} kernels, peak {halves.backward.peak:,} bytes" in text
    assert "bytes cross from forward to backward" in text


def test_a_module_shows_the_memory_of_its_mode() -> None:
    _, module, _ = opened("mlp_ce_adamw", evaluates=True)
    small, large = (module.memory_plan().halves(batch=batch) for batch in (8, 16))
    assert small is not None and large is not None
    assert sum(large.crossing.values()) == 2 * sum(small.crossing.values())
    assert module.eval().memory_plan().halves(batch=8) is None
