"""Cases of com.microsoft's ops of training graphs besides gradients."""

import numpy as np

from tests.ops.cases import case, f32, refuse

MS = {"domain": "com.microsoft"}
A, B = f32(2, 3), f32(2, 3)
case("Scale", input=A, scale=np.float32(4), scale_down=1, **MS, expect=lambda input, scale, scale_down: input / 4)
case("Scale", input=A, scale=np.int64([3]), **MS, expect=lambda input, scale: input * 3)
case("PassThrough", inputs=[A, B], outputs=2, **MS, expect=(A, B))
case("ReduceAllL2", X=[A, f32(4)], **MS, expect=lambda X: np.sqrt(sum((x.astype(np.float64) ** 2).sum() for x in X)))
case("ConcatTraining", inputs=[A, f32(2, 2)], axis=1, outputs=2, **MS, expect=lambda inputs, axis: (np.hstack(inputs), [3, 2]))
case("SplitTraining", input=A, split=np.int64([1, 2]), axis=1, outputs=2, **MS, expect=(A[:, :1], A[:, 1:]), sizes_known=False)
case("ReduceSumTraining", data=A, axes=np.int64([1]), keepdims=0, **MS, expect=A.sum(1), sizes_known=False)
case("InPlaceAccumulator", old_sum=A, value=B, **MS, expect=A + B)
case("InPlaceAccumulator", old_sum=A, value=B, update_signal=np.array([False]), **MS, expect=A)
case("ZeroGradient", old_gradient=A, reset_signal=np.array([True]), **MS, expect=np.zeros((2, 3)))
case("Group", input_tensors=[A, B], **MS, expect=[True])
case("ScaledSum", input_0=A, input_1=B, input_2=A, scale_0=0.5, scale_1=2.0, scale_2=3.0, **MS, expect=3.5 * A + 2 * B)
COUNTED = np.rint(np.float64(3 * A) / 0.25) + 5
case(
    "FakeQuant",
    input_tensor=3 * A,
    scale=np.float32(0.25),
    zero_point=np.float32(5),
    quant_max=15,
    outputs=2,
    **MS,
    expect=((np.clip(COUNTED, 0, 15) - 5) * 0.25, (COUNTED >= 0) & (COUNTED <= 15)),
)
case("FakeQuantGrad", dY=A, gradient_mask=B > 0, **MS, expect=A * (B > 0))
for flag, total in ((True, B), (False, A + B)):
    case(
        "InPlaceAccumulatorV2",
        accumulation_buffer=A,
        value=B,
        overwrite_flag=np.array([flag]),
        outputs=2,
        **MS,
        expect=([True], total),
    )
RATE, STEP, W, GRAD = np.float32([0.1]), np.int64([3]), [f32(2), f32(2, 2)], [f32(2), f32(2, 2)]
M, V = [f32(2), f32(2, 2)], [np.abs(f32(2)), np.abs(f32(2, 2))]
case(
    "SGDOptimizerV2",
    lr=RATE,
    weights=W,
    gradients=GRAD,
    outputs=2,
    **MS,
    expect=([True], [w - 0.1 * g for w, g in zip(W, GRAD)]),
)


def adam(w, g, m, v, mode):
    """The equations of AdamW in float64."""
    m, v, step, rate, decay = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g, 3, 0.1, 0.01
    first, second = 1 - 0.9**step, 1 - 0.999**step
    if mode == 0:
        w = w * (1 - rate * decay)
        return w - rate * (m / first) / (np.sqrt(v / second) + 1e-8), m, v
    w = w - rate * np.sqrt(second) / first * m / (np.sqrt(v) + 1e-8)
    return w - rate * decay * w, m, v


for mode in (0, 1):
    parts = [adam(*(np.float64(x) for x in one), mode) for one in zip(W, GRAD, M, V)]
    case(
        "AdamWOptimizer",
        lr=RATE,
        step=STEP,
        weights=W,
        gradients=GRAD,
        momentums_1=M,
        momentums_2=V,
        adam_mode=mode,
        outputs=4,
        **MS,
        expect=([True], *([part[place] for part in parts] for place in range(3))),
    )
NORM = np.sqrt(sum((g.astype(np.float64) ** 2).sum() for g in GRAD))
case("InplaceClipGradNorm", gradients=GRAD, max_norm=0.5, **MS, expect=([g * 0.5 / (NORM + 1e-6) for g in GRAD],))
case("InplaceClipGradNorm", gradients=GRAD, max_norm=1e3, **MS, expect=(GRAD,))

# --- finite or not

WRONG = {"inf": np.float32([1, np.inf]), "nan": np.float32([[np.nan, 2, 3]])}
case("IsFinite", X=np.float32([1, np.inf, -np.inf, np.nan, 0]), **MS, expect=[True, False, False, False, True])
case("IsAllFinite", input=[A, B, f32(0, 2)], **MS, expect=np.array(True))
for kind, wrong in WRONG.items():
    case("IsAllFinite", input=[A, wrong], **MS, expect=np.array(False))
    for asked in ("inf", "nan"):
        case("IsAllFinite", input=[wrong, A], **{f"is{asked}_only": 1}, **MS, expect=np.array(asked != kind))
refuse("IsAllFinite", input=[A], isinf_only=1, isnan_only=1, **MS, match="exclude each other")
for content, whether in (([True, True], True), ([True, False], False), ([], True)):
    case("All", X=np.array(content, bool), **MS, expect=np.array(whether))

# --- scaling, views, rows without padding

HALVED = [A.astype(np.float16) * np.float16(0.5), B.astype(np.float16) * np.float16(0.5)]
case("MixedPrecisionScale", S=np.float32([0.5]), X=[A, B], to=10, outputs=2, **MS, expect=tuple(HALVED), rtol=1e-3)
JOINED = np.concatenate([half.ravel() for half in HALVED])
case("MixedPrecisionScale", S=np.float32(0.5), X=[A, B], to=10, fuse_outputs=1, **MS, expect=JOINED, rtol=1e-3)
LARGE = np.float32([1e5, 2e5])
case("MixedPrecisionScale", S=np.float16(0.25), X=[LARGE], to=10, outputs=1, **MS, expect=(LARGE / 4,), rtol=1e-3)
refuse("MixedPrecisionScale", S=np.float32(1), X=[A], to=7, outputs=1, **MS, match="'to' is int64")
refuse("MixedPrecisionScale", S=np.float32(1), X=[A], to=2**63 - 1, outputs=1, **MS, match="is no element type")
case("BatchScale", input=A, scale_0=2.0, scale_1=-1.0, outputs=2, **MS, expect=(2 * A, -A))
case("BatchScale", input=A, scale_0=2.0, scale_1=-1.0, scale_2=0.5, outputs=3, **MS, expect=(2 * A, -A, A / 2))
refuse("BatchScale", input=A, scale_0=2.0, scale_1=-1.0, outputs=3, **MS, match="needs scale_2")
FLAT = f32(10)
case(
    "View",
    input=FLAT,
    shapes=[np.int64([2, 3]), np.int64([]), np.int64([0, 7]), np.int64([3])],
    outputs=4,
    **MS,
    expect=(FLAT[:6].reshape(2, 3), FLAT[6], np.zeros((0, 7)), FLAT[7:]),
    sizes_known=False,
)
refuse("View", input=FLAT, shapes=[np.int64([2, 3]), np.int64([3])], outputs=2, **MS, match="10")
ROWS, PLACES = f32(4, 5), np.int64([0, 2, 3, 5])
SPREAD = np.zeros((6, 5), np.float32)
SPREAD[PLACES] = ROWS
case(
    "PadAndUnflatten",
    input=ROWS,
    indices=PLACES,
    unflatten_dims=np.int64([2, 3]),
    **MS,
    expect=SPREAD.reshape(2, 3, 5),
    sizes_known=False,
)
case("FlattenAndUnpad", input=SPREAD.reshape(2, 3, 5), indices=np.int32(PLACES), outputs=2, **MS, expect=(ROWS, [2, 3]))
refuse("FlattenAndUnpad", input=FLAT, indices=PLACES, outputs=2, **MS, match="two axes")

# --- the first optimizers

case("SGDOptimizer", ETA=RATE, W=W[1], G=GRAD[1], outputs=2, **MS, expect=(W[1] - 0.1 * GRAD[1], -0.1 * GRAD[1]))


def old_adam(w, g, m, v, *, decay=0.0, mode=0, corrected=True, scale=1.0, norm=None, most=1.0):
    """Adam's equations in float64: new moments, new weights and how they moved."""
    w, g, m, v = map(np.float64, (w, g, m, v))
    g = g / (scale if norm is None else max(scale, norm / most))
    m, v, rate, step, epsilon = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g, 0.1, 3, 1e-8
    first, second = (1 - 0.9**step, 1 - 0.999**step) if corrected else (1.0, 1.0)
    if mode == 0:
        moved = -rate * (m / first / (np.sqrt(v / second) + epsilon) + decay * w)
        return m, v, w + moved, moved
    moved = -rate * np.sqrt(second) / first * m / (np.sqrt(v) + epsilon)
    return m, v, (w + moved) * (1 - rate * decay), moved


OPERANDS = {"weights": W[1], "gradients": GRAD[1], "moment_1": M[1], "moment_2": V[1]}
HALF = W[1].astype(np.float16)
for settings in (
    {},
    {"lambda": 0.3},
    {"lambda": 0.3, "weight_decay_mode": 1},
    {"do_bias_correction": 0},
    {"loss_scale": np.float32(8)},
    {"loss_scale": np.float32(8), "global_gradient_norm": np.float32(40), "max_norm_clip": 2.0},
    {"global_gradient_norm": np.float32(0.5)},
):
    numbers = {
        "decay": settings.get("lambda", 0.0),
        "mode": settings.get("weight_decay_mode", 0),
        "corrected": settings.get("do_bias_correction", 1),
        "scale": settings.get("loss_scale", 1.0),
        "norm": settings.get("global_gradient_norm"),
        "most": settings.get("max_norm_clip", 1.0),
    }
    m, v, w, moved = old_adam(*OPERANDS.values(), **numbers)
    case("AdamOptimizer", R=RATE, T=STEP, **OPERANDS, **settings, outputs=5, **MS, expect=([4], m, v, w, moved))
m, v, w, moved = old_adam(*OPERANDS.values())
HALF_OPERANDS = {"R": RATE, "T": STEP, **OPERANDS, "mixed_precision_weights": HALF}
case("AdamOptimizer", **HALF_OPERANDS, outputs=6, **MS, expect=([4], m, v, w, moved, w.astype(np.float16)), rtol=1e-3)
case(
    "AdamOptimizer",
    **HALF_OPERANDS,
    update_signal=np.array(False),
    outputs=6,
    **MS,
    expect=([3], M[1], V[1], W[1], GRAD[1], HALF),
)
refuse("AdamOptimizer", R=RATE, T=STEP, **OPERANDS, weight_decay_mode=2, outputs=5, **MS, match="can be 0 or 1")


def lamb(w, g, m, v, alpha=0.9, decay=0.0, bounds=(-np.inf, np.inf), corrected=True, scale=1.0):
    """LAMB's equations in float64."""
    w, g, m, v = map(np.float64, (w, g, m, v))
    g = g / scale
    m, v = alpha * m + (1 - alpha) * g, 0.999 * v + 0.001 * g * g
    first, second = (1 - alpha**3, 1 - 0.999**3) if corrected else (1.0, 1.0)
    direction = m / first / (np.sqrt(v / second) + 1e-6) + decay * w
    norms = np.linalg.norm(w), np.linalg.norm(direction)
    ratio = 1.0 if 0 in norms else np.clip(norms[0] / norms[1], *bounds)
    return w - 0.1 * ratio * direction, -0.1 * ratio * direction, m, v


ZERO = [np.zeros(2, np.float32) for _ in range(4)]
GROUPS = [W[0], GRAD[0], M[0], V[0], W[0].astype(np.float16), W[1], GRAD[1], M[1], V[1], None, *ZERO]
SCALARS = {"R": RATE, "step": STEP}
for settings, numbers in (
    ({}, {}),
    ({"lambda": [0.3, 0.3, 0.3], "ratio_min": 0.5, "ratio_max": 0.75}, {"decay": 0.3, "bounds": (0.5, 0.75)}),
    ({"alpha": [0.5, 0.5, 0.5], "do_bias_correction": 0}, {"alpha": 0.5, "corrected": False}),
    ({"loss_scale": np.float32(8)}, {"scale": 8.0}),
):
    parts = [lamb(*GROUPS[start : start + 4], **numbers) for start in (0, 5, 10)]
    results = [*parts[0], parts[0][0].astype(np.float16), *parts[1], None, *parts[2]]
    names = [place for place in range(15) if place != 10]
    case(
        "LambOptimizer",
        **SCALARS,
        groups=GROUPS,
        **settings,
        outputs=names,
        **MS,
        expect=([4], *(result for result in results if result is not None)),
        rtol=1e-3,
        atol=1e-4,
    )
case(
    "LambOptimizer",
    **SCALARS,
    groups=GROUPS[:4],
    update_signal=np.array([False]),
    outputs=5,
    **MS,
    expect=([3], *GROUPS[:4]),
)
refuse("LambOptimizer", R=RATE, groups=GROUPS[:4], outputs=[1, 2, 3, 4], **MS, match="no step")
refuse("LambOptimizer", **SCALARS, groups=GROUPS[:3], outputs=4, **MS, match="must be given")
refuse("LambOptimizer", **SCALARS, groups=GROUPS[:9], alpha=[0.9], outputs=10, **MS, match="alpha has 1")
