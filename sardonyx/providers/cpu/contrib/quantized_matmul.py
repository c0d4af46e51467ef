"""Matrix products of com.microsoft with quantized factors and floats as a result, in NumPy."""

from __future__ import annotations

import numpy as np

from sardonyx.errors import InferenceError, InvalidArgument, KernelError
from sardonyx.ops.coded_weights import BLOBS, blob_size
from sardonyx.providers.cpu.contrib.linalg import mat_mul_n_bits
from sardonyx.providers.cpu.linalg import matmul
from sardonyx.providers.cpu.prepared import prepared, unchanging
from sardonyx.providers.cpu.quantize import dynamic_quantize_linear, integer_product
from sardonyx.providers.cpu.table import cpu

contrib = cpu.in_domain("com.microsoft")


@contrib("DynamicQuantizeMatMul")
def dynamic_quantize_mat_mul(A, B, b_scale, b_zero_point=None, bias=None):
    quantized, a_scale, a_zero_point = dynamic_quantize_linear(A)
    return mat_mul_integer_to_float(quantized, B, a_scale, b_scale, a_zero_point, b_zero_point, bias)


@contrib("MatMulIntegerToFloat", widen=True)
def mat_mul_integer_to_float(A, B, a_scale, b_scale, a_zero_point=None, b_zero_point=None, bias=None):
    """Of B, scales and zero points may be one for each column."""
    product = integer_product(_centered(A, a_zero_point), _centered(B, b_zero_point)).astype(np.float32)
    product *= _single(a_scale) * _single(b_scale)
    return product if bias is None else product + bias


def _centered(matrix, zero_point):
    wide = matrix.astype(np.int16)
    return wide if zero_point is None else wide - _single(zero_point).astype(np.int16)


def _single(parameter):
    return parameter.reshape(()) if parameter.size == 1 else parameter


@contrib("MatMulInteger16")
def mat_mul_integer16(A, B, output_types=()):
    """Sums of 32 bits, which wrap around."""
    product = integer_product(A.astype(np.int32), B.astype(np.int32)).astype(np.int64)
    return product.astype(output_types[0].numpy if output_types else np.int32)


# --- weights of four bits as bitsandbytes makes them

FP4 = np.array([0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4], np.float32)
NF4 = np.array(
    [
        -1.0,
        -0.6961928009986877,
        -0.5250730514526367,
        -0.39491748809814453,
        -0.28444138169288635,
        -0.18477343022823334,
        -0.09105003625154495,
        0.0,
        0.07958029955625534,
        0.16093020141124725,
        0.24611230194568634,
        0.33791524171829224,
        0.44070982933044434,
        0.5626170039176941,
        0.7229568362236023,
        1.0,
    ],
    np.float32,
)
CODE_BOOKS = (np.concatenate([FP4, -FP4]), NF4)
"""What a number of four bits stands for, by `quant_type`. The quantiles are those of https://arxiv.org/abs/2305.14314."""


@contrib("MatMulBnb4", widen=True)
def mat_mul_bnb4(A, B, absmax, *, K, N, block_size, quant_type, training_mode=0, transB=1):
    """`training_mode` changes nothing in the product."""
    if quant_type not in (0, 1):
        raise KernelError(f"quant_type must be 0 (FP4) or 1 (NF4), not {quant_type}", InvalidArgument)
    if B.size != (N * K + 1) // 2 or absmax.size != -(-N * K // block_size):
        raise KernelError(
            f"{N} x {K} weights in blocks of {block_size} do not take {B.size} bytes and {absmax.size} scales", InvalidArgument
        )
    layout = (K, N, block_size, quant_type)
    if unchanging(B, absmax):
        weights = prepared(dequantized, B, absmax, _LAYOUTS.setdefault(layout, layout), size=4 * N * K)
    else:
        weights = dequantized(B, absmax, layout)
    return matmul(A, weights.T if transB else weights)


_LAYOUTS: dict[tuple[int, int, int, int], tuple[int, int, int, int]] = {}
"""One object for each layout, because `prepared` goes by identity."""


def dequantized(B: np.ndarray, absmax: np.ndarray, layout: tuple[int, int, int, int]) -> np.ndarray:
    """The (N, K) weights: two in a byte, the higher bits first, each block of them with its own scale."""
    K, N, block_size, quant_type = layout
    packed = B.reshape(-1)
    codes = np.stack([packed >> np.uint8(4), packed & np.uint8(15)], axis=1).reshape(-1)[: N * K]
    weights: np.ndarray = CODE_BOOKS[quant_type][codes]
    weights *= np.repeat(absmax.reshape(-1).astype(np.float32, copy=False), block_size)[: N * K]
    return weights.reshape(N, K)


# --- weights of four bits as onnxruntime's own packing has them


@contrib("MatMulFpQ4")
def mat_mul_fp_q4(A, B, B_shape, blk_quant_type=1):
    K, N = map(int, B_shape)
    try:
        size = blob_size(K, N, blk_quant_type)
    except InferenceError as error:
        raise KernelError(str(error), InvalidArgument) from None
    if B.size != size or A.shape[-1] != K:
        raise KernelError(
            f"{K} x {N} weights of blk_quant_type {blk_quant_type} take {size} bytes and {K} columns of A, not {B.size} and"
            f" {A.shape[-1]}",
            InvalidArgument,
        )
    codes, scales, zero_points = blob_weights(B, K, N, blk_quant_type)
    return mat_mul_n_bits(A, codes, scales, zero_points, K=K, N=N, block_size=BLOBS[blk_quant_type][0])


def blob_weights(B: np.ndarray, K: int, N: int, blk_quant_type: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """A blob as the operands B, scales and zero_points of MatMulNBits."""
    block, head = BLOBS[blk_quant_type]
    blocks = B.reshape(N, -(-K // block), head + block // 2)
    scales = np.ascontiguousarray(blocks[..., :4]).view(np.float32)[..., 0]
    zero_points = blocks[..., 4].astype(np.float32) if head > 4 else None
    halves = blocks[..., head:].reshape(*blocks.shape[:2], -1, 16)  # the first sixteen of 32 codes in the lower bits
    codes = np.stack([halves & np.uint8(15), halves >> np.uint8(4)], axis=3).reshape(*blocks.shape[:2], block)
    return codes[..., 0::2] | (codes[..., 1::2] << np.uint8(4)), scales, zero_points
