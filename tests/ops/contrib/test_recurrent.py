"""Cases of DynamicQuantizeLSTM: near to an LSTM whose weights are the dequantized ones."""

import numpy as np

from sardonyx.dtypes import int8, uint8
from sardonyx.providers.cpu.recurrent import lstm
from tests.ops.cases import array, case, f32, refuse

CONTRIB = "com.microsoft"
STEPS, BATCH, INPUT, HIDDEN = 4, 3, 5, 2


def dequantized(weights, scale, zero_point):
    spread = (len(weights), 1, -1)
    return (weights.astype(np.float32) - zero_point.reshape(spread).astype(np.float32)) * scale.reshape(spread)


def near(X, W, R, W_scale, W_zero_point, R_scale, R_zero_point, direction="forward", **others):
    W, R = dequantized(W, W_scale, W_zero_point), dequantized(R, R_scale, R_zero_point)
    return lstm(X, W.swapaxes(1, 2), R.swapaxes(1, 2), direction=direction, **others)


def expect(
    X,
    W,
    R,
    W_scale,
    W_zero_point,
    R_scale,
    R_zero_point,
    direction,
    B=None,
    sequence_lens=None,
    initial_h=None,
    initial_c=None,
    P=None,
    input_forget=0,
    clip=None,
):
    others = {"B": B, "sequence_lens": sequence_lens, "initial_h": initial_h, "initial_c": initial_c, "P": P}
    others |= {"input_forget": input_forget, "clip": clip}
    return near(X, W, R, W_scale, W_zero_point, R_scale, R_zero_point, direction, **others)


def weights(dtype, directions, per_column):
    shape = (directions, 4 * HIDDEN) if per_column else (directions,)
    zero_point = np.full(shape, 30 if dtype is uint8 else 0, dtype.numpy)
    low, high = (0, 60) if dtype is uint8 else (-30, 30)
    found = {}
    for name, size in (("W", INPUT), ("R", HIDDEN)):
        found[name] = array(dtype.numpy, directions, size, 4 * HIDDEN, low=low, high=high)
        found |= {f"{name}_scale": f32(*shape, low=0.005, high=0.02), f"{name}_zero_point": zero_point}
    return found | {"hidden_size": HIDDEN, "domain": CONTRIB, "atol": 2e-2, "expect": expect}


X = f32(STEPS, BATCH, INPUT)
for dtype in (uint8, int8):
    for direction in ("forward", "reverse", "bidirectional"):
        directions = 2 if direction == "bidirectional" else 1
        for per_column in (False, True):
            layer = {**weights(dtype, directions, per_column), "direction": direction}
            case("DynamicQuantizeLSTM", X=X, **layer, B=f32(directions, 8 * HIDDEN), against_onnxruntime=True)
one = {**weights(uint8, 1, False), "direction": "forward"}
states = {"initial_h": f32(1, BATCH, HIDDEN, low=-1, high=1), "initial_c": f32(1, BATCH, HIDDEN)}
case("DynamicQuantizeLSTM", X=X, **one, **states, sequence_lens=np.array([4, 1, 2], np.int32))
case("DynamicQuantizeLSTM", X=X, **one, P=f32(1, 3 * HIDDEN), clip=1.0)
case("DynamicQuantizeLSTM", X=X, **one, input_forget=1)
case("DynamicQuantizeLSTM", X=f32(0, BATCH, INPUT), **one)
case("DynamicQuantizeLSTM", X=f32(STEPS, 0, INPUT), **one)
refuse("DynamicQuantizeLSTM", X=X, **{**one, "direction": "sideways", "expect": None}, match="direction must be")
refuse("DynamicQuantizeLSTM", X=X, **{**one, "hidden_size": 7, "expect": None}, match="hidden_size and R: 2 and 7 differ")
