"""Names of the inputs that a PyTorch module takes, for its export."""

from __future__ import annotations

import inspect
from typing import Any


def infer_input_info(module: Any, *inputs: Any, **kwargs: Any) -> tuple[list[str], tuple[Any, ...]]:
    """The names of the given arguments in the order of `forward`, and the arguments in that order; None stands for what is left out."""
    parameters = list(inspect.signature(module.forward).parameters.values())
    given = {parameter.name: value for parameter, value in zip(parameters, inputs, strict=False)} | kwargs
    known = [parameter.name for parameter in parameters]
    unknown = [name for name in kwargs if name not in known]
    if unknown or len(inputs) > len(parameters):
        raise ValueError(f"forward takes {', '.join(known)}, and was given {', '.join(unknown) or len(inputs)} arguments")
    last = max((known.index(name) for name in given), default=-1)
    return [name for name in known if name in given], tuple(given.get(name) for name in known[: last + 1])
