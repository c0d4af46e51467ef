"""Digits of 8 × 8 pixels, learnt in four ways that take the same steps.

    python examples/train_digits.py --with files      on ONNX files: artifacts, a checkpoint, and a model for inference
    python examples/train_digits.py --with eager      a module of PyTorch as it is
    python examples/train_digits.py --with ortmodule  the same inside of ORTModule
    python examples/train_digits.py --with compile    the same through torch.compile

The digits are scikit-learn's where that is installed, else drawn here with noise. All but the first need PyTorch.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


def batches(count: int, epochs: int, seed: int) -> Iterator[list[np.ndarray]]:
    """The rows of each batch of each epoch."""
    random = np.random.default_rng(seed)
    for _ in range(epochs):
        order = random.permutation(count)
        yield [order[start : start + 50] for start in range(0, count, 50)]


def report(epoch: int, losses: list[float]) -> None:
    print(f"epoch {epoch + 1}: loss {np.mean(losses):.4f}")


# --- on files


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
    for epoch, parts in enumerate(batches(len(pixels), epochs, seed)):
        losses = []
        for batch in parts:
            losses.append(module(pixels[batch], labels[batch]))
            optimizer.step()
            module.lazy_reset_grad()
        report(epoch, losses)
    CheckpointState.save_checkpoint(state, folder / "trained", include_optimizer_state=True)
    return module


def scores_from_files(pixels: np.ndarray, labels: np.ndarray, tested: np.ndarray, epochs: int, seed: int) -> np.ndarray:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        module = train(folder, pixels, labels, epochs, seed)
        module.export_model_for_inferencing(folder / "digits.onnx", ["scores"])
        return sardonyx.InferenceSession(folder / "digits.onnx").run(None, {"pixels": tested})[0]


# --- with PyTorch


def make_module(seed: int) -> Any:
    """The network of the files, with their weights, as a module."""
    import torch

    network = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    weights = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in make_model(seed).graph.initializer}
    names = {"0.weight": "w1", "0.bias": "b1", "2.weight": "w2", "2.bias": "b2"}
    network.load_state_dict({name: torch.tensor(weights[other]) for name, other in names.items()})
    return network


def wrapped(network: Any, way: str) -> Any:
    if way == "ortmodule":
        from sardonyx.training import ORTModule

        return ORTModule(network)
    if way == "compile":
        import torch

        return torch.compile(network, backend="sardonyx")
    return network


def scores_from_torch(
    way: str, pixels: np.ndarray, labels: np.ndarray, tested: np.ndarray, epochs: int, seed: int
) -> np.ndarray:
    import torch

    from sardonyx.training.optim import FusedAdam

    network = make_module(seed)
    model = wrapped(network, way)
    optimizer = FusedAdam(network.parameters(), lr=3e-3)  # that of the files
    for epoch, parts in enumerate(batches(len(pixels), epochs, seed)):
        losses = []
        for batch in parts:
            loss = torch.nn.functional.cross_entropy(model(torch.tensor(pixels[batch])), torch.tensor(labels[batch]))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        report(epoch, losses)
    with torch.no_grad():
        return model(torch.tensor(tested)).numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    ways = ("files", "eager", "ortmodule", "compile")
    parser.add_argument("--with", dest="way", choices=ways, default="files", help="how to train")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    pixels, labels = load_digits(options.seed)
    tested = len(pixels) // 5
    learnt = pixels[tested:], labels[tested:], pixels[:tested], options.epochs, options.seed
    scores = scores_from_files(*learnt) if options.way == "files" else scores_from_torch(options.way, *learnt)
    print(f"test accuracy {np.mean(scores.argmax(axis=1) == labels[:tested]):.3f}")


if __name__ == "__main__":
    main()
