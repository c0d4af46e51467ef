"""Which modules of this package models in the ORT format need, so that the others can be left out of a copy of it.

`sardonyx convert --trim` writes the list. Kernels register themselves when their modules are found, so those of a module that is not there
are simply not known; everything else stays, and so does each module that something kept imports.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from sardonyx import ops
from sardonyx.formats.ort.writer import is_constant
from sardonyx.ir import Model, Node
from sardonyx.ops import checking, schemas
from sardonyx.ops.signatures import Signature
from sardonyx.providers.cpu import load_kernels
from sardonyx.providers.cpu.provider import CPUExecutionProvider
from sardonyx.providers.cpu.table import cpu
from sardonyx.providers.kernel_search import missing_kernel
from sardonyx.providers.matching import OpId
from sardonyx.providers.native.program.table import lowerings

PACKAGE = "sardonyx"
ROOT = Path(__file__).parents[2]
KERNELS = "sardonyx.providers.cpu."
"""The package whose modules register their kernels and are found by looking into its folders."""


class Trim:
    """What models need, collected model by model."""

    def __init__(self) -> None:
        ops.load_families()
        load_kernels()
        lowerings.load_all()
        self.op_ids: set[str] = set()
        self._modules: set[str] = set()
        self._provider = CPUExecutionProvider()

    def add(self, model: Model) -> None:
        """Ask for all that a typed model needs."""
        for node in model.graph.all_nodes():
            if not is_constant(node):
                self._add_node(node)
        for saved in model.saved_optimizations:
            for text in (text for records in saved.by_optimizer.values() for record in records for text in record.produced):
                op = OpId.parse(text)
                self._add_signature(schemas.versions(op.domain, op.name)[op.since_version])

    def _add_node(self, node: Node) -> None:
        kernel = self._provider.find_kernel(node)
        if kernel is None:
            raise missing_kernel(node)
        self._modules.add(kernel.function.__module__)
        self._add_signature(checking.signature_of(node))

    def _add_signature(self, signature: Signature) -> None:
        self.op_ids.add(f"{signature.domain}:{signature.name}:{signature.since_version}")
        self._modules.update(
            kernel.function.__module__
            for kernel in cpu.candidates(signature.domain, signature.name)
            if kernel.covers(signature.since_version)
        )

    def kept(self, modules: Mapping[str, Path]) -> set[str]:
        """Which of the modules found must stay: those that are needed, those that cannot be left out, and what they import."""
        names = {op_id.split(":")[1] for op_id in self.op_ids}
        pending = [module for module, path in modules.items() if not _may_go(module, path, names)] + list(self._modules)
        kept: set[str] = set()
        while pending:
            module = pending.pop()
            if module in modules and module not in kept:
                kept.add(module)
                pending.extend(_imports(modules[module]))
        return kept

    def text(self, sources: Iterable[object] = ()) -> str:
        """The list: a line for each op, then one for each module that must stay or may go, by its file's path."""
        all_modules = dict(_modules())
        kept = self.kept(all_modules)
        lines = [f"# What models need of {PACKAGE}:", *(f"# - {source}" for source in sources)]
        lines += [f"op {op_id}" for op_id in sorted(self.op_ids)]
        for word, modules in (("keep", kept), ("drop", all_modules.keys() - kept)):
            lines += [f"{word} {all_modules[module].relative_to(ROOT.parent).as_posix()}" for module in sorted(modules)]
        return "\n".join(lines) + "\n"


def _modules() -> Iterator[tuple[str, Path]]:
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def _may_go(module: str, path: Path, op_names: set[str]) -> bool:
    """Whether a module is there for its ops alone, unless something imports it."""
    lowered = {entry.op for entry in lowerings if entry.function.__module__ == module}
    if lowered:
        return op_names.isdisjoint(lowered)
    return module.startswith(KERNELS) and path.name != "__init__.py"


def _imports(path: Path) -> Iterator[str]:
    """The modules of this package that a file imports anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
