"""One rank of the test of replica groups: trains with ``DMPCollection``, writes losses as JSON.

python groups_worker.py RANK WORLD_SIZE FOLDER near|far

TorchRec keeps the process groups of a job's first ``DMPCollection``, so that a process can have one
layout alone.
"""

import json
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import _remote_device
from torch.distributed.optim import _apply_optimizer_in_backward as apply_in_backward
from torch.distributed.tensor import DTensor
from torchrec.distributed.types import ShardingPlan
from torchrec_cases import Model, cases, joined, on_ranks, trained
from torchrec_worker import RATE, SAMPLES, SHARDERS, STEPS, loss_of, reference

from planner.torchrec import IterationTimePlanner

GROUP = 2


def collection_on_cpus() -> Any:  # noqa: ANN401 - a class of torchrec's
    """Return ``DMPCollection`` for CPUs, which torchrec has for GPUs alone.

    Its source is compiled as ``python -O`` does, without the assertion that there is a GPU, and
    shards are placed on ``cpu``, which has no numbers.
    """
    spec = find_spec("torchrec.distributed.model_parallel")
    if spec is None or spec.origin is None:
        raise ImportError("torchrec")
    module = ModuleType("model_parallel_on_cpus")
    module.__package__ = "torchrec.distributed"
    source = Path(spec.origin).read_text(encoding="utf-8")
    exec(compile(source, spec.origin, "exec", optimize=1), module.__dict__)  # noqa: S102

    class OnCpus(module.DMPCollection):  # type: ignore[name-defined, misc]
        def _remap_sharding_plan(self, plan: ShardingPlan, **where: object) -> None:
            super()._remap_sharding_plan(plan, **where)
            for tables in plan.plan.values():
                for each in tables.values():
                    for shard in each.sharding_spec.shards if each.sharding_spec else ():
                        shard.placement = _remote_device(f"rank:{shard.placement.rank()}/cpu")

    return OnCpus


def load(parallel: torch.nn.Module, weights: Mapping[str, torch.Tensor]) -> None:
    """Give every shard its block of the unsharded model's weights."""
    with torch.no_grad():
        for name, value in parallel.state_dict().items():
            if not isinstance(value, DTensor):
                value.copy_(weights[name])
                continue
            local = value.to_local()
            for shard, begin in zip(local.local_shards(), local.local_offsets(), strict=False):
                block = tuple(
                    slice(first, first + size)
                    for first, size in zip(begin, shard.shape, strict=True)
                )
                shard.copy_(weights[name][block])


def mean_of_replicas(group: dist.ProcessGroup, tensors: list[torch.Tensor]) -> None:
    """Average tensors, as NCCL's ``AVG`` does, which gloo lacks."""
    for tensor in tensors:
        dist.all_reduce(tensor, group=group)
        tensor.div_(group.size())


def sharded(constraints: Any, *, consecutive: bool) -> tuple[list[float], list[str]]:  # noqa: ANN401
    """Return losses of training in two groups of two ranks, and the plan's sharding types."""
    world_size = dist.get_world_size()
    torch.manual_seed(0)
    model = Model()
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    for embeddings in model.embeddings:
        apply_in_backward(torch.optim.SGD, list(embeddings.parameters()), {"lr": RATE})
    planner = IterationTimePlanner(
        on_ranks(world_size, world_size),
        SAMPLES,
        constraints=constraints,
        timeout_seconds=0.2,
        sharding_group_size=GROUP,
        use_inter_host_allreduce=consecutive,
    )
    plan = planner.collective_plan(model, SHARDERS, dist.group.WORLD)
    topology = planner.solution.topology
    kinds = {each.sharding_type for tables in plan.plan.values() for each in tables.values()}
    parallel = collection_on_cpus()(
        module=model,
        device=torch.device("cpu"),
        plan=plan,
        world_size=world_size,
        sharding_group_size=topology.world_size,
        node_group_size=topology.local_world_size,
        use_inter_host_allreduce=consecutive,
        global_pg=dist.group.WORLD,
        sharders=SHARDERS,
    )
    parallel.set_all_reduce_hook(mean_of_replicas)
    load(parallel, weights)
    return trained(parallel, loss_of, STEPS, RATE, after=parallel.sync), sorted(kinds)


def main() -> None:
    rank, world_size = map(int, sys.argv[1:3])
    folder = Path(sys.argv[3])
    with joined(rank, world_size, world_size, folder):
        constraints = dict(cases())["mixed"]
        results = {
            "reference": (reference(Model, world_size), []),
            "frozen": (reference(Model, world_size, frozen=True), []),
            "groups": sharded(constraints, consecutive=sys.argv[4] == "far"),
        }
        (folder / f"losses_{rank}.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main()
