"""Samplers that give all processes samples of about the same complexity at a time, so that none waits for another.

`sardonyx.training.utils.data` shows them to users.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist


class LoadBalancingDistributedSampler:
    """Sorts samples by complexity and deals them out to the processes; what is dealt at a time stays together when it is shuffled.

    With `group_size`, samples are sorted inside of groups alone, and groups are shuffled. `random_level`, from 0 to 1, says how much
    chance is added to complexities.
    """

    def __init__(
        self,
        dataset: Any,
        complexity_fn: Callable[..., int],
        world_size: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        group_size: int | None = None,
        seed: int = 0,
        drop_last: bool = False,
        random_level: float = 0,
    ):
        self.world_size = dist.get_world_size() if world_size is None else world_size
        self.rank = dist.get_rank() if rank is None else rank
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"Invalid rank {self.rank}, rank should be in the interval [0, {self.world_size - 1}]")
        if not 0 <= random_level <= 1:
            raise ValueError(f"Invalid random level {random_level}, it should be in the range [0.0, 1.0]")
        if group_size is not None and group_size < 1:
            raise ValueError(f"Invalid group size {group_size}, a group has at least one sample")
        if not len(dataset):
            raise ValueError("the dataset has no samples to deal out")
        self.dataset, self.complexity_fn = dataset, complexity_fn
        self.shuffle, self.group_size, self.seed, self.drop_last = shuffle, group_size, seed, drop_last
        self.random_level = random_level
        self.epoch = 0
        whole, rest = divmod(len(dataset), self.world_size)
        self.num_samples = max(1, whole + bool(rest and not drop_last))
        self.total_size = self.num_samples * self.world_size
        self._complexities: np.ndarray | None = None

    def set_epoch(self, epoch: int) -> None:
        """Each epoch is shuffled in a way of its own."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.num_samples

    def __iter__(self) -> Iterator[int]:
        return iter(self.dealt()[:, self.rank].tolist())

    def dealt(self) -> np.ndarray:
        """The numbers of the samples of this epoch: a column for each process, a row for each time that they are dealt."""
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        order = self._sorted(generator)
        rows = np.resize(order, (self.num_samples, self.world_size))  # begins anew where samples are missing
        if self.shuffle and self.group_size is None:
            rows = rows[torch.randperm(len(rows), generator=generator).numpy()]
        return rows

    def _sorted(self, generator: torch.Generator) -> np.ndarray:
        if self._complexities is None:
            self._complexities = np.array([self.complexity_fn(self.dataset[place]) for place in range(len(self.dataset))])
        complexities = self._complexities
        spread = int((complexities.max() - complexities.min()) * self.random_level + 1)
        if spread > 1:
            complexities = complexities + torch.randint(spread, (len(complexities),), generator=generator).numpy()
        size = self.group_size or len(complexities)
        starts = range(0, len(complexities), size)
        groups = [start + np.argsort(complexities[start : start + size], kind="stable") for start in starts]
        if self.shuffle and self.group_size is not None:
            groups = [groups[number] for number in torch.randperm(len(groups), generator=generator).tolist()]
        return np.concatenate(groups)


class LoadBalancingDistributedBatchSampler(torch.utils.data.Sampler):  # type: ignore[misc]
    """Batches that `batch_fn` makes of the samples of a process. All processes get as many, by repeating some or leaving some out."""

    def __init__(
        self,
        sampler: LoadBalancingDistributedSampler,
        batch_fn: Callable[[list[int]], Sequence[list[int]]],
        drop_last: bool = False,
    ):
        if not isinstance(sampler, LoadBalancingDistributedSampler):
            raise ValueError("sampler should be of LoadBalancingDistributedSampler type.")
        if sampler.drop_last:
            raise ValueError("drop_last of sampler should be False")
        self.sampler, self.batch_fn, self.drop_last = sampler, batch_fn, drop_last
        self._make_batches()

    def set_epoch(self, epoch: int) -> None:
        self.sampler.set_epoch(epoch)
        self._make_batches()

    def _make_batches(self) -> None:
        columns = self.sampler.dealt().T.tolist()
        batches = [list(self.batch_fn(column)) for column in columns]
        counts = [len(one) for one in batches]
        self.total_batch = min(counts) if self.drop_last else max(counts)
        own = batches[self.sampler.rank]
        self._batches = [own[number % len(own)] for number in range(self.total_batch)]

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self._batches)

    def __len__(self) -> int:
        return self.total_batch
