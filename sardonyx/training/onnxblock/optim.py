"""Optimizers as models over sequences of parameters."""

from __future__ import annotations

from typing import Any

import onnx
from onnx import TensorProto

from sardonyx.training.onnxblock.blocks import Block
from sardonyx.training.onnxblock.models import ForwardBlock

CONTRIB = "com.microsoft"


class ClipGradNorm(Block):
    """Scales all gradients so that their norm is at most `max_norm`."""

    def __init__(self, max_norm: float):
        super().__init__()
        self._max_norm = max_norm

    def build(self, gradients_name: str) -> str:
        return str(
            self.node("InplaceClipGradNorm", [gradients_name], "clip_grad_norm_output", CONTRIB, max_norm=self._max_norm)
        )


class AdamWOptimizer(Block):
    """AdamW, as Hugging Face has it: the decay comes last."""

    def __init__(
        self,
        bias_correction: bool | None = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float | None = 1e-6,
        weight_decay: float | None = 0.0,
    ):
        super().__init__()
        self._form: dict[str, Any] = {
            "adam_mode": 1,
            "alpha": float(betas[0]),
            "beta": float(betas[1]),
            "correct_bias": int(bool(bias_correction)),
            "epsilon": float(1e-6 if eps is None else eps),
            "weight_decay": float(weight_decay or 0.0),
        }

    def build(self, *names: str) -> str:
        return str(self.node("AdamWOptimizer", names, "adamw.updated_flag", CONTRIB, **self._form))


class SGDOptimizer(Block):
    def build(self, *names: str) -> str:
        return str(self.node("SGDOptimizerV2", names, "update_completed", CONTRIB))


class _Optimizer(ForwardBlock):
    """A whole optimizer model; the current model, whose parameters it will update, stays as it is."""

    moments: tuple[str, ...] = ()
    uses_moments = True

    def __init__(self, optimizer: Block, clip_grad: Block | None = None):
        super().__init__()
        self._optimizer, self._clip_grad = optimizer, clip_grad

    def build(self, *parameters: Any) -> str:
        graph = self.base.graph
        sequences = ["params", "gradients", *self.moments]
        graph.input.append(onnx.helper.make_tensor_value_info("learning_rate", TensorProto.FLOAT, [1]))
        graph.input.append(onnx.helper.make_tensor_value_info("step", TensorProto.INT64, [1]))
        graph.input.extend(onnx.helper.make_tensor_sequence_value_info(name, TensorProto.FLOAT, None) for name in sequences)
        gradients = "gradients" if self._clip_grad is None else self._clip_grad("gradients")
        if self.uses_moments:
            flag = self._optimizer("learning_rate", "step", "params", gradients, *self.moments)
        else:
            flag = self._optimizer("learning_rate", "params", gradients)
        graph.output.append(onnx.helper.make_tensor_value_info(flag, TensorProto.BOOL, [1]))
        return str(flag)


class AdamW(_Optimizer):
    moments = ("first_order_moments", "second_order_moments")

    def __init__(
        self,
        bias_correction: bool | None = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float | None = 1e-6,
        weight_decay: float | None = 0.0,
        clip_grad: Block | None = None,
    ):
        super().__init__(AdamWOptimizer(bias_correction, betas, eps, weight_decay), clip_grad)


class SGD(_Optimizer):
    moments = ("first_order_moments",)  # an input that nobody reads, as in onnxruntime's own models
    uses_moments = False

    def __init__(self, clip_grad: Block | None = None):
        super().__init__(SGDOptimizer(), clip_grad)
