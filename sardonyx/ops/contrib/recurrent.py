"""Recurrent layers of com.microsoft with quantized weights."""

from __future__ import annotations

from sardonyx.dtypes import float32, int8, int32, uint8
from sardonyx.ir import dim
from sardonyx.ops.recurrent import recurrent_shapes
from sardonyx.ops.schemas import define
from sardonyx.ops.shapes import merge_dims
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
def dynamic_quantize_lstm(X, R, direction, hidden_size):
    weights = R.require_rank(3, name="R")
    found = dim.fresh() if weights is None else weights[1]
    hidden = merge_dims(found, hidden_size, "hidden_size and R") if hidden_size else found
    return recurrent_shapes(X, hidden, direction, layout=0)
