"""`sardonyx compile`: store the machine code of a model beside it, so that later sessions neither optimize, compile nor pack weights."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from sardonyx.cli.preparing import LEVELS, session_options
from sardonyx.cli.terminal import Terminal, UsageError, count_text, size_text, time_text
from sardonyx.providers.native.aot.writing import Written
from sardonyx.runtime.api.enums import OrtCompileApiFlags
from sardonyx.runtime.api.model_compiler import ModelCompiler
from sardonyx.runtime.saving.contexts import default_path
from sardonyx.settings import ALLOW_COMPILED_CODE, ALLOW_COMPILED_CODE_VARIABLE


def add_parser(commands: Any, shared: argparse.ArgumentParser) -> None:
    parser = commands.add_parser("compile", parents=[shared], help="compile a model ahead of time", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="the compiled model (default: MODEL_ctx.onnx)")
    parser.add_argument("--embed", action="store_true", help="put code and weights into the model instead of a file beside it")
    parser.add_argument("--level", choices=LEVELS, default="all", help="how far to optimize (default: all)")
    parser.add_argument(
        "--external-data", metavar="NAME", help="a file beside the model for the weights of nodes that are not compiled"
    )
    parser.add_argument("--force", action="store_true", help="overwrite what is there")
    parser.set_defaults(execute=execute)


def execute(options: argparse.Namespace, terminal: Terminal) -> int:
    source = Path(options.model)
    output: Path = options.output or default_path(source)
    if output.suffix not in (".onnx", ".ort"):
        raise UsageError(f"{output}: a compiled model is a .onnx or .ort file")
    if output.resolve() == source.resolve():
        raise UsageError(f"{output} is the model itself")
    if output.exists() and not options.force:
        raise UsageError(f"{output} is there already; --force overwrites")
    started = time.perf_counter()
    with terminal.working(f"compiling {source.name}"):
        compiler = ModelCompiler(
            session_options(options.level),
            source,
            embed_compiled_data_into_model=options.embed,
            external_initializers_file_path=options.external_data,
            flags=OrtCompileApiFlags.ERROR_IF_NO_NODES_COMPILED,
        )
        written = compiler.compile(output)
    _show(written, time.perf_counter() - started, terminal)
    return 0


def _show(written: Written, seconds: float, terminal: Terminal) -> None:
    size = written.model.stat().st_size
    left = sum(written.left.values())
    rows = [
        ("model", str(written.model), size_text(size)),
        ("payload", "inside" if written.payload is None else str(written.payload), size_text(written.payload_bytes)),
        ("code", count_text(written.kernels, "kernel"), size_text(written.code_bytes)),
        ("constants", "weights, as they are or packed", size_text(written.constant_bytes)),
        ("programs", f"{written.programs}, of {count_text(written.compiled, 'node')}", ""),
    ]
    terminal.table("compiled", ("", "", "size"), rows, right=(2,))
    if left:
        ops = ", ".join(f"{count} {op}" for op, count in sorted(written.left.items(), key=lambda entry: (-entry[1], entry[0])))
        terminal.line(f"left as nodes: {left} ({ops})")
    terminal.line(
        f"{time_text(seconds)}. Sessions use the code if {ALLOW_COMPILED_CODE} or {ALLOW_COMPILED_CODE_VARIABLE} is 1.",
        style="green",
    )
    terminal.result(
        {
            "model": str(written.model),
            "model_bytes": size,
            "payload": None if written.payload is None else str(written.payload),
            "payload_bytes": written.payload_bytes,
            "code_bytes": written.code_bytes,
            "constant_bytes": written.constant_bytes,
            "kernels": written.kernels,
            "programs": written.programs,
            "compiled_nodes": written.compiled,
            "left": dict(written.left),
            "seconds": seconds,
        }
    )
