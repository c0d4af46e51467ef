"""What the original's packaging writes down about itself."""

from sardonyx import __version__, cuda_version, package_name

__all__ = ["__version__", "cuda_version", "package_name"]
