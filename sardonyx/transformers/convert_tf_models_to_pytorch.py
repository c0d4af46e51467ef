"""Checkpoints of BERT and ALBERT that TensorFlow wrote, as modules of PyTorch: fetched, unpacked, and read.

TensorFlow reads the checkpoints, and version 4 of the package transformers knows where its weights belong.
"""

from __future__ import annotations

import importlib
import logging
import os
import shutil
import tarfile
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sardonyx.transformers.tensorflow_models import member_of_hub, tensorflow_package
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch, transformers_package

logger = logging.getLogger(__name__)
BERT, ALBERT = "https://storage.googleapis.com/bert_models", "https://storage.googleapis.com/albert_models"
TFMODELS: dict[str, tuple[str, str, str]] = {
    "bert-base-uncased": ("Bert", "bert", f"{BERT}/2018_10_18/uncased_L-12_H-768_A-12.zip"),
    "bert-base-cased": ("Bert", "bert", f"{BERT}/2018_10_18/cased_L-12_H-768_A-12.zip"),
    "bert-large-uncased": ("Bert", "bert", f"{BERT}/2018_10_18/uncased_L-24_H-1024_A-16.zip"),
    "bert-large-cased": ("Bert", "bert", f"{BERT}/2018_10_18/cased_L-24_H-1024_A-16.zip"),
    **{
        f"albert-{size}-{version}": ("Albert", "albert", f"{ALBERT}/albert_{size}_{version}.tar.gz")
        for size in ("base", "large", "xlarge", "xxlarge")
        for version in ("v1", "v2")
    },
}
"""By name: how classes of the transformers package begin, what its loader is called, and where the checkpoint is."""


def download_compressed_file(tf_ckpt_url: str, ckpt_dir: str) -> str:
    """Fetch a file into a folder, unless it is there; gives its path."""
    folder = Path(ckpt_dir)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / Path(urllib.parse.urlparse(tf_ckpt_url).path).name
    if not path.exists():
        part = path.with_name(f"{path.name}.part")
        with urllib.request.urlopen(tf_ckpt_url) as response, open(part, "wb") as file:
            shutil.copyfileobj(response, file)
        part.replace(path)
    return str(path)


def safe_extract_archive(archive_path: str, extract_dir: str) -> None:
    """Unpack an archive of either kind; one with links, or with members outside of the folder, is refused whole."""
    if zipfile.is_zipfile(archive_path):
        with zipfile.ZipFile(archive_path) as archive:
            _require_inside(extract_dir, archive.namelist())
            archive.extractall(extract_dir)
        return
    if not tarfile.is_tarfile(archive_path):
        raise ValueError(f"{archive_path} is neither a zip nor a tar archive")
    with tarfile.open(archive_path) as tar:
        members = tar.getmembers()
        _require_inside(extract_dir, [member.name for member in members])
        others = [member.name for member in members if not (member.isfile() or member.isdir())]
        if others:
            raise ValueError(f"{archive_path}: expected files and folders alone, got {others[0]!r}")
        for member in members:
            _extract(tar, member, Path(extract_dir))


def _require_inside(folder: str, names: list[str]) -> None:
    root = Path(folder).resolve()
    for name in names:
        if not (root / name.replace("\\", "/")).resolve().is_relative_to(root):
            raise ValueError(f"the archive has a member outside of its folder, {name!r}")


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Write a file or folder as data: owners, times and permissions of the archive do not count."""
    path = folder / member.name
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    source = tar.extractfile(member)
    if source is not None:
        with source, open(path, "wb") as target:
            shutil.copyfileobj(source, target)


def get_ckpt_prefix_path(ckpt_dir: str) -> str:
    """The path of the one checkpoint below a folder, without the ending of its index."""
    found = sorted(Path(ckpt_dir).rglob("*.index"))
    if len(found) != 1:
        raise ValueError(f"{ckpt_dir}: expected one file *.index, got {[path.name for path in found] or 'none'}")
    return str(found[0].with_suffix(""))


def download_tf_checkpoint(model_name: str, tf_models_dir: str = "tf_models") -> str:
    """Fetch and unpack a checkpoint; gives its path as `get_ckpt_prefix_path` does."""
    folder = os.path.join(tf_models_dir, model_name)
    safe_extract_archive(download_compressed_file(_entry(model_name)[2], folder), folder)
    return get_ckpt_prefix_path(folder)


def _entry(model_name: str) -> tuple[str, str, str]:
    if model_name not in TFMODELS:
        raise ValueError(f"{model_name} is none of the models {', '.join(TFMODELS)}")
    return TFMODELS[model_name]


def init_pytorch_model(model_name: str, tf_checkpoint_path: str) -> tuple[Any, Any]:
    """(configuration, module with random weights), as the file of settings beside a checkpoint has them."""
    family = _entry(model_name)[0]
    settings = sorted(Path(tf_checkpoint_path).parent.glob("*config*.json"))
    if len(settings) != 1:
        raise ValueError(f"expected one file *config*.json beside {tf_checkpoint_path}, got {len(settings)}")
    hub = transformers_package()
    config = getattr(hub, f"{family}Config").from_json_file(str(settings[0]))
    return config, getattr(hub, f"{family}ForPreTraining")(config)


def convert_tf_checkpoint_to_pytorch(
    model_name: str, config: Any, init_model: Any, tf_checkpoint_path: str, is_tf2: bool
) -> Any:
    """Load the weights of a checkpoint into a module, and give that, ready to be run."""
    load = _loader(_entry(model_name)[1], is_tf2)
    load(init_model, config, tf_checkpoint_path)
    return init_model.eval()


def _loader(kind: str, is_tf2: bool) -> Callable[[Any, Any, str], Any]:
    """The function of the transformers package that loads weights of version 1 or 2 of TensorFlow."""
    hub = transformers_package()
    if not is_tf2:
        loader: Callable[[Any, Any, str], Any] = member_of_hub(hub, f"load_tf_weights_in_{kind}")
        return loader
    tensorflow_package()
    module = f"transformers.models.{kind}.convert_{kind}_original_tf2_checkpoint_to_pytorch"
    try:
        loader = getattr(importlib.import_module(module), f"load_tf2_weights_in_{kind}")
    except ImportError as error:
        raise ImportError(f"transformers {hub.__version__} loads no checkpoint of TensorFlow 2 of {kind}") from error
    return loader


def tf2pt_pipeline(model_name: str, is_tf2: bool = False) -> tuple[Any, Any]:
    """(configuration, module) of a checkpoint, which is fetched."""
    _loader(_entry(model_name)[1], is_tf2)  # before hundreds of megabytes
    path = download_tf_checkpoint(model_name)
    config, model = init_pytorch_model(model_name, path)
    return config, convert_tf_checkpoint_to_pytorch(model_name, config, model, path, is_tf2)


def tf2pt_pipeline_test() -> dict[str, float]:
    """How far outputs of converted modules are from those of the hub's modules of the same names, at most; it is in the log, too."""
    hub, torch = transformers_package(), loaded_torch()
    distances = {}
    for name, (family, _, _) in TFMODELS.items():
        config, model = tf2pt_pipeline(name)
        other = getattr(hub, f"{family}ForPreTraining").from_pretrained(name).eval()
        words = torch.randint(config.vocab_size, (1, 16))
        with torch.no_grad():
            distances[name] = float((model(words)[0] - other(words)[0]).abs().max())
        logger.info("%s: outputs differ by up to %g", name, distances[name])
    return distances


if __name__ == "__main__":
    tf2pt_pipeline_test()
