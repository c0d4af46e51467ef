"""DynamicQuantizeLSTM of com.microsoft, in NumPy."""

from __future__ import annotations

import numpy as np

from sardonyx.providers.cpu.quantize import dynamic_quantize_linear, integer_product
from sardonyx.providers.cpu.recurrent import check_operands, lstm_functions, lstm_inputs, lstm_step, run_layers
from sardonyx.providers.cpu.table import cpu


@cpu.kernel("DynamicQuantizeLSTM", domain="com.microsoft")
def dynamic_quantize_lstm(
    X,
    W,
    R,
    B=None,
    sequence_lens=None,
    initial_h=None,
    initial_c=None,
    P=None,
    W_scale=None,
    W_zero_point=None,
    R_scale=None,
    R_zero_point=None,
    *,
    activation_alpha=(),
    activation_beta=(),
    activations=None,
    clip=None,
    direction="forward",
    hidden_size=None,
    input_forget=0,
):
    """Weights are 8-bit and stand transposed; the inputs of all steps, and the hidden state of each, are quantized on the way."""
    hidden = hidden_size or R.shape[1]
    plain = {"W": W.swapaxes(1, 2), "R": R.swapaxes(1, 2)}
    check_operands(4, X, hidden, direction, 0, **plain, B=B, initial_h=initial_h, initial_c=initial_c, P=P)
    functions = lstm_functions(activations, activation_alpha, activation_beta, direction, clip)

    def layer(X, number):
        steps, batch, size = X.shape
        input_weights = _QuantizedWeights(W[number], W_scale[number], W_zero_point[number])
        state_weights = _QuantizedWeights(R[number], R_scale[number], R_zero_point[number])
        inputs = input_weights.product(X.reshape(steps * batch, size)).reshape(steps, batch, 4 * hidden)
        peepholes = None if P is None else P[number]
        step = lstm_step(functions[number], state_weights.product, peepholes, input_forget, hidden)
        return lstm_inputs(inputs, B, number), step

    Y, final = run_layers(X, layer, direction, 0, sequence_lens, [initial_h, initial_c], hidden)
    return Y, *final


class _QuantizedWeights:
    def __init__(self, weights, scale, zero_point):
        self.centered = weights.astype(np.int16) - zero_point.astype(np.int16)
        self.scale = scale

    def product(self, values):
        """values · weights, with the values rounded to 8 bits."""
        quantized, scale, zero_point = dynamic_quantize_linear(values)
        whole = integer_product(quantized.astype(np.int16) - zero_point.astype(np.int16), self.centered)
        return whole.astype(np.float32) * (scale * self.scale)
