"""Parts of the exporter of large models: files by them give what PyTorch gives, in both runtimes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import sardonyx
from sardonyx.transformers import large_model_exporter as exporter
from tests.transformers.pytorch import tiny_llama

torch = pytest.importorskip("torch", reason="torch is the extra 'train'; `make test-training` runs these tests")
hub = pytest.importorskip("transformers", reason="the models are of the package transformers")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]
CPU = ["CPUExecutionProvider"]


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny"
    tiny_llama.save(path)
    return path


def results(path: Path, feeds: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    found = []
    for runtime in (onnxruntime, sardonyx):
        session = runtime.InferenceSession(str(path), providers=CPU)
        names = [value.name for value in session.get_outputs()]
        found.append(dict(zip(names, session.run(names, feeds), strict=True)))
    return found


def test_a_file_of_words_and_one_behind_them(folder: Path, tmp_path: Path) -> None:
    model, samples = exporter.initialize_model_and_sample_inputs(str(folder), None)
    model = exporter.move_to_appropriate_device(model.half(), samples)
    assert model.dtype == torch.float32
    samples = exporter.adapt_inputs_to_device(samples, "cpu")
    names, inputs, past = exporter.retrieve_onnx_inputs(model, samples, True)
    assert inputs[names.index("input_ids")] is samples[0] and inputs[names.index("use_cache")] is True
    first = exporter.fetch_onnx_inputs_outputs_name(model, inputs, names, past, True, False)
    assert first[0] == ("input_ids", "attention_mask") and first[1][:3] == ("logits", "present.0.key", "present.0.value")
    exporter.do_export_internal(model, first, inputs, tmp_path / "model.onnx", 17)
    later = exporter.fetch_onnx_inputs_outputs_name(model, inputs, names, past, True, True)
    assert later[0][2:] == tuple(f"past_key_values.{layer}.{part}" for layer in (0, 1) for part in ("key", "value"))
    assert inputs[names.index("input_ids")].shape == (1, 1) and inputs[names.index("past_key_values")] is past
    exporter.do_export_internal(model, later, inputs, tmp_path / "later" / "model.onnx", 17)

    words = torch.tensor([[7, 5, 9, 11, 3], [20, 21, 22, 23, 24]])
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    places = (mask.cumsum(-1) - 1).clamp(min=0)
    wanted = model(words, attention_mask=mask, position_ids=places, use_cache=True)
    feeds = {"input_ids": words[:, :3].numpy(), "attention_mask": mask[:, :3].numpy()}
    rest = {"input_ids": words[:, 3:].numpy(), "attention_mask": mask.numpy()}
    for found in results(tmp_path / "model.onnx", feeds):
        np.testing.assert_allclose(found["logits"][1], wanted.logits[1, :3].numpy(), atol=1e-5)
        np.testing.assert_allclose(found["logits"][0, 2], wanted.logits[0, 2].numpy(), atol=1e-5)
        caches = {name.replace("present", "past_key_values"): array for name, array in found.items() if name != "logits"}
        for behind in results(tmp_path / "later" / "model.onnx", rest | caches):
            np.testing.assert_allclose(behind["logits"], wanted.logits[:, 3:].numpy(), atol=1e-5)
            assert behind["present.1.value"].shape[2] == 5


def test_files_without_a_cache(folder: Path, tmp_path: Path) -> None:
    model, samples = exporter.initialize_model_and_sample_inputs(str(folder), None, str(folder))
    names, inputs, past = exporter.retrieve_onnx_inputs(model, samples, False)
    assert past is None
    given = exporter.fetch_onnx_inputs_outputs_name(model, inputs, names, past, False, False)
    assert given[1] == ("logits",)
    (tmp_path / "model.onnx").write_text("old")
    exporter.do_export_internal(model, given, inputs, tmp_path / "model.onnx", 17)
    assert [value.name for value in onnx.load(tmp_path / "model.onnx").graph.output] == ["logits"]


def test_what_cannot_be_told_is_refused(folder: Path) -> None:
    model, samples = exporter.initialize_model_and_sample_inputs(str(folder), None)
    names, inputs, _ = exporter.retrieve_onnx_inputs(model, samples, True)
    length = samples[0].shape[1]
    twice = [(torch.zeros(1, length, length, 8), torch.zeros(1, length, length, 8))]
    with pytest.raises(ValueError, match="do not tell which axis"):
        exporter.fetch_onnx_inputs_outputs_name(model, inputs, names, twice, True, False)
    inputs[names.index("attention_mask")] = None
    with pytest.raises(ValueError, match="the tensors are input_ids"):
        exporter.fetch_onnx_inputs_outputs_name(model, inputs, names, None, False, False)


def test_weights_come_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in exporter.INITIALIZERS:
        monkeypatch.setattr(torch.nn.init, name, getattr(torch.nn.init, name))  # so that it is put back
    exporter.disable_huggingface_init()
    tensor = torch.full((3, 3), 7.0)
    for name in exporter.INITIALIZERS:
        assert getattr(torch.nn.init, name)(tensor, 1) is tensor
    assert tensor.unique().tolist() == [7]
