"""What must be equal for two sessions to be prepared alike: the model's content, options, providers, machine, all files of this package.

The key of a session is a hash of all that. Whatever cannot be put into words (functions, arrays in memory) makes a session that is not
remembered.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import sys
from collections.abc import Collection

import numpy as np

from sardonyx import settings
from sardonyx.compiler import features
from sardonyx.compiler.pool import available_threads
from sardonyx.runtime.api.options import Option, SessionOptions
from sardonyx.runtime.preparation.providers import CPU_PROVIDER
from sardonyx.runtime.preparation.recipe import ProviderList
from sardonyx.runtime.saving import file_digests
from sardonyx.runtime.saving.file_digests import digest
from sardonyx.startup import authors

FORMAT = 2
PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ABOVE = ("backend", "capi", "cli", "datasets", "quantization", "tools", "training", "transformers")
"""The parts of the package that no session imports."""
WRITES = (settings.EP_CONTEXT_ENABLE, settings.RECORD_ASSIGNMENT, settings.EP_CONTEXT_SOURCE_MODEL_PATH)
"""Settings of sessions that need the model itself."""
ABOUT_KEEPING = (
    settings.CACHE_DIRECTORY,
    settings.CACHE_BYTES,
    settings.MODELS_BYTES,
    settings.REMEMBER_VARIABLE,
    settings.HURRY,
)
"""Variables that say what is kept, where and when, not what becomes of a model."""


def describes_all(options: SessionOptions, providers: ProviderList) -> bool:
    """Whether a session is made of nothing but what a key can tell."""
    supplied = (options._initializers, options._external_initializers, options._external_files, options._custom_ops)
    is_written = bool(options.optimized_model_filepath) or options.enable_profiling or options._context_reader is not None
    is_written = is_written or any(options._config.entries.get(key) for key in WRITES)
    is_ours = all(name == CPU_PROVIDER for name, _ in providers)
    return is_ours and not is_written and not any(supplied) and not authors.others()


def key_of(content: str, options: SessionOptions, providers: ProviderList, disabled: Collection[str]) -> str:
    """The key of a session of the model with this digest."""
    names = [name for name, option in vars(SessionOptions).items() if isinstance(option, Option) and not name.startswith("log")]
    parts = {
        "format": FORMAT,
        "model": content,
        "options": {name: str(getattr(options, name)) for name in names},
        "config": {key: value for key, value in options._config.entries.items() if key != settings.REMEMBER},
        "dims": [options._dims_by_name, options._dims_by_denotation],
        "cpu": _that_matter(providers),
        "disabled": sorted(disabled),
        "threads": available_threads(),
        "environment": {name: os.environ.get(name, "") for name in settings.ENVIRONMENT if name not in ABOUT_KEEPING},
        "python": sys.version,
        "numpy": np.__version__,
        "machine": [platform.machine(), sorted(features.features_here())],
        "package": package_digest(),
    }
    return digest(json.dumps(parts, sort_keys=True).encode())


def _that_matter(providers: ProviderList) -> dict[str, str]:
    """Options of the CPU, the only provider that there is, without those that say when something is done."""
    return {
        name: value
        for _, provider_options in providers
        for name, value in provider_options.items()
        if name != settings.CPU_HURRY
    }


def content_of(source: str | bytes, largest: int) -> str | None:
    """The digest of a model, None if it has more bytes than `largest` and nobody has read it before; OSError if it cannot be read."""
    if isinstance(source, str):
        return file_digests.digest_of(source, largest)
    return digest(source) if len(source) <= largest else None


@functools.cache
def package_digest() -> str:
    """What tells whether all that prepares models is what it was: names, sizes and times of files of this package."""
    files: list[tuple[str, int, int]] = []
    folders, above = [PACKAGE], {os.path.join(PACKAGE, name) for name in ABOVE}
    while folders:
        with os.scandir(folders.pop()) as entries_here:
            for entry in entries_here:
                if not entry.is_dir():
                    status = entry.stat()
                    files.append((entry.path, status.st_size, status.st_mtime_ns))
                elif entry.name != "__pycache__" and entry.path not in above:
                    folders.append(entry.path)
    return digest(repr(sorted(files)).encode())
