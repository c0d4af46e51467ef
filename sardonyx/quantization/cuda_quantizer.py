"""`CudaQuantizer`: weights in blocks for MatMulNBits and QMoE, by NumPy. What CUDA pre-packs needs its own library."""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.quantization.weight_only.blocks import pack, pack_zero_points, round_to_nearest


def has_cuda_weight_prepacking() -> bool:
    """Whether weights can be packed for CUDA's kernels: never here."""
    return False


class CudaQuantizer:
    @staticmethod
    def matmulnbits_blockwise_quantize(
        weights: Any,
        bits: int,
        block_size: int,
        *,
        symmetric: bool = True,
        return_zero_points: bool = False,
        abs_scales: bool = True,
        flatten_qweight: bool = True,
        unsigned_full_range: bool = True,
    ) -> Any:
        """(packed codes, scales) of a weight (N, K), and zero points where they are asked for, as NumPy arrays."""
        array = np.asarray(weights)
        blocks = round_to_nearest(array, bits, block_size, symmetric)
        codes, scales = blocks.codes, blocks.scales
        if symmetric and abs_scales:
            flipped = scales < 0
            codes = np.where(flipped[:, :, None], np.clip(2**bits - codes.astype(np.int16), 0, 2**bits - 1), codes).astype(
                np.uint8
            )
            scales = np.abs(scales)
        packed = pack(codes, bits)
        packed = packed.reshape(len(packed), -1) if flatten_qweight else packed
        if not return_zero_points:
            return packed, scales
        middle = np.full(scales.shape, 2 ** (bits - 1), np.uint8) if blocks.zero_points is None else blocks.zero_points
        return packed, scales, pack_zero_points(middle, bits)

    @staticmethod
    def symmetric_blockwise_quantize(weights: Any, bits: int, block_size: int, *, unsigned_full_range: bool = True) -> Any:
        """(packed codes, scales) of a weight (N, K), its zero points in the middle."""
        return CudaQuantizer.matmulnbits_blockwise_quantize(weights, bits, block_size, symmetric=True)

    @staticmethod
    def matmulnbits_prepacked_blockwise_quantize(*arguments: Any, **options: Any) -> Any:
        raise NotImplementedError(
            "weights are packed for CUDA by its own library; matmulnbits_blockwise_quantize packs for ONNX"
        )

    qmoe_prepacked_blockwise_quantize = qmoe_per_channel_quantize = matmulnbits_prepacked_blockwise_quantize
