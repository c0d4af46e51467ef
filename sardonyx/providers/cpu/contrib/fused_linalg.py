"""MatMulNBitsMlp and MatMulNBitsQkv of com.microsoft, in NumPy."""

from __future__ import annotations

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.activation import gelu, swish
from sardonyx.providers.cpu.contrib.linalg import mat_mul_n_bits
from sardonyx.providers.cpu.contrib.normalization import skip_simplified_layer_normalization
from sardonyx.providers.cpu.normalization import rms_normalization
from sardonyx.providers.cpu.table import cpu

contrib = cpu.in_domain("com.microsoft")

GATES = {"silu": swish, "swish": swish, "gelu": gelu}


def _normalized(A, skip, norm_scale, epsilon):
    """What the products take, and the sum of A and skip, which must not lie in the memory of A."""
    if norm_scale is None:
        return A, np.array(A)
    if skip is None:
        return rms_normalization(A, norm_scale, epsilon=epsilon), np.array(A)
    output, _, _, total = skip_simplified_layer_normalization(A, skip, norm_scale, epsilon=epsilon)
    return output, total


@contrib("MatMulNBitsMlp", widen=True)
def mat_mul_n_bits_mlp(
    A,
    skip,
    norm_scale,
    gate_B,
    gate_scales,
    gate_bias,
    up_B,
    up_scales,
    up_bias=None,
    *,
    K,
    N,
    block_size,
    activation,
    bits=4,
    accuracy_level=0,
    epsilon=1e-5,
):
    if activation not in GATES:
        raise KernelError(f"activation must be one of {', '.join(GATES)}, not {activation!r}", InvalidArgument)
    rows, total = _normalized(A, skip, norm_scale, epsilon)
    layout = {"K": K, "N": N, "block_size": block_size, "bits": bits, "accuracy_level": accuracy_level}
    gate = mat_mul_n_bits(rows, gate_B, gate_scales, bias=gate_bias, **layout)
    up = mat_mul_n_bits(rows, up_B, up_scales, bias=up_bias, **layout)
    return GATES[activation](gate) * up, total


@contrib("MatMulNBitsQkv", widen=True)
def mat_mul_n_bits_qkv(
    A,
    skip,
    norm_scale,
    q_B,
    q_scales,
    q_bias,
    k_B,
    k_scales,
    k_bias,
    v_B,
    v_scales,
    v_bias=None,
    *,
    K,
    Nq,
    Nkv,
    block_size,
    bits=4,
    accuracy_level=0,
    epsilon=1e-6,
):
    rows, total = _normalized(A, skip, norm_scale, epsilon)
    layout = {"K": K, "block_size": block_size, "bits": bits, "accuracy_level": accuracy_level}
    query = mat_mul_n_bits(rows, q_B, q_scales, bias=q_bias, N=Nq, **layout)
    key = mat_mul_n_bits(rows, k_B, k_scales, bias=k_bias, N=Nkv, **layout)
    value = mat_mul_n_bits(rows, v_B, v_scales, bias=v_bias, N=Nkv, **layout)
    return query, key, value, total
