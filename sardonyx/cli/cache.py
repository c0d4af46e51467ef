"""`sardonyx cache`: what is kept on disk for later processes, how much that may be, and how it is removed."""

from __future__ import annotations

import argparse
import os
from typing import Any

from sardonyx import settings
from sardonyx.cli.terminal import Terminal, UsageError, size_text
from sardonyx.compiler.cache import ObjectCache, default_folder
from sardonyx.runtime.saving.remembered import FOLDER, models_cache


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "cache",
        parents=[common],
        help="show or clear what is kept on disk for later processes",
        description=f"Compiled kernels and prepared models. {settings.CACHE_DIRECTORY} says where they are, {settings.CACHE_BYTES} "
        f"and {settings.MODELS_BYTES} how much of each there may be; {settings.REMEMBER_VARIABLE}=off keeps no models.",
    )
    parser.add_argument("action", nargs="?", choices=("show", "clear"), default="show", help="what to do (default: show)")
    parser.add_argument("--only", choices=("kernels", "models"), help="these alone")
    parser.set_defaults(execute=execute)


def execute(options: argparse.Namespace, terminal: Terminal) -> int:
    folder = default_folder()
    if folder is None:
        raise UsageError(f"nothing is kept: {settings.CACHE_DIRECTORY} is empty, or the user has no cache folder")
    caches = {"kernels": ObjectCache(folder), "models": models_cache(os.path.join(folder, FOLDER))}
    chosen = {name: cache for name, cache in caches.items() if options.only in (None, name)}
    clear(chosen, terminal) if options.action == "clear" else show(folder, chosen, terminal)
    return 0


def clear(caches: dict[str, ObjectCache], terminal: Terminal) -> None:
    removed = {name: cache.remove(cache.entries()) for name, cache in caches.items()}
    for name, count in removed.items():
        terminal.line(f"{count} {name} removed")
    terminal.result({"removed": removed})


def show(folder: str, caches: dict[str, ObjectCache], terminal: Terminal) -> None:
    found = {name: cache.entries() for name, cache in caches.items()}
    sizes = {name: sum(size for _, size, _ in entries) for name, entries in found.items()}
    rows = [(name, len(found[name]), size_text(sizes[name]), size_text(cache.max_bytes)) for name, cache in caches.items()]
    terminal.table(folder, ("kept", "entries", "on disk", "at most"), rows, right=(1, 2, 3))
    counted = {
        name: {"entries": len(found[name]), "bytes": sizes[name], "limit": cache.max_bytes} for name, cache in caches.items()
    }
    terminal.result({"folder": folder, **counted})
