"""Cases of com.microsoft's ops that are gradients, against closed forms. `tests/training` compares them with differences, too."""

import math

import numpy as np

from tests.ops.cases import case, f32, i64, refuse

MS = {"domain": "com.microsoft"}
G, X, Y = f32(3, 4), f32(3, 4), f32(3, 4, low=0.1, high=0.9)
erf = np.vectorize(math.erf)


def operands(**given):
    return given


def bell(x):
    return np.exp(-x * x / 2) / np.sqrt(2 * np.pi)


def gelu(x):
    return 0.5 * (1 + erf(x / np.sqrt(2))) + x * bell(x)


def fast_gelu(x):
    root = np.sqrt(2 / np.pi)
    bend = np.tanh(root * (x + 0.044715 * x**3))
    return 0.5 * (1 + bend) + 0.5 * x * (1 - bend**2) * root * (1 + 3 * 0.044715 * x**2)


def quick_gelu(x, alpha):
    share = 1 / (1 + np.exp(-alpha * x))
    return share + alpha * x * share * (1 - share)


case("ReluGrad", dY=G, X=X, **MS, expect=lambda dY, X: dY * (X > 0))
case("SigmoidGrad", dY=G, Y=Y, **MS, expect=lambda dY, Y: dY * Y * (1 - Y))
case("TanhGrad", dY=G, Y=Y, **MS, expect=lambda dY, Y: dY * (1 - Y * Y))
case("LeakyReluGrad", dY=G, Y=X, alpha=0.3, **MS, expect=lambda dY, Y, alpha: np.where(Y > 0, dY, alpha * dY))
case("GeluGrad", dY=G, X=X, **MS, expect=lambda dY, X: dY * gelu(X))
case("FastGeluGrad", dY=G, X=X, **MS, expect=lambda dY, X: dY * fast_gelu(X))
case("QuickGeluGrad", dY=G, X=X, alpha=1.3, **MS, expect=lambda dY, X, alpha: dY * quick_gelu(X, alpha))
case("BiasGeluGrad_dX", dY=G, X=X, B=f32(4), **MS, expect=lambda dY, X, B: dY * gelu(X + B))
case("BiasFastGeluGrad_dX", dY=G, X=X, B=f32(4), **MS, expect=lambda dY, X, B: dY * fast_gelu(X + B))
case("DivGrad", dY=G, A=X, B=Y[0], **MS, expect=lambda dY, A, B: (dY / B, (-dY * A / B**2).sum(axis=0)))


def softmax_grad(dY, Y, axis):
    return (dY - (dY * Y).sum(axis=axis, keepdims=True)) * Y


def log_softmax_grad(dY, X, axis):
    return dY - np.exp(X) * dY.sum(axis=axis, keepdims=True)


case("SoftmaxGrad_13", dY=G, Y=Y, axis=0, **MS, expect=softmax_grad)
case("LogSoftmaxGrad_13", dY=G, X=X, axis=-1, **MS, expect=log_softmax_grad)
case("SoftmaxGrad", dY=G, Y=Y, axis=1, **MS, expect=softmax_grad)
case("LogSoftmaxGrad", dY=G, X=X, axis=1, **MS, expect=log_softmax_grad)
MASK = np.array([[True, False, True, True]] * 3)
case("DropoutGrad", dy=G, mask=MASK, ratio=np.float32(0.2), **MS, expect=lambda dy, mask, ratio: dy * mask / 0.8)
for training in (True, False):
    expect = G * MASK / 0.5 if training else G * MASK
    case("DropoutGrad", dy=G, mask=MASK, ratio=np.float32(0.5), training_mode=np.array(training), **MS, expect=expect)


def cross_entropy(dY, log_prob, label, weight=None, reduction="mean", ignore_index=None):
    kept = label != (-1 if ignore_index is None else ignore_index)
    share = kept * (np.ones(len(label)) if weight is None else weight[np.where(kept, label, 0)])
    hot = np.arange(log_prob.shape[1]) == label[:, None]
    share = share * dY / (max(share.sum(), 1e-30) if reduction == "mean" else 1)
    return (np.exp(log_prob) - hot) * share[:, None]


LABELS = np.int64([0, 3, 1])
case("SoftmaxCrossEntropyLossGrad", dY=np.float32(0.7), log_prob=X, label=LABELS, **MS, expect=cross_entropy)
case(
    "SoftmaxCrossEntropyLossGrad",
    **operands(dY=f32(3), log_prob=X, label=LABELS.astype(np.int32), weight=Y[0], reduction="none", ignore_index=3, **MS),
    expect=cross_entropy,
)


def internal_cross_entropy(dY, log_prob, label, weight=None, ignore_index=-1, reduction="mean"):
    return cross_entropy(dY, log_prob, label, weight, reduction, int(ignore_index))


def likelihood_loss(log_prob, label, weight, ignore_index, reduction):
    share = np.where(label == ignore_index, 0, weight[label])
    losses = -share * log_prob[np.arange(len(label)), label]
    return losses if reduction == "none" else losses.sum() / (share.sum() if reduction == "mean" else 1)


LOG_PROB = X - np.log(np.exp(X.astype(np.float64)).sum(axis=1, keepdims=True))
IGNORED = {"ignore_index": np.array(3, np.int64), **MS}
case(
    "SoftmaxCrossEntropyLossInternalGrad",
    dY=np.float32(0.7),
    log_prob=X,
    label=LABELS,
    **IGNORED,
    expect=internal_cross_entropy,
)
for reduction in ("mean", "sum", "none"):
    loss = likelihood_loss(LOG_PROB, LABELS, np.float64(Y[0]), 3, reduction)
    form = operands(reduction=reduction, **IGNORED)
    case("SoftmaxCrossEntropyLossInternal", scores=X, labels=LABELS, weights=Y[0], outputs=2, **form, expect=(loss, LOG_PROB))
    for number in ("", 2):
        name = f"NegativeLogLikelihoodLossInternal{number}"
        case(name, input=np.float32(LOG_PROB), target=LABELS, weight=Y[0], **form, expect=loss)
for reduction, rows in (("mean", 3), ("sum", 1)):
    total = -(Y * LOG_PROB).sum() / rows
    case("SoftmaxCrossEntropy", logits=X, label=Y, reduction=reduction, outputs=2, **MS, expect=(total, LOG_PROB))
    case(
        "SoftmaxCrossEntropyGrad",
        **operands(dY=np.float32(0.7), log_prob=np.float32(LOG_PROB), label=Y, reduction=reduction, **MS),
        expect=(np.exp(LOG_PROB) - Y) * 0.7 / rows,
    )


def layer_norm(Y_grad, X, scale, mean, inv_std_dev, axis):
    normalized, g = (X - mean) * inv_std_dev, Y_grad * scale
    inner = g - g.mean(axis=-1, keepdims=True) - normalized * (g * normalized).mean(axis=-1, keepdims=True)
    return inv_std_dev * inner, (Y_grad * normalized).sum(axis=0), Y_grad.sum(axis=0)


MEAN, INVERSE = X.mean(axis=-1, keepdims=True), 1 / X.std(axis=-1, keepdims=True)
case("LayerNormalizationGrad", Y_grad=G, X=X, scale=f32(4), mean=MEAN, inv_std_dev=INVERSE, axis=-1, **MS, expect=layer_norm)
case(
    "InvertibleLayerNormalizationGrad",
    **operands(Y_grad=G, Y=X, scale=Y[0], bias=Y[1], inv_std_var=INVERSE, axis=-1, **MS),
    expect=lambda Y_grad, Y, scale, bias, inv_std_var, axis: layer_norm(
        Y_grad, (Y - bias) / scale / inv_std_var, scale, 0, inv_std_var, axis
    ),
)
case(
    "SimplifiedLayerNormalizationGrad",
    **operands(Y_grad=G, X=X, scale=Y[0], inv_std_var=INVERSE, axis=-1, **MS),
    expect=lambda Y_grad, X, scale, inv_std_var, axis: (
        inv_std_var * (Y_grad * scale - X * inv_std_var * (Y_grad * scale * X * inv_std_var).mean(axis=-1, keepdims=True)),
        (Y_grad * X * inv_std_var).sum(axis=0),
    ),
)
IMAGES, CHANNEL = f32(4, 3, 2, 2), (1, 3, 1, 1)


def batch_norm(X, scale, B, input_mean, input_var, momentum, training_mode):
    mean, var = X.mean(axis=(0, 2, 3)), X.var(axis=(0, 2, 3))
    inverse = 1 / np.sqrt(var + 1e-5)
    Y = (X - mean.reshape(CHANNEL)) * (inverse * scale).reshape(CHANNEL) + B.reshape(CHANNEL)
    running = [momentum * old + (1 - momentum) * new for old, new in ((input_mean, mean), (input_var, var))]
    return Y, *running, mean, inverse


case(
    "BatchNormInternal",
    **operands(X=IMAGES, scale=f32(3), B=f32(3), input_mean=f32(3), input_var=f32(3, low=0.5, high=2), momentum=0.7),
    **operands(training_mode=1, outputs=5, **MS),
    expect=batch_norm,
)


def batch_norm_grad(dY, X, scale, mean, variance):
    axes = (0, 2, 3)
    normalized = (X - mean.reshape(CHANNEL)) * variance.reshape(CHANNEL)
    g = dY * scale.reshape(CHANNEL)
    inner = g - g.mean(axis=axes, keepdims=True) - normalized * (g * normalized).mean(axis=axes, keepdims=True)
    return variance.reshape(CHANNEL) * inner, (dY * normalized).sum(axis=axes), dY.sum(axis=axes)


case(
    "BatchNormalizationGrad",
    **operands(dY=f32(4, 3, 2, 2), X=IMAGES, scale=f32(3), mean=f32(3), variance=f32(3, low=0.5, high=2), **MS),
    expect=batch_norm_grad,
)


def conv_grad(dY, X, W, strides, pads, group=1, dilations=(1, 1)):
    """One output pixel after the other."""
    padded = np.pad(X.astype(np.float64), [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])])
    dX, dW, channels = np.zeros_like(padded), np.zeros(W.shape), W.shape[1]
    for n, m, h, w in np.ndindex(*dY.shape):
        first = m // (len(W) // group) * channels
        places = zip((h, w), strides, W.shape[2:], dilations)
        taps = (slice(at * step, at * step + (size - 1) * apart + 1, apart) for at, step, size, apart in places)
        window = (n, slice(first, first + channels), *taps)
        dX[window] += dY[n, m, h, w] * W[m]
        dW[m] += dY[n, m, h, w] * padded[window]
    inside = tuple(slice(begin, begin + size) for begin, size in zip(pads, X.shape[2:]))
    return dX[(..., *inside)], dW, dY.sum(axis=(0, 2, 3))


case(
    "ConvGrad",
    **operands(dY=f32(2, 3, 3, 5), X=f32(2, 2, 6, 5), W=f32(3, 2, 3, 2), strides=[2, 1], pads=[1, 0, 0, 1], outputs=3, **MS),
    expect=conv_grad,
)
case(
    "ConvGrad",
    **operands(dY=f32(2, 6, 3, 6), X=f32(2, 4, 7, 6), W=f32(6, 2, 3, 2), group=2, dilations=[1, 3], strides=[2, 1]),
    **operands(pads=[0, 1, 0, 2], outputs=3, **MS),
    expect=conv_grad,
)
for auto_pad, pads in ("SAME_UPPER", [0, 1, 1, 1]), ("SAME_LOWER", [1, 1, 0, 1]):
    case(
        "ConvGrad",
        **operands(
            dY=f32(1, 2, 2, 3), X=f32(1, 3, 4, 5), W=f32(2, 3, 3, 3), auto_pad=auto_pad, strides=[2, 2], outputs=3, **MS
        ),
        expect=lambda dY, X, W, auto_pad, strides, pads=pads: conv_grad(dY, X, W, strides, pads),
    )


def added(shape, indices, parts):
    whole = np.zeros(tuple(shape))
    np.add.at(whole, indices, parts)
    return whole


SHAPE = np.int64([4, 3])
case(
    "GatherGrad",
    **operands(shape=SHAPE, indices=np.int64([[1, -1], [1, 0]]), dY=f32(2, 2, 3), axis=0, **MS),
    expect=lambda shape, indices, dY, axis: added(shape, indices, dY),
)
case(
    "GatherGrad",
    **operands(shape=SHAPE, indices=np.int32([2, 2, 0, 1]), dY=f32(4, 4), axis=1, **MS),
    expect=lambda shape, indices, dY, axis: added(shape, (slice(None), indices), dY),
)
case(
    "GatherElementsGrad",
    **operands(dY=f32(2, 3), shape=SHAPE, indices=i64(2, 3, low=0, high=4), axis=0, **MS),
    expect=lambda dY, shape, indices, axis: added(shape, (indices, np.arange(3)), dY),
)
case(
    "GatherNDGrad",
    **operands(shape=SHAPE, indices=np.int64([[1, 2], [1, 2], [0, 0]]), update=f32(3), **MS),
    expect=lambda shape, indices, update: added(shape, tuple(indices.T), update),
)
case(
    "SliceGrad",
    **operands(
        dY=f32(2, 3), shape=SHAPE, starts=np.int64([3]), ends=np.int64([0]), axes=np.int64([0]), steps=np.int64([-2]), **MS
    ),
    expect=lambda dY, shape, starts, ends, axes, steps: added(shape, slice(3, 0, -2), dY),
)
case(
    "BroadcastGradientArgs",
    a_shape=np.int64([2, 1, 3]),
    b_shape=np.int64([4, 3]),
    outputs=2,
    **MS,
    expect=([1], [0]),
    sizes_known=False,
)
refuse("BroadcastGradientArgs", a_shape=np.int64([2]), b_shape=np.int64([3]), outputs=2, **MS, match="cannot be broadcast")


# --- classes along the last axis, weights of samples

SCORES, CLASSES, SAMPLES = f32(2, 3, 5), i64(2, 3, low=0, high=5), f32(2, 3, low=0.1, high=2.0)
LAST = SCORES - np.log(np.exp(np.float64(SCORES)).sum(axis=-1, keepdims=True))
for reduction in ("mean", "sum", "none"):
    for weight in (None, SAMPLES):
        share = np.float64(np.ones((2, 3)) if weight is None else weight)
        losses = -share * np.take_along_axis(LAST, CLASSES[..., None], axis=-1)[..., 0]
        loss = {"none": losses, "sum": losses.sum(), "mean": losses.sum() / share.sum()}[reduction]
        form = {"reduction": reduction, **({} if weight is None else {"weight": weight})}
        case("SparseSoftmaxCrossEntropy", logits=SCORES, label=CLASSES, outputs=2, **form, expect=(loss, LAST))
        incoming = f32(2, 3) if reduction == "none" else np.float32(0.7)
        each = share * incoming / (share.sum() if reduction == "mean" else 1)
        case(
            "SparseSoftmaxCrossEntropyGrad",
            **operands(dY=incoming, log_prob=np.float32(LAST), label=np.int32(CLASSES), **form),
            expect=(np.exp(LAST) - np.eye(5)[CLASSES]) * each[..., None],
        )
refuse("SparseSoftmaxCrossEntropy", logits=SCORES, label=CLASSES[0], match="label")
refuse("SparseSoftmaxCrossEntropy", logits=SCORES, label=CLASSES, weight=SAMPLES[0], match="weight")


# --- transposed convolutions


def conv_transpose_grad(dY, X, W, pads, strides, dilations=(1, 1), group=1):
    """Pixel by pixel: X at (i, j) reaches Y at stride · (i, j) + dilation · k - pad."""
    dX, dW = np.zeros(X.shape), np.zeros(W.shape)
    padded = np.pad(np.float64(dY), ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    inputs, outputs = X.shape[1] // group, W.shape[1]
    for i, j, a, b in np.ndindex(*X.shape[2:], *W.shape[2:]):
        seen = padded[:, :, strides[0] * i + dilations[0] * a, strides[1] * j + dilations[1] * b]
        for part in range(group):
            mine, theirs = slice(part * inputs, (part + 1) * inputs), slice(part * outputs, (part + 1) * outputs)
            dX[:, mine, i, j] += seen[:, theirs] @ W[mine, :, a, b].T
            dW[mine, :, a, b] += X[:, mine, i, j].T @ seen[:, theirs]
    return dX, dW, dY.sum(axis=(0, 2, 3))


for shapes, form in (
    (((2, 3, 6, 7), (2, 4, 4, 5), (4, 3, 3, 3)), {"pads": [0, 0, 0, 0], "strides": [1, 1]}),
    (((2, 3, 7, 9), (2, 4, 4, 5), (4, 3, 3, 3)), {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
    (((1, 4, 8, 10), (1, 4, 4, 5), (4, 2, 3, 3)), {"pads": [1, 1, 1, 1], "strides": [2, 2], "group": 2}),
    (((1, 2, 6, 6), (1, 3, 4, 3), (3, 2, 2, 3)), {"pads": [0, 1, 1, 0], "strides": [1, 2], "dilations": [3, 1]}),
):
    extra = {"output_padding": [1, 1]} if shapes[0][2] == 8 else {}
    dY, image, filters = (f32(*shape) for shape in shapes)
    expected = conv_transpose_grad(np.float64(dY), np.float64(image), np.float64(filters), **form)
    case("ConvTransposeGrad", **operands(dY=dY, X=image, W=filters, **form, **extra, outputs=3, **MS), expect=expected)
    case("ConvTransposeGrad", **operands(dY=dY, X=image, W=filters, **form, **extra, outputs=[1], **MS), expect=(expected[1],))
refuse("ConvTransposeGrad", dY=f32(1, 3, 6, 6), X=f32(1, 4, 5, 5), W=f32(4, 3, 3, 3), outputs=3, **MS, match="X")
refuse(
    "ConvTransposeGrad",
    **operands(
        dY=f32(1, 3, 6, 6), X=f32(1, 4, 3, 3), W=f32(4, 3, 2, 2), strides=[2, 2], auto_pad="SAME_UPPER", outputs=3, **MS
    ),
    match="give it pads",
)
