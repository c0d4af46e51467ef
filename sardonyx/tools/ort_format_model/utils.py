"""Lists of the ops that models in the ORT format need, for cut-down builds."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable

from sardonyx import formats
from sardonyx.runtime.saving.required_operators import RequiredOperators


def create_config_from_models(
    model_files: Iterable[pathlib.Path], output_file: pathlib.Path, enable_type_reduction: bool
) -> None:
    """Write what all these models need together."""
    paths = list(model_files)
    required = RequiredOperators()
    for path in paths:
        required.add(formats.load(path), with_types=enable_type_reduction)
    pathlib.Path(output_file).write_text(required.text(paths))
