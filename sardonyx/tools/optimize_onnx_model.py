"""Writes a model as a session has it: `python -m sardonyx.tools.optimize_onnx_model --opt_level basic MODEL NEW`."""

from __future__ import annotations

import argparse
import pathlib

from sardonyx.tools.onnx_model_utils import LEVELS, get_optimization_level, optimize_model

SEVERITIES = {"debug": 0, "info": 1, "warning": 2, "error": 3}


def optimize_model_helper() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description="Optimize a model up to a level.")
    parser.add_argument("--opt_level", default="basic", choices=LEVELS, help="how far (default basic)")
    parser.add_argument("--log_level", default="error", choices=SEVERITIES, help="messages from this severity on")
    parser.add_argument("input_model", type=pathlib.Path, help="path of the model")
    parser.add_argument("output_model", type=pathlib.Path, help="path of the new model")
    options = parser.parse_args()
    level = get_optimization_level(options.opt_level)
    optimize_model(options.input_model, options.output_model, level, SEVERITIES[options.log_level])


if __name__ == "__main__":
    optimize_model_helper()
