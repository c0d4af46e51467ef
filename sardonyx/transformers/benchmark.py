"""Times of models of the transformers package by several engines, as tables.

`python -m sardonyx.transformers.benchmark -m bert-base-cased -e onnxruntime torch -b 1 8 -s 128`
"""

from __future__ import annotations

import argparse
import datetime
import functools
import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

from sardonyx import __version__
from sardonyx.transformers.benchmark_helper import (
    ConfigModifier,
    OptimizerInfo,
    Precision,
    create_onnxruntime_session,
    output_details,
    output_fusion_statistics,
    output_summary,
    prepare_environment,
    setup_logger,
)
from sardonyx.transformers.fusion_options import FusionOptions
from sardonyx.transformers.huggingface_models import MODEL_CLASSES, MODELS, described_model
from sardonyx.transformers.io_binding_helper import TypeHelper
from sardonyx.transformers.model_timing import (
    Row,
    function_figures,
    measured_sizes,
    refuse_gpu,
    session_figures,
    template,
    torch_threads,
)
from sardonyx.transformers.onnx_exporter import (
    IMAGE_MODELS,
    Statistics,
    create_onnxruntime_input,
    export_onnx_model_from_pt,
    export_onnx_model_from_tf,
    load_pt_model,
    load_tf_model,
)
from sardonyx.transformers.quantize_helper import QuantizeHelper
from sardonyx.transformers.tensorflow_models import tensorflow_package
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch, transformers_package

logger = logging.getLogger(__name__)
TORCH_ENGINES = ("torch", "torch2", "torchscript")
EXPORTERS = {"pt": export_onnx_model_from_pt, "tf": export_onnx_model_from_tf}


def run_onnxruntime(
    use_gpu: bool,
    provider: str | None,
    model_names: Sequence[str],
    model_class: str | None,
    config_modifier: ConfigModifier,
    precision: Precision,
    num_threads: int,
    batch_sizes: Sequence[int],
    sequence_lengths: Sequence[int],
    repeat_times: int,
    input_counts: Sequence[int],
    optimizer_info: OptimizerInfo,
    validate_onnx: bool,
    cache_dir: str,
    onnx_dir: str,
    verbose: bool,
    overwrite: bool,
    disable_ort_io_binding: bool,
    use_raw_attention_mask: bool,
    model_fusion_statistics: Statistics,
    model_source: str,
    enable_arm64_bfloat16_fastmath_mlas_gemm: bool,
    args: Any,
) -> list[Row]:
    """Export models, with so many of their inputs, and measure sessions of the files."""
    refuse_gpu(use_gpu)
    rows: list[Row] = []
    for name in model_names:
        config = transformers_package().AutoConfig.from_pretrained(name, cache_dir=cache_dir)
        input_names, opset, is_large, args.model_type = described_model(name, config.model_type)
        what = name, opset, is_large, args.model_type, model_class, config_modifier, cache_dir, onnx_dir
        for count in [count for count in input_counts if count <= len(input_names)]:
            how = input_names[:count], use_gpu, precision, optimizer_info, validate_onnx, use_raw_attention_mask
            path, is_valid, vocabulary, longest = EXPORTERS[model_source](
                *what, *how, overwrite, model_fusion_statistics, FusionOptions.parse(args)
            )
            if not is_valid:
                logger.error("%s gives other outputs than the model that it is of, and is not measured", path)
                continue
            session = create_onnxruntime_session(path, use_gpu, provider, num_threads=num_threads, verbose=verbose)
            if session is None:
                continue  # the log has the reason
            shared = template("onnxruntime", __version__, name, precision, num_threads, config_modifier)
            shared |= {"providers": session.get_providers()[0], "optimizer": optimizer_info, "inputs": count}
            shared |= {"io_binding": not disable_ort_io_binding}
            measure = _session_measure(session, vocabulary, config, repeat_times, not disable_ort_io_binding)
            rows += measured_sizes(measure, batch_sizes, _lengths(config, sequence_lengths), longest, shared)
    return rows


def _session_measure(
    session: Any, vocabulary: int, config: Any, repeat_times: int, is_bound: bool
) -> Callable[[int, int], Row]:
    """What measures a session with inputs of one size."""
    types = {value.name: TypeHelper.ort_type_to_numpy_type(value.type) for value in session.get_inputs()}

    def measure(batch_size: int, length: int) -> Row:
        arrays = create_onnxruntime_input(vocabulary, batch_size, length, list(types), config)
        feeds = {name: arrays[name].astype(kind) for name, kind in types.items()}
        return session_figures(session, feeds, repeat_times, batch_size, is_bound)

    return measure


def _lengths(config: Any, sequence_lengths: Sequence[int]) -> Sequence[int]:
    """The lengths to be measured; a picture has one size, of its side."""
    return [config.image_size] if config.model_type in IMAGE_MODELS else sequence_lengths


def run_pytorch(
    use_gpu: bool,
    model_names: Sequence[str],
    model_class: str | None,
    config_modifier: ConfigModifier,
    precision: Precision,
    num_threads: int,
    batch_sizes: Sequence[int],
    sequence_lengths: Sequence[int],
    repeat_times: int,
    torchscript: bool,
    torch2: bool,
    cache_dir: str,
    verbose: bool,
) -> list[Row]:
    """Measure modules as they are, traced, or compiled by PyTorch; they get words alone, or pictures."""
    refuse_gpu(use_gpu)
    hub = transformers_package()
    torch = loaded_torch()
    engine = "torchscript" if torchscript else "torch2" if torch2 else "torch"
    rows: list[Row] = []
    for name in model_names:
        hub.logging.set_verbosity(hub.logging.INFO if verbose else hub.logging.ERROR)
        config, model = load_pt_model(name, model_class, cache_dir, config_modifier, "eager" if torchscript else None)
        model = _of_precision(model, precision)
        model = torch.compile(model) if torch2 else model

        def measure(batch_size: int, length: int, config: Any = config, model: Any = model) -> Row:
            (array,) = create_onnxruntime_input(getattr(config, "vocab_size", 0), batch_size, length, (), config).values()
            inputs = torch.from_numpy(array)
            inputs = inputs.to(model.dtype) if inputs.is_floating_point() else inputs
            run = torch.jit.trace(model, inputs) if torchscript else model
            return function_figures(lambda: run(inputs), repeat_times, batch_size)

        longest = getattr(config, "max_position_embeddings", None)
        shared = template(engine, torch.__version__, name, precision, num_threads, config_modifier)
        with torch_threads(num_threads), torch.no_grad():
            rows += measured_sizes(measure, batch_sizes, _lengths(config, sequence_lengths), longest, shared)
    return rows


def _of_precision(model: Any, precision: Precision) -> Any:
    """A module with numbers of 16 bits, or weights of 8."""
    if precision is Precision.FLOAT16:
        return model.half()
    if precision is Precision.INT8:
        return QuantizeHelper.quantize_torch_model(model)
    if precision is Precision.INT4:
        raise ValueError("PyTorch is measured with fp32, fp16 or int8, got int4")
    return model


def run_with_tf_optimizations(do_eager_mode: bool, use_xla: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: TensorFlow calls the function as it is, or makes a graph of it, which XLA may compile."""
    if do_eager_mode and use_xla:
        raise ValueError("XLA compiles graphs alone; choose one of do_eager_mode and use_xla")
    tensorflow = tensorflow_package()

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        compiled = function if do_eager_mode else tensorflow.function(function, jit_compile=use_xla)

        @functools.wraps(function)
        def call(*inputs: Any, **named: Any) -> Any:
            return compiled(*inputs, **named)

        return call

    return decorate


def run_tensorflow(
    use_gpu: bool,
    model_names: Sequence[str],
    model_class: str | None,
    config_modifier: ConfigModifier,
    precision: Precision,
    num_threads: int,
    batch_sizes: Sequence[int],
    sequence_lengths: Sequence[int],
    repeat_times: int,
    cache_dir: str,
    verbose: bool,
) -> list[Row]:
    """Measure models of TensorFlow as graphs, in float32. The number of threads counts if TensorFlow has not run yet."""
    refuse_gpu(use_gpu)
    if precision is not Precision.FLOAT32:
        raise ValueError(f"TensorFlow is measured with fp32, got {precision}")
    tensorflow = tensorflow_package()
    if num_threads > 0:
        tensorflow.config.threading.set_intra_op_parallelism_threads(num_threads)
    rows: list[Row] = []
    for name in model_names:
        config, model = load_tf_model(name, model_class, cache_dir, config_modifier)

        def measure(batch_size: int, length: int, config: Any = config, model: Any = model) -> Row:
            (array,) = create_onnxruntime_input(getattr(config, "vocab_size", 0), batch_size, length, (), config).values()
            inputs = tensorflow.constant(array)
            run = run_with_tf_optimizations(do_eager_mode=False, use_xla=False)(lambda: model(inputs, training=False))
            return function_figures(run, repeat_times, batch_size)

        longest = getattr(config, "max_position_embeddings", None)
        shared = template("tensorflow", tensorflow.__version__, name, precision, num_threads, config_modifier)
        rows += measured_sizes(measure, batch_sizes, _lengths(config, sequence_lengths), longest, shared)
    return rows


# --- the program


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = ["bert-base-cased", "roberta-base", "gpt2"]
    parser.add_argument("-m", "--models", nargs="+", default=names, help=f"{', '.join(MODELS)}, or any other name or folder")
    parser.add_argument("--model_source", default="pt", choices=list(EXPORTERS), help="whose models are exported")
    parser.add_argument("--model_class", default=None, choices=MODEL_CLASSES, help="what loads the models")
    engines = ["onnxruntime", *TORCH_ENGINES, "tensorflow"]
    parser.add_argument("-e", "--engines", nargs="+", default=["onnxruntime"], choices=engines, help="what runs them")
    parser.add_argument("-c", "--cache_dir", default=os.path.join(".", "cache_models"), help="where fetched models are kept")
    parser.add_argument("--onnx_dir", default=os.path.join(".", "onnx_models"), help="where exported models are kept")
    parser.add_argument("-g", "--use_gpu", action="store_true", help="refused: there are no GPUs here")
    parser.add_argument("--provider", default=None, help="the provider of sessions")
    parser.add_argument("-p", "--precision", type=Precision, default=Precision.FLOAT32, choices=list(Precision))
    parser.add_argument("--verbose", action="store_true", help="say more")
    parser.add_argument("--overwrite", action="store_true", help="export and optimize again what is there")
    parser.add_argument(
        "-o",
        "--optimizer_info",
        type=OptimizerInfo,
        default=OptimizerInfo.BYSCRIPT,
        choices=list(OptimizerInfo),
        help="who optimizes files",
    )
    parser.add_argument("-v", "--validate_onnx", action="store_true", help="compare files with the models")
    parser.add_argument("-f", "--fusion_csv", default=None, help="table of fused ops")
    parser.add_argument("-d", "--detail_csv", default=None, help="table of all figures")
    parser.add_argument("-r", "--result_csv", default=None, help="table of mean times, a line for each model and way")
    parser.add_argument(
        "-i", "--input_counts", nargs="+", type=int, choices=[1, 2, 3], default=[1], help="how many inputs files have"
    )
    parser.add_argument("-t", "--test_times", type=int, default=100, help="runs that are measured")
    parser.add_argument("-b", "--batch_sizes", nargs="+", type=int, default=[1], help="rows of inputs")
    lengths = [4, 8, 16, 32, 64, 128, 256]
    parser.add_argument("-s", "--sequence_lengths", nargs="+", type=int, default=lengths, help="words in a row")
    parser.add_argument("--disable_ort_io_binding", action="store_true", help="do not bind memory")
    parser.add_argument("-n", "--num_threads", nargs="+", type=int, default=[0], help="0: one for each core")
    parser.add_argument("--force_num_layers", type=int, default=None, help="take so many layers of a model")
    parser.add_argument("--enable_arm64_bfloat16_fastmath_mlas_gemm", action="store_true", help="accepted for compatibility")
    FusionOptions.add_arguments(parser)
    options = parser.parse_args(argv)
    if options.precision is not Precision.FLOAT32 and options.optimizer_info is not OptimizerInfo.BYSCRIPT:
        parser.error(f"files of {options.precision} are written by_script, not {options.optimizer_info}")
    return options


def main(argv: Sequence[str] | None = None) -> list[Row]:
    """Measure, and write tables; gives the rows. What fails is in the log, and the rest is measured."""
    options = parse_arguments(argv)
    setup_logger(options.verbose)
    refuse_gpu(options.use_gpu)
    prepare_environment(options.cache_dir, options.onnx_dir, options.use_gpu, options.provider)
    statistics: Statistics = {}
    rows: list[Row] = []
    for threads in options.num_threads:
        for engine in dict.fromkeys(options.engines):
            try:
                rows += _engine_rows(engine, threads, options, statistics)
            except Exception:
                logger.exception("%s is not measured with %d threads", engine, threads)
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    if statistics:
        output_fusion_statistics(statistics, options.fusion_csv or f"benchmark_fusion_{stamp}.csv")
    if not rows:
        raise SystemExit("nothing was measured; the log has the reasons")
    output_details(rows, options.detail_csv or f"benchmark_detail_{stamp}.csv")
    output_summary(rows, options.result_csv or f"benchmark_summary_{stamp}.csv", options)
    return rows


def _engine_rows(engine: str, threads: int, options: argparse.Namespace, statistics: Statistics) -> list[Row]:
    """The rows of one engine with so many threads."""
    models = options.model_class, ConfigModifier(options.force_num_layers), options.precision, threads
    sizes = options.batch_sizes, options.sequence_lengths, options.test_times
    places = options.cache_dir, options.verbose
    if engine in TORCH_ENGINES:
        kind = engine == "torchscript", engine == "torch2"
        return run_pytorch(options.use_gpu, options.models, *models, *sizes, *kind, *places)
    if engine == "tensorflow":
        return run_tensorflow(options.use_gpu, options.models, *models, *sizes, *places)
    files = options.input_counts, options.optimizer_info, options.validate_onnx, options.cache_dir, options.onnx_dir
    return run_onnxruntime(
        options.use_gpu,
        options.provider,
        options.models,
        *models,
        *sizes,
        *files,
        options.verbose,
        options.overwrite,
        options.disable_ort_io_binding,
        options.use_raw_attention_mask,
        statistics,
        options.model_source,
        options.enable_arm64_bfloat16_fastmath_mlas_gemm,
        options,
    )


if __name__ == "__main__":
    main()
