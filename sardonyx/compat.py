"""`install_as_onnxruntime()`: programs and packages that import onnxruntime get sardonyx.

The alias is for imports of one process. Whether a package named onnxruntime is *installed* is told by its metadata: for libraries that
ask `importlib.metadata.version("onnxruntime")`, and for pip, there is the command `sardonyx shim`.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType
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

    def get_code(self, name: str) -> CodeType | None:
        """The code of our module, for `python -m onnxruntime.tools.…`."""
        spec = importlib.util.find_spec(_ours(name))
        loader = None if spec is None else spec.loader
        return loader.get_code(_ours(name)) if isinstance(loader, importlib.abc.InspectLoader) else None


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


def take_place(name: str) -> None:
    """Put the alias in the place of the module `name`, which is being imported: the package that `sardonyx shim` writes calls this."""
    if name == NAME and not isinstance(sys.modules.get(name), _Alias):
        sys.modules.pop(name, None)
        install_as_onnxruntime()
