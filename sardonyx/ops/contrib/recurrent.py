"""Recurrent layers of com.microsoft with quantized weights."""

from __future__ import annotations

from sardonyx.dtypes import float32, int8, int32, uint8
from sardonyx.ops.quantize import check_scales
from sardonyx.ops.recurrent import hidden_size_of, recurrent_shapes
from sardonyx.ops.schemas import define
from sardonyx.ops.table import in_domain

define(
    "com.microsoft",
    "DynamicQuantizeLSTM",
    1,
    "(X: T, W: T2, R: T2, B: T?, sequence_lens: T1?, initial_h: T?, initial_c: T?, P: T?, W_scale: T, W_zero_point: T2,"
    " R_scale: T, R_zero_point: T2, *, activation_alpha: floats?, activation_beta: floats?, activations: strings?,"
    " clip: float?, direction: string = 'forward', hidden_size: int?, input_forget: int = 0)"
    " -> (Y: T?, Y_h: T?, Y_c: T?)",
    T={float32},
    T1={int32},
    T2={uint8, int8},
)


@in_domain("com.microsoft")("DynamicQuantizeLSTM")
def dynamic_quantize_lstm(X, R, B, sequence_lens, initial_h, initial_c, P, W_scale, R_scale, direction, hidden_size):
    """W and R stand transposed and are not compared: the products with them do."""
    check_scales(W_scale=W_scale, R_scale=R_scale)
    operands = {"B": B, "sequence_lens": sequence_lens, "initial_h": initial_h, "initial_c": initial_c, "P": P}
    return recurrent_shapes(X, hidden_size_of(R, 1, hidden_size), direction, 0, 4, operands)
