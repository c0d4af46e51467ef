"""`install_as_onnxruntime()`: programs and packages that import onnxruntime get sardonyx.

The alias is for imports only. Whether a package named onnxruntime is *installed* is told by its metadata: a library that asks
`importlib.metadata.version("onnxruntime")` or pip's dependency check does not see us, and we do not pretend there.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

NAME = "onnxruntime"
API_VERSION = "1.31.1"
"""The version of onnxruntime whose Python API we give; the alias shows it, because packages compare it."""


class _Alias(ModuleType):
    """The module `onnxruntime`: everything of ours, with the version that others expect."""

    __version__ = version = API_VERSION
    __author__ = "Microsoft"
    package_name = NAME

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(__package__), name)

    def __dir__(self) -> list[str]:
        return dir(importlib.import_module(__package__))

    @staticmethod
    def get_version_string() -> str:
        return API_VERSION


class _Loader(importlib.abc.Loader):
    """Answers the import of `onnxruntime.x` with the module `sardonyx.x` itself, not with a second copy."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        if spec.name == NAME:
            return _Alias(NAME, importlib.import_module(__package__).__doc__)
        ours = importlib.import_module(_ours(spec.name))
        self._spec = ours.__spec__
        return ours

    def exec_module(self, module: ModuleType) -> None:
        if not isinstance(module, _Alias):
            module.__spec__ = self._spec  # the import machinery has put the alias's there


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != NAME and not fullname.startswith(f"{NAME}."):
            return None
        try:
            original = importlib.util.find_spec(_ours(fullname))
        except ModuleNotFoundError:
            original = None
        if original is None:
            return None
        spec = importlib.machinery.ModuleSpec(fullname, _Loader(), origin=original.origin)
        if original.submodule_search_locations is not None:
            spec.submodule_search_locations = []  # what is below comes through this finder too
        return spec


def _ours(name: str) -> str:
    return f"{__package__}{name.removeprefix(NAME)}"


def install_as_onnxruntime() -> None:
    """Make `import onnxruntime` give sardonyx, for this process from now on. Call it before anything imports onnxruntime."""
    loaded = sys.modules.get(NAME)
    if isinstance(loaded, _Alias):
        return
    if loaded is not None:
        raise RuntimeError("onnxruntime is imported already; call install_as_onnxruntime() before anything imports it")
    sys.meta_path.insert(0, _Finder())
    importlib.import_module(NAME)
