"""Digits of scikit-learn: a convolutional network and a transformer are trained, exported and quantized. Run by test_quantizers.py.

What is printed: accuracies in percent of the models in float and in 8 bits, and where the quantized models lie.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

FOLDER = Path(sys.argv[-1])
EPOCHS = 12


class Convolutional(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Unflatten(1, (1, 8)),
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1, stride=2),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1, groups=32),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(128, 10),
        )


class Transformer(nn.Module):
    """Each row of a picture is a token."""

    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Linear(8, width)
        self.places = nn.Parameter(torch.randn(1, 8, width) * 0.1)
        layer = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, batch_first=True, activation="gelu")
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, pictures):
        return self.head(self.layers(self.embed(pictures) + self.places).mean(1))


def trained(network, pictures, labels):
    optimizer = torch.optim.Adam(network.parameters(), 3e-3)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(pictures)).split(32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(pictures[batch]), labels[batch]).backward()
            optimizer.step()
    return network.eval()


class Reader(CalibrationDataReader):
    def __init__(self, pictures):
        self.batches = iter(np.split(pictures[:320], 20))

    def get_next(self):
        batch = next(self.batches, None)
        return None if batch is None else {"pictures": batch}


def accuracy(path, pictures, labels):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return 100 * float((session.run(None, {"pictures": pictures})[0].argmax(1) == labels).mean())


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    digits = load_digits()
    parts = train_test_split((digits.images / 16).astype(np.float32), digits.target, test_size=0.4, random_state=0)
    train, test, train_labels, test_labels = parts
    results = {}
    for name, network in (("convolutional", Convolutional()), ("transformer", Transformer())):
        trained(network, torch.from_numpy(train), torch.from_numpy(train_labels))
        paths = {
            kind: str(FOLDER / f"{name}.{kind}.onnx") for kind in ("float", "ready", "qdq", "signed", "operators", "dynamic")
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                network,
                (torch.from_numpy(test[:2]),),
                paths["float"],
                input_names=["pictures"],
                output_names=["scores"],
                dynamic_axes={"pictures": {0: "N"}, "scores": {0: "N"}},
                dynamo=False,
            )
        quant_pre_process(paths["float"], paths["ready"], skip_symbolic_shape=True)  # the original fails on the transformer
        static = {"weight_type": QuantType.QInt8, "per_channel": True}
        quantize_static(paths["ready"], paths["qdq"], Reader(train), activation_type=QuantType.QUInt8, **static)
        quantize_static(paths["ready"], paths["signed"], Reader(train), activation_type=QuantType.QInt8, **static)
        form = {"quant_format": QuantFormat.QOperator, "activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
        quantize_static(paths["ready"], paths["operators"], Reader(train), **form)
        quantize_dynamic(paths["ready"], paths["dynamic"], weight_type=QuantType.QUInt8)
        results[name] = {kind: accuracy(path, test, test_labels) for kind, path in paths.items()}
    np.savez(FOLDER / "test.npz", pictures=test, labels=test_labels)
    print(json.dumps(results))


main()
