"""Modules whose functions enter a table by op when they are imported: a process imports those alone that its models need.

`modules.txt`, which `make docs` writes and a test compares, says which these are. Its lines are `domain:op table=module,module …`, with
names of modules as seen from `providers/`; an op for which there is nothing has a line too. Where the table does not know an op, or is
wrong about one, all modules are imported: so an op that was added a minute ago is found, and only start-up is slower.
"""

from __future__ import annotations

import functools
import os
from importlib import import_module

PATH = os.path.join(os.path.dirname(__file__), "modules.txt")


class Families:
    """The modules of a package that register something on one table. Any number of threads may ask."""

    def __init__(self, package: str, table: str, but: str = ""):
        """`table` is the name by which `modules.txt` calls the table. Modules of the package `but` inside do not belong to it."""
        self.package = package
        self.but = but
        self.parent = package.rpartition(".")[0] + "."
        self.table = table
        self._complete = False
        self._ready: set[str] = set()

    def need(self, domain: str, op: str) -> None:
        """Import all that there is for an op."""
        key = key_of(domain, op)
        if self._complete or key in self._ready:
            return
        modules = self._listed(key)
        if modules is None or not all(map(_import, modules)):
            self.load_all()
        self._ready.add(key)

    def expects(self, domain: str, op: str) -> bool:
        """Whether the table of modules promises something for an op, and not all of them have been imported."""
        return not self._complete and bool(self._listed(key_of(domain, op)))

    def load_all(self) -> None:
        """Import all modules."""
        load_package(self.package, self.but)
        self._complete = True

    def _listed(self, key: str) -> list[str] | None:
        """The modules that have something for an op; None if the op is not known."""
        line = listed().get(key)
        if line is None:
            return [] if key in _foreign else None
        columns = dict(column.split("=") for column in line.split())
        return [self.parent + module for module in columns.get(self.table, "").split(",") if module]


_loaded: set[str] = set()


def load_package(name: str, but: str = "") -> None:
    """Import all modules of a package, once; what they define registers itself. Imports have locks of their own, so this needs none.

    The modules of the package `but` inside of it are left out.
    """
    if name not in _loaded:
        import pkgutil

        for module in pkgutil.walk_packages(import_module(name).__path__, f"{name}."):
            if not but or not module.name.startswith(f"{but}."):
                import_module(module.name)
        _loaded.add(name)


def key_of(domain: str, op: str) -> str:
    """What an op's line begins with."""
    return f"{domain or 'ai.onnx'}:{op}"


@functools.cache
def listed() -> dict[str, str]:
    """The lines of `modules.txt` by op; none where the file is not there."""
    try:
        with open(PATH, encoding="utf-8") as file:
            parts = (line.rstrip("\n").partition(" ") for line in file)
            return {key: rest for key, _, rest in parts}
    except OSError:
        return {}


_foreign: set[str] = set()


def is_foreign(domain: str, op: str) -> None:
    """Say that an op is somebody else's: no module of ours has anything for it, and none need be imported to see that."""
    _foreign.add(key_of(domain, op))


def _import(module: str) -> bool:
    """Import a module; False if it is not there, as in a package that was cut down to what some models need."""
    try:
        import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        return False
    return True
