"""Ops on images and signals."""

from __future__ import annotations

import numpy as np

from tests.fuzz.edges.table import CONTRIB, audit, floats, int32s, ints, scalar

WINDOW = "dilations=inference kernel_shape=inference pads=inference strides=inference"
image = floats(1, 4, 6, 7)

for op in ("Conv", "FusedConv"):
    audit(
        op,
        {"X": image, "W": floats(4, 2, 3, 3), "B": floats(4)},
        f"{WINDOW} group=inference",
        domain=CONTRIB if op == "FusedConv" else "",
        constants="W B",
        kernel_shape=[3, 3],
        pads=[1, 1, 1, 1],
        strides=[1, 2],
        dilations=[1, 1],
        group=2,
    )
audit(
    "NhwcFusedConv",
    {"X": floats(1, 6, 7, 4), "W": floats(4, 4, 3, 3)},
    f"{WINDOW} group=inference",
    domain=CONTRIB,
    constants="W",
    kernel_shape=[3, 3],
    pads=[1, 1, 1, 1],
    strides=[1, 1],
    dilations=[1, 1],
    group=1,
)
audit(
    "ConvTranspose",
    {"X": image, "W": floats(4, 3, 3, 3)},
    f"{WINDOW} group=inference output_padding=inference output_shape=inference",
    constants="W",
    kernel_shape=[3, 3],
    pads=[1, 1, 1, 1],
    strides=[2, 2],
    dilations=[1, 1],
    output_padding=[1, 0],
    group=1,
)
audit(
    "ConvTranspose",
    {"X": image, "W": floats(4, 3, 3, 3)},
    "output_shape=inference strides=inference",
    constants="W",
    strides=[2, 2],
    output_shape=[12, 14],
)
POOL = {"kernel_shape": [2, 3], "pads": [0, 1, 1, 0], "strides": [2, 1], "dilations": [1, 1], "ceil_mode": 0}
audit("MaxPool", {"X": image}, f"{WINDOW} ceil_mode=flag storage_order=flag", opset=22, **POOL)
audit("MaxPool", {"X": image}, f"{WINDOW} ceil_mode=flag storage_order=flag", opset=22, outputs=2, storage_order=0, **POOL)
audit("AveragePool", {"X": image}, f"{WINDOW} ceil_mode=flag count_include_pad=flag", opset=22, count_include_pad=1, **POOL)
audit("LpPool", {"X": image}, f"{WINDOW} ceil_mode=flag p=claims", opset=22, p=2, **POOL)
audit("GlobalAveragePool GlobalMaxPool", {"X": image})
audit("GlobalLpPool", {"X": image}, "p=claims", p=2)
audit(
    "MaxUnpool",
    {"X": floats(1, 1, 2, 2), "I": ints([[[0, 3], [9, 15]]]), "output_shape": ints(1, 1, 4, 4)},
    "I=status output_shape=inference kernel_shape=inference pads=inference strides=inference",
    constants="output_shape",
    kernel_shape=[2, 2],
    pads=[0, 0, 0, 0],
    strides=[2, 2],
)
audit("LRN", {"X": image}, "size=clamped", size=3)
audit(
    "RoiAlign",
    {"X": image, "rois": np.array([[0, 0, 5, 5], [1, 1, 3, 4]], np.float32), "batch_indices": ints(0, 0)},
    "rois=status batch_indices=status output_height=sizes output_width=sizes sampling_ratio=inference",
    output_height=2,
    output_width=3,
    sampling_ratio=2,
)
audit(
    "RoiAlign",
    {"X": image, "rois": np.array([[0, 0, 5, 5], [1, 1, 3, 4]], np.float32), "batch_indices": ints(0, 0)},
    "rois=status batch_indices=status output_height=sizes output_width=sizes sampling_ratio=inference",
    output_height=2,
    output_width=3,
    sampling_ratio=0,
    mode="max",
)
audit(
    "Resize",
    {"X": image, "roi": np.array([0.1, 0, 0.9, 1.2], np.float32), "scales": None, "sizes": ints(5, 9)},
    "sizes=sizes axes=inference antialias=flag exclude_outside=flag",
    constants="roi sizes",
    mode="linear",
    coordinate_transformation_mode="tf_crop_and_resize",
    axes=[2, 3],
)
audit(
    "MaxRoiPool",
    {"X": image, "rois": np.array([[0, 0, 0, 5, 5], [0, 1, 1, 3, 4]], np.float32)},
    "rois=status pooled_shape=claims",
    pooled_shape=[2, 3],
)
audit(
    "CropAndResize",
    {
        "X": image,
        "rois": np.array([[0, 0, 1, 1], [0.1, 0.2, 0.9, 1.3]], np.float32),
        "batch_indices": int32s(0, 0),
        "crop_size": int32s(3, 4),
    },
    "rois=clamped batch_indices=status crop_size=sizes",
    domain=CONTRIB,
    constants="crop_size",
)
audit(
    "DeformConv",
    {"X": image, "W": floats(2, image.shape[1], 2, 2), "offset": floats(1, 8, *(size - 1 for size in image.shape[2:]))},
    "offset=clamped group=claims offset_group=claims kernel_shape=claims dilations=claims pads=claims strides=claims",
    opset=19,
    strides=[1, 1],
    dilations=[1, 1],
    pads=[0, 0, 0, 0],
    group=1,
    offset_group=1,
    kernel_shape=[2, 2],
)
for mode in ("nearest", "linear", "cubic"):
    audit(
        "Resize",
        {"X": image, "roi": None, "scales": None, "sizes": ints(12, 9)},
        "sizes=sizes axes=inference antialias=flag exclude_outside=flag",
        constants="sizes",
        mode=mode,
        axes=[2, 3],
    )
    audit(
        "Resize",
        {"X": image, "roi": None, "scales": np.array([1, 1, 2, 1.5], np.float32)},
        "scales=sizes antialias=flag",
        constants="scales",
        mode=mode,
        antialias=int(mode != "nearest"),
    )
audit("Upsample", {"X": image, "scales": np.array([1, 1, 2, 3], np.float32)}, "scales=sizes", constants="scales", opset=9)
for mode in ("linear", "nearest", "cubic"):
    audit("GridSample", {"X": image, "grid": floats(1, 3, 4, 2) * 2}, "grid=clamped align_corners=flag", opset=22, mode=mode)
audit("GridSample", {"X": image, "Grid": floats(1, 3, 4, 2) * 2}, "Grid=clamped align_corners=flag", domain=CONTRIB)
audit("AffineGrid", {"theta": floats(1, 2, 3), "size": ints(1, 3, 4, 5)}, "size=sizes align_corners=flag", constants="size")
audit(
    "DFT",
    {"input": floats(2, 8, 1), "dft_length": scalar(8), "axis": scalar(1)},
    "dft_length=sizes axis=inference inverse=flag onesided=flag",
    constants="dft_length axis",
)
audit("DFT", {"input": floats(2, 8, 1)}, "axis=inference inverse=flag onesided=flag", axis=1, opset=17)
audit(
    "STFT",
    {"signal": floats(1, 32, 1), "frame_step": scalar(4), "window": floats(8), "frame_length": scalar(8)},
    "frame_step=sizes frame_length=sizes onesided=flag",
    constants="frame_step frame_length",
)

for center in (0, 1):
    audit(
        "NonMaxSuppression",
        {
            "boxes": np.abs(floats(2, 20, 4)),
            "scores": np.abs(floats(2, 3, 20)),
            "max_output_boxes_per_class": ints(3),
            "iou_threshold": np.array([0.5], np.float32),
            "score_threshold": np.array([0.25], np.float32),
        },
        "center_point_box=inference max_output_boxes_per_class=settled "
        "boxes=data scores=data iou_threshold=data score_threshold=data",
        center_point_box=center,
    )

# filters and biases that are fed, other ranks, a sum behind
audit("Conv", {"X": image, "W": floats(4, 4, 3, 3), "B": floats(4)}, "group=inference", group=1)
audit(
    "Conv", {"X": floats(1, 4, 9), "W": floats(4, 1, 3), "B": floats(4)}, "group=inference pads=inference", group=4, pads=[1, 1]
)
audit(
    "FusedConv",
    {"X": image, "W": floats(4, 4, 1, 1), "B": floats(4), "Z": floats(1, 4, 6, 7)},
    "group=inference",
    domain=CONTRIB,
    constants="W B",
    activation="Relu",
)
audit("MaxPool", {"X": floats(1, 2, 9)}, WINDOW, opset=22, kernel_shape=[3], pads=[1, 1], strides=[2], dilations=[2])
audit("AveragePool", {"X": floats(1, 2, 3, 4, 5)}, WINDOW, opset=22, kernel_shape=[2, 2, 2], pads=[0] * 6, strides=[1] * 3)
