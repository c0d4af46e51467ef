"""Whether a model suits the processors of phones: `python -m sardonyx.tools.check_onnx_model_mobile_usability MODEL`."""

from __future__ import annotations

import argparse
import logging
import pathlib

from sardonyx.tools.mobile_helpers import usability_checker


def check_usability() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description="Tell whether a model suits the processors of phones.")
    parser.add_argument("--log_level", choices=["debug", "info"], default="info", help="debug names the nodes of each part")
    parser.add_argument("model_path", type=pathlib.Path, help="the model")
    arguments = parser.parse_args()
    logging.basicConfig(format="%(message)s")
    logger = logging.getLogger("check_usability")
    logger.setLevel(getattr(logging, arguments.log_level.upper()))
    if usability_checker.analyze_model(arguments.model_path, skip_optimize=False, logger=logger):
        logger.info("Measure the model with that provider and with the CPU on the phone: one of them is faster.")
    else:
        logger.info("The CPU is the best choice for this model.")


if __name__ == "__main__":
    check_usability()
