"""Fused normalizations of com.microsoft, and those that onnxruntime keeps in ONNX's own domain, at any opset."""

from __future__ import annotations

from sardonyx.dtypes import FLOATS, float32, float64, int32
from sardonyx.ir import TensorType
from sardonyx.ops.schemas import define
from sardonyx.ops.shapes import axis_index, fresh_shape, merge_shapes
from sardonyx.ops.table import in_domain, infer

contrib = in_domain("com.microsoft")

define(
    "",
    "SimplifiedLayerNormalization",
    1,
    "(X: T, scale: V, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> (Y: V, inv_std_var: U?)",
    T=FLOATS,
    U={float32, float64},
    V=FLOATS,
)
define(
    "",
    "LayerNormalization",
    1,
    "(X: T, Scale: V, B: V?, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> (Y: V, Mean: U?, InvStdDev: U?)",
    T=FLOATS,
    U={float32, float64},
    V=FLOATS,
)
define(
    "com.microsoft",
    "SkipSimplifiedLayerNormalization",
    1,
    "(input: T, skip: T, gamma: T, bias: T?, *, epsilon: float = 1e-12)"
    " -> (output: T, mean: U?, inv_std_var: U?, input_skip_bias_sum: T?)",
    T=FLOATS,
    U={float32},
)
define(
    "com.microsoft",
    "SkipLayerNormalization",
    1,
    "(input: T, skip: T, gamma: T, beta: T?, bias: T?, *, epsilon: float = 1e-12)"
    " -> (output: T, mean: U?, inv_std_var: U?, input_skip_bias_sum: T?)",
    T=FLOATS,
    U={float32},
)
define(
    "com.microsoft",
    "EmbedLayerNormalization",
    1,
    "(input_ids: T1, segment_ids: T1?, word_embedding: T, position_embedding: T, segment_embedding: T?, gamma: T, beta: T,"
    " mask: T1?, position_ids: T1?, *, epsilon: float = 1e-12, mask_index_type: int?)"
    " -> (output: T, mask_index: T1?, embedding_sum: T?)",
    T=FLOATS,
    T1={int32},
)


@infer("SimplifiedLayerNormalization")
def simplified_layer_normalization(X, axis):
    if X.shape is None:
        return [None, TensorType(_statistics_type(X))]
    axis = axis_index(axis, len(X.shape))
    return [X.shape, TensorType(_statistics_type(X), X.shape[:axis] + (1,) * (len(X.shape) - axis))]


def _statistics_type(X):
    return float64 if X.dtype is float64 else float32


@contrib("SkipSimplifiedLayerNormalization", "SkipLayerNormalization")
def skip_normalization(input, skip):
    if input.shape is None:
        return [None, None, None, None]
    statistics = (*input.shape[:-1], 1)
    return [input.shape, statistics, statistics, input.shape]


@contrib("EmbedLayerNormalization")
def embed_layer_normalization(input_ids, word_embedding, mask):
    if mask is not None:
        merge_shapes(input_ids.shape, mask.shape, "input_ids and mask")
    batch, length = input_ids.require_rank(2, name="input_ids") or fresh_shape(2)
    _, hidden = word_embedding.require_rank(2, name="word_embedding") or fresh_shape(2)
    return [(batch, length, hidden), (batch,), (batch, length, hidden)]
