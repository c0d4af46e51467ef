"""Digits of 8 × 8 pixels, learnt on ONNX files: artifacts, steps with an optimizer, a checkpoint, and a model for inference.

    python examples/train_digits.py

The digits are scikit-learn's where that is installed, else drawn here with noise.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnx.parser

import sardonyx
from sardonyx.training import artifacts
from sardonyx.training.api import CheckpointState, Module, Optimizer

NETWORK = """
<ir_version: 10, opset_import: ["": 21]>
digits (float[N, 64] pixels) => (float[N, 10] scores) {
    h = Gemm<transB = 1>(pixels, w1, b1)
    a = Relu(h)
    scores = Gemm<transB = 1>(a, w2, b2)
}
"""
FONT = "757 262 717 717 551 747 747 711 757 757|525 622 151 171 557 445 545 122 525 557|757 277 747 717 711 757 757 222 757 711"


def load_digits(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Pictures of numbers between 0 and 1, and their labels."""
    try:
        from sklearn import datasets
    except ImportError:
        return draw_digits(1500, np.random.default_rng(seed))
    found = datasets.load_digits()
    return (found.data / 16).astype(np.float32), found.target.astype(np.int64)


def draw_digits(count: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    rows = [[f"{int(code):03b}" for code in "".join(part.split()[digit] for part in FONT.split("|"))] for digit in range(10)]
    glyphs = np.array([[[int(pixel) for pixel in row] for row in digit] for digit in rows], np.float32)  # 9 × 3 pixels
    labels = random.integers(0, 10, count)
    pictures = np.zeros((count, 10, 8), np.float32)
    for picture, label, shift in zip(pictures, labels, random.integers(1, 4, count), strict=True):
        picture[:9, shift : shift + 3] = glyphs[label]
    noise = random.normal(scale=0.2, size=(count, 8, 8))
    return (pictures[:, 1:9] + noise).reshape(count, 64).astype(np.float32), labels.astype(np.int64)


def make_model(seed: int) -> onnx.ModelProto:
    random = np.random.default_rng(seed)
    model = onnx.parser.parse_model(NETWORK)
    for name, *shape in (("w1", 32, 64), ("b1", 32), ("w2", 10, 32), ("b2", 10)):
        values = random.normal(scale=shape[-1] ** -0.5, size=shape) if len(shape) > 1 else np.zeros(shape)
        model.graph.initializer.append(onnx.numpy_helper.from_array(values.astype(np.float32), name))
    return model


def train(folder: Path, pixels: np.ndarray, labels: np.ndarray, epochs: int, seed: int) -> Module:
    artifacts.generate_artifacts(
        make_model(seed),
        requires_grad=["w1", "b1", "w2", "b2"],
        loss=artifacts.LossType.CrossEntropyLoss,
        optimizer=artifacts.OptimType.AdamW,
        artifact_directory=folder,
    )
    state = CheckpointState.load_checkpoint(folder / "checkpoint")
    module = Module(folder / "training_model.onnx", state, folder / "eval_model.onnx")
    optimizer = Optimizer(folder / "optimizer_model.onnx", module)
    optimizer.set_learning_rate(3e-3)
    random = np.random.default_rng(seed)
    for epoch in range(epochs):
        order, losses = random.permutation(len(pixels)), []
        for start in range(0, len(order), 50):
            batch = order[start : start + 50]
            losses.append(module(pixels[batch], labels[batch]))
            optimizer.step()
            module.lazy_reset_grad()
        print(f"epoch {epoch + 1}: loss {np.mean(losses):.3f}")
    CheckpointState.save_checkpoint(state, folder / "trained", include_optimizer_state=True)
    return module


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--with", choices=("files",), default="files", help="how to train: on ONNX files")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    pixels, labels = load_digits(options.seed)
    tested = len(pixels) // 5
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        module = train(folder, pixels[tested:], labels[tested:], options.epochs, options.seed)
        module.export_model_for_inferencing(folder / "digits.onnx", ["scores"])
        (scores,) = sardonyx.InferenceSession(folder / "digits.onnx").run(None, {"pixels": pixels[:tested]})
    print(f"test accuracy {np.mean(scores.argmax(axis=1) == labels[:tested]):.3f}")


if __name__ == "__main__":
    main()
