"""Losses. Each makes an input for its target, if the model has no value of that name."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import onnx

from sardonyx.training.onnxblock import blocks
from sardonyx.training.onnxblock.blocks import Block, add_input, has_value

REDUCTIONS = ("mean", "sum", "none")


def _checked(reduction: str) -> str:
    if reduction not in REDUCTIONS:
        raise RuntimeError(f"Reduction {reduction} not supported.")
    return reduction


class _Reduced(Block):
    """A loss of each element, reduced."""

    def __init__(self, reduction: str = "mean"):
        super().__init__()
        self._reduction = _checked(reduction)

    def reduced(self, name: str) -> str:
        if self._reduction == "none":
            return name
        block = blocks.ReduceMean if self._reduction == "mean" else blocks.ReduceSum
        return str(block(keepdims=False)(name))


class MSELoss(_Reduced):
    """The squared difference."""

    def build(self, loss_input_name: str, target_name: str = "target") -> str:
        difference = blocks.Sub()(loss_input_name, add_input(self.base, target_name, loss_input_name))
        return self.reduced(blocks.Pow(2.0)(difference))


class L1Loss(_Reduced):
    """The absolute difference."""

    def build(self, loss_input_name: str, target_name: str = "target") -> str:
        difference = blocks.Sub()(loss_input_name, add_input(self.base, target_name, loss_input_name))
        return self.reduced(blocks.Abs()(difference))


class BCEWithLogitsLoss(_Reduced):
    """Binary cross entropy of logits, by Softplus: no logit is so large that it overflows."""

    def __init__(self, weight: Any = None, reduction: str = "mean", pos_weight: Any = None):
        super().__init__(reduction)
        self._weight, self._pos_weight = weight, pos_weight

    def build(self, loss_input_name: str, target_name: str = "target") -> str:
        """(1 - target) · softplus(x) + pos_weight · target · softplus(-x)."""
        target = add_input(self.base, target_name, loss_input_name)
        one = self.initializer(np.ones(1, np.float32), "bceloss.one")
        positive = blocks.Mul()(target, self.node("Softplus", [blocks.Neg()(loss_input_name)]))
        if self._pos_weight is not None:
            weight = self.initializer(np.asarray(self._pos_weight, np.float32), "bceloss.pos_weight")
            positive = blocks.Mul()(positive, weight)
        negative = blocks.Mul()(blocks.Sub()(one, target), self.node("Softplus", [loss_input_name]))
        loss = blocks.Add()(positive, negative)
        if self._weight is not None:
            loss = blocks.Mul()(self.initializer(np.asarray(self._weight, np.float32), "bceloss.weight"), loss)
        return self.reduced(loss)


class CrossEntropyLoss(Block):
    """Cross entropy of scores [N, classes, …] and labels [N, …]."""

    def __init__(self, weight: Any = None, reduction: str = "mean", ignore_index: int | None = None):
        super().__init__()
        self._weight, self._reduction, self._ignore_index = weight, _checked(reduction), ignore_index

    def build(self, scores_input_name: str, labels_name: str = "labels") -> str:
        inputs = [scores_input_name, self._labels(scores_input_name, labels_name)]
        if self._weight is not None:
            inputs.append(self.initializer(np.asarray(self._weight, np.float32), "crossentropyloss.weight"))
        form: dict[str, Any] = {} if self._ignore_index is None else {"ignore_index": self._ignore_index}
        loss, _ = self.node("SoftmaxCrossEntropyLoss", inputs, "loss", outputs=2, reduction=self._reduction, **form)
        return str(loss)

    def _labels(self, scores: str, name: str) -> str:
        """An input of int64 with the shape of the scores, but for the axis of classes."""
        graph = self.base.graph
        if has_value(graph, name):
            return name
        declared = next((value for value in (*graph.output, *graph.value_info) if value.name == scores), None)
        if declared is None:
            raise LookupError(f"The provided name {scores} is not a graph value info or a graph output.")
        made = copy.deepcopy(declared)
        made.name = name
        made.type.tensor_type.elem_type = onnx.TensorProto.INT64
        if len(made.type.tensor_type.shape.dim) > 1:
            del made.type.tensor_type.shape.dim[1]
        graph.input.append(made)
        return name
