"""The table of start-up, `sardonyx/startup/modules.txt`: which modules have something for which op.

A process of its own imports every module and watches which one is being imported when a table gets an entry. This file does not stand in
`docs/pages`, whose modules import half of the package before anybody could watch.
"""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import Any

from sardonyx.ops import entries, schemas
from sardonyx.ops.schemas import normal_domain
from sardonyx.startup.families import Families, key_of


def page() -> str:
    """The content of the table."""
    command = [sys.executable, "-m", "docs.modules"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class Watch:
    """Who registers what."""

    def __init__(self) -> None:
        self._importing: list[str] = []
        self.registered: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        """Op: table: modules."""

    def begin(self) -> None:
        """Look at each import, and at each entry of a table, from now on."""
        execute, add, define = SourceFileLoader.exec_module, entries.Table.add, schemas.define

        def watched_execute(loader: SourceFileLoader, module: ModuleType) -> None:
            self._importing.append(module.__name__)
            try:
                execute(loader, module)
            finally:
                self._importing.pop()

        def watched_add(table: entries.Table[Any], entry: entries.Entry) -> None:
            add(table, entry)
            if table.families is not None:
                note(table.families, entry.domain, entry.op)

        def watched_define(domain: str, name: str, *parts: Any, **constraints: Any) -> None:
            define(domain, name, *parts, **constraints)
            note(schemas.FAMILIES, domain, name)

        def note(families: Families, domain: str, op: str) -> None:
            modules = self.registered[key_of(normal_domain(domain), op)]
            modules[families.table].add(self._importing[-1].removeprefix(families.parent))

        SourceFileLoader.exec_module = watched_execute  # type: ignore[method-assign]
        entries.Table.add = watched_add  # type: ignore[method-assign]
        schemas.define = watched_define


def main() -> None:
    """Print the table."""
    watch = Watch()
    watch.begin()
    from sardonyx.ops.table import inferences
    from sardonyx.providers.cpu.table import cpu
    from sardonyx.providers.native.program.table import lowerings
    from sardonyx.providers.scalars.table import scalars

    for table in (cpu, scalars, lowerings, inferences):
        table.load_all()
    domains = {*schemas.STANDARD_DOMAINS, *(normal_domain(entry.domain) for entry in inferences)}
    known = {key_of(domain, op) for domain in domains for op in schemas.operators(domain)}
    for key in sorted(known | watch.registered.keys()):
        columns = (f"{table}={','.join(sorted(modules))}" for table, modules in sorted(watch.registered[key].items()))
        sys.stdout.write(" ".join((key, *columns)) + "\n")


if __name__ == "__main__":
    main()
