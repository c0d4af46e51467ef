"""`sardonyx quantize`: write a smaller and faster model: 8-bit with or without calibration data, or weights alone in 2 to 8 bits."""

from __future__ import annotations

import argparse
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from sardonyx import formats
from sardonyx.cli.terminal import Terminal, UsageError, size_text

ALGORITHMS = ("default", "rtn", "k-quant", "hqq", "gptq")
METHODS = ("minmax", "entropy", "percentile")


def add_parser(commands: Any, shared: argparse.ArgumentParser) -> None:
    parser = commands.add_parser("quantize", parents=[shared], help="write a quantized model", description=__doc__)
    parser.add_argument("-o", "--output", required=True, metavar="OUT", type=Path, help="path of the quantized model")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--dynamic", action="store_true", help="8 bits, ranges of activations seen in each run (the default)")
    how.add_argument("--static", action="store_true", help="8 bits, ranges of activations found with --data")
    how.add_argument("--weights", type=int, metavar="BITS", choices=(2, 4, 8), help="weights of MatMul alone: 2, 4 or 8 bits")
    parser.add_argument(
        "--data", type=Path, metavar="PATH", help="calibration data: a .npz file, or a folder of them or of input_*.pb"
    )
    parser.add_argument("--per-channel", action="store_true", help="a scale for each channel of a weight")
    parser.add_argument(
        "--format", choices=("qdq", "qoperator"), default="qdq", help="how --static writes the model (default qdq)"
    )
    parser.add_argument("--calibration", choices=METHODS, default="minmax", help="how --static finds ranges (default minmax)")
    parser.add_argument(
        "--activations", choices=("uint8", "int8", "uint16", "int16"), default="uint8", help="type with --static"
    )
    parser.add_argument(
        "--block", type=int, default=32, metavar="N", help="weights that share a scale with --weights (default 32)"
    )
    parser.add_argument("--algorithm", choices=ALGORITHMS, default="default", help="how --weights rounds; gptq needs --data")
    parser.add_argument("--symmetric", action="store_true", help="no zero points with --weights")
    parser.add_argument(
        "--accuracy-level", type=int, choices=range(5), help="least precision of activations with --weights; 4 is int8"
    )
    parser.add_argument("--exclude", action="append", default=[], metavar="NODE", help="node that stays in float (repeatable)")
    parser.add_argument("--external", action="store_true", help="put the tensors into a file beside the model")
    parser.add_argument("--no-preprocess", action="store_true", help="do not fold and fuse first")
    parser.set_defaults(execute=execute)


def execute(options: argparse.Namespace, terminal: Terminal) -> int:
    _check(options)
    from sardonyx.quantization import models

    with models.temporary_folder() as folder:
        source = Path(options.model)
        if not options.no_preprocess and not options.weights:
            with terminal.working("preparing"):
                source = _preprocessed(source, Path(folder))
        written = Path(folder, "written", options.output.name)
        written.parent.mkdir()
        _quantize(source, written, options)
        if _ops(written) == _ops(source):
            terminal.line(_nothing(options), style="red")
            terminal.result({"output": None})
            return 1
        for path in written.parent.iterdir():
            shutil.move(path, options.output.with_name(path.name))
    before, after = _size(Path(options.model)), _size(options.output)
    terminal.line(f"{options.output}: {size_text(after)}, {size_text(before)} before")
    terminal.result({"output": str(options.output), "bytes": after, "bytes before": before})
    return 0


def _check(options: argparse.Namespace) -> None:
    if options.static and options.data is None:
        raise UsageError("--static needs --data to calibrate with")
    if options.algorithm == "gptq" and options.data is None:
        raise UsageError("--algorithm gptq needs --data to calibrate with")
    if options.algorithm != "default" and not options.weights:
        raise UsageError("--algorithm belongs to --weights")
    if not Path(options.model).exists():
        raise UsageError(f"there is no model {options.model}")
    if options.output.resolve() == Path(options.model).resolve():
        raise UsageError("OUT is the model itself")


def _ops(path: Path) -> Counter[str]:
    return Counter(node.op_id for node in formats.load(str(path)).graph.all_nodes())


def _nothing(options: argparse.Namespace) -> str:
    kinds = "MatMul or Gather with constant weights" if options.weights else "op of those that are quantized"
    excluded = " outside of --exclude" if options.exclude else ""
    return f"nothing to quantize: {options.model} has no {kinds}{excluded}; {options.output} is not written"


def _preprocessed(source: Path, folder: Path) -> Path:
    from sardonyx.quantization.shape_inference import quant_pre_process

    target = folder / "preprocessed.onnx"
    quant_pre_process(source, target)
    return target


def _quantize(source: Path, target: Path, options: argparse.Namespace) -> None:
    if options.weights:
        _quantize_weights(source, target, options)
    elif options.static:
        _quantize_static(source, target, options)
    else:
        from sardonyx.quantization import quantize_dynamic

        quantize_dynamic(
            source,
            target,
            per_channel=options.per_channel,
            nodes_to_exclude=options.exclude,
            use_external_data_format=options.external,
        )


def _quantize_static(source: Path, target: Path, options: argparse.Namespace) -> None:
    from sardonyx.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

    methods = {method.name.lower(): method for method in CalibrationMethod}
    types = {member.name.removeprefix("Q").lower(): member for member in QuantType}
    quantize_static(
        source,
        target,
        data_reader(options.model, options.data),
        quant_format=QuantFormat.QDQ if options.format == "qdq" else QuantFormat.QOperator,
        per_channel=options.per_channel,
        activation_type=types[options.activations],
        weight_type=QuantType.QInt8,
        nodes_to_exclude=options.exclude,
        use_external_data_format=options.external,
        calibrate_method=methods[options.calibration],
    )


def _quantize_weights(source: Path, target: Path, options: argparse.Namespace) -> None:
    from sardonyx.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(
        source,
        bits=options.weights,
        block_size=options.block,
        is_symmetric=options.symmetric,
        accuracy_level=options.accuracy_level,
        nodes_to_exclude=options.exclude,
        algo_config=_algorithm(options),
    )
    quantizer.process()
    quantizer.model.save_model_to_file(target, options.external)


def _algorithm(options: argparse.Namespace) -> Any:
    from sardonyx.quantization.weight_only import configs

    match options.algorithm:
        case "rtn":
            return configs.RTNWeightOnlyQuantConfig()
        case "k-quant":
            return configs.KQuantWeightOnlyQuantConfig()
        case "hqq":
            return configs.HQQWeightOnlyQuantConfig(options.block, options.weights)
        case "gptq":
            return configs.GPTQWeightOnlyQuantConfig(data_reader(options.model, options.data), block_size=options.block)
    return None


def data_reader(model: str | Path, data: Path) -> Any:
    """What reads `--data` for a model; `compare` uses it too."""
    from sardonyx.quantization.data_files import FileDataReader

    inputs = formats.load(str(model)).graph.inputs
    try:
        return FileDataReader(data, [value.name for value in inputs if value.constant is None])
    except (FileNotFoundError, ValueError) as error:
        raise UsageError(f"--data: {error}") from error


def _size(path: Path) -> int:
    """Bytes of a model and of the file beside it."""
    beside = path.with_name(f"{path.name}.data")
    return path.stat().st_size + (beside.stat().st_size if beside.exists() else 0)
