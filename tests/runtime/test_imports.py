"""The package's surface: quick to import, free of side effects, complete against onnxruntime's; and under onnxruntime's name."""

from __future__ import annotations

import importlib
import subprocess
import sys

import onnxruntime
import onnxruntime.capi.onnxruntime_inference_collection
import pytest

import sardonyx

LEFT_OUT = {
    "AdapterFormat": "LoRA adapters are not supported yet",
    "LoraAdapter": "LoRA adapters are not supported yet",
}
LEFT_OUT_OF_STATE = LEFT_OUT | {
    "SessionObjectInitializer": "nothing takes one",
    "get_session_initializer": "nothing takes one",
    "get_all_operator_schema": "schemas are asked from the onnx package",
    "schemadef": "schemas are asked from the onnx package",
    "get_all_opkernel_def": "kernels are listed by sardonyx.providers",
    "get_registered_ep_kernel_defs": "kernels are listed by sardonyx.providers",
    "opkernel": "kernels are listed by sardonyx.providers",
    "get_compatibility_info_from_model": "no provider of ours makes compiled models",
    "get_compatibility_info_from_model_bytes": "no provider of ours makes compiled models",
    "get_model_compatibility_for_ep_devices": "no provider of ours makes compiled models",
    "get_hardware_device_ep_incompatibility_details": "no provider of ours makes compiled models",
    "pack_fp4_weights_for_cuda_moe_gemm": "there is no CUDA here",
    "quantize_matmul_2bits": "quantization is a later part",
    "quantize_matmul_4bits": "quantization is a later part",
    "quantize_matmul_8bits": "quantization is a later part",
    "quantize_matmul_bnb4": "quantization is a later part",
    "quantize_qdq_matmul_2bits": "quantization is a later part",
    "quantize_qdq_matmul_4bits": "quantization is a later part",
}


def python(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def public(module: object) -> set[str]:
    return {name for name in dir(module) if not name.startswith("_")}


def test_every_public_name_is_there() -> None:
    from_elsewhere = {"contextlib", "import_capi_exception"}
    wanted = public(onnxruntime) - LEFT_OUT.keys() - from_elsewhere
    loaded_by_tests = {"backend", "datasets", "quantization", "tools", "transformers"}
    missing = {name for name in wanted - loaded_by_tests if not hasattr(sardonyx, name)}
    assert not missing
    assert all(hasattr(sardonyx, name) for name in sardonyx.__all__)
    assert set(sardonyx.__all__) <= set(dir(sardonyx))


def test_the_raw_module_is_complete_but_for_what_is_listed() -> None:
    wanted = public(importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")) - LEFT_OUT_OF_STATE.keys()
    for name in ("onnxruntime_pybind11_state", "_pybind_state"):
        ours = importlib.import_module(f"sardonyx.capi.{name}")
        assert not {name for name in wanted if not hasattr(ours, name)}


@pytest.mark.parametrize(
    "name",
    ["InferenceSession", "IOBinding", "ModelCompiler", "OrtValue", "OrtDevice", "SparseTensor", "SessionOptions", "RunOptions"]
    + ["NodeArg", "OrtEpContextData", "OrtEpContextDataBuffer"],
)
def test_classes_have_all_public_methods(name: str) -> None:
    left_out = {"add_active_adapter"}
    assert not public(getattr(onnxruntime, name)) - public(getattr(sardonyx, name)) - left_out


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nope'"):
        sardonyx.nope  # noqa: B018
    with pytest.raises(AttributeError):
        sardonyx.capi.nope  # noqa: B018


def test_submodules_are_attributes() -> None:
    program = (
        "import sardonyx; sardonyx.capi.onnxruntime_pybind11_state.Fail; sardonyx.onnxruntime_validation.check_distro_info()"
    )
    python(program)
    assert sardonyx.capi.onnxruntime_validation.check_training_module() == (False, "sardonyx", sardonyx.__version__, "")
    assert sardonyx.capi.build_and_package_info.package_name == "sardonyx"


def test_importing_loads_nothing_heavy() -> None:
    loaded = python("import sys; before = set(sys.modules); import sardonyx; print(*sorted(set(sys.modules) - before))").split()
    assert not {name.partition(".")[0] for name in loaded} & {"numpy", "ml_dtypes", "onnx", "logging", "google"}


def test_sessions_do_not_need_onnx_to_be_named() -> None:
    loaded = python("import sys, sardonyx; sardonyx.InferenceSession; print(*sys.modules)").split()
    assert not {name.partition(".")[0] for name in loaded} & {"onnx", "google", "onnxruntime", "scipy", "torch"}


# --- under onnxruntime's name

ALIAS = "import sardonyx; sardonyx.install_as_onnxruntime()\n"


def test_programs_that_import_onnxruntime_get_us() -> None:
    program = """
import importlib.util, sys
import onnxruntime as ort
import onnxruntime.backend, onnxruntime.datasets
from onnxruntime import InferenceSession, SessionOptions
from onnxruntime.capi import _pybind_state as C
from onnxruntime.capi.onnxruntime_inference_collection import OrtValue
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument
import numpy as np
assert ort.InferenceSession is InferenceSession is sardonyx.InferenceSession
assert C.OrtValue is OrtValue is sardonyx.OrtValue and Fail is sardonyx.errors.Fail
assert sys.modules["onnxruntime.capi"] is sardonyx.capi and onnxruntime.backend is sardonyx.backend
assert sardonyx.capi.__spec__.name == sardonyx.capi.__name__ == "sardonyx.capi"
assert tuple(map(int, ort.__version__.split("."))) >= (1, 31) and ort.get_version_string() == ort.__version__
assert sardonyx.__version__ == sardonyx.get_version_string() != ort.__version__ and ort.package_name == "onnxruntime"
assert importlib.util.find_spec("onnxruntime") is not None and importlib.util.find_spec("onnxruntime.no_such_part") is None
assert not [name for name, module in sys.modules.items() if "site-packages/onnxruntime" in (getattr(module, "__file__", None) or "")]
session = InferenceSession(ort.datasets.get_example("mul_1.onnx"), providers=ort.get_available_providers())
print(session.run(None, {"X": np.ones((3, 2), np.float32)})[0].tolist())
sardonyx.install_as_onnxruntime()
"""
    assert python(ALIAS + program) == "[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]\n"


def test_the_alias_comes_too_late_after_the_original() -> None:
    with pytest.raises(RuntimeError, match="onnxruntime is imported already"):
        sardonyx.install_as_onnxruntime()
