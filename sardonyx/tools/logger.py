"""The logger of a tool."""

from __future__ import annotations

import logging


def get_logger(name: str, level: int = logging.DEBUG) -> logging.Logger:
    """A logger that shows records of `level` and above; where they go the application says, or the root logger."""
    logging.basicConfig(format="%(asctime)s %(name)s [%(levelname)s] - %(message)s")
    logger = logging.getLogger(name)
    logger.setLevel(level)
    return logger
