"""Modules whose functions enter a table by op when they are imported: a process imports those alone that its models need.

Nobody lists which these are. Whoever registers something for an op is noted; once all modules have been imported, the notes are kept in the
cache on disk for as long as the sources stay what they are. Without notes, all modules are imported.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from importlib import import_module

from sardonyx.compiler import cache, sources

PACKAGE = "sardonyx."


class Families:
    """The modules of a package, and the ops for which they have something. Any number of threads may ask."""

    def __init__(self, package: str):
        self.package = package
        self._complete = False
        self._notes: dict[str, list[str]] = {}
        """Op: the modules that registered something for it in this process."""
        self._kept: dict[str, list[str]] | None = None
        """The same of all modules, as the cache has it."""
        self._ready: set[str] = set()

    def note(self, op: str) -> None:
        """A module that is being imported has something for an op."""
        module = _importing()
        if module.startswith(PACKAGE) and module not in self._notes.setdefault(op, []):
            self._notes[op].append(module)

    def need(self, op: str) -> None:
        """Import all that there is for an op."""
        if self._complete or op in self._ready:
            return
        if self._kept is None:
            self._kept = self._find()
        if self._kept is None:
            self.load_all()
            return
        for module in self._kept.get(op, ()):
            import_module(module)
        self._ready.add(op)

    def load_all(self) -> None:
        """Import all modules."""
        if self._complete:
            return
        for module in self.modules():
            import_module(module)
        self._complete = True
        key = self._key()
        if key is not None and cache.shared().get(key) is None:
            cache.shared().put(key, json.dumps(self._notes).encode())

    def modules(self) -> Iterable[str]:
        """The names of all modules."""
        import pkgutil

        path = import_module(self.package).__path__
        return (module.name for module in pkgutil.walk_packages(path, f"{self.package}."))

    def ops_of(self, module: str) -> set[str]:
        """For which ops a module that has been imported registered something."""
        return {op for op, modules in self._notes.items() if module in modules}

    def _find(self) -> dict[str, list[str]] | None:
        key = self._key()
        kept = None if key is None else cache.shared().get(key)
        return None if kept is None else json.loads(kept)

    def _key(self) -> str | None:
        fingerprint = sources.fingerprint()
        return None if fingerprint is None else cache.key_of(f"families/{self.package}/{fingerprint}")


def _importing() -> str:
    """The innermost module that is being imported."""
    frame = sys._getframe(2)
    while frame.f_code.co_name != "<module>" and frame.f_back is not None:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", ""))
