"""namespace.md: the public names of onnxruntime beside ours, which are there or have a reason not to be."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from docs.pages.text import NOTE, joined, table
from sardonyx.compat import API_VERSION

OPENING = f"""
# Names

The public modules of onnxruntime {API_VERSION} with their functions and classes, and the members of
the classes of its core, beside those of sardonyx under the same names. `onnxruntime.x` is
`sardonyx.x`. What is not there has a reason.
"""
NAMES = Path(__file__).with_name("onnxruntime_names.txt")
"""A line for each module or class of the core: its path below `onnxruntime`, and the names in it. Of the generated readers of ORT files
it has the classes alone."""

GPU = "needs a GPU, or the libraries of one"
GPU_OPS = "makes models of ops that onnxruntime computes on a GPU alone"
QNN = "needs the NPU of Qualcomm, and its converter"
LONGFORMER = "is made around an attention that onnxruntime computes on a GPU alone"
BUILD = "belongs to a build of the C++ code"
GENERATION = "builds models around a beam search, which has no CPU kernel here yet"

CPP = "is an object of the C++ code with which Python programs can do nothing"

REASONS: Mapping[str, str] = {
    "capi.onnxruntime_collect_build_info.*": GPU,
    "capi.onnxruntime_pybind11_state.OrtSyncStream.get_handle": GPU,
    "capi.onnxruntime_pybind11_state.SessionObjectInitializer": CPP,
    "capi.onnxruntime_pybind11_state.get_session_initializer": CPP,
    "capi.onnxruntime_pybind11_state.pack_fp4_weights_for_cuda_moe_gemm": GPU,
    "quantization.matmul_nbits_quantizer.NVAWQWeightOnlyQuantizer": GPU,
    "tools.ort_format_model.operator_type_usage_processors.*": BUILD,
    "tools.ort_format_model.ort_model_processor.*": BUILD,
    "tools.qnn.*": QNN,
    "transformers.benchmark_helper.*": GPU,
    "transformers.convert_generation.test_*": GENERATION,
    "transformers.convert_generation.update_decoder_subgraph_use_decoder_masked_attention": GPU_OPS,
    "transformers.fusion_qordered*": GPU_OPS,
    "transformers.io_binding_helper.*": GPU,
    "transformers.large_model_exporter.auto_pipeline_parallel": GPU,
    "transformers.models.*stable_diffusion*": GPU,
    "transformers.models.longformer*": LONGFORMER,
    "transformers.models.sam2.nvtx_helper.*": GPU,
    "transformers.models.whisper.whisper_chain.*": GENERATION,
}
"""Why names are not there, by patterns of `module.name`; the first that fits counts."""


@cache
def originals() -> dict[str, list[str]]:
    """The names of onnxruntime by module or class."""
    lines = (line.partition(":") for line in NAMES.read_text(encoding="utf-8").splitlines())
    return {path: names.split() for path, _, names in lines}


def ours(path: str) -> Any:
    """Our module or class of that path, None if there is none."""
    full = "sardonyx" if path == "." else f"sardonyx.{path}"
    try:
        return importlib.import_module(full)
    except ModuleNotFoundError:
        parent, _, name = full.rpartition(".")
    try:
        return getattr(importlib.import_module(parent), name, None)
    except ModuleNotFoundError:
        return None


@cache
def missing() -> dict[str, list[str]]:
    """The names that are not there, by module or class; a module with no names of its own counts by itself."""
    found: dict[str, list[str]] = {}
    for path, names in originals().items():
        holder = ours(path)
        absent = [name for name in names if not _has(holder, name)]
        if absent or holder is None:
            found[path] = absent
    return found


def _has(holder: Any, name: str) -> bool:
    """Whether a module or class has a name; attributes that objects get when they are made are annotated in their class."""
    return hasattr(holder, name) or any(name in getattr(base, "__annotations__", ()) for base in getattr(holder, "__mro__", ()))


def reason(path: str, name: str = "") -> str | None:
    full = f"{path}.{name}" if name else path
    return next((text for pattern, text in REASONS.items() if fnmatchcase(full, pattern)), None)


def unexplained() -> Iterator[str]:
    """What is neither there nor on the list."""
    for path, names in missing().items():
        yield from (f"{path}.{name}" for name in names or [""] if reason(path, name) is None)


def idle() -> Iterator[str]:
    """Patterns of the list that explain nothing."""
    absent = [f"{path}.{name}" if name else path for path, names in missing().items() for name in names or [""]]
    for pattern in REASONS:
        if not any(reason_pattern(full) == pattern for full in absent):
            yield pattern


def reason_pattern(full: str) -> str | None:
    return next((pattern for pattern in REASONS if fnmatchcase(full, pattern)), None)


SECTIONS = {
    "The core": ("", "backend", "capi", "datasets"),
    "onnxruntime.quantization": ("quantization",),
    "onnxruntime.tools": ("tools",),
    "onnxruntime.transformers": ("transformers",),
}


def page() -> str:
    parts = [part for title, packages in SECTIONS.items() for part in _section(title, packages)]
    return joined(NOTE, OPENING, *parts)


def _section(title: str, packages: tuple[str, ...]) -> Iterator[str]:
    paths = [path for path in originals() if path.partition(".")[0] in packages]
    total = sum(len(originals()[path]) for path in paths)
    absent = sum(len(missing().get(path, ())) for path in paths)
    yield f"## {title}"
    yield f"{total - absent} of {total} names are there."
    rows = [row for path in paths if path in missing() for row in _rows(path)]
    if rows:
        yield table(("module or class", "there", "not there", "because it"), rows)
    whole = [path for path in paths if path not in missing() and path != "."]
    yield "Whole: " + ", ".join(whole) + "."


def _rows(path: str) -> Iterator[tuple[str, str, str, str]]:
    names = missing()[path]
    count = f"{len(originals()[path]) - len(names)} of {len(originals()[path])}"
    by_reason: dict[str, list[str]] = {}
    for name in names or [""]:
        by_reason.setdefault(reason(path, name) or "**has no reason**", []).append(name)
    for text, members in by_reason.items():
        all_of_them = len(members) == len(originals()[path])
        yield path, count, "all" if all_of_them or members == [""] else ", ".join(members), text
