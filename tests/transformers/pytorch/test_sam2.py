"""SAM 2's modules around a tiny model of the same parts: by the package's own way to use them, and as files in both runtimes."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import onnxruntime
import pytest

import sardonyx
from sardonyx.transformers.models.sam2 import benchmark_sam2, convert_to_onnx, image_decoder, image_encoder, mask_decoder
from sardonyx.transformers.models.sam2 import prompt_encoder as prompts
from sardonyx.transformers.models.sam2.sam2_image_onnx_predictor import SAM2ImageOnnxPredictor

torch = pytest.importorskip("torch", reason="torch is the extra 'train'; `make test-training` runs these tests")
nn = torch.nn

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
SIDE, WIDTH = 64, 8
CPU = "CPUExecutionProvider"


class ImageEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.levels = nn.ModuleList(nn.Conv2d(3, WIDTH, scale, scale) for scale in (4, 8, 16))

    def forward(self, image):
        return {"backbone_fpn": [level(image) for level in self.levels]}


class Places(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("directions", torch.randn(2, WIDTH // 2))

    def forward_with_coords(self, coords, size):
        coords = coords.clone()
        coords[:, :, 0] = coords[:, :, 0] / size[1]
        coords[:, :, 1] = coords[:, :, 1] / size[0]
        angles = 6.28 * (2 * coords - 1) @ self.directions
        return torch.cat([angles.sin(), angles.cos()], dim=-1)


class PromptEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.pe_layer = Places()
        self.point_embeddings = nn.ModuleList(nn.Embedding(1, WIDTH) for _ in range(4))
        self.not_a_point_embed, self.no_mask_embed = nn.Embedding(1, WIDTH), nn.Embedding(1, WIDTH)
        self.mask_downscaling = nn.Sequential(nn.Conv2d(1, 4, 2, 2), nn.GELU(), nn.Conv2d(4, WIDTH, 2, 2))
        self.register_buffer("dense", torch.randn(1, WIDTH, SIDE // 16, SIDE // 16))

    def get_dense_pe(self):
        return self.dense


class MaskDecoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv_s0, self.conv_s1 = nn.Conv2d(WIDTH, 2, 1), nn.Conv2d(WIDTH, 4, 1)
        self.tokens, self.scores = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(WIDTH, 4)
        self.fine, self.middle = nn.Conv2d(2, WIDTH, 1), nn.Conv2d(4, WIDTH, 1)

    def predict_masks(
        self, image_embeddings, image_pe, sparse_prompt_embeddings, dense_prompt_embeddings, repeat_image, high_res_features
    ):
        tokens = sparse_prompt_embeddings.mean(dim=1)
        if repeat_image:
            image_embeddings = torch.repeat_interleave(image_embeddings, tokens.shape[0], dim=0)
        source = image_embeddings + dense_prompt_embeddings + image_pe
        source = nn.functional.interpolate(source, scale_factor=2) + self.middle(high_res_features[1])
        source = nn.functional.interpolate(source, scale_factor=2) + self.fine(high_res_features[0])
        masks = torch.einsum("bnc,bchw->bnhw", self.tokens(tokens).view(-1, 4, WIDTH), source)
        return masks, self.scores(tokens).sigmoid(), None, None

    def _dynamic_multimask_via_stability(self, masks, scores):
        best = scores[:, 1:].argmax(dim=1) + 1
        rows = torch.arange(scores.shape[0])
        single = masks[:, :1]
        is_stable = ((single > 0.05).sum((2, 3)) / (single > -0.05).sum((2, 3)).clamp(min=1)) >= 0.9
        chosen, score = masks[rows, best].unsqueeze(1), scores[rows, best].unsqueeze(1)
        return torch.where(is_stable[..., None, None], single, chosen), torch.where(is_stable, scores[:, :1], score)


class Tiny(nn.Module):
    image_size, num_feature_levels = SIDE, 3

    def __init__(self):
        super().__init__()
        self.image_encoder = ImageEncoder()
        self.sam_prompt_encoder, self.sam_mask_decoder = PromptEncoder(), MaskDecoder()
        self.no_mem_embed = nn.Parameter(torch.randn(1, 1, WIDTH))


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Tiny().eval()


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


def near(got, wanted) -> None:
    torch.testing.assert_close(torch.as_tensor(got), torch.as_tensor(wanted), rtol=1e-4, atol=1e-5)


def features_of(model, image):
    """The features of a batch as the package's predictor makes them: in rows of places, level by level, and back."""
    levels = model.image_encoder(image)["backbone_fpn"]
    levels[0], levels[1] = model.sam_mask_decoder.conv_s0(levels[0]), model.sam_mask_decoder.conv_s1(levels[1])
    rows = [level.flatten(2).permute(2, 0, 1) for level in levels]
    rows[-1] = rows[-1] + model.no_mem_embed
    return [row.permute(1, 2, 0).view(len(image), -1, *level.shape[2:]) for row, level in zip(rows, levels)]


def prompts_of(model, coords, labels, mask):
    """The embeddings of one label as the package's prompt encoder makes them, point by point."""
    encoder = model.sam_prompt_encoder
    coords = torch.cat([coords + 0.5, torch.zeros(1, 2)])
    places = encoder.pe_layer.forward_with_coords(coords[None], (SIDE, SIDE))[0]
    rows = []
    for place, label in zip(places, [*labels.tolist(), -1]):
        is_point = label >= 0
        rows.append(place + encoder.point_embeddings[label].weight[0] if is_point else encoder.not_a_point_embed.weight[0])
    absent = encoder.no_mask_embed.weight.reshape(-1, 1, 1).expand(-1, SIDE // 16, SIDE // 16)
    return torch.stack(rows), absent if mask is None else encoder.mask_downscaling(mask[None])[0]


def test_features_of_several_images(model) -> None:
    images = torch.randn(3, 3, SIDE, SIDE)
    for got, wanted in zip(image_encoder.SAM2ImageEncoder(model)(images), features_of(model, images), strict=True):
        near(got, wanted)


def test_prompts_of_several_labels(model) -> None:
    coords = torch.rand(3, 4, 2) * SIDE
    labels = torch.tensor([[1, 0, -1, 2], [3, 3, 1, -1], [0, 0, 0, 0]], dtype=torch.int32)
    masks = torch.randn(3, 1, SIDE // 4, SIDE // 4)
    sparse, dense, places = prompts.SAM2PromptEncoder(model)(coords, labels, masks, torch.tensor([1.0, 0.0, 1.0]))
    for row, has_mask in enumerate((True, False, True)):
        wanted = prompts_of(model, coords[row], labels[row], masks[row] if has_mask else None)
        near(sparse[row], wanted[0])
        near(dense[row], wanted[1])
    near(places, model.sam_prompt_encoder.dense)


def inputs_of_decoder(model, size=(40, 50)):
    features = features_of(model, torch.randn(1, 3, SIDE, SIDE))
    coords, labels = torch.rand(2, 3, 2) * SIDE, torch.tensor([[1, 0, 1], [2, 3, 1]], dtype=torch.int32)
    return [*features, coords, labels, torch.zeros(2, 1, SIDE // 4, SIDE // 4), torch.zeros(2), torch.tensor(size)]


def masks_of(model, inputs):
    """All masks of the labels, one label after the other."""
    fine, middle, coarse, coords, labels, *_ = inputs
    results = []
    for row in range(len(coords)):
        sparse, dense = prompts_of(model, coords[row], labels[row], None)
        encoder = model.sam_prompt_encoder
        masks, scores, *_ = model.sam_mask_decoder.predict_masks(
            coarse, encoder.dense, sparse[None], dense[None], False, [fine, middle]
        )
        results.append((masks, scores))
    return torch.cat([masks for masks, _ in results]), torch.cat([scores for _, scores in results])


@pytest.mark.parametrize("several", [True, False])
def test_masks_of_several_labels(model, several: bool) -> None:
    inputs = inputs_of_decoder(model)
    masks, scores = masks_of(model, inputs)
    single = model.sam_mask_decoder._dynamic_multimask_via_stability(masks, scores)
    wanted = (masks[:, 1:], scores[:, 1:]) if several else single
    whole, scores, small = image_decoder.SAM2ImageDecoder(model, several, return_logits=True)(*inputs)
    near(small, wanted[0].clamp(-32, 32))
    near(scores, wanted[1])
    near(whole, nn.functional.interpolate(wanted[0], (40, 50), mode="bilinear"))
    is_inside = image_decoder.SAM2ImageDecoder(model, several)(*inputs)[0]
    assert torch.equal(is_inside, whole > 0)


EXPORTS = {
    "image_encoder": lambda model, path: (
        image_encoder.export_image_encoder_onnx(model, path, dynamic_batch_axes=True),
        image_encoder.test_image_encoder_onnx(model, path, dynamic_batch_axes=True),
    ),
    "prompt_encoder": lambda model, path: (
        prompts.export_prompt_encoder_onnx(model, path),
        prompts.test_prompt_encoder_onnx(model, path),
    ),
    "mask_decoder": lambda model, path: (
        mask_decoder.export_mask_decoder_onnx(model, path, False, False),
        mask_decoder.test_mask_decoder_onnx(model, path, False, False),
    ),
    "image_decoder": lambda model, path: (
        image_decoder.export_decoder_onnx(model, path, True),
        image_decoder.test_decoder_onnx(model, path, True),
    ),
}
PARTS = {
    "image_encoder": lambda model: image_encoder.encoder_part(model, True),
    "prompt_encoder": prompts.prompt_part,
    "mask_decoder": lambda model: mask_decoder.mask_part(model, False, False),
    "image_decoder": lambda model: image_decoder.decoder_part(model, True),
}


@pytest.mark.parametrize("component", list(EXPORTS))
def test_files(model, component: str, tmp_path: Path) -> None:
    path = str(tmp_path / f"{component}.onnx")
    _, is_near = EXPORTS[component](model, path)
    assert is_near
    part = PARTS[component](model)
    feeds = part.feeds((3, 4), np.random.default_rng(5))
    for runtime in (onnxruntime, sardonyx):
        results = runtime.InferenceSession(path, providers=[CPU]).run(part.output_names, feeds)
        for name, got, wanted in zip(part.output_names, results, part.run(feeds), strict=True):
            if name == "masks":
                assert np.mean(got != wanted) < 1e-3
            else:
                near(got, wanted)


def test_a_file_of_another_model_is_not_near(model, tmp_path: Path) -> None:
    path = str(tmp_path / "prompts.onnx")
    prompts.export_prompt_encoder_onnx(Tiny().eval(), path)
    assert not prompts.test_prompt_encoder_onnx(model, path)


class PackagePredictor:
    """What SAM2ImagePredictor does for its subclass."""

    device = torch.device("cpu")

    def __init__(self, sam_model, mask_threshold=0.0, max_hole_area=0.0, max_sprinkle_area=0.0):
        self.model = sam_model
        self.reset_predictor()

    def reset_predictor(self):
        self._is_image_set = False

    def _transforms(self, image):
        pixels = torch.from_numpy(image).permute(2, 0, 1).float() / 255
        return nn.functional.interpolate(pixels[None], (SIDE, SIDE))[0]


@pytest.fixture
def package(monkeypatch):
    module = ModuleType("sam2.sam2_image_predictor")
    module.SAM2ImagePredictor = PackagePredictor
    monkeypatch.setitem(sys.modules, "sam2", ModuleType("sam2"))
    monkeypatch.setitem(sys.modules, module.__name__, module)


def test_a_predictor_of_sessions(model, package, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(convert_to_onnx, "load_sam2_model", lambda folder, size, device: model)
    common = ["--output_dir", str(tmp_path), "--model_type", "sam2_hiera_tiny"]
    encoder, single = convert_to_onnx.main(common)
    (several,) = convert_to_onnx.main([*common, "--components", "image_decoder", "--multimask_output", "--optimize"])
    assert Path(several).name == "sam2_hiera_tiny_image_decoder_multi_fp32_cpu.onnx"
    onnx.checker.check_model(several)
    predictor = SAM2ImageOnnxPredictor(model, encoder, single, several)
    assert isinstance(predictor, PackagePredictor)
    with pytest.raises(RuntimeError, match="set_image"):
        predictor._predict(None, None)
    image = np.random.default_rng(0).integers(0, 256, (30, 46, 3), dtype=np.uint8)
    predictor.set_image(image)
    features = features_of(model, predictor._transforms(image)[None])
    near(predictor._features["image_embed"], features[2])
    points, labels = torch.tensor([[[3.0, 4.0]], [[20.0, 9.0]]]), torch.tensor([[1], [0]])
    boxes = torch.tensor([[1.0, 2.0, 30.0, 40.0], [5.0, 6.0, 7.0, 8.0]])
    coords, kinds = torch.cat([boxes.view(-1, 2, 2), points], 1), torch.tensor([[2, 3, 1], [2, 3, 0]])
    wanted = image_decoder.SAM2ImageDecoder(model, True)(
        *features, coords, kinds, torch.zeros(2, 1, 16, 16), torch.zeros(2), torch.tensor([30, 46])
    )
    for got, expected in zip(predictor._predict(points, labels, boxes), wanted, strict=True):
        near(got, expected.float())
    given = torch.randn(1, 1, 16, 16)
    wanted = image_decoder.SAM2ImageDecoder(model, False)(
        *features, points, labels, given.expand(2, -1, -1, -1), torch.ones(2), torch.tensor([30, 46])
    )
    got = predictor._predict(points, labels, mask_input=given, multimask_output=False)
    near(got[2], wanted[2])
    with pytest.raises(NotImplementedError, match="return_logits"):
        predictor._predict(points, labels, return_logits=True)
    with pytest.raises(ValueError, match="points or boxes"):
        predictor._predict(None, None)


def test_both_engines_are_measured(model, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(benchmark_sam2, "load_sam2_model", lambda folder, size, device: model)
    monkeypatch.chdir(tmp_path)
    path = str(tmp_path / "encoder.onnx")
    image_encoder.export_image_encoder_onnx(model, path)
    monkeypatch.setattr(benchmark_sam2, "encoder_shape_dict", lambda batch, height, width: {"image": [batch, 3, height, width]})
    common = ["--onnx_path", path, "--height", str(SIDE), "--width", str(SIDE), "--repeats", "2", "--warm_up", "1"]
    for engine in ("ort", "torch"):
        row = benchmark_sam2.main([*common, "--engine", engine])
        assert row["engine"] == f"{engine}:cpu" and 0 < row["average_latency"] < 60
    assert len(list(tmp_path.glob("benchmark_sam_cpu_*.csv"))) == 2
