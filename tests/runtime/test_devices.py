"""Devices, memory descriptions and the functions of the process."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import sardonyx
from tests.runtime import models
from tests.runtime.side_by_side import BOTH, assert_same

BOTH_APIS = pytest.mark.parametrize("ort", BOTH, ids=lambda module: module.__name__)


@pytest.mark.parametrize("name", ["cpu", "cuda", "gpu", "dml", "npu", "cann", "webgpu", "foo", "CPU"])
def test_devices_by_name(name: str) -> None:
    for question in ("device_type", "device_id", "device_vendor_id", "device_mem_type"):
        assert_same(lambda ort, question=question: getattr(ort.OrtDevice.make(name, 1), question)())


def test_device_numbers() -> None:
    for name in ("cpu", "cuda", "gpu", "fpga", "npu", "cann", "dml", "webgpu", "default_memory"):
        assert_same(lambda ort, name=name: getattr(ort.capi.onnxruntime_pybind11_state.OrtDevice, name)())
    assert_same(lambda ort: ort.capi.onnxruntime_pybind11_state.OrtDevice(1, 0, 0x10DE, 2).vendor_id())
    assert_same(lambda ort: ort.OrtDevice.make("gpu", 0, 0x1002).device_vendor_id())
    assert_same(lambda ort: dict(ort.OrtDeviceVendorId.__members__))


def memory(ort: ModuleType, name: str) -> Any:
    return ort.OrtMemoryInfo(name, ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)


@pytest.mark.parametrize("name", ["Cpu", "Cuda", "CudaPinned", "DML", "Hip", "cpu", "foo"])
def test_memory_infos(name: str) -> None:
    for question in ("name", "device_id", "mem_type", "allocator_type", "device_vendor_id"):
        assert_same(lambda ort, question=question: repr(getattr(memory(ort, name), question)))


@BOTH_APIS
def test_memory_of_any_name(ort: ModuleType) -> None:
    info = ort.OrtMemoryInfo.create_v2(
        "Mine",
        ort.OrtMemoryInfoDeviceType.GPU,
        5,
        1,
        ort.OrtDeviceMemoryType.HOST_ACCESSIBLE,
        16,
        ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR,
    )
    assert (info.name, info.device_id, info.device_vendor_id) == ("Mine", 1, 5)
    assert info.device_mem_type == ort.OrtDeviceMemoryType.HOST_ACCESSIBLE


def test_arena_settings() -> None:
    assert_same(lambda ort: ort.OrtArenaCfg({"max_mem": 5}).max_mem)
    assert_same(lambda ort: ort.OrtArenaCfg({"max_mem": 5}).arena_extend_strategy)
    assert_same(lambda ort: ort.OrtArenaCfg({"foo": 5}))
    with pytest.raises(RuntimeError, match="must be an integer"):
        sardonyx.OrtArenaCfg({"max_mem": "5"})
    assert sardonyx.OrtArenaCfg(1, 2, 3, 4).max_dead_bytes_per_chunk == 4


@BOTH_APIS
def test_allocators_can_be_registered(ort: ModuleType) -> None:
    ort.create_and_register_allocator(memory(ort, "Cpu"), None)
    options = ort.SessionOptions()
    options.add_session_config_entry("session.use_env_allocators", "1")
    ort.InferenceSession(models.DOUBLE, options)


@BOTH_APIS
def test_the_cpu_is_a_device_of_a_provider(ort: ModuleType) -> None:
    device = next(device for device in ort.get_ep_devices() if device.ep_name == "CPUExecutionProvider")
    assert device.device.type == ort.OrtHardwareDeviceType.CPU
    assert "version" in device.ep_metadata and device.ep_options == {}
    assert device.memory_info(ort.OrtDeviceMemoryType.DEFAULT) is None
    with pytest.raises(RuntimeError, match="does not use DEFAULT memory of a non-CPU device"):
        device.create_sync_stream()


def test_functions_of_the_process() -> None:
    assert_same(lambda ort: ort.get_all_providers())
    assert_same(lambda ort: ort.get_device())
    assert_same(lambda ort: ort.has_collective_ops())
    assert_same(lambda ort: [ort.enable_telemetry_events(), ort.disable_telemetry_events(), ort.preload_dlls()])
    assert_same(lambda ort: ort.unregister_execution_provider_library("a"))
    assert_same(lambda ort: ort.set_seed("a"))
    assert sardonyx.get_available_providers()[-1] == "CPUExecutionProvider"
    assert sardonyx.get_version_string() == sardonyx.__version__
    assert sardonyx.get_build_info().startswith("ORT Build Info:")
    with pytest.raises(sardonyx.errors.Fail, match="Failed to load library .*nope.so"):
        sardonyx.register_execution_provider_library("a", "nope.so")


def test_debug_info(capsys: pytest.CaptureFixture[str]) -> None:
    sardonyx.print_debug_info()
    assert sardonyx.__version__ in capsys.readouterr().out


@BOTH_APIS
def test_the_seed_makes_random_ops_repeatable(ort: ModuleType) -> None:
    model = models.parsed("g () => (float[4] y) { y = RandomNormal<shape = [4]>() }")
    runs = []
    for _ in range(2):
        ort.set_seed(7)
        runs.append(ort.InferenceSession(model).run(None, {})[0])
    np.testing.assert_array_equal(*runs)
    ort.set_seed(8)
    assert not np.array_equal(ort.InferenceSession(model).run(None, {})[0], runs[0])
