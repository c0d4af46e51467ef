"""What backward computes again in place of keeping it: the same losses and gradients, and less that crosses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

from sardonyx import SessionOptions, formats
from sardonyx.ops.inference import infer
from sardonyx.training import artifacts
from sardonyx.training.api import CheckpointState, Module
from sardonyx.training.crossing import halves_of
from sardonyx.training.recompute import candidates

LAYERS, WIDTH, BATCH = 4, 16, 8
CONFIG, PROBE = "optimization.memory_optimizer_config", "optimization.enable_memory_probe_recompute_config"
ROWS = 4 * BATCH * WIDTH
"""Bytes of a layer's values."""


def model(activation: str) -> onnx.ModelProto:
    """Layers of a product and an activation."""
    weights = ", ".join(f"float[{WIDTH}, {WIDTH}] w{number}" for number in range(LAYERS))
    nodes = "".join(
        f"p{number} = MatMul(a{number}, w{number}) a{number + 1} = {activation}(p{number}) " for number in range(LAYERS)
    )
    text = f"""<ir_version: 10, opset_import: ["": 21]> net (float[batch, {WIDTH}] a0) => (float[batch, {WIDTH}] a{LAYERS})
               <{weights}> {{ {nodes} }}"""
    made = onnx.parser.parse_model(text)
    random = np.random.default_rng(3)
    del made.graph.initializer[:]
    for number in range(LAYERS):
        weight = random.normal(0, 0.3, (WIDTH, WIDTH)).astype(np.float32)
        made.graph.initializer.append(onnx.numpy_helper.from_array(weight, f"w{number}"))
    return made


def stepped(folder: Path, config: str = "", probe: str = "0:0") -> tuple[Module, float, dict[str, np.ndarray]]:
    """A module that has taken a step, its loss and gradients."""
    options = SessionOptions()
    options.add_session_config_entry(CONFIG, config)
    options.add_session_config_entry(PROBE, probe)
    state = CheckpointState.load_checkpoint(folder / "checkpoint")
    module = Module(folder / "training_model.onnx", state, session_options=options)
    random = np.random.default_rng(5)
    loss = module(*random.normal(size=(2, BATCH, WIDTH)).astype(np.float32))
    return module, float(loss), {name: parameter.grad for name, parameter in state.parameters}


def crossing(module: Module) -> int:
    halves = module.memory_plan().halves(batch=BATCH)
    assert halves is not None
    return sum(halves.crossing.values())


def made(folder: Path, activation: str) -> Path:
    names = [f"w{number}" for number in range(LAYERS)]
    artifacts.generate_artifacts(model(activation), names, loss=artifacts.LossType.MSELoss, artifact_directory=folder)
    return folder


@pytest.mark.parametrize("count", [0, 1, 2, -1])
def test_activations_are_computed_again(tmp_path: Path, count: int) -> None:
    made(tmp_path, "Gelu")
    plain, loss, gradients = stepped(tmp_path)
    again, same_loss, same_gradients = stepped(tmp_path, f"Gelu+:1:{count}")
    assert same_loss == loss
    for name, gradient in gradients.items():
        np.testing.assert_array_equal(same_gradients[name], gradient, err_msg=name)
    saved = crossing(plain) - crossing(again)
    assert saved == (LAYERS - 1 if count < 0 else count) * ROWS  # the last one is read by the loss alone


def test_the_advanced_list_takes_products_along(tmp_path: Path) -> None:
    made(tmp_path, "Sigmoid")
    _, loss, gradients = stepped(tmp_path)
    text = "MatMul+Sigmoid+:1:"
    module, same_loss, same_gradients = stepped(tmp_path, f"{text}2", "1:0")
    assert same_loss == pytest.approx(loss, rel=1e-6)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(same_gradients[name], gradient, rtol=1e-5, atol=1e-7, err_msg=name)
    assert crossing(module) == crossing(stepped(tmp_path, f"{text}1", "1:0")[0]) - ROWS < crossing(stepped(tmp_path)[0])
    with pytest.raises(RuntimeError, match=r"no subgraph 'MatMul\+Sigmoid\+' that backward could compute again; there are"):
        stepped(tmp_path, f"{text}1")


def test_a_json_file_is_read(tmp_path: Path) -> None:
    made(tmp_path, "Gelu")
    path = tmp_path / "config.json"
    path.write_text(json.dumps(["Gelu+:1:-1"]))
    assert crossing(stepped(tmp_path, str(path))[0]) < crossing(stepped(tmp_path)[0])
    path.write_text("{")
    with pytest.raises(RuntimeError, match="no JSON"):
        stepped(tmp_path, str(path))
    path.write_text("{}")
    with pytest.raises(RuntimeError, match="it must hold a list"):
        stepped(tmp_path, str(path))
    with pytest.raises(RuntimeError, match="there is no file"):
        stepped(tmp_path, str(tmp_path / "nowhere.json"))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("Gelu+", "takes texts such as 'Relu\\+:1:-1', not 'Gelu\\+'"),
        ("Gelu:1:-1", "takes texts such as"),
        ("Gelu+:a:1", "takes texts such as"),
        ("Gelu+:3:1", "the strategy is 0, 1 or 2"),
        ("Gelu+:1:-2", "the count is not negative"),
        ("Tanh+:1:-1", "no subgraph 'Tanh\\+' that backward could compute again; there are Gelu\\+"),
    ],
)
def test_other_texts_are_refused(tmp_path: Path, config: str, message: str) -> None:
    made(tmp_path, "Gelu")
    with pytest.raises(RuntimeError, match=message):
        stepped(tmp_path, config)


def test_what_graphs_inside_of_backward_read_stays(tmp_path: Path) -> None:
    """A branch reads the value from outside, so it must be kept all the same."""
    text = """<ir_version: 10, opset_import: ["": 21]> net (float[N] x, bool which) => (float y) <float[1] w = {0.5}> {
        a = Mul(x, w) b = Tanh(a)
        c = If(which) <then_branch = t () => (float[N] d) { d = Mul(b, b) }, else_branch = e () => (float[N] f) { f = Exp(b) }>
        y = ReduceSum<keepdims=0>(c)
    }"""
    artifacts.generate_artifacts(onnx.parser.parse_model(text), ["w"], artifact_directory=tmp_path)
    graph = formats.load(tmp_path / "training_model.onnx")
    infer(graph)
    found = candidates(graph, halves_of(graph))
    assert "b" not in [candidate.value.name for candidate in found]
