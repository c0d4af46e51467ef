"""What kernels derive from constant operands is made once, and forgotten when there is too much of it."""

import numpy as np
import pytest

from sardonyx.providers.cpu import prepared as module
from sardonyx.providers.cpu.prepared import prepared, unchanging


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    monkeypatch.setattr(module, "_kept", module.OrderedDict())


def test_the_same_operands_are_prepared_once():
    calls = []

    def make(*operands):
        calls.append(operands)
        return len(calls)

    keys, values = [1, 2], [3]
    assert prepared(make, keys, values) == prepared(make, keys, values) == 1
    assert prepared(make, list(keys), values) == 2  # equal, but another object


def test_the_result_not_used_for_longest_is_forgotten(monkeypatch):
    monkeypatch.setattr(module, "CAPACITY", 20)
    first, second, third = [1], [2], [3]
    for operand in (first, second):
        prepared(tuple, operand, size=10)
    prepared(tuple, first, size=10)
    prepared(tuple, third, size=10)
    kept = [operands[0] for operands, _, _ in module._kept.values()]
    assert [operand is first or operand is third for operand in kept] == [True, True]


def test_arrays_that_somebody_can_write_into_may_change():
    array = np.zeros(3)
    assert not unchanging(array)
    array.flags.writeable = False
    assert unchanging(array, None)
    assert not unchanging(array, np.zeros(3))
