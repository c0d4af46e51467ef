"""The memory of large outputs is used again, but never while somebody can still see it; and not more of it waits than one run needs."""

from __future__ import annotations

import gc

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sardonyx.providers.native.execution.outputs import LARGE_BYTES, Outputs, OutputShapes, block_size
from tests.providers.native.agreement import native_plan, programs

F32 = np.dtype(np.float32)


def arrays(memory: Outputs, *lengths: int) -> list[np.ndarray]:
    return memory.empty(OutputShapes([(length,) for length in lengths], [F32] * len(lengths)))


def waiting(memory: Outputs) -> int:
    return sum(size * len(shelf.blocks) for size, shelf in memory._shelves.items())


def places(given: list[np.ndarray]) -> set[int]:
    return {array.ctypes.data for array in given}


@given(st.integers(0, 1 << 40))
def test_blocks_hold_what_they_are_for_and_little_more(size: int) -> None:
    block = block_size(size)
    assert block == 0 if size < LARGE_BYTES else size <= block <= size + max(size // 8, 4096)


def test_memory_comes_back_when_nothing_refers_to_it() -> None:
    memory = Outputs()
    first = arrays(memory, 100_000, 100_000, 10)
    seen = places(first[:2])
    assert all(place % 64 == 0 for place in seen)
    part = first[0][5:10]
    part[...] = 7
    del first
    again = arrays(memory, 100_000, 100_000)
    assert len(places(again) & seen) == 1
    again[0][...] = again[1][...] = 0
    assert (part == 7).all()


def test_outputs_that_grow_find_the_memory_of_smaller_ones() -> None:
    memory = Outputs()
    seen = set()
    past = arrays(memory, *[65_600] * 4)
    for length in range(65_600, 65_700):
        seen |= places(past)
        past = arrays(memory, *[length] * 4)
    assert len(seen) == 8


def test_no_more_waits_than_the_largest_run_had() -> None:
    memory = Outputs()
    for length in range(40_000, 400_000, 3_000):
        arrays(memory, length, length)
        assert waiting(memory) <= 2 * block_size(4 * length)
    held = [arrays(memory, length) for length in (50_000, 400_000) for _ in range(40)]
    del held
    gc.collect()
    assert 0 < waiting(memory) <= memory._most == 2 * block_size(4 * 399_999)


def test_runs_of_two_shapes_by_turns_keep_the_memory_of_the_larger() -> None:
    memory = Outputs()
    large = places(arrays(memory, 400_000, 400_000, 400_000))
    for _ in range(3):
        arrays(memory, 50_000)
        assert len(places(arrays(memory, 400_000, 400_000, 400_000)) & large) >= 2


def test_targets_that_fit_are_written() -> None:
    plan = native_plan("g (float[n] x) => (float[n] y, float[n] z) { y = Exp(x) z = Neg(y) }")
    (program,) = programs(plan)
    x, target = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    y, z = program([x], destinations=[target, np.zeros(6, np.float32)])
    assert y is target and z.shape == (5,)
    np.testing.assert_allclose(target, np.exp(x), rtol=1e-6)
    np.testing.assert_array_equal(z, -target)
