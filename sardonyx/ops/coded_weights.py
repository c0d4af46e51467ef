"""Sizes of weights of few bits, as attributes of nodes tell them. Inference and kernels of products with such weights ask here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sardonyx.errors import InferenceError
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


BLOBS = {0: (32, 4), 1: (32, 5), 2: (64, 4)}
"""By `blk_quant_type` of MatMulFpQ4: the numbers of a block, and the bytes before its codes: a scale as float32, perhaps a zero point."""


def blob_size(K: int, N: int, blk_quant_type: int) -> int:
    """How many bytes weights (K, N) take."""
    if blk_quant_type not in BLOBS:
        raise InferenceError(f"blk_quant_type must be 0, 1 or 2, not {blk_quant_type}")
    if K < 1 or N < 1:
        raise InferenceError(f"B_shape is [{K}, {N}], sizes must be positive")
    block, head = BLOBS[blk_quant_type]
    return N * -(-K // block) * (head + block // 2)
