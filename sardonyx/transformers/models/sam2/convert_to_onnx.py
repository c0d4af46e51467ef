"""SAM 2 as ONNX files, fused and in float16 if asked, and compared with PyTorch.

`python -m sardonyx.transformers.models.sam2.convert_to_onnx --model_type sam2_hiera_tiny --sam2_dir CLONE`
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sardonyx.transformers.models.sam2.image_decoder import decoder_part
from sardonyx.transformers.models.sam2.image_encoder import encoder_part
from sardonyx.transformers.models.sam2.mask_decoder import mask_part
from sardonyx.transformers.models.sam2.prompt_encoder import prompt_part
from sardonyx.transformers.models.sam2.sam2_demo import run_demo, show_all_images
from sardonyx.transformers.models.sam2.sam2_parts import SIZES, Sam2Part
from sardonyx.transformers.models.sam2.sam2_utils import COMPONENTS, CONFIGS, load_sam2_model, sam2_onnx_path, setup_logger
from sardonyx.transformers.optimizer import optimize_model

logger = logging.getLogger(__name__)


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    sizes = [f"sam2_hiera_{size}" for size in CONFIGS]
    parser.add_argument("--model_type", choices=sizes, default="sam2_hiera_large")
    parser.add_argument(
        "--components", nargs="+", choices=COMPONENTS, default=["image_encoder", "image_decoder"], help="what is written"
    )
    parser.add_argument("--output_dir", default="sam2_onnx_models", help="folder to write")
    parser.add_argument("--dynamic_batch_axes", action="store_true", help="the image encoder takes several images")
    parser.add_argument("--multimask_output", action="store_true", help="decoders give three masks")
    parser.add_argument(
        "--disable_dynamic_multimask_via_stability", action="store_true", help="a single mask is always the first one"
    )
    parser.add_argument("--sam2_dir", default="./segment-anything-2", help="a clone of sam2 with its checkpoints")
    parser.add_argument("--overwrite", action="store_true", help="export again what is there")
    parser.add_argument("--demo", action="store_true", help="draw masks of both, beside each other")
    parser.add_argument("--optimize", action="store_true", help="fuse blocks")
    parser.add_argument("--dtype", choices=["fp32", "fp16"], default="fp32", help="of optimized files")
    parser.add_argument("--use_gpu", action="store_true", help="accepted; there are no GPUs here")
    parser.add_argument("--dynamo", action="store_true", help="accepted; models are traced")
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args(argv)


def optimize_sam2_model(onnx_model_path: str, optimized_model_path: str, float16: bool, use_gpu: bool) -> None:
    """Write a model with its blocks fused, in float16 if that is asked for."""
    optimized = optimize_model(onnx_model_path, model_type="sam2", opt_level=1, use_gpu=use_gpu)
    if float16:
        optimized.convert_float_to_float16(keep_io_types=False)
    optimized.save_model_to_file(optimized_model_path)


def _part(model: Any, component: str, arguments: argparse.Namespace, several: bool) -> Sam2Part:
    if component == "image_encoder":
        return encoder_part(model, arguments.dynamic_batch_axes)
    if component == "prompt_encoder":
        return prompt_part(model)
    if component == "mask_decoder":
        return mask_part(model, several, not arguments.disable_dynamic_multimask_via_stability)
    return decoder_part(model, several)


def _written(model: Any, component: str, arguments: argparse.Namespace, several: bool) -> str:
    """The path of a part, which is exported if it is not there yet, and fused if that is asked for."""
    names = arguments.output_dir, arguments.model_type, component, several
    path = sam2_onnx_path(*names)
    if arguments.overwrite or not Path(path).exists():
        part = _part(model, component, arguments, several)
        part.write(path, arguments.verbose)
        is_for_one = component == "image_encoder" and not arguments.dynamic_batch_axes
        if not part.is_near(path, [(1, 1)] if is_for_one else SIZES):
            logger.error("%s gives other results than PyTorch", path)
    if not arguments.optimize:
        return path
    fused = sam2_onnx_path(*names, f"_{arguments.dtype}_{'gpu' if arguments.use_gpu else 'cpu'}")
    optimize_sam2_model(path, fused, arguments.dtype == "fp16", arguments.use_gpu)
    return fused


def _draw(model: Any, arguments: argparse.Namespace) -> None:
    """Pictures of the masks of sessions beside those of PyTorch."""
    kinds = ("image_encoder", False), ("image_decoder", False), ("image_decoder", True)
    encoder, single, several = (_written(model, component, arguments, many) for component, many in kinds)
    asked = arguments.sam2_dir, arguments.model_type
    show_all_images(run_demo(*asked, "ort", arguments.dtype, encoder, single, several), run_demo(*asked, "torch"))


def main(argv: Sequence[str] | None = None) -> list[str]:
    """Run the program; gives the paths of the files."""
    arguments = parse_arguments(argv)
    setup_logger(arguments.verbose)
    model = load_sam2_model(arguments.sam2_dir, arguments.model_type, "cpu")
    Path(arguments.output_dir).mkdir(parents=True, exist_ok=True)
    paths = [_written(model, component, arguments, arguments.multimask_output) for component in arguments.components]
    if arguments.demo:
        _draw(model, arguments)
    return paths


if __name__ == "__main__":
    main()
