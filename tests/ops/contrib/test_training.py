"""Cases of com.microsoft's ops of training graphs besides gradients."""

import numpy as np

from tests.ops.cases import case, f32

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
