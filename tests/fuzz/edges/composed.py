"""Ops that are lowered as others: what these check of a number holds for it, too."""

from __future__ import annotations

import numpy as np

from tests.fuzz.edges.table import CONTRIB, TRAINING, audit, floats, ints, scalar

scores, labels, weights = floats(3, 4, 2), ints([0, 3], [1, 2], [3, -1]), floats(4)

audit(
    "NegativeLogLikelihoodLoss",
    {"input": scores, "target": labels, "weight": weights},
    "target=status ignore_index=data",
    ignore_index=-1,
)
audit(
    "SoftmaxCrossEntropyLoss",
    {"scores": scores, "labels": labels, "weights": weights},
    "labels=status ignore_index=data",
    ignore_index=-1,
    outputs=2,
)
audit(
    "HannWindow HammingWindow BlackmanWindow",
    {"size": scalar(10)},
    "size=sizes output_datatype=inference periodic=flag",
    constants="size",
    periodic=0,
)
audit(
    "MelWeightMatrix",
    {
        "num_mel_bins": scalar(5),
        "dft_length": scalar(64),
        "sample_rate": scalar(8000),
        "lower_edge_hertz": np.array(20, np.float32),
        "upper_edge_hertz": np.array(3900, np.float32),
    },
    "num_mel_bins=sizes dft_length=sizes sample_rate=data output_datatype=inference",
    constants="num_mel_bins dft_length",
)
audit(
    "CenterCropPad",
    {"input_data": floats(4, 5, 3), "shape": ints(6, 3)},
    "shape=sizes axes=inference",
    constants="shape",
    axes=[0, 1],
)
audit(
    "Col2Im",
    {"input": floats(1, 6, 12), "image_shape": ints(4, 5), "block_shape": ints(2, 3)},
    "image_shape=sizes block_shape=sizes dilations=claims pads=sizes strides=claims",
    constants="image_shape block_shape",
    dilations=[1, 1],
    pads=[0, 0, 1, 1],
    strides=[1, 1],
)
audit(
    "TensorScatter",
    {"past_cache": floats(2, 3, 5, 2), "update": floats(2, 3, 2, 2), "write_indices": ints(1, 3)},
    "write_indices=status axis=inference",
    opset=24,
    axis=2,
)
audit("BitCast", {"input": floats(3, 4)}, "to=inference", opset=26, to=6)

# --- matrices

audit("Det", {"X": floats(2, 3, 3)})
audit("Inverse", {"X": floats(2, 3, 3)}, domain=CONTRIB)

# --- layers

query, key, value = floats(2, 3, 8), floats(2, 3, 4), floats(2, 3, 6)
HEADS = "q_num_heads=inference kv_num_heads=inference chunk_size=flag"
audit(
    "LinearAttention",
    {"query": query, "key": key, "value": value},
    HEADS,
    opset=27,
    outputs=2,
    q_num_heads=2,
    kv_num_heads=1,
    update_rule="linear",
)
audit(
    "LinearAttention",
    {"query": query, "key": key, "value": value},
    f"{HEADS} state_window=claims",
    domain=CONTRIB,
    outputs=2,
    q_num_heads=2,
    kv_num_heads=1,
    update_rule="linear",
    state_window=0,
)
audit("CausalConvWithState", {"input": floats(2, 3, 6), "weight": floats(3, 1, 3)}, opset=27, outputs=2)
audit(
    "CausalConvWithState",
    {"input": floats(2, 3, 6), "weight": floats(3, 1, 3)},
    "ndim=claims dilation=inference channels_last=flag state_window=claims",
    domain=CONTRIB,
    outputs=2,
    ndim=1,
    dilation=2,
    channels_last=0,
    state_window=0,
)
image, gamma = floats(2, 4, 5, 6), floats(6)
GROUPS = "groups=inference activation=claims channels_last=flag"
audit(
    "GroupNorm",
    {"X": image, "gamma": gamma, "beta": gamma},
    GROUPS,
    domain=CONTRIB,
    groups=3,
    activation=1,
    channels_last=1,
)
audit(
    "SkipGroupNorm",
    {"X": image, "gamma": gamma, "beta": gamma, "skip": image},
    GROUPS,
    domain=CONTRIB,
    outputs=2,
    groups=3,
    activation=0,
    channels_last=1,
)
audit("BiasSplitGelu", {"X": floats(2, 3, 8), "bias": floats(8)}, domain=CONTRIB)
audit(
    "NhwcConv",
    {"X": image, "W": floats(4, 3, 3, 6)},
    "group=inference kernel_shape=inference dilations=inference strides=inference pads=inference",
    domain=CONTRIB,
    group=1,
    kernel_shape=[3, 3],
    dilations=[1, 1],
    strides=[2, 1],
    pads=[1, 1, 1, 1],
)

# --- streams

streams, mix = floats(2, 5, 12), floats(2, 5, 3)
audit("BranchwiseRMSNorm", {"X": streams, "scale": floats(4)}, "num_branches=inference", domain=CONTRIB, num_branches=3)
audit("HyperConnectionPreMix", {"streams": streams, "pre_mix": mix}, "num_branches=inference", domain=CONTRIB, num_branches=3)
audit(
    "HyperConnectionPostMix",
    {"streams": streams, "block_output": floats(2, 5, 4), "post_mix": mix},
    "num_branches=inference",
    domain=CONTRIB,
    num_branches=3,
)
gates = {"key": floats(2, 5, 3, 4), "query": floats(2, 5, 3, 4), "value": floats(2, 5, 4)}
audit("EngramGate", {**gates, "key_norm_scale": floats(3, 4), "query_norm_scale": floats(3, 4)}, domain=CONTRIB)
audit("LinearAttentionGate", {"a": mix, "dt_bias": floats(3), "decay_scale": floats(3)}, domain=CONTRIB)
audit("SwiGLU", {"A": floats(2, 3), "B": floats(2, 3)}, opset=28)
audit("GatedRMSNorm", {"X": streams, "scale": floats(4), "gate": streams}, domain=CONTRIB)

# --- steps of optimizers

rate, count = np.float32(0.1).reshape(()), scalar(3)
tensor = {"X": floats(3), "G": floats(3), "H": np.abs(floats(3))}
audit("Adagrad", {"R": rate, "T": count, **tensor}, "T=data", domain=TRAINING, opset=21, outputs=2)
audit("Adam", {"R": rate, "T": count, **tensor, "V": np.abs(floats(3))}, "T=data", domain=TRAINING, outputs=3)
audit(
    "Momentum",
    {"R": rate, "T": count, **tensor},
    "T=data",
    domain=TRAINING,
    outputs=2,
    alpha=0.9,
    beta=0.5,
    mode="nesterov",
    norm_coefficient=0.01,
)
audit(
    "ConvTransposeWithDynamicPads",
    {"X": floats(1, 3, 5, 4), "W": floats(3, 2, 3, 3), "Pads": ints(1, 0, 1, 1)},
    "Pads=claims kernel_shape=inference output_padding=inference dilations=inference strides=inference group=inference",
    domain=CONTRIB,
    constants="Pads",
    kernel_shape=[3, 3],
    strides=[2, 2],
    dilations=[1, 1],
    output_padding=[0, 0],
    group=1,
)
