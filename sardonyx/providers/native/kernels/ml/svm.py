"""SVMClassifier and SVMRegressor of ai.onnx.ml: kernels between rows and support vectors, summed at once; then votes and probabilities."""

from __future__ import annotations

import numpy as np

from sardonyx.compiler.types import F32
from sardonyx.ir import Node
from sardonyx.ops.reading import all_attributes
from sardonyx.providers.native.kernels.ml.scores import TRANSFORMS, Scores, ScoreSpec, finish_scores
from sardonyx.providers.native.kernels.ml.svm_sums import features_of, pair_sums, whole_sums
from sardonyx.providers.native.kernels.ml.svm_votes import duel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import shape_of

KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


def _claims(node: Node) -> bool:
    shape = None if node.inputs[0] is None else shape_of(node.inputs[0])
    attributes = all_attributes(node)
    if shape is None or len(shape) not in (1, 2) or not all(output.name for output in node.outputs):
        return False
    return attributes["kernel_type"] in KERNELS and attributes["post_transform"] in TRANSFORMS


def _claims_regressor(node: Node) -> bool:
    attributes = all_attributes(node)
    count = attributes.get("n_supports") or 0
    vectors, weights = attributes.get("support_vectors") or (), attributes.get("coefficients") or ()
    return (
        _claims(node)
        and 0 < count <= len(weights)
        and len(vectors) == count * features_of(node, count) > 0
        and len(attributes.get("rho") or ()) >= 1
    )


def _claims_classifier(node: Node) -> bool:
    attributes = all_attributes(node)
    sizes, labels = attributes.get("vectors_per_class") or [], attributes.get("classlabels_ints") or []
    vectors, weights, pairs = (
        attributes.get("support_vectors") or (),
        attributes.get("coefficients") or (),
        len(sizes) * (len(sizes) - 1) // 2,
    )
    if len(node.outputs) != 2 or not _claims(node) or not 2 <= len(sizes) == len(labels) or min(sizes) < 0:
        return False
    whole = len(vectors) == sum(sizes) * features_of(node, sum(sizes)) > 0 and len(weights) >= (len(sizes) - 1) * sum(sizes)
    if np.isnan(weights).any():
        return False
    chances = [attributes.get(name) or [] for name in ("prob_a", "prob_b")]
    return (
        whole
        and len(attributes.get("rho") or ()) >= pairs
        and (not chances[0] or all(len(numbers) == pairs for numbers in chances))
    )


@lower("SVMRegressor", domain="ai.onnx.ml", claims=_claims_regressor)
def svm_regressor(lowerer: Lowerer, node: Node) -> None:
    attributes = all_attributes(node)
    scores = whole_sums(lowerer, node, attributes)
    output = lowerer.output(node.outputs[0])
    spec = ScoreSpec(F32, F32, output.type, sign=bool(attributes.get("one_class")))
    finish_scores(lowerer, spec, scores, output, None)


@lower("SVMClassifier", domain="ai.onnx.ml", claims=_claims_classifier)
def svm_classifier(lowerer: Lowerer, node: Node) -> None:
    """Classes are compared in pairs, and vote."""
    attributes = all_attributes(node)
    labels, transform = attributes["classlabels_ints"], attributes["post_transform"]
    scores = pair_sums(lowerer, node, attributes)
    output, second = lowerer.output(node.outputs[1]), ""
    chances = lowerer.scratch(scores.rows * (len(labels) * 4)) if attributes.get("prob_a") else None
    duel(lowerer, node, scores, attributes, chances)
    if chances is not None:
        scores = Scores(place=chances, stride=len(labels), rows=scores.rows, count=len(labels))
    elif len(labels) == 2:
        second = "negative" if transform in ("NONE", "PROBIT") else "complement"
    finish_scores(lowerer, ScoreSpec(F32, F32, output.type, transform, second), scores, output, None)
