"""Reads which ops a cut-down build is to have."""

from __future__ import annotations

import pathlib

from sardonyx.runtime.saving.required_operators import ONNX_DOMAIN, RequiredOperators


def parse_config(
    config_file: str, enable_type_reduction: bool = False
) -> tuple[dict[str, dict[int, set[str]]] | None, RequiredOperators | None]:
    """Names of ops by domain and opset, None if all are needed; and, if asked for, all that the file says of types."""
    required = RequiredOperators.parse(pathlib.Path(config_file).read_text(), with_types=enable_type_reduction)
    operators: dict[str, dict[int, set[str]]] = {}
    for (domain, opset), names in required.operators.items():
        operators.setdefault(domain or ONNX_DOMAIN, {})[opset] = set(names)
    are_all = not operators and required.all_if_empty
    return None if are_all else operators, required if enable_type_reduction else None
