"""finding.md: where things stand. Files are found by what registers in them, so that the page follows when one is moved."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from docs.pages.domains import domains
from docs.pages.text import NOTE, joined, table
from sardonyx.ops import schemas
from sardonyx.providers.native.program.table import lowerings
from sardonyx.providers.scalars.table import scalars

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "sardonyx"

OPENING = """
# Finding your way

Where a newcomer looks first. Each answer is one step from here; [architecture](architecture.md) tells
how the parts work together.
"""
INDEX = """
## Where an op stands

What can be said of an op without computing it (types and shapes), its NumPy kernel, its machine code,
and its cases. An elementwise op has a scalar function, from which loops are made; others have a
lowering, which turns a node into kernels. [coverage](coverage.md) says for which types.
"""


def page() -> str:
    return joined(NOTE, OPENING, "## Ten questions", _questions(), INDEX, *_index())


# --- questions


def _questions() -> str:
    rows = (
        (
            "Where is Conv for AVX2?",
            f"{_native('Conv')} lowers Conv; {_link('sardonyx.providers.native.kernels.conv.direct')} has the kernel, whose register "
            f"tile depends on the level of the CPU; the levels stand in {_link('sardonyx.compiler.target.X86_LEVELS')}.",
        ),
        (
            "Who chooses Winograd?",
            f"{_link('sardonyx.providers.native.kernels.conv.choice.quickest')}, by a count of cycles and the session's accuracy "
            "([accuracy](accuracy.md)).",
        ),
        (
            "Where is native Softmax?",
            f"{_native('Softmax')}; its loops are in {_link('sardonyx.providers.native.kernels.normalization.softmax_kernel')}.",
        ),
        (
            "Where is native BatchNormalization?",
            f"{_native('BatchNormalization')}. Behind a convolution it is gone before: "
            f"{_link('sardonyx.optimizer.rules.conv.fold_batch_normalization')}.",
        ),
        (
            "Where is LayerNormalization made from its parts?",
            f"The rules of {_link('sardonyx.optimizer.rules.normalization')}, as the stage LayerNormFusion of "
            f"{_link('sardonyx.optimizer.levels.LEVELS')}.",
        ),
        (
            "Where is MatMul of int8?",
            f"{_link('sardonyx.providers.native.kernels.quantize.operators')} lowers MatMulInteger and its relatives, "
            f"{_link('sardonyx.compiler.products')} has the innermost step ([quantization](quantization.md)); "
            f"{_numpy('MatMulInteger')} has them in NumPy, and {_link('sardonyx.optimizer.rules.quantize_units')} makes "
            "QLinearMatMul from QuantizeLinear and DequantizeLinear.",
        ),
        (
            "In which order do passes run?",
            f"As {_link('sardonyx.optimizer.levels.LEVELS')} lists them, level by level ([optimizer](optimizer.md)).",
        ),
        (
            "Where is memory planned?",
            f"{_link('sardonyx.runtime.preparation.memory')} decides which values share a buffer, "
            f"{_link('sardonyx.providers.arena')} where each lies ([planning](planning.md)). Inside a compiled cluster it is "
            f"{_link('sardonyx.providers.native.execution.memory')}.",
        ),
        (
            "Which config keys are there?",
            f"[configuration](configuration.md) lists all; they are declared in {_link('sardonyx.settings')}.",
        ),
        (
            "Where is the number of threads decided?",
            "`SessionOptions.intra_op_num_threads`, or all cores that the process may use: "
            f"{_link('sardonyx.compiler.pool.available_threads')}, asked by "
            f"{_link('sardonyx.providers.native.provider.NativeExecutionProvider')}. Into how many pieces the work of a "
            f"kernel is cut, `_step_words` decides by `PIECES_PER_THREAD` and the kernel's grain "
            f"({_link('sardonyx.providers.native.execution.argument_table')}); {_link('sardonyx.compiler.pool_code')} hands them out.",
        ),
    )
    return table(("question", "answer"), rows)


def _link(dotted: str) -> str:
    """A link to the file of a module, and the name in it if one is given."""
    try:
        module, name = importlib.import_module(dotted), ""
    except ModuleNotFoundError:
        home, _, name = dotted.rpartition(".")
        module = importlib.import_module(home)
        getattr(module, name)
    file = inspect.getsourcefile(module)
    assert file is not None
    return f"`{name}` of {_file(Path(file))}" if name else _file(Path(file))


def _file(path: Path) -> str:
    name = path.relative_to(ROOT).as_posix()
    return f"[{name.removeprefix('sardonyx/')}](../{name})"


def _native(op: str) -> str:
    return _links(files("native", "", op))


def _numpy(op: str) -> str:
    return _links(files("cpu", "", op))


def _links(paths: Iterable[Path]) -> str:
    return ", ".join(map(_file, paths))


# --- index of ops

FOLDERS = {
    "ops": (PACKAGE / "ops",),
    "cpu": (PACKAGE / "providers" / "cpu",),
    "native": (PACKAGE / "providers" / "scalars", PACKAGE / "providers" / "native"),
    "cases": (ROOT / "tests" / "ops",),
}
REGISTER = {
    *("infer", "in_domain", "of_each", "of_pairs", "contrib", "ml", "training", "nchwc", "ours", "define"),
    *("kernel", "scalar", "lower", "_reduction", "_power_of"),
    "case",
}
"""Functions that enter something under the names of ops, or decorators that lead to them."""


def _index() -> Iterator[str]:
    for domain in domains():
        names = schemas.operators(domain)
        rows = [(name, *(_links(files(kind, domain, name)) for kind in FOLDERS)) for name in names]
        yield f"### {domain or 'ai.onnx'}"
        yield table(("op", "types and shapes", "NumPy", "machine code", "cases"), rows)


DOMAIN_FOLDERS = {"com.microsoft": "contrib", "com.microsoft.nchwc": "nchwc", "ai.onnx.ml": "ml"}
FOLDERS_OF_DOMAINS = frozenset(DOMAIN_FOLDERS.values())


def files(kind: str, domain: str, op: str) -> Sequence[Path]:
    """The files in which something is registered for an op of a domain."""
    found = _of_domain(files_of(kind)[op], domain)
    return found if kind != "native" else _machine_code(domain, op, found)


def _machine_code(domain: str, op: str, found: Sequence[Path]) -> Sequence[Path]:
    """Of files that have machine code for ops of one name those of a domain that has some; names may be put together there."""
    entries = [*scalars.candidates(domain, op), *lowerings.candidates(domain, op)]
    functions = {Path(entry.function.__code__.co_filename) for entry in entries}
    return found or sorted(functions) if entries else []


@functools.cache
def files_of(kind: str) -> dict[str, list[Path]]:
    """Op: the files in which something is registered for it."""
    found: dict[str, list[Path]] = defaultdict(list)
    for folder in FOLDERS[kind]:
        for path in sorted(folder.rglob("*.py")):
            for name in _registered(ast.parse(path.read_text(encoding="utf-8"))):
                if path not in found[name]:
                    found[name].append(path)
    return found


def _of_domain(paths: Sequence[Path], domain: str) -> Sequence[Path]:
    """Of files that have ops of one name, those of a domain."""
    parts = {path: FOLDERS_OF_DOMAINS.intersection((*path.parts, path.stem)) for path in paths}
    return [path for path in paths if DOMAIN_FOLDERS.get(domain) in parts[path] or not (domain or parts[path])] or paths


def _registered(tree: ast.Module) -> Iterator[str]:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _name(node.func) in REGISTER]
    for call in calls:
        yield from _texts(call.args)
    if calls:  # loops register what tables hold
        statements = [node for node in tree.body if isinstance(node, (ast.Assign, ast.AnnAssign, ast.For))]
        for table in (inner for node in statements for inner in ast.walk(node) if isinstance(inner, ast.Dict)):
            yield from _texts(table.keys)


def _texts(nodes: Iterable[ast.expr | None]) -> Iterator[str]:
    return (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


def _name(function: ast.expr) -> str:
    match function:
        case ast.Name(name) | ast.Attribute(attr=name):
            return name
    return ""
