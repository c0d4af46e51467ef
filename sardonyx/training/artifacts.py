"""From a forward model to the files that training needs: training model, eval model, optimizer model, checkpoint."""

from __future__ import annotations

import enum
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx

from sardonyx.runtime.api.options import SessionOptions
from sardonyx.runtime.preparation.prepare import prepare
from sardonyx.runtime.preparation.recipe import Recipe
from sardonyx.runtime.saving.files import save_ort
from sardonyx.training import onnxblock
from sardonyx.training.api.refusals import as_runtime_errors

LARGEST_PROTO = 2**31 - 1


class LossType(enum.Enum):
    """Losses that `generate_artifacts` knows by name."""

    MSELoss = 1
    CrossEntropyLoss = 2
    BCEWithLogitsLoss = 3
    L1Loss = 4


class OptimType(enum.Enum):
    """Optimizers that `generate_artifacts` knows by name."""

    AdamW = 1
    SGD = 2


def generate_artifacts(
    model: onnx.ModelProto | str | os.PathLike[str],
    requires_grad: Sequence[str] | None = None,
    frozen_params: Sequence[str] | None = None,
    loss: LossType | onnxblock.Block | None = None,
    optimizer: OptimType | onnxblock.Block | None = None,
    artifact_directory: str | os.PathLike[str] | None = None,
    prefix: str = "",
    ort_format: bool = False,
    custom_op_library: str | os.PathLike[str] | None = None,
    additional_output_names: list[str] | None = None,
    nominal_checkpoint: bool = False,
    loss_input_names: Sequence[str] | None = None,
) -> None:
    """Write `training_model.onnx`, `eval_model.onnx`, `checkpoint` and, with an optimizer, `optimizer_model.onnx`.

    `requires_grad` names the initializers that are trained, `frozen_params` those that are parameters too and stay. Without a loss
    the model's first output is it. `loss_input_names` are given to the loss in place of the model's outputs.
    """
    proto, path = _loaded(model)
    both = set(requires_grad or ()) & set(frozen_params or ())
    if both:
        raise RuntimeError(f"A parameter cannot be frozen and require gradient computation at the same time {both}")
    if custom_op_library is not None:
        raise RuntimeError("Libraries of compiled ops are not supported; register the op with sardonyx.register_custom_op.")
    block = _Training(_loss_block(loss), _checked_names(additional_output_names))
    optimizer_block = _optimizer_block(optimizer)
    for name in requires_grad or ():
        block.requires_grad(name)
    for name in frozen_params or ():
        block.requires_grad(name, False)
    with onnxblock.base(proto, path), as_runtime_errors():
        block(*(loss_input_names or [output.name for output in proto.graph.output]))
    folder = Path(os.getcwd() if artifact_directory is None else artifact_directory)
    training, evaluation = block.to_model_proto()
    models = {"training_model": training, "eval_model": evaluation}
    if optimizer_block is not None:
        models["optimizer_model"] = _optimizer_model(optimizer_block, proto)
    for kind, made in models.items():
        _save(made, folder / f"{prefix}{kind}.onnx", ort_format)
    onnxblock.save_checkpoint(block.parameters(), folder / f"{prefix}checkpoint")
    if nominal_checkpoint:
        onnxblock.save_checkpoint(block.parameters(), folder / f"{prefix}nominal_checkpoint", nominal_checkpoint=True)


def _loaded(model: Any) -> tuple[onnx.ModelProto, str | None]:
    """The model, and the path that its external data is beside."""
    if isinstance(model, onnx.ModelProto):
        if _is_too_large(model):
            raise RuntimeError("This model is > 2GB. Please pass in a path to the ONNX file instead.")
        return model, None
    if isinstance(model, (str, os.PathLike)):
        return onnx.load(os.fspath(model), load_external_data=False), os.fspath(model)
    raise RuntimeError("Please pass in either a string or an ONNX ModelProto for the model.")


def _is_too_large(model: onnx.ModelProto) -> bool:
    from google.protobuf.message import EncodeError  # type: ignore[import-untyped]

    try:
        return bool(model.ByteSize() > LARGEST_PROTO)
    except EncodeError:  # the size of what no bytes can hold
        return True


class _Training(onnxblock.TrainingBlock):
    def __init__(self, loss: onnxblock.Block, further: list[str]):
        super().__init__()
        self._loss, self._further = loss, further

    def build(self, *names: str) -> Any:
        output = self._loss(*names)
        outputs = [output] if isinstance(output, str) else list(output)
        return [*outputs, *self._further]


class _FirstOutput(onnxblock.Block):
    def build(self, *names: str) -> str:
        return names[0]


def _loss_block(loss: Any) -> onnxblock.Block:
    if loss is None:
        return _FirstOutput()
    if isinstance(loss, LossType):
        return getattr(onnxblock.loss, loss.name)()  # type: ignore[no-any-return]
    if isinstance(loss, onnxblock.Block):
        return loss
    raise RuntimeError(
        f"Unknown loss provided {type(loss)}. Expected loss to be either one of"
        "onnxruntime.training.artifacts.LossType or onnxruntime.training.onnxblock.Block."
    )


def _optimizer_block(optimizer: Any) -> onnxblock.Block | None:
    if optimizer is None or isinstance(optimizer, onnxblock.Block):
        return optimizer
    if isinstance(optimizer, OptimType):
        return getattr(onnxblock.optim, optimizer.name)()  # type: ignore[no-any-return]
    raise TypeError(
        f"Unknown optimizer provided {type(optimizer)}. Expected optimizer to be either one of"
        "onnxruntime.training.artifacts.OptimType or onnxruntime.training.onnxblock.Block."
    )


def _checked_names(names: Any) -> list[str]:
    if names is not None and not isinstance(names, list):
        raise RuntimeError(
            f"Unknown type provided for additional output names {type(names)}. "
            "Expected additional output names to be a list of strings."
        )
    return names or []


def _optimizer_model(block: onnxblock.Block, forward: onnx.ModelProto) -> onnx.ModelProto:
    opset = next((entry.version for entry in forward.opset_import if not entry.domain), None)
    with onnxblock.empty_base(opset) as base:
        block()
        return base.model


def _save(model: onnx.ModelProto, path: Path, ort_format: bool) -> None:
    onnx.save(model, path)
    if ort_format:
        typed = prepare(Recipe(path, SessionOptions()), "infer").model
        save_ort(typed, path.with_suffix(".ort"), portable=False)  # ops of training stay, they have bodies and no kernels
