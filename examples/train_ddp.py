"""A language model of one layer, trained by several processes that share each batch, beside one process that trains it alone.

    torchrun --nproc-per-node 2 examples/train_ddp.py --with ortmodule
    torchrun --nproc-per-node 2 examples/train_ddp.py --with compile --accumulate 2 --freeze --zero

Two machines, or two agents on one: each calls `torchrun --nnodes 2 --node-rank 0 …`, or 1, with one `--master-addr`. At the end the
processes compare their parameters, and the first one trains the model again, alone and in eager PyTorch: the program fails if
parameters differ in a bit between processes, or a loss by more than 1e-5 from that of the one process.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer  # modules that come after `connect` would keep the group alive
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from sardonyx.training import ORTModule
from sardonyx.training.optim import AdamWMode, FusedAdam

LETTERS, WIDTH, LENGTH, BATCH = 11, 32, 12, 8
TOLERANCE = 1e-5


class Reader(nn.Module):
    """Says which letter comes next, with attention to those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(LETTERS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.norm, self.hidden, self.scores = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, LETTERS)
        self.spare = nn.Linear(WIDTH, WIDTH)
        """Nothing uses it, so it has no gradients, and the other processes must not wait for them."""

    def forward(self, text: Any) -> Any:
        length = text.shape[1]
        x = self.letters(text) + self.places.weight[:length]
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        x = x + self.attention(x, x, x, attn_mask=later, need_weights=False)[0]
        return self.scores(nn.functional.gelu(self.hidden(self.norm(x))))


def make_network(options: argparse.Namespace) -> Reader:
    torch.manual_seed(options.seed)
    network = Reader()
    if options.freeze:
        network.letters.requires_grad_(False)
        network.attention.requires_grad_(False)
    return network


def batches(options: argparse.Namespace) -> Iterator[list[Any]]:
    """The parts of each batch, whose gradients are added up before a step."""
    generator = torch.Generator().manual_seed(options.seed)
    for _ in range(options.steps):
        start = torch.randint(0, LETTERS, (BATCH * options.accumulate, 1), generator=generator)
        pace = torch.randint(1, 4, (BATCH * options.accumulate, 1), generator=generator)
        text = (start + pace * torch.arange(LENGTH + 1)) % LETTERS
        yield list(text.chunk(options.accumulate))


def loss_of(model: Any, text: Any) -> Any:
    return nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())


# --- alone


def train_alone(options: argparse.Namespace) -> list[float]:
    """The losses of one process, in eager PyTorch with its own optimizer."""
    network = make_network(options)
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=3e-3, eps=1e-6, weight_decay=0.01)
    losses = []
    for parts in batches(options):
        optimizer.zero_grad()
        parted = [loss_of(network, part) / len(parts) for part in parts]
        sum(parted).backward()
        optimizer.step()
        losses.append(sum(part.item() for part in parted))
    return losses


# --- together


def connect() -> None:
    """Join the others over gloo; processes of one machine talk over its loopback interface alone."""
    if "MASTER_ADDR" not in os.environ:
        raise SystemExit("torchrun starts this program: torchrun --nproc-per-node 2 examples/train_ddp.py")
    if os.environ["MASTER_ADDR"] in ("127.0.0.1", "localhost"):
        loopback = next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)
    dist.init_process_group("gloo")


def make_model(network: Reader, options: argparse.Namespace) -> Any:
    """ORTModule goes inside of DistributedDataParallel, and so does what torch.compile makes."""
    if options.shard:
        for part in (network.attention, network.hidden, network):
            fully_shard(part)
    if options.way == "ortmodule":
        model = ORTModule(network)
    else:
        model = torch.compile(network, backend="sardonyx") if options.way == "compile" else network
    return model if options.shard else DistributedDataParallel(model, find_unused_parameters=True)


def make_optimizer(network: Reader, options: argparse.Namespace) -> Any:
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    numbers = {"lr": 3e-3, "adam_w_mode": AdamWMode.ADAMW_TORCH, "weight_decay": 0.01}
    if options.zero:
        return ZeroRedundancyOptimizer(trained, FusedAdam, **numbers)
    return FusedAdam(trained, **numbers)


def train_together(options: argparse.Namespace) -> tuple[list[float], Reader]:
    """The losses of whole batches, of which each process takes its rows, and the trained network."""
    network = make_network(options)
    model, optimizer = make_model(network, options), make_optimizer(network, options)
    losses = []
    for parts in batches(options):
        optimizer.zero_grad()
        loss = torch.zeros(())
        for number, part in enumerate(parts):
            rows = part.chunk(dist.get_world_size())[dist.get_rank()]
            is_last = number == len(parts) - 1
            with contextlib.nullcontext() if is_last or options.shard else model.no_sync():
                parted = loss_of(model, rows) / len(parts)
                parted.backward()
            loss += parted.detach()
        optimizer.step()
        dist.all_reduce(loss)
        losses.append(float(loss) / dist.get_world_size())
    return losses, network


def are_equal(network: Reader) -> bool:
    """Whether all processes have the same bits."""
    whole = [parameter.full_tensor() if isinstance(parameter, DTensor) else parameter for parameter in network.parameters()]
    mine = torch.cat([parameter.detach().flatten() for parameter in whole])
    theirs = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(theirs, mine)
    return all(torch.equal(mine.view(torch.int32), other.view(torch.int32)) for other in theirs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--with", dest="way", choices=("eager", "ortmodule", "compile"), default="ortmodule", help="how to train"
    )
    parser.add_argument("--accumulate", type=int, default=1, help="parts of a batch whose gradients are added up before a step")
    parser.add_argument("--freeze", action="store_true", help="leave embedding and attention as they are")
    parser.add_argument("--zero", action="store_true", help="each process keeps the moments of a part of the parameters")
    parser.add_argument("--shard", action="store_true", help="each process keeps a part of each parameter (fully_shard)")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    connect()
    try:
        report(options)
    finally:
        dist.destroy_process_group()


def report(options: argparse.Namespace) -> None:
    losses, network = train_together(options)
    is_equal = are_equal(network)
    if dist.get_rank() == 0:
        alone = train_alone(options)
        for step, (loss, other) in enumerate(zip(losses, alone, strict=True), 1):
            print(f"step {step}: loss {loss:.7f}, of one process {other:.7f}")
        distance = max(abs(loss - other) for loss, other in zip(losses, alone, strict=True))
        print(f"{dist.get_world_size()} processes, largest distance {distance:.1e}, parameters equal to the bit: {is_equal}")
        assert is_equal and distance <= TOLERANCE, "the processes do not train as one does"
    dist.barrier()  # a thread of gloo that still has a tensor when the interpreter ends brings the process down


if __name__ == "__main__":
    main()
