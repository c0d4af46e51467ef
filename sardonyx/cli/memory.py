"""The memory plan in `sardonyx inspect MODEL --after plan`: lifetimes as a table, and as a picture in a file."""

from __future__ import annotations

import argparse
from pathlib import Path

from sardonyx.cli.feeds import sizes_given
from sardonyx.cli.terminal import UsageError, Written
from sardonyx.runtime.api.memory_report import MemoryReport
from sardonyx.runtime.preparation.plan import Plan


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dim", action="append", default=[], metavar="NAME=SIZE", help="with --after plan: a symbolic size (1 if left out)"
    )
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="with --after plan: write a page with a picture of the memory"
    )
    parser.add_argument("--svg", type=Path, metavar="FILE", help="with --after plan: write the picture alone")


def check_options(options: argparse.Namespace) -> None:
    """Refuse what only makes sense for a plan."""
    if options.after != "plan" and (options.dim or options.html or options.svg):
        raise UsageError("--dim, --html and --svg go with --after plan")
    written = Written()
    for path, option in ((Path(options.model), "the model"), (options.html, "--html"), (options.svg, "--svg")):
        if path is not None:
            written.add(path, option)


def text(plan: Plan, options: argparse.Namespace) -> str:
    """The table of lifetimes of a plan; writes the pictures that were asked for."""
    report = MemoryReport.of(plan)
    sizes = sizes_given(options.dim)
    for name in sizes:
        if name not in report.symbols:
            raise UsageError(f"--dim {name}: the memory depends on {', '.join(report.symbols) or 'no size'}")
    report = report.at({**dict.fromkeys(report.symbols, 1), **sizes})
    if options.html is not None:
        options.html.write_text(report.html(), encoding="utf-8")
    if options.svg is not None:
        options.svg.write_text(report.svg(), encoding="utf-8")
    return str(report)
