"""Imports point one way, and what is heavy or foreign stays out: read from the source of every module of the package."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from pathlib import Path

from sardonyx.runtime.saving import remembered_keys

ROOT = Path(__file__).parent.parent / "sardonyx"

LAYERS = (
    {"settings", "startup"},
    {"dtypes", "errors"},
    {"ir", "compiler"},
    {"formats"},  # ignorant of what an op means; ops reads the bodies of function ops through it
    {"ops"},
    {"optimizer", "providers"},  # how a node is read stands in ops, so neither needs the other
    {"runtime"},
    {"tools"},
    {"quantization", "training", "serving", "datasets"},
    {"transformers"},  # exported models may be quantized
    {"sardonyx", "backend", "capi", "compat"},  # the package's face: the names that users import
    {"cli", "tools/qnn"},
    {"__main__"},
)
"""From the bottom up. A part imports itself and what is below; parts of one layer do not know each other, except in the face."""

FACE = next(layer for layer in LAYERS if "sardonyx" in layer)
VERSION = "sardonyx.__version__"
"""Everybody may ask for it: the package itself is there before any of its modules."""
FOREIGN = {"onnxruntime", "scipy", "torch", "tensorflow"}
ON_TORCH = ROOT / "training" / "torch"
"""The folder that is for who has torch. Nobody else imports it."""
ONLY_WHEN_NEEDED = {"onnx", "google", "openvino", "PIL", "llvmlite", "flatbuffers"}
ON_ONNX = {"backend", "quantization", "tools", "tools/qnn", "training", "transformers"}
"""What works on the onnx package's own classes; it is loaded by whoever wants that interface."""


def modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


PROGRAMS = {"tools/qnn"}
"""Folders that stand above the part in which onnxruntime has them."""


def part_of(path: Path) -> str:
    folder = path.relative_to(ROOT).parent.as_posix()
    if folder in PROGRAMS:
        return folder
    first = path.relative_to(ROOT).parts[0]
    return {"__init__.py": "sardonyx"}.get(first, first.removesuffix(".py"))


def rank(part: str) -> int | None:
    return next((number for number, parts in enumerate(LAYERS) if part in parts), None)


class When(Enum):
    """When an import happens."""

    AT_ONCE = "as soon as the module is imported"
    LATER = "inside of a function, or by a name in a string"
    NEVER = "for whoever checks types"


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def imports(path: Path) -> Sequence[tuple[str, int, When]]:
    """(full name, line, when) of everything that a module imports."""
    return [*_imports(path), *((name, line, When.LATER) for name, line in _named_in_strings(tree_of(path)))]


def _imports(path: Path) -> Iterator[tuple[str, int, When]]:
    tree = tree_of(path)
    later = _inside(tree, lambda node: isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
    never = _inside(tree, lambda node: isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
    for node in ast.walk(tree):
        when = When.NEVER if id(node) in never else When.LATER if id(node) in later else When.AT_ONCE
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno, when) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield from ((f"{node.module}.{alias.name}", node.lineno, when) for alias in node.names)


def _inside(tree: ast.AST, test: Callable[[ast.AST], bool]) -> set[int]:
    """The nodes below those that pass a test."""
    return {id(inner) for node in ast.walk(tree) if test(node) for inner in ast.walk(node)}


def _named_in_strings(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Modules of ours that strings name, whole or up to what an f-string fills in: somebody imports them. Loggers are named alike."""
    loggers = _inside(tree, lambda node: isinstance(node, ast.Call) and ast.unparse(node.func) == "logging.getLogger")
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in loggers:
            name = node.value.rstrip(".")
            if name.startswith("sardonyx.") and module_of(name) == name:
                yield name, node.lineno


@functools.cache
def module_of(name: str) -> str:
    """The module in which a full name stands."""
    path = ROOT.parent / Path(*name.split("."))
    if path.with_suffix(".py").exists() or (path / "__init__.py").exists() or "." not in name:
        return name
    return module_of(name.rpartition(".")[0])


def each_module(check: Callable[[Path], None]) -> Callable[[], None]:
    """One test for all modules, which names those of which something is not so."""

    def test() -> None:
        wrong = []
        for path in modules():
            try:
                check(path)
            except AssertionError as error:
                wrong.append(f"{path.relative_to(ROOT)}: {error}")
        assert not wrong, "\n".join(wrong)

    test.__name__ = check.__name__
    return test


@each_module
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


# --- the layers inside of a package

RUNTIME = (
    {"", "api", "preparation/providers"},
    {"preparation"},
    {"execution", "api/iobinding", "api/profile"},
    {"saving"},
    {"api/memory_halves"},
    {"api/session", "api/raw_session", "api/model_compiler", "api/explanation", "api/memory_report", "api/memory_picture"},
)
"""What users hand over and get back, options and values, is known to all; sessions, which put everything together, to nobody."""
PROVIDERS = (
    {"native/program/weights"},  # memory that packed weights lie in
    {""},
    {"cpu", "scalars", "null", "openvino"},
    {"native/program", "native/execution/digest", "native/execution/immediate"},
    {"native/execution"},
    {
        "native/kernels",
        "native/program/value_lowering",
        "native/program/chain_lowering",
        "native/program/lowering",
    },  # which knows kernels: elementwise nodes and copies have no lowering of their own
    {"native"},
)
"""What all providers are made of, then those without machine code; of machine code what a program is, how it runs, and its kernels."""
INNER_LAYERS = {"runtime": RUNTIME, "providers": PROVIDERS}


def inner_rank(name: str, layers: tuple[set[str], ...]) -> int:
    """The number of the layer in which a module stands, named by its path in the package; the longest name that a layer has counts."""
    while not any(name in layer for layer in layers):
        name = name.rpartition("/")[0]
    return next(number for number, layer in enumerate(layers) if name in layer)


@each_module
def test_inner_layers_know_those_below(path: Path) -> None:
    part = part_of(path)
    if part not in INNER_LAYERS:
        return
    layers = INNER_LAYERS[part]
    mine = inner_rank(path.relative_to(ROOT / part).with_suffix("").as_posix().removesuffix("__init__").rstrip("/"), layers)
    for name, line, when in imports(path):
        module = module_of(name)
        if module.startswith(f"sardonyx.{part}.") and when is not When.NEVER and module not in DOORS.keys() | BY_NAME:
            theirs = inner_rank(module.removeprefix(f"sardonyx.{part}.").replace(".", "/"), layers)
            assert theirs <= mine, f"{path.relative_to(ROOT)}:{line}: imports {name}, which is not below it"


def test_what_keys_of_remembered_models_leave_out_is_above_sessions() -> None:
    ranks = [rank(part) for part in (*remembered_keys.ABOVE, "runtime")]
    assert None not in ranks and min(ranks[:-1]) > ranks[-1]


# --- doors: modules that wait until somebody needs them, and modules that others may know

COMPILED = "a model that was compiled before runs without it"
FORMAT = "a model has one of the two formats"
SAVING = "few sessions write anything"
RECURSIVE = "a graph has attributes, which have graphs"
SHOWN = "made when somebody looks at it"
QUANTIZING = "few commands quantize"
DOORS = {
    "sardonyx.compiler.jit": COMPILED,
    "sardonyx.compiler.pool_code": COMPILED,
    "sardonyx.compiler.text_code": COMPILED,
    "sardonyx.compiler.roofline": SHOWN,
    "sardonyx.formats.onnx.graphs": RECURSIVE,
    "sardonyx.formats.onnx.reader": FORMAT,
    "sardonyx.formats.onnx.saving": SAVING,
    "sardonyx.formats.onnx.types": "functions of the standard that depend on types are few",
    "sardonyx.formats.onnx.writer": "functions of the standard that depend on types are few",
    "sardonyx.formats.ort.reader": FORMAT,
    "sardonyx.formats.ort.writer": SAVING,
    "sardonyx.ir.edit": COMPILED,
    "sardonyx.ir.graph": RECURSIVE,
    "sardonyx.ir.tensor": RECURSIVE,
    "sardonyx.ops.inference": COMPILED,
    "sardonyx.ops.table": COMPILED,
    "sardonyx.ops.gradients.table": "few custom ops have gradients",
    "sardonyx.ops.gradients.writing": "few models have gradients",
    "sardonyx.ops.onnx_schemas": "for models that are newer than our own table",
    "sardonyx.optimizer.levels": "lists what the pipeline's own classes describe",
    "sardonyx.optimizer.passes": "a pass is imported for a model that has its ops",
    "sardonyx.optimizer.pipeline": COMPILED,
    "sardonyx.optimizer.recording": SAVING,
    "sardonyx.optimizer.replay": "for ORT format files that name rewrites",
    "sardonyx.optimizer.rewrite": COMPILED,
    "sardonyx.providers.cpu.provider": COMPILED,
    "sardonyx.providers.kernel_search": COMPILED,
    "sardonyx.providers.matching": COMPILED,
    "sardonyx.providers.native.aot.provider": "for compiled models",
    "sardonyx.providers.native.aot.writing": SAVING,
    "sardonyx.providers.native.execution.texts": "few models have strings",
    "sardonyx.providers.native.kernels.conv.grouped": "few models bring filters of unknown sizes",
    "sardonyx.providers.native.provider": COMPILED,
    "sardonyx.quantization": QUANTIZING,
    "sardonyx.quantization.comparison": QUANTIZING,
    "sardonyx.quantization.data_files": QUANTIZING,
    "sardonyx.quantization.matmul_nbits_quantizer": QUANTIZING,
    "sardonyx.quantization.models": QUANTIZING,
    "sardonyx.quantization.shape_inference": QUANTIZING,
    "sardonyx.quantization.weight_only.configs": QUANTIZING,
    "sardonyx.runtime.api.custom_ops": "few programs have ops of their own",
    "sardonyx.runtime.api.explanation": SHOWN,
    "sardonyx.runtime.api.memory_picture": SHOWN,
    "sardonyx.runtime.api.memory_report": SHOWN,
    "sardonyx.runtime.execution.engine": "an engine makes bindings, and a binding wants an engine",
    "sardonyx.runtime.preparation.experimental": "few models have ops of that time",
    "sardonyx.runtime.preparation.expand": COMPILED,
    "sardonyx.runtime.preparation.layouts": COMPILED,
    "sardonyx.runtime.saving.contexts": "for compiled models",
    "sardonyx.runtime.saving.remembered": "for sessions that remember",
    "sardonyx.runtime.saving.files": SAVING,
    "sardonyx.startup.garbage": "the package itself imports nothing",
    "sardonyx.training.artifacts": "few commands train",
    "sardonyx.training.onnxblock": "few commands train",
}
"""The modules of ours that may be imported inside of functions, and why they wait. All others are imported at a module's head."""
REGISTERING = {
    "sardonyx.ops",
    "sardonyx.ops.gradients",
    "sardonyx.training.torch.aten",
    "sardonyx.providers.cpu",
    "sardonyx.providers.native",
    "sardonyx.providers.scalars",
}
"""Packages whose modules register themselves: `startup/families.py` imports them by name."""
BY_NAME = REGISTERING | {"sardonyx.cli", "sardonyx.providers", "sardonyx.providers.openvino"}
"""What strings name: also a program that a process is started with, and providers that are opened by their names."""


@each_module
def test_only_doors_are_imported_late(path: Path) -> None:
    for name, line, when in imports(path):
        if when is When.LATER and name.partition(".")[0] == "sardonyx":
            module = module_of(name)
            assert module in DOORS.keys() | BY_NAME, (
                f"{path.relative_to(ROOT)}:{line}: import {name} at the head, or give {module} a door here"
            )


def test_every_door_is_used() -> None:
    late = {module_of(name) for path in modules() for name, _, when in imports(path) if when is When.LATER}
    assert DOORS.keys() <= late and late >= BY_NAME


SEEN = {
    "sardonyx.formats.onnx": {"external", "messages", "reader", "saving", "tensors", "types", "writer"},
    "sardonyx.formats.ort": {"derived", "reader", "tables", "writer"},
    "sardonyx.ops.contrib": {"attention", "nchwc"},
    "sardonyx.ops.ml": set(),
    "sardonyx.optimizer.passes": set(),
    "sardonyx.optimizer.rules": {"normalization"},  # the spellings of layer normalization
    "sardonyx.providers.cpu": {"contrib", "provider", "table"},  # contrib: what codes of four bits stand for
    "sardonyx.providers.native": {"aot", "execution", "program", "provider"},
    "sardonyx.providers.null": {"provider"},
    "sardonyx.providers.openvino": {"provider"},
    "sardonyx.providers.scalars": set(),
}
"""Inner packages, and those of their modules that other parts of the package may know."""


@each_module
def test_inner_modules_are_known_inside(path: Path) -> None:
    part = part_of(path)
    for name, line, _ in imports(path):
        names = module_of(name).split(".")
        package, inner = ".".join(names[:3]), names[3:4]
        if package in SEEN and inner and names[1] != part:
            assert inner[0] in SEEN[package], (
                f"{path.relative_to(ROOT)}:{line}: {part} imports {name}, which is {package}'s own"
            )


# --- attributes that are somebody's own

OF_OTHERS = {"_dynamic_multimask_via_stability", "_transforms", "_replace", "_asdict", "_fields"}
"""Public names of `collections.namedtuple`, which begin like private ones."""
OF_TORCH = {"_ops", "_schema", "_overloadname", "_unsafe_view", "_version", "_C"}
"""Names of torch that say what a traced graph calls."""


@functools.cache
def own_names(part: str) -> set[str]:
    """The names that a part of the package gives to attributes, functions and classes."""
    names = set()
    for path in modules():
        for node in ast.walk(tree_of(path)) if part_of(path) == part else ():
            match node:
                case ast.Attribute(attr=name, ctx=ast.Store()) | ast.Name(id=name, ctx=ast.Store()):
                    names.add(name)
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    names.add(name)
    return names


@each_module
def test_private_attributes_are_read_where_they_are_made(path: Path) -> None:
    part = part_of(path)
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            own = node.attr in own_names(part) | OF_OTHERS | (OF_TORCH if ON_TORCH in path.parents else set())
            assert own, (
                f"{path.relative_to(ROOT)}:{node.lineno}: reads {ast.unparse(node)}, which is private to another package"
            )


@each_module
def test_foreign_and_heavy_packages_stay_out(path: Path) -> None:
    for name, line, when in imports(path):
        package = name.split(".")[0]
        foreign = FOREIGN - {"torch"} if ON_TORCH in path.parents else FOREIGN
        assert package not in foreign, f"{path.relative_to(ROOT)}:{line}: the product never imports {package}"
        heavy = package in ONLY_WHEN_NEEDED and part_of(path) not in ON_ONNX
        assert not (when is When.AT_ONCE and heavy), f"{path.relative_to(ROOT)}:{line}: import {package} inside a function"


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
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in PROBES:
            name = node.args[1]
            text = name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else ""
            yield ast.unparse(node.args[0]), text, node.lineno


@each_module
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


@each_module
def test_there_is_one_preparation(path: Path) -> None:
    name = path.relative_to(ROOT).as_posix()
    for node in ast.walk(tree_of(path)):
        called = ast.unparse(node.func).removeprefix("edit.") if isinstance(node, ast.Call) else ""
        allowed = name == "runtime/preparation/prepare.py" or called in OWN_CALLS.get(name, ())
        assert allowed or called not in PREPARATION, (
            f"{name}:{getattr(node, 'lineno', 0)}: calls {called}; models are prepared by runtime/preparation/prepare.py, from a recipe"
        )
