"""Cases of com.microsoft's products of quantized matrices."""

import itertools

import numpy as np

from sardonyx.dtypes import bfloat16, float16, float32
from sardonyx.providers.cpu.contrib.quantized_matmul import CODE_BOOKS
from tests.ops.cases import array, case, f32, i16, refuse, u8

CONTRIB = "com.microsoft"
BOTH = {"domain": CONTRIB, "against_onnxruntime": True}


def numbers(dtype, *shape):
    return array(dtype, *shape, low=np.iinfo(dtype).min, high=np.iinfo(dtype).max + 1)


def weight_numbers(dtype, *shape):
    """Numbers of 7 bits if they have a sign: on CPUs without VNNI onnxruntime adds two products with uint8 in 16 bits, which saturate."""
    return numbers(dtype, *shape) if dtype == np.uint8 else array(dtype, *shape, low=-64, high=64)


# --- DynamicQuantizeMatMul


def dynamic(A, B, b_scale, b_zero_point=0, bias=0):
    low, high = min(A.min(initial=0), 0), max(A.max(initial=0), 0)
    scale = np.float32(high - low) / np.float32(255) if high > low else np.float32(1)
    zero_point = np.rint(np.clip(-low / scale, 0, 255))
    quantized = np.clip(np.rint(A / scale) + zero_point, 0, 255).astype(np.int64)
    weights = B.astype(np.int64) - np.asarray(b_zero_point, np.int64)
    return ((quantized - int(zero_point)) @ weights * (np.float64(scale) * b_scale) + bias).astype(np.float32)


for dtype in (np.uint8, np.int8):
    B = weight_numbers(dtype, 4, 5)
    common = {**BOTH, "expect": dynamic}
    case("DynamicQuantizeMatMul", A=f32(3, 4), B=B, b_scale=0.1, **common)
    case("DynamicQuantizeMatMul", A=f32(3, 4), B=B, b_scale=0.1, b_zero_point=np.array(7, dtype), bias=f32(5), **common)
    columns = {"b_scale": f32(5, low=0.01, high=0.1), "b_zero_point": numbers(dtype, 5)}
    case("DynamicQuantizeMatMul", A=f32(2, 3, 4), B=B, **columns, bias=f32(5), **common)
    case("DynamicQuantizeMatMul", A=f32(2, 3, 4), B=weight_numbers(dtype, 2, 4, 5), b_scale=0.1, **common)
    case("DynamicQuantizeMatMul", A=f32(1, 1), B=numbers(dtype, 1, 1), b_scale=0.1, **common)
    case("DynamicQuantizeMatMul", A=np.zeros((3, 4), np.float32), B=B, b_scale=0.1, **common)
    case("DynamicQuantizeMatMul", A=f32(3, 4, low=1, high=2), B=B, b_scale=0.1, **common)
    case("DynamicQuantizeMatMul", A=f32(0, 4), B=B, b_scale=0.1, domain=CONTRIB, expect=dynamic)
refuse("DynamicQuantizeMatMul", A=f32(3, 4), B=u8(3, 4), b_scale=0.1, domain=CONTRIB, match="inner sizes differ")

# --- MatMulIntegerToFloat


def to_float(A, B, a_scale, b_scale, a_zero_point=0, b_zero_point=0, bias=0):
    left = A.astype(np.int64) - int(a_zero_point)
    right = B.astype(np.int64) - np.asarray(b_zero_point, np.int64)
    return (left @ right * (np.float64(a_scale) * b_scale) + bias).astype(np.float32)


for ta, tb in itertools.product((np.uint8, np.int8), repeat=2):
    scales = {"a_scale": 0.05, "b_scale": 0.1}
    points = {"a_zero_point": np.array(9, ta), "b_zero_point": np.array(5, tb)}
    common = {**BOTH, "expect": to_float, "rtol": 1e-5, "atol": 1e-4}
    case("MatMulIntegerToFloat", A=numbers(ta, 3, 4), B=weight_numbers(tb, 4, 5), **scales, **common)
    case("MatMulIntegerToFloat", A=numbers(ta, 3, 4), B=weight_numbers(tb, 4, 5), **scales, **points, bias=f32(5), **common)
    columns = {"a_scale": 0.05, "b_scale": f32(5, low=0.01, high=0.1), "b_zero_point": numbers(tb, 5)}
    case("MatMulIntegerToFloat", A=numbers(ta, 2, 3, 4), B=weight_numbers(tb, 4, 5), **columns, **common)
    case("MatMulIntegerToFloat", A=numbers(ta, 2, 3, 4), B=weight_numbers(tb, 2, 4, 5), **scales, **points, **common)
    case("MatMulIntegerToFloat", A=numbers(ta, 0, 4), B=numbers(tb, 4, 5), **scales, domain=CONTRIB, expect=to_float)
case(
    "MatMulIntegerToFloat",
    A=u8(3, 4),
    B=u8(4, 5),
    a_scale=0.25,
    b_scale=0.5,
    bias=f32(5),
    types={"T3": {float32, float16}},
    domain=CONTRIB,
    expect=to_float,
    rtol=1e-3,
    atol=1e-3,
)
SATURATING = {"A": np.full((1, 64), 255, np.uint8), "B": np.full((64, 1), -128, np.int8), "a_scale": 1.0, "b_scale": 1.0}
case("MatMulIntegerToFloat", **SATURATING, domain=CONTRIB, expect=[[64 * 255 * -128.0]])

case("MatMulInteger16", A=i16(3, 4), B=i16(4, 5), **BOTH, expect=lambda A, B: A.astype(np.int32) @ B.astype(np.int32))
case("MatMulInteger16", A=i16(2, 3, 4), B=i16(4, 5), **BOTH, expect=lambda A, B: A.astype(np.int32) @ B.astype(np.int32))
LARGE = {"A": np.full((1, 4), -32768, np.int16), "B": np.full((4, 1), -32768, np.int16)}
case("MatMulInteger16", **LARGE, domain=CONTRIB, expect=np.zeros((1, 1), np.int32))
unsigned = {"A": np.full((1, 2), 65535, np.uint16), "B": np.full((2, 1), 65535, np.uint16)}
case("MatMulInteger16", **unsigned, domain=CONTRIB, expect=np.array([[(2 * 65535**2) % 2**32]], np.uint32))
case(
    "MatMulInteger16", A=unsigned["A"], B=i16(2, 1), domain=CONTRIB, expect=lambda A, B: A.astype(np.int32) @ B.astype(np.int32)
)
case("MatMulInteger16", A=i16(0, 4), B=i16(4, 5), domain=CONTRIB, expect=np.zeros((0, 5), np.int32))

# --- MatMulBnb4


def bnb4(A, B, absmax, K, N, block_size, quant_type, transB=1):
    weights = np.empty(N * K, np.float32)
    for index in range(N * K):
        byte = int(B[index // 2])
        code = byte % 16 if index % 2 else byte // 16
        weights[index] = CODE_BOOKS[quant_type][code] * absmax[index // block_size]
    matrix = weights.reshape(N, K)
    return A @ (matrix.T if transB else matrix)


for quant_type, (K, N) in itertools.product((0, 1), ((16, 3), (33, 5), (64, 4))):
    size = N * K
    for block_size in (16, 64):
        weights = {"B": numbers(np.uint8, (size + 1) // 2), "absmax": f32(-(-size // block_size), low=0.5, high=2)}
        settings = {**weights, "K": K, "N": N, "block_size": block_size, "quant_type": quant_type, **BOTH, "expect": bnb4}
        # onnxruntime multiplies from its own packing, in another order
        case("MatMulBnb4", A=f32(2, 3, K), **settings, rtol=1e-4, atol=1e-5)
        case("MatMulBnb4", A=f32(1, K), **settings, rtol=1e-4, atol=1e-5)
SMALL = {"B": numbers(np.uint8, 24), "absmax": f32(3), "K": 16, "N": 3, "block_size": 16, "quant_type": 1, "domain": CONTRIB}
case("MatMulBnb4", A=f32(2, 3), **SMALL, transB=0, training_mode=1, expect=bnb4)
case("MatMulBnb4", A=f32(2, 16), **SMALL, types={"T1": {float32, float16, bfloat16}}, expect=bnb4, rtol=3e-2, atol=3e-2)
case("MatMulBnb4", A=f32(0, 16), **SMALL, expect=np.zeros((0, 3), np.float32))
refuse("MatMulBnb4", A=f32(2, 15), **SMALL, match="last size should be 16")
refuse("MatMulBnb4", A=f32(2, 16), **{**SMALL, "quant_type": 2}, match="quant_type must be 0")
refuse("MatMulBnb4", A=f32(2, 16), **{**SMALL, "absmax": f32(2)}, match="absmax is .2., K, N and block_size ask for 3 elements")

# --- MatMulFpQ4


def fp_q4(A, B, B_shape, blk_quant_type=1):
    """Block by block: the scale, a zero point in type 1, then codes, of each 32 the first 16 in the lower bits."""
    K, N = B_shape
    size, head = {0: (32, 4), 1: (32, 5), 2: (64, 4)}[blk_quant_type]
    columns, place = [], 0
    for _ in range(N):
        column = []
        for _ in range(-(-K // size)):
            block = B[place : place + head + size // 2]
            place += block.size
            zero = block[4] if head == 5 else 8
            for part in block[head:].reshape(-1, 16):
                column += [
                    (int(code) - int(zero)) * float(block[:4].view(np.float32)[0]) for code in (*(part % 16), *(part // 16))
                ]
        columns.append(column[:K])
    return (A.astype(np.float64) @ np.array(columns).T).astype(np.float32)


def blob(K, N, blk_quant_type):
    size, head = {0: (32, 4), 1: (32, 5), 2: (64, 4)}[blk_quant_type]
    blocks = numbers(np.uint8, N * -(-K // size), head + size // 2)
    blocks[:, :4] = f32(len(blocks), 1, low=0.5, high=2).view(np.uint8)
    blocks[:, 4:head] %= 16
    return blocks.reshape(-1)


for kind, (K, N) in itertools.product((0, 1), ((64, 5), (75, 7), (32, 1))):
    settings = {"B": blob(K, N, kind), "B_shape": np.array([K, N]), "blk_quant_type": kind, "expect": fp_q4}
    case("MatMulFpQ4", A=f32(2, 3, K), **settings, **BOTH, rtol=1e-4, atol=1e-4)
    case("MatMulFpQ4", A=f32(1, K), **settings, **BOTH, rtol=1e-4, atol=1e-4)
# onnxruntime describes the type 2, and refuses blobs of its size
WIDE = {"B": blob(100, 3, 2), "B_shape": np.array([100, 3]), "blk_quant_type": 2, "domain": CONTRIB}
case("MatMulFpQ4", A=f32(4, 100), **WIDE, expect=fp_q4, rtol=1e-4, atol=1e-4)
case("MatMulFpQ4", A=f32(0, 100), **WIDE, expect=np.zeros((0, 3), np.float32))
refuse("MatMulFpQ4", A=f32(4, 100), **{**WIDE, "blk_quant_type": 3}, match="blk_quant_type must be 0, 1 or 2")
refuse("MatMulFpQ4", A=f32(4, 99), **WIDE, match="100")
refuse("MatMulFpQ4", A=f32(4, 100), **{**WIDE, "B": u8(7)}, match="take 216 bytes")
refuse("MatMulFpQ4", A=f32(4, 100), **{**WIDE, "B_shape": np.array([-100, 3])}, match="must be positive")
