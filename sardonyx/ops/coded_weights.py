"""Sizes of weights of few bits, as attributes of nodes tell them. Inference and kernels of products with such weights ask here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sardonyx.ir import Dim
from sardonyx.ops.shapes import text


def weight_sizes(K: int, N: int, block_size: int, bits: int) -> dict[str, tuple[int, ...]]:
    """How many elements operands may have, what is usual first; zero points are packed if they are bytes."""
    blocks = -(-K // block_size)
    return {
        "B": (N * blocks * block_size * bits // 8,),
        "scales": (N * blocks,),
        "zero_points": (N * blocks,),
        "packed zero_points": (N * -(-blocks * bits // 8),),
        "g_idx": (K, blocks * block_size, 0),
        "bias": (N,),
    }


def wrong_size(name: str, shape: Iterable[Dim], sizes: Sequence[int]) -> str:
    return f"{name} is {text(shape)}, K, N, bits and block_size ask for {sizes[0]} elements"
