"""The models whose training steps are measured: an MLP, ResNet-18, BERT, GPT with attention written out, and a character LSTM."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

Step = Callable[[nn.Module], torch.Tensor]
"""The loss of one batch."""


def mlp() -> tuple[nn.Module, Step]:
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    rows, labels = torch.randn(64, 256), torch.randint(0, 10, (64,))
    return model, lambda compiled: functional.cross_entropy(compiled(rows), labels)


class Block(nn.Module):
    """Two convolutions and a short cut, as ResNet-18 has eight of."""

    def __init__(self, channels: int, out: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.shortcut = (
            nn.Identity()
            if channels == out and stride == 1
            else nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + self.shortcut(x))


def resnet18(batch: int = 8, size: int = 64) -> tuple[nn.Module, Step]:
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    widths = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]
    blocks = [Block(*width) for width in widths]
    model = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))
    images, labels = torch.randn(batch, 3, size, size), torch.randint(0, 10, (batch,))
    return model, lambda compiled: functional.cross_entropy(compiled(images), labels)


class Attention(nn.Module):
    """Attention whose scores are computed in the open."""

    def __init__(self, width: int, heads: int, causal: bool):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5
        if self.causal:
            mask = torch.ones(length, length, dtype=torch.bool).tril()
            scores = scores.masked_fill(~mask, float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    """One layer of a transformer; the norms come first in GPT, last in BERT."""

    def __init__(self, width: int, heads: int, causal: bool):
        super().__init__()
        self.attention = Attention(width, heads, causal)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.feed = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh" if causal else "none"), nn.Linear(4 * width, width)
        )
        self.first = causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.first:
            x = x + self.attention(self.norm1(x))
            return x + self.feed(self.norm2(x))
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.feed(x))


class Transformer(nn.Module):
    """Tokens to scores of the vocabulary."""

    def __init__(self, vocabulary: int, width: int, heads: int, layers: int, length: int, causal: bool):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.layers = nn.Sequential(*(Layer(width, heads, causal) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.layers(x)))


def _language(model: nn.Module, vocabulary: int, batch: int, length: int) -> tuple[nn.Module, Step]:
    ids, labels = torch.randint(0, vocabulary, (batch, length)), torch.randint(0, vocabulary, (batch, length))
    return model, lambda compiled: functional.cross_entropy(compiled(ids).flatten(0, 1), labels.flatten())


def bert(batch: int = 8, length: int = 64) -> tuple[nn.Module, Step]:
    return _language(Transformer(1000, 256, 4, 4, length, causal=False), 1000, batch, length)


def gpt(batch: int = 4, length: int = 128) -> tuple[nn.Module, Step]:
    return _language(Transformer(1000, 384, 6, 4, length, causal=True), 1000, batch, length)


class CharLSTM(nn.Module):
    """Characters to scores of the next one."""

    def __init__(self, vocabulary: int = 64, width: int = 128):
        super().__init__()
        self.tokens, self.lstm = nn.Embedding(vocabulary, width), nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.tokens(ids))[0])


def char_lstm() -> tuple[nn.Module, Step]:
    return _language(CharLSTM(), 64, 16, 24)


MODELS = {"mlp": mlp, "resnet18": resnet18, "bert": bert, "gpt": gpt, "char_lstm": char_lstm}
