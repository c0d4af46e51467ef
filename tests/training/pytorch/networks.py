"""Small networks of the common kinds, each with a batch for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


def _conv(channels: int, out: int, size: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(channels, out, size, stride, size // 2, groups=groups, bias=False), nn.BatchNorm2d(out))


class Residual(nn.Module):
    """A block of ResNet, with a stride and a short cut."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(_conv(8, 16, stride=2), nn.ReLU(), _conv(16, 16))
        self.shortcut = _conv(8, 16, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


class Inverted(nn.Module):
    """An inverted residual, with squeeze-and-excite for EfficientNet."""

    def __init__(self, activation: nn.Module, squeezes: bool, size: int):
        super().__init__()
        self.widen = nn.Sequential(_conv(8, 24, 1), activation)
        self.depthwise = nn.Sequential(_conv(24, 24, size, groups=24), activation)
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(24, 6, 1), activation, nn.Conv2d(6, 24, 1), nn.Sigmoid()
        )
        self.narrow = _conv(24, 8, 1)
        self.squeezes = squeezes

    def forward(self, x: Tensor) -> Tensor:
        y = self.depthwise(self.widen(x))
        return x + self.narrow(y * self.squeeze(y) if self.squeezes else y)


class UNet(nn.Module):
    """One level down and up again, by transposed convolution and by resizing."""

    def __init__(self, norm: Any):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), norm(8), nn.ReLU())
        self.low = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1), norm(8), nn.ReLU())
        self.up = nn.ConvTranspose2d(8, 8, 2, 2)
        self.last = nn.Conv2d(24, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        high = self.down(x)
        low = self.low(high)
        return self.last(torch.cat([high, self.up(low), functional.interpolate(low, scale_factor=2)], 1))


class Decoder(nn.Module):
    """A layer of GPT with torch's attention."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.norm, self.qkv = nn.Embedding(20, 32), nn.LayerNorm(32), nn.Linear(32, 96)
        self.feed = nn.Sequential(
            nn.LayerNorm(32), nn.Linear(32, 64), nn.GELU(approximate="tanh"), nn.Linear(64, 32), nn.Dropout(0.1)
        )

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        x = x + functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return x + self.feed(x)


class ViT(nn.Module):
    """Patches, a class token and one layer of torch's encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.token = nn.Conv2d(3, 32, 4, 4), nn.Parameter(torch.randn(1, 1, 32))
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, 0.1, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patches(x).flatten(2).transpose(1, 2)
        return self.layer(torch.cat([self.token.expand(len(x), -1, -1), patches], 1))[:, 0]


class Recurrent(nn.Module):
    """Tokens through two layers in both directions."""

    def __init__(self, kind: Any):
        super().__init__()
        self.tokens, self.layers = nn.Embedding(20, 8), kind(8, 8, 2, batch_first=True, bidirectional=True)

    def forward(self, ids: Tensor) -> Tensor:
        return self.layers(self.tokens(ids))[0]


def networks() -> dict[str, tuple[nn.Module, Tensor]]:
    """By name."""
    pictures, ids = torch.randn(2, 3, 16, 16), torch.randint(0, 20, (2, 6))
    stem = nn.Sequential(_conv(3, 8), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    encoder = nn.TransformerEncoderLayer(32, 4, 64, 0.1, "gelu", batch_first=True)
    average = nn.Sequential(nn.Conv2d(3, 8, 5), nn.AvgPool2d(3, 2, 1), nn.AdaptiveAvgPool2d(3), nn.LeakyReLU())
    return {
        "resnet": (nn.Sequential(stem, Residual(), head, nn.Linear(16, 5)), pictures),
        "mobilenet": (nn.Sequential(_conv(3, 8, stride=2), Inverted(nn.ReLU6(), False, 3), head), pictures),
        "mobilenet v3": (nn.Sequential(_conv(3, 8, stride=2), Inverted(nn.Hardswish(), True, 5), head), pictures),
        "efficientnet": (nn.Sequential(_conv(3, 8, stride=2), Inverted(nn.SiLU(), True, 5), head), pictures),
        "average pools": (average, pictures),
        "unet, batch norm": (UNet(nn.BatchNorm2d), pictures),
        "unet, instance norm": (UNet(lambda width: nn.InstanceNorm2d(width, affine=True)), pictures),
        "unet, group norm": (UNet(lambda width: nn.GroupNorm(2, width)), pictures),
        "bert": (nn.Sequential(nn.Embedding(20, 32), encoder, nn.Linear(32, 20)), ids),
        "gpt": (nn.Sequential(Decoder(), nn.LayerNorm(32), nn.Linear(32, 20)), ids),
        "vit": (ViT(), pictures),
        "lstm": (Recurrent(nn.LSTM), ids),
        "gru": (Recurrent(nn.GRU), ids),
    }
