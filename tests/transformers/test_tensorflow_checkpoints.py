"""Archives with checkpoints of TensorFlow: fetched once, unpacked safely, and found. tests/slow/test_tensorflow.py reads them."""

from __future__ import annotations

import importlib.util
import io
import tarfile
import types
import zipfile
from pathlib import Path

import pytest

from sardonyx.transformers import convert_tf_models_to_pytorch as conversion
from sardonyx.transformers import tensorflow_models

FILES = {"inner/model.ckpt.index": b"index", "inner/model.ckpt.data-00000-of-00001": b"data", "inner/bert_config.json": b"{}"}


def archive(folder: Path, kind: str, files=FILES) -> Path:
    path = folder / f"checkpoint.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as packed:
            for name, data in files.items():
                packed.writestr(name, data)
        return path
    with tarfile.open(path, "w:gz") as packed:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            packed.addfile(member, io.BytesIO(data))
    return path


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_checkpoints_are_fetched_unpacked_and_found(tmp_path: Path, monkeypatch, kind: str) -> None:
    address = archive(tmp_path, kind).as_uri()
    monkeypatch.setattr(conversion, "TFMODELS", {"tiny": ("Bert", "bert", address)})
    prefix = conversion.download_tf_checkpoint("tiny", str(tmp_path / "models"))
    assert prefix == str(tmp_path / "models" / "tiny" / "inner" / "model.ckpt")
    assert {name: (tmp_path / "models" / "tiny" / name).read_bytes() for name in FILES} == FILES
    (tmp_path / f"checkpoint.{kind}").unlink()
    assert conversion.download_tf_checkpoint("tiny", str(tmp_path / "models")) == prefix  # from what was fetched
    with pytest.raises(ValueError, match="none of the models tiny"):
        conversion.download_tf_checkpoint("huge", str(tmp_path))


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
@pytest.mark.parametrize("name", ["../outside", "inner/../../outside", "/outside", "..\\outside"])
def test_members_outside_of_the_folder_are_refused_with_all_others(tmp_path: Path, kind: str, name: str) -> None:
    path = archive(tmp_path, kind, {"good": b"1", name: b"2"})
    with pytest.raises(ValueError, match="outside of its folder"):
        conversion.safe_extract_archive(str(path), str(tmp_path / "target" / "folder"))
    assert not (tmp_path / "target").exists()


def test_links_and_other_files_are_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "links.tar", "w") as packed:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        packed.addfile(link)
    with pytest.raises(ValueError, match="got 'link'"):
        conversion.safe_extract_archive(str(tmp_path / "links.tar"), str(tmp_path / "target"))
    (tmp_path / "text").write_text("no archive")
    with pytest.raises(ValueError, match="neither a zip nor a tar"):
        conversion.safe_extract_archive(str(tmp_path / "text"), str(tmp_path))
    with pytest.raises(ValueError, match="expected one file .*got none"):
        conversion.get_ckpt_prefix_path(str(tmp_path))


def test_errors_name_what_is_missing(monkeypatch) -> None:
    if importlib.util.find_spec("tensorflow") is None:
        with pytest.raises(ImportError, match="pip install tensorflow"):
            tensorflow_models.tensorflow_package()
    monkeypatch.setattr(tensorflow_models, "tensorflow_package", lambda: None)
    hub = types.SimpleNamespace(__version__="5.1", TFBertModel="there")
    assert tensorflow_models.member_of_hub(hub, "TFBertModel") == "there"
    with pytest.raises(ImportError, match=r"transformers 5\.1 has no TFGPT2Model: .*'transformers<5' tf-keras"):
        tensorflow_models.member_of_hub(hub, "TFGPT2Model")
