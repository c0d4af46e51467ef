"""`sardonyx shim`: a distribution named onnxruntime in the current environment, whose package is sardonyx; and its removal.

For packages that ask the metadata of distributions whether onnxruntime is there, or that require it. pip lists and uninstalls it as any
other.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import importlib.metadata
import shutil
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sardonyx import __version__
from sardonyx.cli.terminal import Terminal
from sardonyx.compat import API_VERSION, NAME
from sardonyx.errors import Fail

INSTALLER = "sardonyx"
"""By this the metadata of a distribution says that it is ours."""
PACKAGE = '''"""The names of onnxruntime, given by sardonyx. `sardonyx shim` wrote this, `sardonyx shim --remove` takes it away."""

from sardonyx.compat import take_place

take_place(__name__)
'''
METADATA = f"""Metadata-Version: 2.1
Name: {NAME}
Version: {API_VERSION}
Summary: The API of onnxruntime {API_VERSION}, given by sardonyx {__version__}. Remove it with `sardonyx shim --remove`.
Requires-Dist: sardonyx
"""
WHEEL = f"Wheel-Version: 1.0\nGenerator: sardonyx {__version__}\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
VARIANTS = (
    "",
    "-cann",
    "-directml",
    "-gpu",
    "-migraphx",
    "-openvino",
    "-qnn",
    "-rocm",
    "-training",
    "-training-cpu",
    "-webgpu",
)
"""What follows the name in distributions whose package is onnxruntime too."""


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "shim",
        parents=[common],
        help="put a distribution named onnxruntime, which is sardonyx, into this environment",
        description=f"Packages that import or require onnxruntime get sardonyx, as version {API_VERSION}, without a change. "
        "It refuses where onnxruntime itself is installed.",
    )
    parser.add_argument("--remove", action="store_true", help="take it away again")
    parser.set_defaults(execute=execute)


def execute(options: argparse.Namespace, terminal: Terminal) -> int:
    folder = Path(sysconfig.get_path("purelib"))
    if options.remove:
        remove(folder)
        terminal.line(f"{NAME} is gone from {folder}")
    else:
        install(folder)
        terminal.line(f"{NAME} {API_VERSION}, which is sardonyx {__version__}, is in {folder}")
        terminal.line("`sardonyx shim --remove` takes it away")
    terminal.result({"folder": str(folder), "version": None if options.remove else API_VERSION})
    return 0


def install(folder: Path) -> None:
    """Write the package and its metadata; what we wrote before is replaced, what others installed is refused."""
    _refuse_others(folder)
    if is_there(folder):
        remove(folder)
    info = folder / f"{NAME}-{API_VERSION}.dist-info"
    contents = {
        folder / NAME / "__init__.py": PACKAGE,
        info / "METADATA": METADATA,
        info / "WHEEL": WHEEL,
        info / "INSTALLER": f"{INSTALLER}\n",
        info / "top_level.txt": f"{NAME}\n",
    }
    for path, text in contents.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    lines = [_record_line(folder, path) for path in contents]
    (info / "RECORD").write_text("".join(lines) + f"{(info / 'RECORD').relative_to(folder).as_posix()},,\n", encoding="utf-8")


def _record_line(folder: Path, path: Path) -> str:
    data = path.read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{path.relative_to(folder).as_posix()},sha256={digest},{len(data)}\n"


def remove(folder: Path) -> None:
    """Take away what `install` wrote; anything else that is called so stays, and is an error."""
    if not is_there(folder):
        raise Fail(f"There is no {NAME} of ours in {folder}.")
    for info in _ours(folder):
        shutil.rmtree(info)
    shutil.rmtree(folder / NAME)


def is_there(folder: Path) -> bool:
    """Whether what we write stands in `folder`."""
    package = folder / NAME / "__init__.py"
    return bool(list(_ours(folder))) and package.exists() and package.read_text(encoding="utf-8") == PACKAGE


def _ours(folder: Path) -> Iterable[Path]:
    for info in folder.glob(f"{NAME}-*.dist-info"):
        installer = info / "INSTALLER"
        if installer.exists() and installer.read_text(encoding="utf-8").strip() == INSTALLER:
            yield info


def _refuse_others(folder: Path) -> None:
    for name in (NAME + variant for variant in VARIANTS):
        for found in importlib.metadata.distributions(name=name):
            if (found.read_text("INSTALLER") or "").strip() != INSTALLER:
                raise Fail(f"{name} {found.version} is installed in this environment. Uninstall it first: pip uninstall {name}")
    for place in {folder, *map(Path, filter(None, sys.path))}:
        if (place / NAME).exists() and not is_there(place):
            raise Fail(f"There is a package {NAME} in {place} that is not ours; it would hide the other. Remove it first.")
