"""The page of names: all of onnxruntime's are there, or have a reason not to be."""

from __future__ import annotations

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state

from docs.pages import namespace


def test_every_name_is_there_or_has_a_reason():
    assert list(namespace.unexplained()) == []


def test_every_reason_explains_something():
    assert list(namespace.idle()) == []


def test_the_list_of_names_is_that_of_the_installed_onnxruntime():
    names = namespace.originals()
    for path, module in ((".", onnxruntime), ("capi.onnxruntime_pybind11_state", onnxruntime_pybind11_state)):
        assert set(names[path]) <= set(dir(module))
    public = {name for name in dir(onnxruntime_pybind11_state) if not name.startswith("_")}
    assert set(names["capi.onnxruntime_pybind11_state"]) == public
    assert len(names) > 300 and sum(map(len, names.values())) > 1400
