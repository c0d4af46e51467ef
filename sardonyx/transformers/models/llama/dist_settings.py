"""Processes among which a model is split: those of MPI, if the package mpi4py is there, else this one alone."""

from __future__ import annotations

import importlib
import os
from typing import Any

from sardonyx.transformers.torch_onnx_export_helper import loaded_torch

KINDS = (
    ("LOCAL_RANK", "RANK", "WORLD_SIZE", 7645),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", 7647),
)
"""Variables by which torchrun and mpirun tell a process that it is one of several, and a port for each."""


def init_dist() -> None:
    """Let PyTorch know of the other processes, if there are any."""
    for mark, rank, size, port in KINDS:
        if mark in os.environ:
            torch = loaded_torch()
            backend = "nccl" if torch.cuda.is_available() else "gloo"
            place = {"rank": int(os.environ[rank]), "world_size": int(os.environ[size])}
            torch.distributed.init_process_group(backend, init_method=f"tcp://127.0.0.1:{port}", **place)
            return


def _world() -> Any:
    try:
        return importlib.import_module("mpi4py.MPI").COMM_WORLD
    except ModuleNotFoundError:
        return None


def get_rank() -> int:
    """The number of this process."""
    world = _world()
    return 0 if world is None else int(world.Get_rank())


def get_size() -> int:
    """How many processes there are."""
    world = _world()
    return 1 if world is None else int(world.Get_size())


def barrier() -> None:
    """Wait for the others."""
    world = _world()
    if world is not None:
        world.Barrier()


def print_out(*args: Any) -> None:
    """Print in the first process alone."""
    if get_rank() == 0:
        print(*args)
