"""Cases of losses of classification."""

import itertools

import numpy as np

from sardonyx import dtypes
from sardonyx.dtypes import FLOATS
from tests.ops.cases import case, f32, i64, refuse

CLASSES = {"Tind": {dtypes.int32, dtypes.int64}}


def likelihood(reduction, ignore_index=None):
    """The loss of each sample by itself, then reduced."""

    def expect(input, target, weight=None):
        losses, total = np.zeros(target.shape), 0.0
        for place in np.ndindex(*target.shape):
            chosen = target[place]
            if chosen != ignore_index:
                factor = 1.0 if weight is None else float(weight[chosen])
                losses[place] = -float(input[(place[0], chosen, *place[1:])]) * factor
                total += factor
        if reduction == "none":
            return losses
        return losses.sum() / (total if reduction == "mean" else 1)

    return expect


def cross_entropy(reduction, ignore_index=None):
    def expect(scores, labels, weights=None):
        wide = scores.astype(np.float64)
        log_prob = wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))
        return likelihood(reduction, ignore_index)(log_prob, labels, weights), log_prob

    return expect


for reduction, shape in itertools.product(("none", "mean", "sum"), ((3,), (3, 2), (3, 2, 4), (3, 1, 2, 2))):
    scores, classes, weight = f32(3, 5, *shape[1:]), i64(*shape, low=0, high=5), f32(5, low=0.1, high=1)
    some = classes.copy()
    some.reshape(-1)[::2] = -7
    how = {"reduction": reduction}
    for op, formula, names in (
        ("NegativeLogLikelihoodLoss", likelihood, ("input", "target", "weight")),
        ("SoftmaxCrossEntropyLoss", cross_entropy, ("scores", "labels", "weights")),
    ):
        case(op, **dict(zip(names, (scores, classes))), **how, expect=formula(reduction), atol=1e-5)
        case(op, **dict(zip(names, (scores, classes, weight))), **how, expect=formula(reduction), atol=1e-5)
        case(op, **dict(zip(names, (scores, some))), ignore_index=-7, **how, expect=formula(reduction, -7), atol=1e-5)
        case(op, **dict(zip(names, (scores, some, weight))), ignore_index=-7, **how, expect=formula(reduction, -7), atol=1e-5)

SCORES, CHOICES = f32(4, 3), np.array([0, 2, 1, 2])
case(
    "NegativeLogLikelihoodLoss",
    input=SCORES,
    target=CHOICES,
    types={"T": FLOATS, **CLASSES},
    atol=0.01,
    expect=likelihood("mean"),
)
case(
    "SoftmaxCrossEntropyLoss",
    scores=SCORES,
    labels=CHOICES,
    types={"T": FLOATS, **CLASSES},
    atol=0.02,
    expect=cross_entropy("mean"),
)
case(
    "SoftmaxCrossEntropyLoss",
    scores=SCORES,
    labels=CHOICES,
    outputs=[0],
    expect=lambda scores, labels: cross_entropy("mean")(scores, labels)[0],
)
# an ignored class may be one of the classes, and all samples may be ignored
case("NegativeLogLikelihoodLoss", input=SCORES, target=CHOICES, ignore_index=2, expect=likelihood("mean", 2))
case("NegativeLogLikelihoodLoss", input=SCORES, target=np.zeros(4, np.int64), ignore_index=0, expect=np.array(np.nan))
case("NegativeLogLikelihoodLoss", input=f32(0, 3), target=np.zeros(0, np.int64), reduction="none", expect=np.zeros(0))
case("NegativeLogLikelihoodLoss", input=f32(0, 3), target=np.zeros(0, np.int64), expect=np.array(np.nan))
case(
    "SoftmaxCrossEntropyLoss",
    scores=f32(0, 3),
    labels=np.zeros(0, np.int64),
    reduction="sum",
    expect=(np.array(0), np.zeros((0, 3))),
)
refuse("NegativeLogLikelihoodLoss", input=SCORES, target=np.array([0, 1, 3, 0]), match="class")
refuse("NegativeLogLikelihoodLoss", input=SCORES, target=np.array([0, 1, -1, 0]), match="class")
refuse("NegativeLogLikelihoodLoss", input=SCORES, target=np.array([0, 1]), match="differ|fit")
refuse("NegativeLogLikelihoodLoss", input=SCORES, target=CHOICES, reduction="max", match="reduction")
refuse("SoftmaxCrossEntropyLoss", scores=f32(4), labels=CHOICES, match="rank")
