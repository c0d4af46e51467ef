"""A module for each table, struct and enum of the ORT format, with a class of the same name: `fbs.Model.Model.GetRootAs(buffer)`."""

from __future__ import annotations

import sys
from types import ModuleType

from sardonyx.tools.ort_format_model.ort_flatbuffers_py.readers import CLASSES


def _module(name: str, member: type) -> ModuleType:
    """The module that `import` finds under the name of a class."""
    module = ModuleType(f"{__name__}.{name}", f"The class {name}.")
    setattr(module, name, member)
    sys.modules[module.__name__] = module
    return module


globals().update({name: _module(name, member) for name, member in CLASSES.items()})
__all__ = list(CLASSES)
