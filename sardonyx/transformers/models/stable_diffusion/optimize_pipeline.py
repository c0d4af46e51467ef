"""Optimized copies of pipelines of ONNX models, as diffusers and optimum lay them out: a folder for each model, and others beside them.

`python -m sardonyx.transformers.models.stable_diffusion.optimize_pipeline -i SOURCE -o TARGET [--float16]`
"""

from __future__ import annotations

import argparse
import logging
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import onnx
from onnx.external_data_helper import uses_external_data

from sardonyx.transformers.fusion_options import FusionOptions
from sardonyx.transformers.onnx_model import OnnxModel
from sardonyx.transformers.optimizer import optimize_by_onnxruntime, optimize_model

logger = logging.getLogger(__name__)

MODEL_FILE = "model.onnx"
MODEL_TYPES = {
    "unet": "unet",
    "transformer": "mmdit",
    "vae_encoder": "vae",
    "vae_decoder": "vae",
    "text_encoder": "clip",
    "text_encoder_2": "clip",
    "text_encoder_3": "t5",
    "safety_checker": "clip",
}
"""The type of the model in a folder."""
ALWAYS_FLOAT = ["RandomNormalLike"]


def has_external_data(onnx_model_path: str | Path) -> bool:
    """Whether a model has weights in files beside it."""
    model = onnx.load_model(str(onnx_model_path), load_external_data=False)
    return any(uses_external_data(tensor) for tensor in model.graph.initializer)


def is_sd_3(source_dir: Path) -> bool:
    """Whether a pipeline has three encoders of text, as that of Stable Diffusion 3."""
    return (source_dir / "text_encoder_3").exists()


def is_sdxl(source_dir: Path) -> bool:
    """Whether a pipeline has two encoders of text and a U-Net, as that of Stable Diffusion XL."""
    return (source_dir / "text_encoder_2").exists() and (source_dir / "unet").exists() and not is_sd_3(source_dir)


def is_flux(source_dir: Path) -> bool:
    """Whether a pipeline has two encoders of text and a transformer, as that of Flux."""
    return (source_dir / "text_encoder_2").exists() and (source_dir / "transformer").exists() and not is_sd_3(source_dir)


def optimize_stable_diffusion_pipeline(
    input_dir: str,
    output_dir: str,
    overwrite: bool,
    use_external_data_format: bool | None,
    float16: bool,
    enable_runtime_optimization: bool,
    args: argparse.Namespace,
) -> None:
    """Write an optimized copy of a pipeline; what is no model of it is copied as it is."""
    source, target = Path(input_dir), Path(output_dir)
    found = [folder for folder in MODEL_TYPES if (source / folder / MODEL_FILE).is_file()]
    if not found:
        raise RuntimeError(f"{source} has none of {', '.join(f'{folder}/{MODEL_FILE}' for folder in MODEL_TYPES)}")
    if source.resolve().is_relative_to(target.resolve()):
        raise RuntimeError(f"{target} is the pipeline's own folder, or has it inside: name another one")
    if target.exists() and any(target.iterdir()):
        if not overwrite:
            raise RuntimeError(f"{target} is not empty: name another folder, or use --overwrite")
        shutil.rmtree(target)
    blocked = _blocked_ops(args.force_fp32_ops or [], found)
    shutil.copytree(source, target, dirs_exist_ok=True, ignore=_models_of(source, found))
    for folder in found:
        path = source / folder / MODEL_FILE
        model_type = "t5" if folder == "text_encoder_2" and is_flux(source) else MODEL_TYPES[folder]
        args.model_type = model_type
        model = optimize_model(str(path), model_type, optimization_options=FusionOptions.parse(args))
        if float16:
            model.convert_float_to_float16(keep_io_types=False, op_block_list=ALWAYS_FLOAT + blocked.get(folder, []))
        is_external = has_external_data(path) if use_external_data_format is None else use_external_data_format
        written = target / folder / MODEL_FILE
        model.save_model_to_file(str(written), use_external_data_format=is_external)
        if enable_runtime_optimization:
            _optimize_again(written, is_external)
        logger.info("%s is written, with %s", written, _statistics(model))


def _models_of(source: Path, folders: Sequence[str]) -> Callable[[str, list[str]], set[str]]:
    """What leaves models and their weights out of a copy."""
    left_out = {str(source / folder): _files_of(source / folder / MODEL_FILE) for folder in folders}

    def ignored(folder: str, names: list[str]) -> set[str]:
        return left_out.get(folder, set()) & set(names)

    return ignored


def _files_of(path: Path) -> set[str]:
    model = onnx.load_model(str(path), load_external_data=False)
    external = (tensor for tensor in model.graph.initializer if uses_external_data(tensor))
    places = {entry.value for tensor in external for entry in tensor.external_data if entry.key == "location"}
    return {path.name, *places}


def _blocked_ops(texts: Sequence[str], folders: Sequence[str]) -> dict[str, list[str]]:
    """Ops that stay in float32, by folder."""
    blocked: dict[str, list[str]] = {}
    for text in texts:
        folder, separator, ops = text.partition(":")
        if not separator or folder not in folders:
            raise ValueError(f"--force_fp32_ops {text}: write FOLDER:OP,OP with a folder of {', '.join(folders)}")
        blocked.setdefault(folder, []).extend(ops.split(","))
    return blocked


def _optimize_again(path: Path, is_external: bool) -> None:
    """Let a session write its model in place of a file."""
    data = f"{path.name}.data"
    made = path.with_name("optimized_again.onnx")
    optimize_by_onnxruntime(str(path), optimized_model_path=str(made), save_as_external_data=is_external)
    OnnxModel.save(onnx.load_model(str(made)), str(path), is_external)
    for file in (made, made.with_name(f"{made.name}.data")):
        file.unlink(missing_ok=True)
    if not is_external:
        path.with_name(data).unlink(missing_ok=True)


def _statistics(model: OnnxModel) -> str:
    return ", ".join(f"{count} × {op}" for op, count in sorted(model.get_operator_statistics(include_domain=True).items()))


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Write an optimized copy of a pipeline of ONNX models.")
    parser.add_argument("-i", "--input", required=True, help="folder of the pipeline")
    parser.add_argument("-o", "--output", required=True, help="folder of the copy")
    parser.add_argument("--float16", action="store_true", help="compute in float16, inputs and outputs too")
    parser.add_argument("--force_fp32_ops", nargs="+", metavar="FOLDER:OP,OP", help="ops of a model that stay in float32")
    parser.add_argument("--inspect", action="store_true", help="write what sessions make of the models")
    parser.add_argument("--overwrite", action="store_true", help="empty the folder of the copy first")
    parser.add_argument(
        "-e",
        "--use_external_data_format",
        action="store_true",
        default=None,
        help="weights go into files beside the models (default: as in the source)",
    )
    parser.add_argument("--provider", default=None, help="accepted for compatibility")
    FusionOptions.add_arguments(parser)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    options = parse_arguments(argv)
    optimize_stable_diffusion_pipeline(
        options.input,
        options.output,
        options.overwrite,
        options.use_external_data_format,
        options.float16,
        options.inspect,
        options,
    )


if __name__ == "__main__":
    main()
