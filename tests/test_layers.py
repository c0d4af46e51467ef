"""Imports point one way, and what is heavy or foreign stays out: read from the source of every module of the package."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "sardonyx"

LAYERS = (
    {"settings", "startup"},
    {"dtypes", "errors"},
    {"ir", "compiler"},
    {"formats"},  # ignorant of what an op means; ops reads the bodies of function ops through it
    {"ops"},
    {"optimizer", "providers"},  # how a node is read stands in ops, so neither needs the other
    {"runtime"},
    {"quantization", "training", "serving", "datasets"},
    {"sardonyx", "backend", "capi", "compat"},  # the package's face: the names that users import
    {"cli"},
    {"__main__"},
)
"""From the bottom up. A part imports itself and what is below; parts of one layer do not know each other, except in the face."""

FACE = next(layer for layer in LAYERS if "sardonyx" in layer)
VERSION = "sardonyx.__version__"
"""Everybody may ask for it: the package itself is there before any of its modules."""
FOREIGN = {"onnxruntime", "scipy", "torch", "tensorflow"}
ONLY_WHEN_NEEDED = {"onnx", "google", "openvino", "PIL", "llvmlite", "flatbuffers"}


def modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def part_of(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0]
    return {"__init__.py": "sardonyx"}.get(first, first.removesuffix(".py"))


def rank(part: str) -> int | None:
    return next((number for number, parts in enumerate(LAYERS) if part in parts), None)


def imports(path: Path) -> Iterator[tuple[str, int, bool]]:
    """(full name, line, whether it happens as soon as the module is imported) of everything that a module imports."""
    tree = ast.parse(path.read_text())
    lazy = {id(inner) for node in ast.walk(tree) if _is_deferred(node) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, id(node) not in lazy
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node.lineno, id(node) not in lazy


def _is_deferred(node: ast.AST) -> bool:
    is_typing = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    return is_typing or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_downwards(path: Path) -> None:
    part = part_of(path)
    mine = rank(part)
    assert mine is not None, f"{part} has no layer; give it one here"
    for name, line, _ in imports(path):
        names = name.split(".")
        if names[0] != "sardonyx" or name == VERSION:
            continue
        other = names[1] if len(names) > 1 and rank(names[1]) is not None else "sardonyx"
        theirs = rank(other)
        assert theirs is not None
        allowed = other == part or theirs < mine or (part in FACE and other in FACE)
        assert allowed, f"{path.relative_to(ROOT)}:{line}: {part} imports {name}, which is not below it"
        if part == "compiler":
            assert other in (*LAYERS[0], *LAYERS[1], "compiler"), f"{path.relative_to(ROOT)}:{line}: compiler imports {name}"


NATIVE = "sardonyx.providers.native."
NATIVE_PACKAGES = {
    "program": ("program",),
    "execution": ("program", "execution"),
    "kernels": ("program", "execution", "kernels"),
}
"""The packages of native code, and those that each may import from."""
LOWERER = ROOT / "providers" / "native" / "program" / "lowering.py"
"""The one part of a program that knows kernels: elementwise nodes, copies and transposes have no lowering of their own."""


@pytest.mark.parametrize("path", sorted((ROOT / "providers" / "native").rglob("*/*.py")), ids=lambda path: path.stem)
def test_packages_of_native_code_know_those_below(path: Path) -> None:
    package = path.relative_to(ROOT / "providers" / "native").parts[0]
    allowed = NATIVE_PACKAGES.get(package)
    if allowed is None or path == LOWERER:
        return
    for name, line, at_once in imports(path):
        if name.startswith(NATIVE) and at_once:
            other = name.removeprefix(NATIVE).split(".")[0]
            assert other in allowed, f"{path.relative_to(ROOT)}:{line}: {package} imports {name}"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_foreign_and_heavy_packages_stay_out(path: Path) -> None:
    for name, line, at_once in imports(path):
        package = name.split(".")[0]
        assert package not in FOREIGN, f"{path.relative_to(ROOT)}:{line}: the product never imports {package}"
        # the backend is derived from the onnx package's own base classes; it is loaded by whoever wants that interface
        heavy = package in ONLY_WHEN_NEEDED and part_of(path) != "backend"
        assert not (at_once and heavy), f"{path.relative_to(ROOT)}:{line}: import {package} inside a function"


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, sardonyx; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())
    assert not loaded & {"onnx", "google", "rich", "PIL", *FOREIGN}


def test_a_session_loads_nothing_that_takes_long_to_load() -> None:
    code = "import sys, sardonyx; sardonyx.InferenceSession; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())
    slow = {
        "concurrent",
        "dataclasses",
        "hashlib",
        "llvmlite",
        "ml_dtypes",
        "tempfile",
    }
    assert not loaded & {"onnx", "google", "rich", "PIL", *slow, *FOREIGN}


PROBES = {"getattr", "hasattr"}


def probes(path: Path) -> Iterator[tuple[str, str, int]]:
    """(object, name, line) of each place that asks whether an object has an attribute; the name is "" if it is computed."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in PROBES:
            name = node.args[1]
            text = name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else ""
            yield ast.unparse(node.args[0]), text, node.lineno


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_nobody_probes_what_a_step_calls(path: Path) -> None:
    from sardonyx.providers.steps import StepCall

    offers = {name for name in vars(StepCall) if not name.startswith("_")}
    for probed, name, line in probes(path):
        is_call = probed == "call" or probed.endswith(".call") or ".call," in probed
        assert not is_call and name not in offers, (
            f"{path.relative_to(ROOT)}:{line}: probes {probed} for {name!r}; StepCall says what a step's call offers, with defaults"
        )


PREPARATION = {
    "inline_functions",
    "ops.infer",
    "pipeline.optimize",
    "prefer_layouts",
    "partition_graphs",
    "insert_copies",
    "make_plan",
}
"""What the stages of preparation call; `runtime/preparation/prepare.py` alone puts them in order."""
OWN_CALLS = {
    "runtime/preparation/partition.py": {"partition_graphs"},
    "runtime/preparation/plan.py": {"make_plan", "partition_graphs", "insert_copies"},
}
"""Where they call themselves: for graphs inside graphs, and for a graph that nobody has partitioned."""


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_there_is_one_preparation(path: Path) -> None:
    name = path.relative_to(ROOT).as_posix()
    for node in ast.walk(ast.parse(path.read_text())):
        called = ast.unparse(node.func).removeprefix("edit.") if isinstance(node, ast.Call) else ""
        allowed = name == "runtime/preparation/prepare.py" or called in OWN_CALLS.get(name, ())
        assert allowed or called not in PREPARATION, (
            f"{name}:{getattr(node, 'lineno', 0)}: calls {called}; models are prepared by runtime/preparation/prepare.py, from a recipe"
        )
