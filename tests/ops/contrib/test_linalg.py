"""Cases of MatMulNBits, against weights unpacked number by number."""

import numpy as np
import pytest

from sardonyx.dtypes import bfloat16, float16, float32
from sardonyx.providers.cpu.contrib import linalg
from tests.ops.cases import case, f32, refuse, u8

CONTRIB = "com.microsoft"


def number(packed, index, bits):
    """The number `index` in a run of bytes that is filled from its lowest bit on."""
    whole = int.from_bytes(bytes(packed.tolist()), "little")
    return whole >> (index * bits) & ((1 << bits) - 1)


def weights(B, scales, K, N, block_size, bits=4, zero_points=None, g_idx=None):
    result = np.zeros((N, K))
    for n, k in np.ndindex(N, K):
        block = k // block_size
        group = block if g_idx is None else g_idx[k]
        shift = 1 << (bits - 1)
        if zero_points is not None:
            packed = zero_points.dtype == np.uint8
            shift = number(zero_points[n], group, bits) if packed else zero_points[n, group]
        result[n, k] = (number(B[n, block], k % block_size, bits) - float(shift)) * scales[n, group]
    return result


def product(A, B, scales, K, N, block_size, bits=4, zero_points=None, g_idx=None, bias=None):
    found = A.astype(np.float64) @ weights(B, scales, K, N, block_size, bits, zero_points, g_idx).T
    return found if bias is None else found + bias


N, BLOCK = 6, 16
for bits in (2, 3, 4, 8):
    for K in (32, 40):
        blocks = -(-K // BLOCK)
        layout = {
            "K": K,
            "N": N,
            "block_size": BLOCK,
            "bits": bits,
            "domain": CONTRIB,
            "atol": 1e-4 * 2**bits,
            "expect": product,
        }
        operands = {"A": f32(2, 3, K), "B": u8(N, blocks, BLOCK * bits // 8, low=0, high=256), "scales": f32(N, blocks)}
        packed = u8(N, -(-blocks * bits // 8), low=0, high=256)
        case("MatMulNBits", **operands, **layout, against_onnxruntime=bits != 3)
        case("MatMulNBits", **operands, **layout, zero_points=packed, bias=f32(N), against_onnxruntime=bits != 3)
        case("MatMulNBits", **operands, **layout, zero_points=f32(N, blocks), accuracy_level=1)
        case("MatMulNBits", **operands, **layout, g_idx=np.arange(K, dtype=np.int32)[::-1] // BLOCK)
SMALL = {"K": 32, "N": N, "block_size": BLOCK, "domain": CONTRIB}
HALVES = {"types": {"T1": {float32, float16, bfloat16}}, "rtol": 3e-2, "atol": 2.0}
case("MatMulNBits", A=f32(3, 32), B=u8(N, 2, 8), scales=f32(N, 2), **SMALL, **HALVES, expect=product)
case("MatMulNBits", A=f32(32), B=u8(N, 2, 8), scales=f32(N, 2), **SMALL, expect=product)
case("MatMulNBits", A=f32(0, 32), B=u8(N, 2, 8), scales=f32(N, 2), **SMALL, expect=np.zeros((0, N)))
refuse("MatMulNBits", A=f32(3, 31), B=u8(N, 2, 8), scales=f32(N, 2), **SMALL, match="its last size should be K, 32")
refuse("MatMulNBits", A=f32(3, 32), B=u8(N, 2, 8), scales=f32(N, 2), **SMALL, weight_prepacked=1, match="packed for a GPU")
WRONG = {"A": f32(3, 32), "B": u8(N, 2, 8), "scales": f32(N, 2), **SMALL}
refuse("MatMulNBits", **{**WRONG, "B": u8(N, 2, 7)}, match=r"B is \[6, 2, 7\], K, N, bits and block_size ask for 96 elements")
refuse("MatMulNBits", **{**WRONG, "scales": f32(N, 3)}, match="scales is .* ask for 12 elements")
refuse("MatMulNBits", **WRONG, zero_points=u8(N, 2), match="zero_points is .* ask for 6 elements")
refuse("MatMulNBits", **WRONG, zero_points=f32(N, 1), match="zero_points is .* ask for 12 elements")
refuse("MatMulNBits", **WRONG, g_idx=np.zeros(31, np.int32), match="g_idx is .* ask for 32 elements")
refuse("MatMulNBits", **WRONG, bias=f32(N + 1), match="bias is .* ask for 6 elements")
refuse("MatMulNBits", **{**WRONG, "block_size": 24}, match="block_size must be a power of two, 16 or more, not 24")
refuse("MatMulNBits", **WRONG, bits=9, match="bits from 2 to 8")
for groups in (np.full(32, 2, np.int32), np.full(32, -1, np.int32)):
    refuse("MatMulNBits", **WRONG, g_idx=groups, match="g_idx goes from .* there are 2 blocks")


@pytest.mark.parametrize("constant", [True, False])
def test_large_weights_are_dequantized_piece_by_piece(monkeypatch, constant):
    A, B, scales, points = f32(3, 32), u8(N, 2, 8), f32(N, 2), u8(N, 1)
    for array in (B, scales, points):
        array.flags.writeable = not constant
    whole = linalg.mat_mul_n_bits(A, B, scales, points, K=32, N=N, block_size=BLOCK)
    monkeypatch.setattr(linalg, "KEPT_BYTES", 0)
    monkeypatch.setattr(linalg, "CHUNK_BYTES", 4 * 32 * 4)
    pieces = linalg.mat_mul_n_bits(A, B, scales, points, K=32, N=N, block_size=BLOCK)
    np.testing.assert_allclose(pieces, whole, atol=1e-5)


def test_weights_that_can_change_are_read_again():
    A, B, scales = f32(3, 32), u8(N, 2, 8), f32(N, 2)
    before = linalg.mat_mul_n_bits(A, B, scales, K=32, N=N, block_size=BLOCK)
    scales *= 2
    after = linalg.mat_mul_n_bits(A, B, scales, K=32, N=N, block_size=BLOCK)
    np.testing.assert_allclose(after, 2 * before, rtol=1e-6)
