"""The words that attributes of text may hold where the spec lists them; any other is refused before a model runs.

Providers read such a word in different places, some only if it changes the result, so they cannot refuse the same models.
"""

from __future__ import annotations

from sardonyx.errors import Fail
from sardonyx.ir import Node

_LISTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "auto_pad",
        "AveragePool AveragePoolGrad Conv ConvGrad ConvInteger ConvTranspose ConvTransposeWithDynamicPads FusedConv LpPool MaxPool "
        "MaxPoolGrad NhwcConv NhwcFusedConv NhwcMaxPool QLinearAveragePool QLinearConv",
        ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER", ""),  # as in onnxruntime, no word means NOTSET
    ),
    ("direction", "BitShift", ("LEFT", "RIGHT")),
    ("round_mode", "Cast CastLike", ("up", "down", "nearest")),
    ("approximate", "Gelu", ("none", "tanh")),
    ("activation", "CausalConvWithState", ("none", "silu", "swish")),
    ("mode", "DepthToSpace SpaceToDepth", ("DCR", "CRD")),
    ("mode", "GridSample", ("nearest", "linear", "bilinear", "cubic", "bicubic")),
    ("padding_mode", "GridSample", ("zeros", "border", "reflection")),
    ("pixel_format", "ImageDecoder", ("RGB", "BGR", "Grayscale")),
    ("update_rule", "LinearAttention", ("linear", "gated", "delta", "gated_delta")),
    ("reduction", "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss SoftmaxCrossEntropyLossGrad", ("none", "mean", "sum")),
    ("mode", "Pad", ("constant", "reflect", "edge", "wrap")),
    ("mode", "Resize", ("nearest", "linear", "cubic")),
    ("mode", "Upsample", ("nearest", "linear", "bilinear")),
    (
        "coordinate_transformation_mode",
        "Resize",
        (
            "half_pixel",
            "half_pixel_symmetric",
            "pytorch_half_pixel",
            "align_corners",
            "asymmetric",
            "tf_half_pixel_for_nn",
            "tf_crop_and_resize",
        ),
    ),
    ("keep_aspect_ratio_policy", "Resize", ("stretch", "not_larger", "not_smaller")),
    ("nearest_mode", "Resize", ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")),
    ("mode", "RoiAlign", ("avg", "max")),
    ("coordinate_transformation_mode", "RoiAlign", ("half_pixel", "output_half_pixel")),
    ("reduction", "ScatterElements ScatterND", ("none", "add", "mul", "min", "max")),
    ("case_change_action", "StringNormalizer", ("NONE", "LOWER", "UPPER")),
    ("mode", "TensorScatter", ("linear", "circular")),
    ("mode", "TfIdfVectorizer", ("TF", "IDF", "TFIDF")),
    (
        "post_transform",
        "LinearClassifier LinearRegressor SVMClassifier SVMRegressor TreeEnsembleClassifier TreeEnsembleRegressor",
        ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"),
    ),
    ("norm", "Normalizer", ("MAX", "L1", "L2")),
    ("kernel_type", "SVMClassifier SVMRegressor", ("LINEAR", "POLY", "RBF", "SIGMOID")),
    ("aggregate_function", "TreeEnsembleRegressor", ("AVERAGE", "SUM", "MIN", "MAX")),
    ("mode", "CropAndResize", ("bilinear", "nearest")),
    ("k_quant_type", "GroupQueryAttention", ("NONE", "PER_TENSOR", "PER_CHANNEL")),
    ("v_quant_type", "GroupQueryAttention", ("NONE", "PER_TENSOR", "PER_CHANNEL")),
)
_DOMAINS = ("", "ai.onnx.ml", "com.microsoft")


def _by_op() -> dict[str, dict[str, tuple[str, ...]]]:
    vocabularies: dict[str, dict[str, tuple[str, ...]]] = {}
    for attribute, ops, words in _LISTS:
        for op in ops.split():
            vocabularies.setdefault(op, {})[attribute] = words
    return vocabularies


VOCABULARIES = _by_op()
"""By op and attribute: the words that are known."""


def check_words(node: Node) -> None:
    if node.domain not in _DOMAINS:
        return
    for name, words in VOCABULARIES.get(node.op_type, {}).items():
        attribute = node.attributes.get(name)
        if attribute is not None and attribute.reference is None and attribute.value not in words:
            raise Fail(
                f"Node ({node.name}) Op ({node.op_type}) {name} is {attribute.value!r}, expected one of {', '.join(words)}"
            )
