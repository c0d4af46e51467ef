"""`quant_pre_process`: bring a float model into the shape in which quantization works best."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from onnx import ModelProto

from sardonyx.quantization import models
from sardonyx.quantization.optimized import import_known_domains, optimize_model
from sardonyx.tools.symbolic_shape_infer import SymbolicShapeInference

LOG = logging.getLogger(__name__)


def quant_pre_process(
    input_model: str | Path | ModelProto | None = None,
    output_model_path: str | Path | None = None,
    skip_optimization: bool = False,
    skip_onnx_shape: bool = False,
    skip_symbolic_shape: bool = False,
    auto_merge: bool = False,
    int_max: int = 2**31 - 1,
    guess_output_rank: bool = False,
    verbose: int = 0,
    save_as_external_data: bool = False,
    all_tensors_to_one_file: bool = False,
    external_data_location: str | None = None,
    external_data_size_threshold: int = 1024,
    **deprecated_kwargs: Any,
) -> None:
    """Infer shapes, fold and fuse, infer again, and write the model with a mark that this was done."""
    source = deprecated_kwargs.pop("input_model_path", None) if input_model is None else input_model
    if deprecated_kwargs:
        raise TypeError(f"quant_pre_process has no argument {', '.join(deprecated_kwargs)}")
    if source is None or output_model_path is None:
        raise TypeError("quant_pre_process needs input_model and output_model_path")
    model = models.load(source)
    if not skip_symbolic_shape:
        model = SymbolicShapeInference.infer_shapes(model, int_max, auto_merge, guess_output_rank, verbose)
    if not skip_optimization:
        model = _optimized(model)
    if not skip_onnx_shape:
        models.infer_shapes(model)
    models.add_pre_process_metadata(model)
    models.save(
        model,
        output_model_path,
        save_as_external_data,
        all_tensors_to_one_file=all_tensors_to_one_file,
        location=external_data_location,
        size_threshold=external_data_size_threshold,
        convert_attribute=False,
    )


def _optimized(model: ModelProto) -> ModelProto:
    """The model through the optimizer; itself where that cannot take it."""
    with models.temporary_folder() as folder:
        before, after = Path(folder) / "before.onnx", Path(folder) / "after.onnx"
        models.save(models.load(model), before)
        try:
            optimize_model(before, after)
        except Exception as error:
            LOG.error("the model stays as it is, for it could not be optimized: %s", error)
            return model
        optimized = models.load(after)
    del optimized.metadata_props[:]
    optimized.metadata_props.extend(model.metadata_props)
    import_known_domains(optimized)
    return optimized
