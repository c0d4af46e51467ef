"""The command `sardonyx`: run, inspect, check, bench, compile, convert, quantize and train models from a terminal, look after what is
kept of them, and take onnxruntime's place. One module per command.

Exit codes: 0 all right, 1 something is wrong with the model, its inputs or its run, 2 the command line itself is wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from sardonyx import __version__
from sardonyx.cli import bench, cache, check, compare, compile, convert, inspect, quantize, run, shim, train, warm
from sardonyx.cli.terminal import Terminal, UsageError, one_line

COMMANDS = (run, inspect, check, bench, compile, quantize)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (by default the process's own) and return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        options = make_parser().parse_args(words, argparse.Namespace(arguments=words))
    except SystemExit as stop:  # argparse has said why
        return int(stop.code or 0)
    terminal = Terminal(as_json=options.json)
    try:
        return int(options.execute(options, terminal))
    except UsageError as error:
        terminal.error(f"{error} (see `sardonyx {options.command} --help`)")
        return 2
    except KeyboardInterrupt:
        terminal.error("interrupted")
        return 130
    except Exception as error:
        if options.debug:
            raise
        terminal.error(one_line(error))
        return 1


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sardonyx", description="Run and look into ONNX models.")
    parser.add_argument("--version", action="version", version=f"sardonyx {__version__}")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    common.add_argument("--debug", action="store_true", help="show the traceback of an error")
    shared = argparse.ArgumentParser(add_help=False, parents=[common])
    shared.add_argument("model", metavar="MODEL", help="path of a .onnx or .ort file")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(commands, shared)
    convert.add_parser(commands, common)
    compare.add_parser(commands, common)
    cache.add_parser(commands, common)
    warm.add_parser(commands, common)
    train.add_parser(commands, common)
    shim.add_parser(commands, common)
    return parser
