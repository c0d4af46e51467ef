"""The questions that the original asks about its own package and system. Nothing depends on the answers here."""

from __future__ import annotations

from sardonyx import __version__, cuda_version, package_name


def check_distro_info() -> None:
    """Every system that Python and NumPy run on will do."""


def get_package_name_and_version_info() -> tuple[str, str, str]:
    return package_name, __version__, cuda_version


def check_training_module() -> tuple[bool, str, str, str]:
    """Whether training is part of the package, then its name, version and CUDA version."""
    return (False, *get_package_name_and_version_info())
