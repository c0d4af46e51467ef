"""Several processes train as one does: DistributedDataParallel, ZeRO, fully_shard, one agent and two, all over the loopback interface.

The example compares by itself: losses with those of one process in eager torch, parameters of all processes bit by bit.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is the extra 'train'; `make test-training` runs these tests")

from sardonyx.training.optim import FusedAdam, clip_grad_norm_  # noqa: E402
from sardonyx.training.torch.tensors import array_of  # noqa: E402

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "train_ddp.py"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(*arguments: str, nodes: int = 1, node: int = 0, processes: int = 2, port: int) -> subprocess.Popen[str]:
    """An agent and its processes. What cannot be compiled is an error there, not left to torch."""
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "ORTMODULE_FALLBACK_POLICY": "FALLBACK_DISABLE",
        "PYTHONWARNINGS": "ignore",
    }
    agent = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--nnodes", str(nodes)]
    place = ["--node-rank", str(node), "--master-addr", "127.0.0.1", "--master-port", str(port)]
    command = [*agent, *place, str(EXAMPLE), "--steps", "4", *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(agent: subprocess.Popen[str]) -> str:
    output, told = agent.communicate()
    assert agent.returncode == 0, told
    return output


WAYS = [
    "--with ortmodule",
    "--with compile",
    "--with ortmodule --accumulate 2 --freeze --zero",
    "--with compile --accumulate 2 --freeze --zero",
    "--with ortmodule --shard --accumulate 2",
    "--with compile --shard --freeze",
]


@pytest.mark.parametrize("flags", WAYS)
def test_processes_train_as_one_does(flags: str) -> None:
    output = finish(start(*flags.split(), port=free_port()))
    assert "2 processes" in output and "equal to the bit: True" in output


@pytest.mark.parametrize("way", ["ortmodule", "compile"])
def test_two_agents_train_as_one_process_does(way: str) -> None:
    port = free_port()
    agents = [start("--with", way, "--accumulate", "2", nodes=2, node=node, processes=1, port=port) for node in range(2)]
    outputs = [finish(agent) for agent in agents]
    assert "2 processes" in outputs[0] and "equal to the bit: True" in outputs[0] and not outputs[1]


ALONE = """
import os, sys
import torch.distributed as dist
sys.path.insert(0, "examples")
import train_ddp

dist.init_process_group("gloo", init_method="file://" + sys.argv.pop(1), rank=0, world_size=1)
dist.destroy_process_group, destroy = lambda: None, dist.destroy_process_group
train_ddp.connect = lambda: None
train_ddp.main()
names = lambda: [open(f"/proc/self/task/{number}/comm").read().strip() for number in os.listdir("/proc/self/task")]
assert "pt_gloo_runloop" in names(), names()
destroy()
assert "pt_gloo_runloop" not in names(), names()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it reads /proc")
def test_no_thread_of_gloo_outlives_the_group(tmp_path: Path) -> None:
    """One that lets go of a tensor while the interpreter ends would bring the process down."""
    command = [sys.executable, "-c", ALONE, str(tmp_path / "rendezvous"), "--with", "ortmodule", "--zero", "--steps", "1"]
    finished = subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr


# --- what makes it work


def test_tensors_that_crossed_can_still_be_resized() -> None:
    for tensor in (torch.ones(3), torch.ones(3, dtype=torch.bool), torch.ones(3, dtype=torch.bfloat16)):
        assert array_of(tensor).ctypes.data == tensor.data_ptr()
        tensor.untyped_storage().resize_(0)
        with pytest.raises(RuntimeError, match="a tensor has no memory"):
            array_of(tensor)


@pytest.fixture
def alone(tmp_path: Path) -> object:
    """A group of one process."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    yield torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


def test_the_optimizer_takes_the_parts_of_sharded_tensors(alone: object) -> None:
    from torch.distributed.tensor import Shard, distribute_tensor

    torch.manual_seed(0)
    weight, gradient = torch.randn(6, 4), torch.randn(6, 4)
    plain = torch.nn.Parameter(weight.clone())
    plain.grad = gradient.clone()
    shared = torch.nn.Parameter(distribute_tensor(weight.clone(), alone, [Shard(0)]))
    shared.grad = distribute_tensor(gradient.clone(), alone, [Shard(0)])
    for parameter in (plain, shared):
        clip_grad_norm_([parameter], 0.5)
        FusedAdam([parameter], lr=0.1).step()
    torch.testing.assert_close(shared.full_tensor(), plain)
