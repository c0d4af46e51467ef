"""Cases of com.microsoft's fused normalizations and of SimplifiedLayerNormalization."""

import numpy as np

from sardonyx import errors
from sardonyx.dtypes import FLOATS, float64
from tests.ops.cases import case, f32, f64, i32, refuse

CONTRIB = "com.microsoft"
NARROW = {"types": {"T": FLOATS - {float64}}, "rtol": 2e-2, "atol": 3e-2}


def standardized(x, epsilon):
    x = x.astype(np.float64)
    return (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1, keepdims=True) + epsilon)


def simplified(x, epsilon, axes=(-1,)):
    x = x.astype(np.float64)
    return x / np.sqrt((x**2).mean(axis=axes, keepdims=True) + epsilon)


# --- SimplifiedLayerNormalization


def inverse(x, epsilon=1e-5, axes=(-1,)):
    return 1 / np.sqrt((x.astype(np.float64) ** 2).mean(axis=axes, keepdims=True) + epsilon)


X = f32(2, 3, 8)
case("SimplifiedLayerNormalization", X=X, scale=f32(8), expect=lambda X, scale: (simplified(X, 1e-5) * scale, inverse(X)))
case(
    "SimplifiedLayerNormalization", X=f64(2, 8), scale=f64(8), expect=lambda X, scale: (simplified(X, 1e-5) * scale, inverse(X))
)
for axis in (1, -2):
    case(
        "SimplifiedLayerNormalization",
        X=X,
        scale=f32(3, 8),
        axis=axis,
        epsilon=0.125,
        stash_type=1,
        expect=lambda X, scale: (simplified(X, 0.125, (1, 2)) * scale, inverse(X, 0.125, (1, 2))),
    )
case(
    "SimplifiedLayerNormalization",
    X=X,
    scale=f32(8),
    types={"T": FLOATS, "V": FLOATS},
    rtol=2e-2,
    atol=3e-2,
    expect=lambda X, scale: simplified(X, 1e-5) * scale,
)
case("SimplifiedLayerNormalization", X=f32(0, 8), scale=f32(8), expect=np.zeros((0, 8)))
refuse("SimplifiedLayerNormalization", X=X, scale=f32(8), axis=3, match="axis 3 is outside")

# --- SkipLayerNormalization and SkipSimplifiedLayerNormalization


def total(input, skip, bias=None):
    return input.astype(np.float64) + skip + (0 if bias is None else bias)


def skip_layer(input, skip, gamma, beta=None, bias=None, epsilon=1e-12):
    return standardized(total(input, skip, bias), epsilon) * gamma + (0 if beta is None else beta)


def skip_simplified(input, skip, gamma, bias=None, epsilon=1e-12):
    return simplified(total(input, skip, bias), epsilon) * gamma


for op, plain in (("SkipLayerNormalization", skip_layer), ("SkipSimplifiedLayerNormalization", skip_simplified)):
    case(op, input=X, skip=f32(2, 3, 8), gamma=f32(8), domain=CONTRIB, **NARROW, expect=plain)
    for shape in ((2, 3, 8), (1, 3, 8), (3, 8)):
        settings = {"skip": f32(*shape), "gamma": f32(8), "domain": CONTRIB, "against_onnxruntime": True}
        case(op, input=X, **settings, bias=f32(8), epsilon=0.125, expect=plain)
    case(op, input=f32(5, 8), skip=f32(5, 8), gamma=f32(8), domain=CONTRIB, expect=plain)
    case(op, input=f32(0, 3, 8), skip=f32(0, 3, 8), gamma=f32(8), domain=CONTRIB, expect=np.zeros((0, 3, 8)))
    case(
        op,
        input=X,
        skip=f32(2, 3, 8),
        gamma=f32(8),
        bias=f32(8),
        domain=CONTRIB,
        outputs=[0, 3],
        expect=lambda input, skip, gamma, bias, plain=plain: (plain(input, skip, gamma, bias=bias), total(input, skip, bias)),
    )
case("SkipLayerNormalization", input=X, skip=f32(2, 3, 8), gamma=f32(8), beta=f32(8), domain=CONTRIB, expect=skip_layer)
case(
    "SkipLayerNormalization",
    input=X,
    skip=f32(2, 3, 8),
    gamma=f32(8),
    domain=CONTRIB,
    expect=lambda input, skip, gamma: (
        skip_layer(input, skip, gamma),
        total(input, skip).mean(axis=-1, keepdims=True),
        1 / np.sqrt(total(input, skip).var(axis=-1, keepdims=True) + 1e-12),
    ),
)

# --- EmbedLayerNormalization


def embedded(
    input_ids,
    word_embedding,
    position_embedding,
    gamma,
    beta,
    segment_ids=None,
    segment_embedding=None,
    position_ids=None,
    mask=None,
):
    positions = np.arange(input_ids.shape[1])[None] if position_ids is None else position_ids
    found = word_embedding.astype(np.float64)[input_ids] + position_embedding[positions]
    if segment_ids is not None:
        found = found + segment_embedding[segment_ids]
    lengths = np.zeros(len(input_ids)) if mask is None else (mask == 1).sum(axis=1)
    return standardized(found, 1e-12) * gamma + beta, lengths, found


TABLES = {"word_embedding": f32(5, 8), "position_embedding": f32(4, 8), "gamma": f32(8), "beta": f32(8), "domain": CONTRIB}
IDS = i32(2, 3, low=0, high=5)
SEGMENTS = {"segment_ids": i32(2, 3, low=0, high=2), "segment_embedding": f32(2, 8)}
MASK = np.array([[1, 1, 0], [1, 0, 0]], np.int32)
case("EmbedLayerNormalization", input_ids=IDS, **TABLES, against_onnxruntime=True, expect=embedded)
case("EmbedLayerNormalization", input_ids=IDS, **TABLES, **SEGMENTS, mask=MASK, against_onnxruntime=True, expect=embedded)
for positions in ([[2, 1, 0], [0, 1, 3]], [[2, 1, 0]]):
    ids = np.array(positions, np.int32)
    case("EmbedLayerNormalization", input_ids=IDS, **TABLES, position_ids=ids, against_onnxruntime=True, expect=embedded)
refuse(
    "EmbedLayerNormalization",
    input_ids=np.array([[5]], np.int32),
    **TABLES,
    kind=errors.InvalidArgument,
    match="input_ids holds 5, the embedding has 5 rows",
)
