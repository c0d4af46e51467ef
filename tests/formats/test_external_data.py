"""Weights beside the model: where they may lie, and what is refused when the model is loaded."""

from __future__ import annotations

import os

import numpy as np
import pytest
from onnx import TensorProto, helper

from sardonyx import formats
from sardonyx.errors import Fail
from sardonyx.formats import files, mapping
from tests.formats.building import external_model, info, model_of, relu


@pytest.fixture
def folder(tmp_path):
    """model/ with w.bin (8 floats) and a folder of its own, and a file outside."""
    model = tmp_path / "model"
    (model / "inner").mkdir(parents=True)
    for path in (model / "w.bin", model / "inner" / "w.bin", tmp_path / "outside.bin"):
        np.arange(8, dtype=np.float32).tofile(path)
    return model


def load(folder, proto):
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    return formats.load(folder / "m.onnx")


def refused(folder, text, **entries):
    with pytest.raises(Fail, match=text) as caught:
        load(folder, external_model(**entries))
    assert "External data path validation failed for initializer: w. Error: " in str(caught.value)


@pytest.mark.parametrize("threshold", [0, mapping.READ_BELOW])
def test_data_is_found(folder, monkeypatch, threshold):
    monkeypatch.setattr(mapping, "READ_BELOW", threshold)
    for entries, expected in (
        ({"location": "w.bin"}, [0, 1]),
        ({"location": "w.bin", "offset": 8, "length": 8}, [2, 3]),
        ({"location": "inner/w.bin", "offset": 24}, [6, 7]),
    ):
        constant = load(folder, external_model(**entries)).graph.initializers["w"].constant
        assert not constant.is_loaded and constant.external is not None
        assert constant.numpy().tolist() == expected


def test_unaligned_data_is_copied(folder):
    model = load(folder, external_model(location="w.bin", offset=3))
    assert model.graph.initializers["w"].constant.numpy().flags.aligned


def test_packed_types_may_be_external(folder):
    (folder / "w.bin").write_bytes(b"\x21\x03")
    model = load(folder, external_model(location="w.bin", dtype=TensorProto.INT4, dims=(3,)))
    assert model.graph.initializers["w"].constant.numpy().astype(int).tolist() == [1, 2, 3]


def test_a_file_that_is_not_there(folder):
    refused(folder, r"External data path does not exist: .*none.bin", location="none.bin")


def test_a_file_that_is_too_short(folder):
    refused(folder, "offset: 28 size to read: 8 given file_length: 32 are out of bounds", location="w.bin", offset=28)
    refused(folder, "are out of bounds or can not be read in full", location="w.bin", dims=(2**40,))


def test_a_length_that_contradicts_the_dims(folder):
    refused(folder, "Computed size: 8, external_data.length: 12", location="w.bin", length=12)


@pytest.mark.parametrize("entry", ["offset", "length"])
@pytest.mark.parametrize("number", ["-4", "abc", "0x4", "1" * 30, "", "٣"])
def test_offsets_and_lengths_that_are_no_numbers(folder, entry, number):
    refused(folder, f"{entry} is '{number}', which is not a number of bytes", location="w.bin", **{entry: number})


@pytest.mark.parametrize("location", ["/etc/hostname", "\\\\server\\share", "C:\\w.bin", "\\w.bin"])
def test_absolute_paths(folder, location):
    refused(folder, "Absolute path not allowed", location=location)


@pytest.mark.parametrize("location", ["../outside.bin", "inner/../../outside.bin", "inner/../w.bin", "..\\outside.bin"])
def test_paths_that_go_up(folder, location):
    refused(folder, "escapes model directory", location=location)


def test_links_that_lead_out(folder):
    os.symlink(folder.parent / "outside.bin", folder / "link.bin")
    os.symlink(folder.parent, folder / "up")
    refused(folder, "escapes model directory", location="link.bin")
    refused(folder, "escapes model directory", location="up/outside.bin")


def test_links_that_stay_inside(folder):
    os.symlink("w.bin", folder / "link.bin")
    assert load(folder, external_model(location="link.bin")).graph.initializers["w"].constant.numpy().tolist() == [0, 1]


def test_a_cache_that_links_model_and_data_to_a_folder_of_blobs(folder):
    blobs = folder.parent / "blobs"
    blobs.mkdir()
    (blobs / "aa").write_bytes(external_model(location="m.data").SerializeToString())
    (folder / "w.bin").rename(blobs / "bb")
    os.symlink("../blobs/aa", folder / "m.onnx")
    os.symlink("../blobs/bb", folder / "m.data")
    assert formats.load(folder / "m.onnx").graph.initializers["w"].constant.numpy().tolist() == [0, 1]


def test_the_mark_of_data_in_memory(folder):
    refused(folder, "data in memory", location="*/_ORT_MEM_ADDR_/*", offset=4096, length=8)


@pytest.mark.parametrize("location", ["", "inner", "a\0b", "w.bin/x"])
def test_what_is_no_file(folder, location):
    refused(folder, "Missing 'location'|cannot be read|is no path|does not exist", location=location)


def test_strings_cannot_be_external(folder):
    refused(folder, "strings cannot be external", location="w.bin", dtype=TensorProto.STRING)


def test_bytes_need_a_folder(folder):
    data = external_model(location="w.bin").SerializeToString()
    with pytest.raises(
        Fail, match=r"initializer: w. Error: the model was given as bytes, so the folder .* 'w.bin' is not known"
    ):
        formats.load(data)
    assert formats.load(data, folder=folder).graph.initializers["w"].constant.numpy().tolist() == [0, 1]


def test_a_file_that_shrinks_later_is_an_error_and_no_crash(folder):
    model = load(folder, external_model(location="w.bin", offset=16))
    (folder / "w.bin").write_bytes(b"1234")
    with pytest.raises(Fail, match="initializer: w: .* has changed since it was opened"):
        model.graph.initializers["w"].constant.numpy()


def test_a_file_that_disappears_later_can_still_be_read(folder):
    model = load(folder, external_model(location="w.bin"))
    (folder / "w.bin").unlink()
    assert model.graph.initializers["w"].constant.numpy().tolist() == [0, 1]


def test_without_descriptors_to_spare_a_file_that_disappears_is_an_error(folder, monkeypatch):
    monkeypatch.setattr(files, "_may_stay_open", lambda descriptor, size: False)
    model = load(folder, external_model(location="w.bin"))
    constant = model.graph.initializers["w"].constant
    assert constant.peek().tolist() == [0, 1]
    (folder / "w.bin").unlink()
    with pytest.raises(Fail, match=r"initializer: w: .* has changed since it was opened"):
        constant.numpy()


def test_attributes_and_subgraphs_may_have_external_data(folder):
    proto = external_model(location="w.bin").graph.initializer[0]
    constant = helper.make_node("Constant", [], ["c"])
    constant.attribute.append(helper.make_attribute("value", proto))
    branch = helper.make_graph([constant, helper.make_node("Add", ["c", "w"], ["z"])], "b", [], [info("z")], [proto])
    node = helper.make_node("If", ["q"], ["y"], then_branch=branch, else_branch=branch)
    model = load(folder, model_of([node], [info("q", [], TensorProto.BOOL)]))
    inner = next(next(iter(model.graph.nodes)).subgraphs)
    assert inner.initializers["w"].constant.numpy().tolist() == [0, 1]
    assert next(iter(inner.nodes)).attribute("value").numpy().tolist() == [0, 1]
    proto.external_data[0].value = "none.bin"
    constant.attribute[0].t.CopyFrom(proto)
    with pytest.raises(Fail, match="failed for attribute 'value' of Constant 'c'. Error: External data path does not exist"):
        load(folder, model_of([constant, relu("c")], []))
