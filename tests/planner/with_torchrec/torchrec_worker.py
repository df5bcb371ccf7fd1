"""One rank of the training test: trains cases with DMP and writes their losses as JSON.

python torchrec_worker.py RANK WORLD_SIZE LOCAL_WORLD_SIZE FOLDER CASE...

"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch.distributed.optim import _apply_optimizer_in_backward as apply_in_backward
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.planner.types import ParameterConstraints, PlannerError, Topology
from torchrec.distributed.types import ShardingEnv
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec_cases import (
    QUIET,
    AnyProcessedSharder,
    AnySequenceSharder,
    AnySharder,
    Arms,
    Model,
    Wrapped,
    arms_constraints,
    cases,
    embedding_bags,
    features,
    joined,
    on_ranks,
    trained,
    wrapped_constraints,
)

from planner.torchrec import IterationTimePlanner

STEPS, SAMPLES, RATE = 4, 6, 0.5
SHARDERS = [AnySharder(), AnySequenceSharder(), AnyProcessedSharder()]
DEDUPLICATING = [AnySharder(), AnySequenceSharder(use_index_dedup=True), AnyProcessedSharder()]
Trained: TypeAlias = Model | Arms | Wrapped


def reference(kind: type[Trained], world_size: int, *, frozen: bool = False) -> list[float]:
    """Train unsharded on all ranks' samples: a mean over ranks of their means."""
    torch.manual_seed(0)
    model = kind()
    for embeddings in model.embeddings:
        embeddings.requires_grad_(not frozen)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    losses = []
    for step in range(STEPS):
        parts = [loss_of(model, step, rank) for rank in range(world_size)]
        loss = torch.stack(parts).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    return losses


def loss_of(model: torch.nn.Module, step: int, rank: int) -> torch.Tensor:
    target = torch.linspace(-1, 1, SAMPLES)
    output = model(features(100 * step + rank, SAMPLES)).squeeze(1)
    return torch.nn.functional.mse_loss(output, target)


def sharded(
    kind: type[Trained],
    constraints: Mapping[str, Any],
    local_world_size: int,
    sharders: Sequence[Any] = SHARDERS,
    **topology: int,
) -> tuple[list[float], list[str]]:
    world_size = dist.get_world_size()
    torch.manual_seed(0)
    model = kind()
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    for embeddings in model.embeddings:
        tables = (each for each in embeddings.named_parameters() if "embedding" in each[0])
        apply_in_backward(torch.optim.SGD, [table for _, table in tables], {"lr": RATE})
    planner = IterationTimePlanner(
        on_ranks(world_size, local_world_size, **topology),
        SAMPLES,
        constraints=constraints,
        timeout_seconds=0.2,
    )
    plan = planner.collective_plan(model, sharders, dist.group.WORLD)
    if planner.solution is None or planner.solution.torchrec_plan != plan:
        raise AssertionError("a rank does not know the solution")
    parallel = DistributedModelParallel(
        model,
        env=ShardingEnv.from_process_group(dist.group.WORLD),
        device=torch.device("cpu"),
        plan=plan,
        sharders=list(sharders),
    )
    load(parallel, weights)
    kinds = {each.sharding_type for tables in plan.plan.values() for each in tables.values()}
    return trained(parallel, loss_of, STEPS, RATE), sorted(kinds)


def refusals() -> dict[str, tuple[str, str]]:
    """Return what every rank is told, and the error's type, when planning together fails."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    here = on_ranks(world_size, world_size)
    nothing = {"t0": ParameterConstraints(sharding_types=["nonsense"])}
    fused = {"big": ParameterConstraints(compute_kernels=["fused"])}
    small = Topology(world_size=world_size, compute_device="cuda", hbm_cap=2**30, **QUIET)
    bags, big = embedding_bags(), one_table("big", 50_000_000)
    unread = embedding_bags()
    if rank:
        unread.embedding_bag_configs = None
    attempts = {
        "batch size": (IterationTimePlanner(here, 64 + rank), bags),
        "world size": (IterationTimePlanner(on_ranks(world_size + rank, 1), 64), bags),
        "tables": (IterationTimePlanner(here, 64), one_table("t", 10 + rank)),
        "constraints": (IterationTimePlanner(here, 64, constraints=nothing), bags),
        "memory": (IterationTimePlanner(small, 64, constraints=fused), big),
        "reading": (IterationTimePlanner(here, 64), unread),
    }
    told = {}
    for name, (planner, model) in attempts.items():
        try:
            planner.collective_plan(model, SHARDERS)
        except PlannerError as error:
            told[name] = (str(error), error.error_type.name)
    return told


def one_table(name: str, rows: int) -> EmbeddingBagCollection:
    config = EmbeddingBagConfig(
        name=name, num_embeddings=rows, embedding_dim=64, feature_names=["f"]
    )
    return EmbeddingBagCollection(tables=[config], device=torch.device("meta"))


def load(parallel: torch.nn.Module, weights: Mapping[str, torch.Tensor]) -> None:
    """Give every shard its block of the unsharded model's weights."""
    with torch.no_grad():
        for name, value in parallel.state_dict().items():
            if not hasattr(value, "local_shards"):
                value.copy_(weights[name])
                continue
            for shard in value.local_shards():
                (row, column), (rows, columns) = (
                    shard.metadata.shard_offsets,
                    shard.metadata.shard_sizes,
                )
                block = weights[name][row : row + rows, column : column + columns]
                shard.tensor.copy_(block)


def unique_ids(
    ends: torch.Tensor, _: torch.Tensor, offsets: torch.Tensor, ids: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Return each table's distinct ids, spread evenly over the samples, and where every id went.

    FBGEMM has this for GPUs only (``jagged_unique_indices``). Here every table has one feature, and
    its rows begin at ``ends[table]`` of all rows.
    """
    tables = ends.numel() - 1
    samples = (offsets.numel() - 1) // tables
    number = torch.arange(tables).repeat_interleave(samples).repeat_interleave(offsets.diff())
    found, places = torch.unique(ids + ends[number], return_inverse=True)
    table = torch.bucketize(found, ends[1:], right=True)
    counts = torch.bincount(table, minlength=tables)[:, None]
    lengths = (counts // samples + (torch.arange(samples) < counts % samples)).flatten()
    begins = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    return lengths, begins, found - ends[table], places


def main() -> None:
    rank, world_size, local_world_size = map(int, sys.argv[1:4])
    folder = Path(sys.argv[4])
    with joined(rank, world_size, local_world_size, folder):
        operators = torch.library.Library("fbgemm", "IMPL")
        operators.impl("jagged_unique_indices", unique_ids, "CPU")
        wanted = sys.argv[5:]
        wrapped = wrapped_constraints()
        results = {
            "reference": (reference(Model, world_size), []),
            "frozen": (reference(Model, world_size, frozen=True), []),
            "arms reference": (reference(Arms, world_size), []),
            "arms frozen": (reference(Arms, world_size, frozen=True), []),
            "arms": sharded(Arms, arms_constraints(), local_world_size),
            "wrapped reference": (reference(Wrapped, world_size), []),
            "wrapped frozen": (reference(Wrapped, world_size, frozen=True), []),
            "wrapped": sharded(Wrapped, wrapped, local_world_size),
            "deduplicated": sharded(Wrapped, wrapped, local_world_size, DEDUPLICATING),
        }
        for name, constraints in cases():
            if name in wanted:
                results[name] = sharded(Model, constraints, local_world_size)
        (folder / f"losses_{rank}.json").write_text(json.dumps(results))
        (folder / f"refusals_{rank}.json").write_text(json.dumps(refusals()))


if __name__ == "__main__":
    main()
