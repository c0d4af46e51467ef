"""What training on files refuses, and what it says. Which test holds what:

- an op without a gradient, a parameter that no loss reaches, a loss of integers or of several numbers:
  `test_models_that_cannot_be_trained`
- names that are no initializers or in both lists, a loss without scores or with a target of another type:
  `test_wrong_options_of_artifacts`; a step without the target: `test_steps_with_wrong_inputs_and_before_gradients`
- a model above 2 GB: `test_models_that_no_proto_holds`, `test_models_above_2_gb`; nested bases: `test_old_opsets_and_nested_bases`
- checkpoints: truncated, of hostile sizes, of another version: `test_broken_checkpoints`; hostile offsets and cycles:
  `test_every_word_of_a_checkpoint_may_be_wrong`; a folder, data that is missing or short:
  `test_checkpoints_that_are_not_there_or_not_whole`; data elsewhere: `test_data_outside_of_the_folder_is_refused`; of another model:
  `test_states_and_files_of_other_kinds`; nominal: `test_nominal_checkpoints_are_completed_and_external_ones_read` of test_files.py
- checkpoints whose parameters or moments are not those of the model: `test_checkpoints_whose_parts_do_not_fit`; a buffer for them:
  `test_buffers_that_do_not_fit_leave_the_parameters`
- steps with missing, surplus or wrong inputs, before any gradient, with a rate that is no number, without an eval model:
  `test_steps_with_wrong_inputs_and_before_gradients`; with labels that are no class, or of another batch:
  `test_wrong_labels_leave_gradients_and_statistics`

Modules of PyTorch: pytorch/test_bad_input.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import sardonyx
from sardonyx import errors
from sardonyx.formats import checkpoints
from sardonyx.formats.ort.encoding import encode
from sardonyx.runtime.saving import remembered
from sardonyx.training import artifacts, onnxblock
from sardonyx.training.api import CheckpointState, Module, Optimizer
from tests.training.test_files import DATA, feeds, opened

CASE = DATA / "mlp_ce_adamw"
HEAD = '<ir_version: 10, opset_import: ["": 18]> '


def generated(text: str, folder: Path, loss: Any = None, names: tuple[str, ...] = ("w",), **options: Any) -> None:
    model = options.pop("model", None) or onnx.parser.parse_model(HEAD + text)
    artifacts.generate_artifacts(model, requires_grad=list(names), loss=loss, artifact_directory=folder, **options)


MODELS = {
    "g (float[2,2] x) => (float y) <float[2,2] w = {1, 2, 3, 4}> { a = Mul(x, w) d = Hardmax(a) y = ReduceSum<keepdims=0>(d) }": (
        "Hardmax 'd': there is no gradient for Hardmax, through which the result depends on 'a'. Freeze what lies before it"
    ),
    "g (float[2] x) => (float y) <float[2] w = {1, 2}> { y = ReduceSum<keepdims=0>(x) }": "does not depend on 'w': freeze it",
    "g (float[2] x) => (int64 y) <float[2] w = {1, 2}> { a = Mul(x, w) y = ArgMax<keepdims=0>(a) }": (
        "the loss 'y' must be a floating-point tensor, it is tensor\\(int64\\)"
    ),
    "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Mul(x, w) }": "the loss 'y' must be one number, its shape is \\[2\\]",
    "g (float[2] x) => (float y) <int64[2] w = {1, 2}> { v = CastLike(w, x) a = Mul(x, v) y = ReduceSum<keepdims=0>(a) }": (
        "the parameter 'w' must be a floating-point tensor to be trained, it is tensor\\(int64\\)"
    ),
}


@pytest.mark.parametrize("text", MODELS)
def test_models_that_cannot_be_trained(text: str, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(HEAD + text)
    before = model.SerializeToString(deterministic=True)
    with pytest.raises(RuntimeError, match=MODELS[text]):
        artifacts.generate_artifacts(model, requires_grad=["w"], artifact_directory=tmp_path)
    assert not any(tmp_path.iterdir()) and model.SerializeToString(deterministic=True) == before


GOOD = "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Mul(x, w) i = Shape(y) }"
OPTIONS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no initializer": ({"names": ("v",)}, RuntimeError, "Node arg v is not found in the graph."),
    "both": ({"frozen_params": ["w"]}, RuntimeError, "A parameter cannot be frozen and require gradient computation"),
    "loss": ({"loss": "mse"}, RuntimeError, "Unknown loss provided <class 'str'>"),
    "optimizer": ({"optimizer": "adam"}, TypeError, "Unknown optimizer provided <class 'str'>"),
    "outputs": ({"additional_output_names": ["z"]}, LookupError, "The provided name z is not a graph value info"),
    "scores": ({"loss_input_names": ["z"]}, LookupError, "The provided name z is not a graph value info"),
    "target": (
        {"loss_input_names": ["y", "i"]},
        RuntimeError,
        r"Sub\) bound to different types \(tensor\(float\) and tensor\(int64\)",
    ),
    "model": ({"model": 3}, RuntimeError, "Please pass in either a string or an ONNX ModelProto"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_wrong_options_of_artifacts(name: str, tmp_path: Path) -> None:
    options, kind, message = OPTIONS[name]
    with pytest.raises(kind, match=message):
        generated(GOOD, tmp_path, **{"loss": artifacts.LossType.MSELoss, **options})
    assert not any(tmp_path.iterdir())


def test_the_second_output_may_be_the_target(tmp_path: Path) -> None:
    """As in onnxruntime, a loss is given all outputs of a model, unless `loss_input_names` says otherwise."""
    text = "g (float[2] x) => (float[2] y, float[2] z) <float[2] w = {1, 2}> { y = Mul(x, w) z = Add(x, x) }"
    generated(text, tmp_path, artifacts.LossType.MSELoss)
    state = CheckpointState.load_checkpoint(tmp_path / "checkpoint")
    assert Module(tmp_path / "training_model.onnx", state)(np.float32([3, 5])) == 4.5
    np.testing.assert_array_equal(state.parameters["w"].grad, [-9, 0])


def test_models_that_no_proto_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "LARGEST_PROTO", 100)
    with pytest.raises(RuntimeError, match=r"This model is > 2GB. Please pass in a path to the ONNX file instead."):
        generated(GOOD, tmp_path, artifacts.LossType.MSELoss)
    assert not any(tmp_path.iterdir())


@pytest.mark.slow  # it takes 6 GB of memory
def test_models_above_2_gb(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(HEAD + GOOD)
    model.graph.initializer.add(name="large", data_type=onnx.TensorProto.UINT8, dims=[2**31], raw_data=bytes(2**31))
    with pytest.raises(RuntimeError, match=r"This model is > 2GB. Please pass in a path to the ONNX file instead."):
        artifacts.generate_artifacts(model, requires_grad=["w"], artifact_directory=tmp_path)


def test_old_opsets_and_nested_bases(tmp_path: Path) -> None:
    old = onnx.parser.parse_model('<ir_version: 7, opset_import: ["": 11]> ' + GOOD)
    with pytest.raises(RuntimeError, match="Training needs opset 12 or later, the model has 11"):
        artifacts.generate_artifacts(old, requires_grad=["w"], loss=artifacts.LossType.MSELoss, artifact_directory=tmp_path)
    model = onnx.parser.parse_model(HEAD + GOOD)
    with pytest.raises(RuntimeError, match="Base onnx model already exists"), onnxblock.base(model), onnxblock.base(model):
        pass
    with pytest.raises(RuntimeError, match="Reduction max not supported"):
        onnxblock.loss.MSELoss(reduction="max")


def broken(change: Callable[[bytearray], Any]) -> bytes:
    content = bytearray((CASE / "checkpoint").read_bytes())
    change(content)
    return bytes(content)


def encoded(**fields: Any) -> bytes:
    """A checkpoint of one parameter."""
    tensor = {"name": "w", "dims": [2], "data_type": 1, "raw_data": bytes(8), **fields}
    state = {"requires_grad_params": [tensor], "frozen_params": [], "is_nominal_state": False, "has_external_data": False}
    return encode({"version": 2, "module_state": state}, checkpoints.ROOT, checkpoints.IDENTIFIER)


def of_version(number: int) -> bytes:
    content = bytearray((CASE / "checkpoint").read_bytes())
    table = int.from_bytes(content[:4], "little")
    entries = table - int.from_bytes(content[table : table + 4], "little", signed=True)
    place = table + int.from_bytes(content[entries + 4 : entries + 6], "little")
    content[place : place + 4] = number.to_bytes(4, "little")
    return bytes(content)


CHECKPOINTS = {
    "version": (of_version(3), "Checkpoint is invalid. Checkpoint version 3 is not supported."),
    "size": (encoded(dims=[2**40, 2**40]), "parameter 'w'"),
    "more elements": (encoded(dims=[3]), "parameter 'w'"),
    "negative size": (encoded(dims=[-2]), "parameter 'w'"),
    "element type": (encoded(data_type=77), "parameter 'w'"),
    "no name": (encoded(name=""), "A part of it has no name"),
    "outside of nothing": (
        encoded(external_data_offset=4),
        "parameter 'w' lies outside of the checkpoint, which says that nothing",
    ),
    "empty": (b"", "Checkpoint verification failed"),
    "short": (broken(lambda content: content.__delitem__(slice(200, None))), "Checkpoint verification failed"),
    "garbage": (b"\x08\0\0\0ABCD" + bytes(64), "Checkpoint verification failed"),
    "offset": (broken(lambda content: content.__setitem__(slice(0, 4), b"\xff\xff\xff\x7f")), "Checkpoint verification failed"),
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_broken_checkpoints(name: str, tmp_path: Path) -> None:
    content, message = CHECKPOINTS[name]
    (tmp_path / "checkpoint").write_bytes(content)
    with pytest.raises(RuntimeError, match=message):
        CheckpointState.load_checkpoint(tmp_path / "checkpoint")


@pytest.mark.parametrize("word", [0, 4, 0x7FFFFFFF, 0xFFFFFFF0, 0xFFFFFFFF])
def test_every_word_of_a_checkpoint_may_be_wrong(word: int, tmp_path: Path) -> None:
    """Offsets to themselves, to one another, and beyond the end; sizes that no file has."""
    content, path = (CASE / "checkpoint").read_bytes(), tmp_path / "checkpoint"
    for place in range(0, len(content) - 3, 4):
        path.write_bytes(content[:place] + word.to_bytes(4, "little") + content[place + 4 :])
        try:
            CheckpointState.load_checkpoint(path)
        except RuntimeError as error:
            assert "Checkpoint" in str(error) or "parameter" in str(error)


def test_every_byte_of_a_checkpoint_may_be_wrong(tmp_path: Path) -> None:
    """Nothing but RuntimeError comes of it, and no memory beyond the file's size."""
    content, path = (CASE / "checkpoint").read_bytes(), tmp_path / "checkpoint"
    random = np.random.default_rng(5)
    for place in random.integers(0, len(content), 300).tolist():
        changed = bytearray(content)
        changed[place] ^= int(random.integers(1, 256))
        path.write_bytes(changed)
        try:
            CheckpointState.load_checkpoint(path)
        except RuntimeError:
            pass


def test_checkpoints_that_are_not_there_or_not_whole(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="cannot be read: No such file"):
        CheckpointState.load_checkpoint(tmp_path / "none")
    with pytest.raises(RuntimeError, match="is a folder, as checkpoints of early versions were"):
        CheckpointState.load_checkpoint(tmp_path)
    (tmp_path / "alone").write_bytes((DATA / "external" / "checkpoint").read_bytes())
    with pytest.raises(RuntimeError, match="Failed to open checkpoint's external data file: .*alone.data"):
        CheckpointState.load_checkpoint(tmp_path / "alone")
    (tmp_path / "alone.data").write_bytes(b"\0" * 100)
    with pytest.raises(RuntimeError, match="lies at bytes .* of .*alone.data, which has 100"):
        CheckpointState.load_checkpoint(tmp_path / "alone")
    with pytest.raises(TypeError, match="Invalid argument for CheckpointState received <class 'str'>"):
        CheckpointState("checkpoint")  # type: ignore[arg-type]


def test_data_outside_of_the_folder_is_refused(tmp_path: Path) -> None:
    """The name is made of the checkpoint's own, so only a link can lead elsewhere. Caches link both files, and that works."""
    folder, elsewhere = tmp_path / "folder", tmp_path / "elsewhere"
    folder.mkdir(), elsewhere.mkdir()
    for name in ("checkpoint", "checkpoint.data"):
        (elsewhere / name).write_bytes((DATA / "external" / name).read_bytes())
    (folder / "checkpoint").write_bytes((elsewhere / "checkpoint").read_bytes())
    (folder / "checkpoint.data").symlink_to(elsewhere / "checkpoint.data")
    with pytest.raises(RuntimeError, match="Failed to open checkpoint's external data file: .* escapes model directory"):
        CheckpointState.load_checkpoint(folder / "checkpoint")
    (folder / "checkpoint").unlink()
    (folder / "checkpoint").symlink_to(elsewhere / "checkpoint")
    assert len(CheckpointState.load_checkpoint(folder / "checkpoint").parameters) == len(
        CheckpointState.load_checkpoint(DATA / "external" / "checkpoint").parameters
    )


def test_large_states_have_their_data_outside(tmp_path: Path) -> None:
    arrays = {"a": np.arange(100, dtype=np.float32), "b": np.arange(3, dtype=np.float64), "c": np.arange(9, dtype=np.int64)}
    checkpoints.write(checkpoints.Checkpoint(arrays), tmp_path / "large", largest_inside=100)
    assert (tmp_path / "large.data").stat().st_size == 400 + 72
    found = checkpoints.read(tmp_path / "large").trained
    assert all(np.array_equal(found[name], array) and found[name].dtype == array.dtype for name, array in arrays.items())


def test_steps_with_wrong_inputs_and_before_gradients() -> None:
    state, module, optimizer = opened("mlp_ce_adamw")
    given = feeds("mlp_ce_adamw", "step1")
    x, y = given["input"], given["labels"]
    before = {name: parameter.data.copy() for name, parameter in state.parameters}
    rate = optimizer.get_learning_rate()
    with pytest.raises(RuntimeError, match="Parameter 'fc1.bias' has no gradient yet"):
        optimizer.step()
    for inputs, message in [
        ((x,), "feed names has 11 elements, but feed has 10 elements"),
        ((x, y, y), "feed names has 11 elements, but feed has 12 elements"),
        ((x.astype(np.float64), y), "Unexpected input data type"),
        ((x[:, :3].copy(), y), "Got invalid dimensions for input: input"),
    ]:
        with pytest.raises(RuntimeError, match=message):
            module(*inputs)
    with pytest.raises(RuntimeError, match="Eval model was not provided"):
        module.eval()(x, y)
    with pytest.raises(RuntimeError, match="Eval model was not provided. Cannot export"):
        module.export_model_for_inferencing("nowhere.onnx", ["output"])
    with pytest.raises(ValueError, match="the learning rate must be a finite number of float32, not nan"):
        optimizer.set_learning_rate(float("nan"))
    with pytest.raises(ValueError, match="the learning rate must be a finite number of float32, not 1e"):
        optimizer.set_learning_rate(1e300)
    assert all(np.array_equal(state.parameters[name].data, data) for name, data in before.items())
    assert all(parameter.grad is None for _, parameter in state.parameters) and optimizer._step_count == 0
    assert optimizer.get_learning_rate() == rate
    with pytest.raises(RuntimeError, match=r"Parameter data shape mismatch. Expected: \{16\}, Got: \{3\}"):
        state.parameters["fc1.bias"] = np.zeros(3, np.float32)
    with pytest.raises(RuntimeError, match="Parameter data type mismatch"):
        state.parameters["fc1.bias"].data = np.zeros(16)
    with pytest.raises(KeyError, match="Parameter nowhere not found."):
        state.parameters["nowhere"]
    with pytest.raises(TypeError, match="must be an int, a float or a str"):
        state.properties["list"] = [1]  # type: ignore[assignment]


def test_states_and_files_of_other_kinds(tmp_path: Path) -> None:
    state = CheckpointState.load_checkpoint(CASE / "checkpoint")
    with pytest.raises(RuntimeError, match="The checkpoint is of another model: this one has no parameter 'fc1.bias'"):
        Module(DATA / "cnn_batchnorm" / "training_model.onnx", state)
    with pytest.raises(RuntimeError, match="File doesn't exist"):
        Module(tmp_path / "none.onnx", state)
    with pytest.raises(Exception, match="Unsupported device type: abacus"):
        Module(CASE / "training_model.onnx", state, device="abacus")
    _, module, _ = opened("mlp_ce_adamw")
    with pytest.raises(RuntimeError, match="Only support one type of optimizer algorithm, but got: 0"):
        Optimizer(CASE / "training_model.onnx", module)


def _moments(state: checkpoints.Checkpoint) -> dict[str, np.ndarray]:
    return state.groups["group0"].moments["fc1.weight"]  # type: ignore[index]


def _take_steps(state: checkpoints.Checkpoint, count: int) -> None:
    state.groups["group0"].step = count  # type: ignore[index]


def _as_double(arrays: dict[str, np.ndarray], name: str) -> None:
    arrays[name] = arrays[name].astype(np.float64)


PARTS: dict[str, tuple[Callable[[checkpoints.Checkpoint], Any], str]] = {
    "no parameter": (lambda state: state.trained.pop("fc1.weight"), "it has no parameter 'fc1.weight', which this one trains"),
    "one more": (lambda state: state.trained.update(more=np.zeros(2, np.float32)), "this one has no parameter 'more'"),
    "shape": (
        lambda state: state.trained.update({"fc1.weight": np.zeros(3, np.float32)}),
        r"parameter 'fc1.weight' is \[3\] there and \[16, 8\] here",
    ),
    "type": (
        lambda state: _as_double(state.trained, "fc1.weight"),
        "parameter 'fc1.weight' is double there and float here",
    ),
    "shape of moments": (
        lambda state: _moments(state).update(momentum0=np.zeros(3, np.float32)),
        r"momentum0 of 'fc1.weight' in another shape: \[3\], expected \[16, 8\]",
    ),
    "type of moments": (
        lambda state: _as_double(_moments(state), "momentum1"),
        "momentum1 of 'fc1.weight' in another type: float64, expected float32",
    ),
    "steps below zero": (lambda state: _take_steps(state, -5), "The checkpoint has taken -5 steps, expected 0 to"),
    "too many steps": (lambda state: _take_steps(state, 2**63 - 1), "The checkpoint has taken 9223372036854775807 steps"),
}


@pytest.mark.parametrize("name", PARTS)
def test_checkpoints_whose_parts_do_not_fit(name: str, tmp_path: Path) -> None:
    """They are refused before a step: nothing of a model is trained by halves."""
    change, message = PARTS[name]
    content = checkpoints.read(CASE / "checkpoint_after_2")
    change(content)
    checkpoints.write(content, tmp_path / "checkpoint")
    state = CheckpointState.load_checkpoint(tmp_path / "checkpoint")
    with pytest.raises(RuntimeError, match=message):
        Optimizer(CASE / "optimizer_model.onnx", Module(CASE / "training_model.onnx", state))


def test_buffers_that_do_not_fit_leave_the_parameters() -> None:
    state, module, _ = opened("mlp_ce_adamw")
    before = {name: parameter.data.copy() for name, parameter in state.parameters}
    size = module.get_parameters_size()
    for buffer, kind, message in [
        (np.zeros(3, np.float32), RuntimeError, f"The buffer has 3 elements, the parameters have {size}"),
        (np.zeros(size, np.int64), RuntimeError, "The buffer must be of float, not int64"),
    ]:
        with pytest.raises(kind, match=message):
            module.copy_buffer_to_parameters(sardonyx.OrtValue.ortvalue_from_numpy(buffer))
    with pytest.raises(TypeError, match="takes an OrtValue, not <class 'numpy.ndarray'>"):
        module.copy_buffer_to_parameters(np.zeros(size, np.float32))  # type: ignore[arg-type]
    assert all(np.array_equal(state.parameters[name].data, data) for name, data in before.items())


@pytest.mark.parametrize("case", ["mlp_ce_adamw", "cnn_batchnorm"])
def test_wrong_labels_leave_gradients_and_statistics(case: str, tmp_path: Path) -> None:
    """Also in a session that runs what an earlier one has made of the model; and the step after it is as ever."""
    state, module, _ = opened(case)
    given = feeds(case, "step1")
    x, y = given["input"], given["labels"]
    loss = module(x, y)
    before = {name: (parameter.data.copy(), np.copy(parameter.grad)) for name, parameter in state.parameters}
    wrong = y.copy()
    wrong[0] = 99
    for labels, message in [
        (wrong, "a target is 99, expected a class from 0"),
        (y[:2], r"a target of shape \[2\] does not fit"),
    ]:
        with pytest.raises(RuntimeError, match=message):
            module(x, labels)
    for name, (data, gradient) in before.items():
        assert np.array_equal(state.parameters[name].data, data), name
        np.testing.assert_array_equal(state.parameters[name].grad, gradient)
    if case == "mlp_ce_adamw":
        assert module(x, y) == loss


NODES = {
    "(int64[n] shape, int64[2] indices, float[2,3] dY) => (float y) { y = com.microsoft.GatherGrad<axis=100>(shape, indices, dY) }": (
        r"GatherGrad 'y' cannot be computed: its operands and attributes do not go together "
        r"\(axis 100 is outside \[-2, 1\], axis must be in \[-rank, rank-1\]\)"
    ),
    "(float dY, float X, float[2,2,3] W) => (float y) { y = com.microsoft.ConvGrad(dY, X, W) }": (
        r"ConvGrad 'y' is an op of training, .* \(the rank of 'X' is not known\)"
    ),
}


@pytest.mark.parametrize("text", NODES)
def test_nodes_of_training_that_cannot_be_written_are_named(text: str) -> None:
    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 18, "com.microsoft": 1]> g ' + text)
    for value in (*model.graph.input, *model.graph.output):
        if not value.type.tensor_type.shape.dim:
            value.type.tensor_type.ClearField("shape")
    model.graph.node[0].name = "y"
    with pytest.raises(errors.Fail, match=NODES[text]):
        sardonyx.InferenceSession(model.SerializeToString())


def test_a_model_that_no_file_can_hold_is_not_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What training's ops are made of is of a later opset than the model's."""
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(remembered, "WORTH_KEEPING", 0)
    text = "g (float[2,3] x) => (float[2,1] a, float[2,2] b) <int64[2] sizes = {1, 2}>"
    text += " { a, b = com.microsoft.SplitTraining<axis=1>(x, sizes) }"
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 13, "com.microsoft": 1]> ' + text)
    options = sardonyx.SessionOptions()
    options.add_session_config_entry("sardonyx.remember", "all")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    a, b = sardonyx.InferenceSession(model.SerializeToString(), options).run(None, {"x": x})
    assert np.array_equal(a, x[:, :1]) and np.array_equal(b, x[:, 1:])


@pytest.mark.parametrize(
    ("attributes", "message"),
    [('<auto_pad=" ">', "auto_pad"), ("<strides=[2]>", "dY")],
    ids=["unknown padding", "gradient of another convolution"],
)
def test_gradients_that_are_not_of_their_convolution_are_refused(attributes: str, message: str) -> None:
    text = f"(float[1,2,4] dY, float[1,2,5] X, float[2,2,2] W) => (float[1,2,5] y) {{ y = com.microsoft.ConvGrad{attributes}(dY, X, W) }}"
    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 18, "com.microsoft": 1]> g ' + text)
    with pytest.raises(errors.CODED, match=message):
        sardonyx.InferenceSession(model.SerializeToString())


def test_a_run_refuses_gradients_that_are_not_of_their_convolution() -> None:
    text = (
        "(float[n,1,h,w] dY, float[N,1,H,W] X, float[1,1,2,2] F) => (float[N,1,H,W] y) { y = com.microsoft.ConvGrad(dY, X, F) }"
    )
    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 18, "com.microsoft": 1]> g ' + text)
    session = sardonyx.InferenceSession(model.SerializeToString())
    ones = {name: np.ones((1, 1, *sizes), np.float32) for name, sizes in {"dY": (4, 3), "X": (5, 4), "F": (2, 2)}.items()}
    (y,) = session.run(None, ones)
    np.testing.assert_array_equal(y[0, 0, :, 0], [1, 2, 2, 2, 1])
    with pytest.raises(errors.CODED, match="ConvGrad"):  # as many pixels, but turned round
        session.run(None, {**ones, "dY": np.ones((1, 1, 3, 4), np.float32)})
