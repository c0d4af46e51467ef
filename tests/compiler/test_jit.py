"""Texts become machine code: many at once, and what LLVM refuses is an error of the text alone."""

from __future__ import annotations

import ctypes
import mmap
import threading
from pathlib import Path

import pytest
from llvmlite.binding import ffi

from sardonyx.compiler import linking
from sardonyx.compiler.cache import ObjectCache
from sardonyx.compiler.jit import Jit, Kernel, _unlocked, host
from tests.patience import HANG_SECONDS


def kernel(number: int, body: str = "") -> Kernel:
    text = f"define i64 @kernel(i64 %x) {{\n{body}  %y = add i64 %x, {number}\n  ret i64 %y\n}}\n"
    return Kernel(f"add {number}", text)


@pytest.fixture
def compiler(tmp_path: Path) -> Jit:
    return Jit(host(), ObjectCache(tmp_path, 1 << 24))


def call(address: int, number: int) -> int:
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)(number)


def test_many_texts_are_compiled_side_by_side(compiler: Jit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sardonyx.compiler.pool.available_threads", lambda: 8)
    addresses = compiler.addresses([kernel(number) for number in range(40)])
    assert [call(address, 2) for address in addresses] == list(range(2, 42))
    assert compiler.compilations == 40


def test_code_is_emitted_while_another_thread_is_inside_llvm(compiler: Jit) -> None:
    machine = compiler._machine()
    module = compiler.optimized(kernel(100), machine)
    emit, problem, found = _unlocked("LLVMPY_TargetMachineEmitToMemory"), ffi.OutputString(), []
    with ffi.lib._lock:
        thread = threading.Thread(target=lambda: found.append(emit(machine, module, 1, problem)))
        thread.start()
        thread.join(HANG_SECONDS)
        assert found and found[0]
    ffi.lib.LLVMPY_DisposeMemoryBuffer(found[0])


def test_a_text_that_is_no_code_is_refused(compiler: Jit) -> None:
    with pytest.raises(RuntimeError, match="use of undefined value"):
        compiler.objects([kernel(number, "  %z = add i64 %none, 1\n" if number == 3 else "") for number in range(6)])
    assert call(compiler.addresses([kernel(7)])[0], 1) == 8


def is_code(address: int) -> bool:
    """Whether code may be run at an address."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        extent, rights, *_ = line.split()
        start, end = (int(number, 16) for number in extent.split("-"))
        if start <= address < end:
            return "x" in rights
    return False


@pytest.mark.skipif(not linking.can_map(), reason="LLVM does not give code back where it links")
def test_code_stays_for_as_long_as_somebody_holds_it(compiler: Jit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sardonyx.compiler.jit.RECENT_BYTES", 0)
    first = compiler.load([kernel(1), kernel(2)])
    second = compiler.load([kernel(2), kernel(3)])
    assert second.addresses[0] == first.addresses[1]
    (one, two), (_, three) = first.addresses, second.addresses
    del first
    assert is_code(one) and call(two, 5) == 7
    del second
    assert not any(map(is_code, (one, two, three)))
    again = compiler.load([kernel(1)])
    assert call(again.addresses[0], 1) == 2 and compiler.compilations == 3


@pytest.mark.skipif(not linking.can_map(), reason="LLVM does not give code back where it links")
def test_a_bounded_amount_of_code_waits_for_the_next_session(compiler: Jit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sardonyx.compiler.jit.RECENT_BYTES", 2 * mmap.PAGESIZE)
    addresses = [compiler.load([kernel(number)]).addresses[0] for number in range(4)]
    assert [kernel(number).symbol in compiler._code for number in range(4)] == [False, False, True, True]
    assert compiler.load([kernel(3)]).addresses == addresses[3:]


def test_addresses_that_were_asked_for_stay(compiler: Jit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sardonyx.compiler.jit.RECENT_BYTES", 0)
    (address,) = compiler.addresses([kernel(9)])
    compiler.load([kernel(10)])
    assert call(address, 1) == 10
