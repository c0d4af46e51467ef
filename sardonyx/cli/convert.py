"""`sardonyx convert`: models from .onnx to the ORT format, optimized once and for all, and back."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import sardonyx
from sardonyx import formats
from sardonyx.cli.preparing import LEVELS, session_options
from sardonyx.cli.terminal import Terminal, UsageError, Written, one_line, size_text, time_text
from sardonyx.formats.onnx.saving import PER_TENSOR
from sardonyx.ir import Model, edit
from sardonyx.optimizer.pipeline import Level
from sardonyx.runtime.preparation.providers import CPU_PROVIDER
from sardonyx.runtime.saving import files as saving
from sardonyx.runtime.saving.required_operators import RequiredOperators
from sardonyx.runtime.saving.trimming import Trim
from sardonyx.settings import MINIMAL_BUILD_OPTIMIZATIONS, OPTIMIZED_MODEL_EXTERNAL_FILE, SAVE_PREPACKED

FORMATS = ("onnx", "ort")
OWN_NAME = ""
"""Stands for a file of weights that is named after its model."""


@dataclass(frozen=True)
class Job:
    """One model to convert."""

    source: Path
    target: Path


@dataclass
class Outcome:
    """What became of it."""

    source: str
    target: str
    nodes: int = 0
    bytes: int = 0
    seconds: float = 0.0
    error: str = ""


@dataclass
class Lists:
    """What the models need, as far as somebody wants to know."""

    operators: RequiredOperators = field(default_factory=RequiredOperators)
    trim: Any = None
    sources: list[Path] = field(default_factory=list)


def add_parser(commands: Any, shared: argparse.ArgumentParser) -> None:
    parser = commands.add_parser("convert", parents=[shared], help="convert models between .onnx and .ort", description=__doc__)
    parser.add_argument(
        "paths",
        nargs="+",
        type=Path,
        metavar="PATH",
        help="models or directories of them, then, if there is more than one, where to: a file or a directory",
    )
    parser.add_argument(
        "--to", choices=FORMATS, help="the format to make, where the target's name does not tell (default: ort)"
    )
    parser.add_argument(
        "--optimize", choices=LEVELS, default="all", metavar="LEVEL", help=f"how far: {', '.join(LEVELS)} (all)"
    )
    parser.add_argument(
        "--runtime-optimizations",
        action="store_true",
        help="note fusions of convolutions and quantized units in the .ort instead of making them",
    )
    parser.add_argument(
        "--not-portable",
        action="store_true",
        help="keep ops in the .ort that onnxruntime has no kernel for, and float16 that it computes in float32 only",
    )
    parser.add_argument(
        "--external-data",
        nargs="?",
        const=OWN_NAME,
        metavar="NAME",
        help="put weights of an .onnx into a file of that name beside it (default: the model's name with .data)",
    )
    parser.add_argument(
        "--save-prepacked", action="store_true", help="with --external-data: store weights as kernels pack them, too"
    )
    parser.add_argument(
        "--required-ops", type=Path, metavar="FILE", help="write which ops the models need, for cut-down builds"
    )
    parser.add_argument("--types", action="store_true", help="with --required-ops: for which types, too")
    parser.add_argument("--trim", type=Path, metavar="FILE", help="write which modules of sardonyx the models need")
    parser.add_argument("--no-models", action="store_true", help="write the lists alone")
    parser.add_argument("--force", action="store_true", help="overwrite files that are there")
    parser.set_defaults(execute=execute)


def execute(options: argparse.Namespace, terminal: Terminal) -> int:
    _check_options(options)
    jobs = plan(options.paths, options.to)
    _check_targets(jobs, options)
    lists = Lists(trim=Trim() if options.trim else None)
    outcomes = [convert(job, options, lists) for job in _watched(jobs, terminal)]
    written = _write_lists(lists, options)
    _show(terminal, outcomes, written)
    return 1 if any(outcome.error for outcome in outcomes) else 0


def _check_options(options: argparse.Namespace) -> None:
    if options.types and options.required_ops is None:
        raise UsageError("--types goes with --required-ops")
    if options.save_prepacked and options.external_data is None:
        raise UsageError("--save-prepacked goes with --external-data")
    if options.no_models and options.required_ops is None and options.trim is None:
        raise UsageError("--no-models goes with --required-ops or --trim")


def _watched(jobs: Sequence[Job], terminal: Terminal) -> Iterator[Job]:
    if len(jobs) > 1:
        yield from terminal.progress(jobs, "converting")
        return
    with terminal.working(f"converting {jobs[0].source.name}"):
        yield from jobs


# --- which files


def plan(paths: Sequence[Path], to: str | None) -> list[Job]:
    """What to convert and where to. Directories keep their tree."""
    sources, target = (paths[:-1], paths[-1]) if len(paths) > 1 else (paths, None)
    for source in sources:
        if not source.exists():
            raise UsageError(f"{source}: there is no such file or directory")
    if target is not None and len(sources) == 1 and not sources[0].is_dir() and not target.is_dir():
        return [Job(sources[0], target)]
    if target is not None and _is_model_name(target) and not target.is_dir():
        raise UsageError(f"{target} is one file, but there are several models or a directory to convert")
    jobs = [job for source in sources for job in _jobs(source, target, to)]
    if not jobs:
        raise UsageError(f"{sources[0]}: there is no .{'ort' if to == 'onnx' else 'onnx'} file in it")
    return jobs


def _is_model_name(path: Path) -> bool:
    return path.suffix.lower().lstrip(".") in FORMATS


def _jobs(source: Path, folder: Path | None, to: str | None) -> Iterator[Job]:
    if not source.is_dir():
        format = to or ("onnx" if formats.is_ort(source) else "ort")
        yield Job(source, (folder or source.parent) / f"{source.stem}.{format}")
        return
    suffix = ".ort" if to == "onnx" else ".onnx"
    for path in sorted(path for path in source.rglob("*") if path.suffix.lower() == suffix and path.is_file()):
        place = (folder or source) / path.relative_to(source).parent
        yield Job(path, place / f"{path.stem}.{to or 'ort'}")


def _check_targets(jobs: Sequence[Job], options: argparse.Namespace) -> None:
    written = Written()
    for job in jobs if not options.no_models else ():
        if not _is_model_name(job.target):
            raise UsageError(f"{job.target}: a name must end in .onnx or .ort")
        written.add(job.target, str(job.source))
        if job.target.exists() and os.path.samefile(job.source, job.target):
            raise UsageError(f"{job.target} would overwrite itself")
        if options.external_data is not None and formats.is_ort(job.target):
            raise UsageError("--external-data goes with .onnx files; an .ort file holds its weights itself")
        name = _data_name(job.target, options)
        if name not in (None, PER_TENSOR):
            written.add(job.target.parent / str(name), f"the weights of {job.source}")
    for path, option in ((options.required_ops, "--required-ops"), (options.trim, "--trim")):
        if path is not None:
            written.add(path, option)
    there = next((path for path in written.paths if path.exists()), None)
    if there is not None and not options.force:
        raise UsageError(f"{there} is there already; --force overwrites")


# --- one model


def convert(job: Job, options: argparse.Namespace, lists: Lists) -> Outcome:
    """Convert one model; what goes wrong is part of the outcome, so that the others are converted all the same."""
    outcome = Outcome(str(job.source), "" if options.no_models else str(job.target))
    start = time.perf_counter()
    try:
        model = _convert(job, options)
        lists.sources.append(job.source)
        if options.required_ops is not None:
            lists.operators.add(model, with_types=options.types)
        if lists.trim is not None:
            lists.trim.add(model)
        outcome.nodes = sum(1 for _ in model.graph.all_nodes())
        outcome.bytes = 0 if options.no_models else _size(job.target, options)
    except Exception as error:
        if options.debug:
            raise
        outcome.error = one_line(error)
    outcome.seconds = time.perf_counter() - start
    return outcome


def _convert(job: Job, options: argparse.Namespace) -> Model:
    level = LEVELS[options.optimize]
    settings: dict[str, str] = (
        {MINIMAL_BUILD_OPTIMIZATIONS: "save"} if options.runtime_optimizations and formats.is_ort(job.target) else {}
    )
    model = saving.load_savable(job.source, level, disabled=saving.HARDWARE_BOUND, settings=settings)
    if not options.no_models:
        job.target.parent.mkdir(parents=True, exist_ok=True)
    if formats.is_ort(job.target):
        saved = saving.as_saved(model, portable=not options.not_portable, fold=level > Level.DISABLE_ALL)
        if not options.no_models:
            saved.write(job.target)
        return saved.model
    if options.save_prepacked and not options.no_models:
        _save_prepacked(job, options)
    elif not options.no_models:
        _name_graphs(model, job.target.stem)
        formats.save(model, job.target, _data_name(job.target, options))
    return model


def _name_graphs(model: Model, name: str) -> None:
    """Name graphs that have none: an .ort file does not keep names, an .onnx file must have them."""
    for graph in edit.all_graphs(model.graph):
        graph.name = graph.name or name


def _save_prepacked(job: Job, options: argparse.Namespace) -> None:
    """Let a session pack the weights and save the model with them: only kernels know how."""
    settings = session_options(options.optimize)
    settings.optimized_model_filepath = str(job.target)
    settings.add_session_config_entry(OPTIMIZED_MODEL_EXTERNAL_FILE, str(_data_name(job.target, options)))
    settings.add_session_config_entry(SAVE_PREPACKED, "1")
    sardonyx.InferenceSession(
        str(job.source), settings, providers=[CPU_PROVIDER], disabled_optimizers=list(saving.HARDWARE_BOUND)
    )


def _data_name(target: Path, options: argparse.Namespace) -> str | None:
    return f"{target.stem}.data" if options.external_data == OWN_NAME else options.external_data


def _size(target: Path, options: argparse.Namespace) -> int:
    name = _data_name(target, options)
    beside = target.parent / name if name else None
    return target.stat().st_size + (beside.stat().st_size if beside is not None and beside.exists() else 0)


# --- lists and what is shown


def _write_lists(lists: Lists, options: argparse.Namespace) -> list[Path]:
    written = []
    if lists.sources and options.required_ops is not None:
        options.required_ops.write_text(lists.operators.text(lists.sources))
        written.append(options.required_ops)
    if lists.sources and options.trim is not None:
        options.trim.write_text(lists.trim.text(lists.sources))
        written.append(options.trim)
    return written


def _show(terminal: Terminal, outcomes: Sequence[Outcome], written: Sequence[Path]) -> None:
    done = [outcome for outcome in outcomes if not outcome.error]
    rows = [
        (outcome.source, outcome.target, outcome.nodes, size_text(outcome.bytes), time_text(outcome.seconds))
        for outcome in done
    ]
    terminal.table("converted", ("from", "to", "nodes", "size", "time"), rows, right=(2, 3, 4))
    for outcome in outcomes:
        if outcome.error:
            terminal.error(f"{outcome.source}: {outcome.error}")
    for path in written:
        terminal.line(f"wrote {path}")
    terminal.result({"models": [asdict(outcome) for outcome in outcomes], "lists": [str(path) for path in written]})
