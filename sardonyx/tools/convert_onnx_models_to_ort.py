"""Models into the ORT format, with the list of ops that they need: `python -m sardonyx.tools.convert_onnx_models_to_ort --help`.

`sardonyx convert` does the same with more choices. The files are named as the original's tool names them.
"""

from __future__ import annotations

import argparse
import contextlib
import enum
import logging
import os
import pathlib
from collections.abc import Sequence

from sardonyx import formats
from sardonyx.errors import Fail
from sardonyx.ir import Model
from sardonyx.optimizer.pipeline import Level
from sardonyx.runtime.saving import files as saving
from sardonyx.runtime.saving.required_operators import RequiredOperators
from sardonyx.settings import CONVERSION_LEVEL, MINIMAL_BUILD_OPTIMIZATIONS
from sardonyx.tools.file_utils import files_from_file_or_dir, path_match_suffix_ignore_case
from sardonyx.tools.onnx_model_utils import get_optimization_level

LOG = logging.getLogger(__name__)


class OptimizationStyle(enum.Enum):
    """Whether all rewrites are made now, or some are noted in the file for who loads it."""

    Fixed = 0
    Runtime = 1


def parse_args(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Convert .onnx files to the ORT format.")
    parser.add_argument("--output_dir", type=pathlib.Path, help="where the files go; beside the models if left out")
    parser.add_argument(
        "--optimization_style",
        nargs="+",
        default=[OptimizationStyle.Fixed.name],
        choices=[style.name for style in OptimizationStyle],
        help="Fixed makes all rewrites, Runtime leaves some to who loads the file (default Fixed)",
    )
    parser.add_argument("--enable_type_reduction", action="store_true", help="list the types of each op, too")
    parser.add_argument("--custom_op_library", type=pathlib.Path, help="refused: ops in C++ libraries cannot be used")
    parser.add_argument("--save_optimized_onnx_model", action="store_true", help="also write the optimized .onnx")
    parser.add_argument("--allow_conversion_failures", action="store_true", help="go on after a model that fails")
    parser.add_argument("--target_platform", choices=["arm", "amd64"], help="accepted: files suit all platforms")
    parser.add_argument("model_path_or_dir", type=pathlib.Path, help="a model, or a directory with models anywhere in it")
    return parser.parse_args(arguments)


def convert_onnx_models_to_ort(
    model_path_or_dir: pathlib.Path,
    output_dir: pathlib.Path | None = None,
    optimization_styles: list[OptimizationStyle] | None = None,
    custom_op_library_path: pathlib.Path | None = None,
    target_platform: str | None = None,
    save_optimized_onnx_model: bool = False,
    allow_conversion_failures: bool = False,
    enable_type_reduction: bool = False,
) -> None:
    """Convert a model, or all of a directory, in each style; beside them comes the list of ops that they need."""
    if custom_op_library_path is not None:
        raise Fail(f"{custom_op_library_path} is a library for onnxruntime; write the ops in Python with sardonyx.custom_op")
    source = pathlib.Path(model_path_or_dir)
    if not source.exists():
        raise FileNotFoundError(f"Model path '{source}' is not a file or directory.")
    is_single = source.is_file()
    root = pathlib.Path(os.path.realpath(source.parent if is_single else source))
    target = root if output_dir is None else pathlib.Path(os.path.realpath(output_dir))
    level = CONVERSION_LEVEL.of(os.environ)
    paths = [source] if is_single else _models_in(root)
    for style in optimization_styles or [OptimizationStyle.Fixed]:
        required = RequiredOperators()
        converted = []
        for path in paths:
            with _failures(path, allow_conversion_failures):
                place = target / pathlib.Path(os.path.realpath(path)).relative_to(root).parent / path.stem
                model = _convert(path, place, level, style, save_optimized_onnx_model)
                required.add(model, with_types=enable_type_reduction)
                converted.append(path)
        name = f"required_operators{'_and_types' if enable_type_reduction else ''}{_suffix(level, style)}.config"
        (target / (f"{source.stem}.{name}" if is_single else name)).write_text(required.text(converted))


def _models_in(folder: pathlib.Path) -> list[pathlib.Path]:
    def is_source(path: pathlib.Path) -> bool:
        return path_match_suffix_ignore_case(path, ".onnx") and not path_match_suffix_ignore_case(path, ".optimized.onnx")

    paths = files_from_file_or_dir(folder, is_source)
    if not paths:
        raise ValueError(f"No .onnx files were found in '{folder}'.")
    return paths


@contextlib.contextmanager
def _failures(path: pathlib.Path, are_allowed: bool):  # type: ignore[no-untyped-def]
    try:
        yield
    except Exception as error:
        if not are_allowed:
            raise
        LOG.warning("%s is not converted: %s", path, error)


def _suffix(level: str, style: OptimizationStyle) -> str:
    runtime = ".with_runtime_opt" if style is OptimizationStyle.Runtime else ""
    return f"{'' if level == 'all' else f'.{level}'}{runtime}"


def _convert(path: pathlib.Path, place: pathlib.Path, level: str, style: OptimizationStyle, keeps_onnx: bool) -> Model:
    """Write a model; it as the file holds it."""
    reached = Level(int(get_optimization_level(level)))
    settings: dict[str, str] = {MINIMAL_BUILD_OPTIMIZATIONS: "save"} if style is OptimizationStyle.Runtime else {}
    model = saving.load_savable(path, reached, disabled=saving.HARDWARE_BOUND, settings=settings)
    place.parent.mkdir(parents=True, exist_ok=True)
    if keeps_onnx:
        formats.save(model, place.with_name(f"{place.name}{_suffix(level, style)}.optimized.onnx"))
    saved = saving.as_saved(model, fold=reached > Level.DISABLE_ALL)
    saved.write(place.with_name(f"{place.name}{_suffix(level, style)}.ort"))
    return saved.model


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_args(arguments)
    convert_onnx_models_to_ort(
        options.model_path_or_dir,
        options.output_dir,
        [OptimizationStyle[name] for name in options.optimization_style],
        options.custom_op_library,
        options.target_platform,
        options.save_optimized_onnx_model,
        options.allow_conversion_failures,
        options.enable_type_reduction,
    )


if __name__ == "__main__":
    main()
