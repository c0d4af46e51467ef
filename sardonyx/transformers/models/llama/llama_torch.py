"""Llama and its kind as modules of PyTorch, for exports and comparisons."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import Any

from sardonyx.transformers.models.llama.dist_settings import get_size
from sardonyx.transformers.onnx_exporter import transformers_package

logger = logging.getLogger(__name__)


def setup_torch_model(
    args: argparse.Namespace, location: str, auth: bool, torch_dtype: Any = None, device: Any = None
) -> tuple[Any, Any]:
    """The configuration and the module of a model, which is evaluated and not trained. Weights are float32 unless a type is given.

    `auth` also allows that the model brings code of its own.
    """
    if get_size() > 1:
        raise NotImplementedError("a model is not split among processes here; run the program in one")
    hub = transformers_package()
    Path(args.cache_dir).mkdir(parents=True, exist_ok=True)
    options = {"cache_dir": args.cache_dir, "trust_remote_code": auth}
    config = hub.AutoConfig.from_pretrained(location, **options)
    config.use_cache = True
    loader = hub.AutoModelForCausalLM
    model = loader.from_pretrained(location, config=config, attn_implementation="eager", **options)
    model = model.float() if torch_dtype is None else model.to(torch_dtype)
    if device:
        model.to(device)
    logger.info("loaded %s", location)
    return config, model.eval().requires_grad_(False)
