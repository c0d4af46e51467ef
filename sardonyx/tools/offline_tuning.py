"""Results of tuning that a model carries: `python -m sardonyx.tools.offline_tuning extract|embed|merge|pprint …`.

Our providers tune nothing; the tool handles what others have found.
"""

from __future__ import annotations

import argparse
import json
import logging
import pprint
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto

LOG = logging.getLogger(__name__)
KEY = "tuning_results"
TuningResults = dict[str, Any]


def extract(model: ModelProto) -> Any:
    """The results that a model carries, None if there are none."""
    texts = [entry.value for entry in model.metadata_props if entry.key == KEY]
    return json.loads(texts[0]) if texts else None


def embed(model: ModelProto, tuning_results: list[TuningResults], overwrite: bool = False) -> ModelProto:
    """Let the model carry results; those that are there stay unless `overwrite` says otherwise."""
    entry = next((entry for entry in model.metadata_props if entry.key == KEY), None)
    if entry is not None and not overwrite:
        LOG.warning("The model carries tuning results already; they stay.")
        return model
    if entry is None:
        entry = model.metadata_props.add()
        entry.key = KEY
    entry.value = json.dumps(tuning_results)
    return model


class Merger:
    """Joins results; of two for one kernel the first counts."""

    def __init__(self) -> None:
        self._results: dict[tuple[str, str], dict[str, dict[str, int]]] = {}

    def merge(self, tuning_results: list[TuningResults]) -> None:
        for result in tuning_results:
            key = result["ep"], json.dumps(result["validators"], sort_keys=True)
            known = self._results.setdefault(key, {})
            for op, found in result["results"].items():
                known[op] = {**found, **known.get(op, {})}

    def get_merged(self) -> list[TuningResults]:
        return [
            {"ep": ep, "validators": json.loads(validators), "results": results}
            for (ep, validators), results in self._results.items()
        ]


def parse_args(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="cmd", required=True, help="what to do")
    extracting = commands.add_parser("extract", help="write the results that a model carries to a file")
    extracting.add_argument("input_onnx", type=Path)
    extracting.add_argument("output_json", type=Path)
    embedding = commands.add_parser("embed", help="let a model carry results")
    embedding.add_argument("--force", "-f", action="store_true", help="replace those that are there")
    embedding.add_argument("output_onnx", type=Path)
    embedding.add_argument("input_onnx", type=Path)
    embedding.add_argument("input_json", type=Path, nargs="+")
    merging = commands.add_parser("merge", help="join files of results")
    merging.add_argument("output_json", type=Path)
    merging.add_argument("input_json", type=Path, nargs="+")
    printing = commands.add_parser("pprint", help="print results")
    printing.add_argument("json_or_onnx", type=Path)
    return parser.parse_args(arguments)


def _merged(paths: Sequence[Path]) -> list[TuningResults]:
    merger = Merger()
    for path in paths:
        merger.merge(json.loads(path.read_text()))
    return merger.get_merged()


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_args(arguments)
    match options.cmd:
        case "extract":
            results = extract(onnx.load_model(str(options.input_onnx)))
            if results is None:
                sys.exit(f"{options.input_onnx} carries no tuning results")
            options.output_json.write_text(json.dumps(results))
        case "embed":
            model = onnx.load_model(str(options.input_onnx))
            onnx.save_model(embed(model, _merged(options.input_json), options.force), str(options.output_onnx))
        case "merge":
            options.output_json.write_text(json.dumps(_merged(options.input_json)))
        case "pprint":
            path = options.json_or_onnx
            is_model = path.suffix.lower() == ".onnx"
            pprint.pprint(extract(onnx.load_model(str(path))) if is_model else json.loads(path.read_text()))


if __name__ == "__main__":
    main()
