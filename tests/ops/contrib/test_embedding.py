"""Cases of com.microsoft's QEmbedLayerNormalization."""

import numpy as np

from tests.ops.cases import array, case, i32, refuse

CONTRIB = "com.microsoft"
BOTH = {"domain": CONTRIB, "against_onnxruntime": True}
NAMES = ("word_embedding", "position_embedding", "segment_embedding", "gamma", "beta")


def normalized(
    input_ids,
    word_embedding_quant,
    position_embedding_quant,
    gamma_quant,
    beta_quant,
    word_embedding_scale,
    position_embedding_scale,
    gamma_scale,
    beta_scale,
    word_embedding_zero_point,
    position_embedding_zero_point,
    gamma_zero_point,
    beta_zero_point,
    segment_ids=None,
    segment_embedding=None,
    segment_embedding_scale=None,
    segment_embedding_zero_point=None,
    mask=None,
    epsilon=1e-12,
):
    def real(values, scale, zero_point):
        return (values.astype(np.float64) - int(zero_point)) * float(scale)

    words = real(word_embedding_quant, word_embedding_scale, word_embedding_zero_point)
    positions = real(position_embedding_quant, position_embedding_scale, position_embedding_zero_point)
    total = words[input_ids] + positions[: input_ids.shape[1]]
    if segment_ids is not None:
        total += real(segment_embedding, segment_embedding_scale, segment_embedding_zero_point)[segment_ids]
    deviation = total - total.mean(axis=-1, keepdims=True)
    unit = deviation / np.sqrt((deviation**2).mean(axis=-1, keepdims=True) + epsilon)
    output = unit * real(gamma_quant, gamma_scale, gamma_zero_point) + real(beta_quant, beta_scale, beta_zero_point)
    counts = np.zeros(len(input_ids), np.int32) if mask is None else mask.sum(axis=1).astype(np.int32)
    return output.astype(np.float32), counts


for dtype in (np.uint8, np.int8):
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max + 1
    common = {
        "input_ids": i32(2, 3, low=0, high=9),
        "word_embedding_quant": array(dtype, 9, 8, low=low, high=high),
        "position_embedding_quant": array(dtype, 5, 8, low=low, high=high),
        "gamma_quant": array(dtype, 8, low=low, high=high),
        "beta_quant": array(dtype, 8, low=low, high=high),
        **{f"{name}_scale": np.array(0.01 * (number + 1), np.float32) for number, name in enumerate(NAMES) if number != 2},
        **{f"{name}_zero_point": np.array(number + 3, dtype) for number, name in enumerate(NAMES) if number != 2},
    }
    segments = {
        "segment_ids": i32(2, 3, low=0, high=2),
        "segment_embedding": array(dtype, 2, 8, low=low, high=high),
        "segment_embedding_scale": 0.02,
        "segment_embedding_zero_point": np.array(7, dtype),
    }
    near = {"rtol": 1e-4, "atol": 1e-5, "expect": normalized}
    case("QEmbedLayerNormalization", **common, **near, **BOTH)
    case("QEmbedLayerNormalization", **common, **segments, **near, **BOTH)
    case("QEmbedLayerNormalization", **common, **segments, mask=np.array([[1, 1, 0], [1, 1, 1]], np.int32), **near, **BOTH)
    case("QEmbedLayerNormalization", **common, **segments, epsilon=0.5, **near, **BOTH)
    case("QEmbedLayerNormalization", **{**common, "input_ids": i32(0, 3)}, **near, domain=CONTRIB)
    case("QEmbedLayerNormalization", **{**common, "input_ids": i32(1, 1, low=0, high=9)}, **near, **BOTH)
refuse("QEmbedLayerNormalization", **{**common, "input_ids": i32(2, 3) + 10}, domain=CONTRIB, match="input_ids holds")
refuse("QEmbedLayerNormalization", **{**common, "input_ids": i32(3)}, domain=CONTRIB, match="rank 2")
