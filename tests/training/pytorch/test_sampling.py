"""Samplers that deal samples of equal complexity to all processes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is the extra 'train'; `make test-training` runs these tests")

from sardonyx.training.utils.data import LoadBalancingDistributedBatchSampler, LoadBalancingDistributedSampler  # noqa: E402

LENGTHS = np.random.default_rng(0).permutation(23).tolist()


def samplers(count: int = 4, **options: Any) -> list[LoadBalancingDistributedSampler]:
    """One for each process."""
    given = {"complexity_fn": lambda sample: sample, "world_size": count, **options}
    return [LoadBalancingDistributedSampler(LENGTHS, rank=rank, **given) for rank in range(count)]


def dealt(**options: Any) -> list[list[int]]:
    """The complexities that all processes have at a time."""
    return [[LENGTHS[number] for number in row] for row in zip(*samplers(**options), strict=True)]


def test_processes_get_samples_of_equal_complexity_and_miss_none() -> None:
    rows = dealt()
    assert len(rows) == 6 and {length for row in rows for length in row} == set(range(23))
    expected = [[start, start + 1, start + 2, start + 3] for start in range(0, 20, 4)] + [
        [20, 21, 22, 0]
    ]  # the first one again
    assert sorted(rows) == sorted(expected) and rows != expected
    assert dealt(shuffle=False) == expected
    assert dealt(drop_last=True, shuffle=False) == expected[:5]


def test_epochs_and_seeds_shuffle_otherwise_and_repeat() -> None:
    first, second = samplers()[:2]
    before = list(first)
    assert before == list(first) and before != list(samplers(seed=1)[0])
    first.set_epoch(1)
    second.set_epoch(1)
    assert list(first) != before and len(first) == 6
    assert all(abs(LENGTHS[a] - LENGTHS[b]) == 1 for a, b in zip(first, second, strict=True))


def test_groups_are_sorted_inside_and_shuffled_as_a_whole() -> None:
    order = [number for row in zip(*samplers(count=1, group_size=5), strict=True) for number in row]
    groups = [{*range(start, min(start + 5, 23))} for start in range(0, 23, 5)]
    while order:
        group = next(group for group in groups if order[0] in group)
        part, order = order[: len(group)], order[len(group) :]
        assert set(part) == group and [LENGTHS[number] for number in part] == sorted(LENGTHS[number] for number in part)


def test_chance_loosens_the_balance() -> None:
    loose = dealt(random_level=1.0)
    assert {length for row in loose for length in row} == set(range(23))
    assert max(max(row) - min(row) for row in loose) > 4


def test_processes_get_the_same_number_of_batches() -> None:
    def by_length(numbers: list[int]) -> list[list[int]]:
        """Batches of at most 30 letters."""
        batches: list[list[int]] = [[]]
        for number in numbers:
            if sum(LENGTHS[other] for other in batches[-1]) + LENGTHS[number] > 30:
                batches.append([])
            batches[-1].append(number)
        return batches

    for drops in (False, True):
        ours = [LoadBalancingDistributedBatchSampler(one, by_length, drops) for one in samplers(shuffle=False)]
        counts = [len(by_length(list(one))) for one in samplers(shuffle=False)]
        assert {len(list(one)) for one in ours} == {len(one) for one in ours} == {min(counts) if drops else max(counts)}
    ours[0].set_epoch(3)
    assert ours[0].sampler.epoch == 3


def test_bad_numbers_are_refused() -> None:
    for options, message in [
        ({"rank": 4}, r"Invalid rank 4, rank should be in the interval \[0, 3\]"),
        ({"random_level": 2}, "Invalid random level 2"),
        ({"group_size": 0}, "Invalid group size 0"),
        ({"dataset": []}, "no samples"),
    ]:
        given = {"dataset": LENGTHS, "complexity_fn": len, "world_size": 4, "rank": 0, **options}
        with pytest.raises(ValueError, match=message):
            LoadBalancingDistributedSampler(**given)
    with pytest.raises(ValueError, match="drop_last of sampler should be False"):
        LoadBalancingDistributedBatchSampler(samplers(drop_last=True)[0], lambda numbers: [numbers])
    with pytest.raises(ValueError, match="LoadBalancingDistributedSampler type"):
        LoadBalancingDistributedBatchSampler([1, 2], lambda numbers: [numbers])  # type: ignore[arg-type]
