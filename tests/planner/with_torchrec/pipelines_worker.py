"""One rank of the pipelines' test: trains one model under each, and writes the losses as JSON.

python pipelines_worker.py RANK WORLD_SIZE FOLDER PIPELINE...

"""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed import train_pipeline as train_pipelines
from torchrec.distributed.planner import ParameterConstraints, Topology
from torchrec.optim.keyed import KeyedOptimizerWrapper
from torchrec.optim.optimizers import in_backward_optimizer_filter
from torchrec_cases import QUIET, ROWS, AnySharder, joined
from torchrec_script import SAMPLES, STEPS, batches, model

from planner import Pipeline
from planner.torchrec import IterationTimePlanner
from planner.validation.trainer import accumulating, train_pipeline

RATE = 0.1
WHOLE = {f"t{i}": ParameterConstraints(sharding_types=["table_wise"]) for i in range(len(ROWS))}


def trained(pipeline: Pipeline, batches_per_update: int = 1) -> list[float]:
    """Return this rank's losses under a pipeline; the dense model is updated every few batches."""
    rank, world_size, device = dist.get_rank(), dist.get_world_size(), torch.device("cpu")
    torch.manual_seed(0)
    train, sharders = model(), [AnySharder()]
    planner = IterationTimePlanner(
        Topology(world_size, "cpu", local_world_size=world_size, **QUIET),
        SAMPLES,
        pipeline=pipeline,
        timeout_seconds=0.2,
        gradient_accumulation_steps=batches_per_update,
        # replicated tables are updated with the dense model
        constraints=WHOLE if batches_per_update > 1 else {},
    )
    plan = planner.collective_plan(train, sharders, dist.group.WORLD)
    parallel = DistributedModelParallel(train, device=device, plan=plan, sharders=sharders)
    dense = KeyedOptimizerWrapper(
        dict(in_backward_optimizer_filter(parallel.named_parameters())),
        lambda parameters: torch.optim.SGD(parameters, lr=RATE),
    )
    loop, source = train_pipeline(pipeline)(parallel, dense, device), batches(rank)
    loop = accumulating(loop, dense, parallel, batches_per_update)
    return [float(loop.progress(source)[0]) for _ in range(STEPS)]


def reference(world_size: int, batches_per_update: int = 1) -> list[list[float]]:
    """Return every rank's losses of the unsharded model, step by step."""
    torch.manual_seed(0)
    train = unsharded(model())
    tables = list(train.model.sparse_arch.parameters())
    known = {id(table) for table in tables}
    rest = [each for each in train.parameters() if id(each) not in known]
    sparse, dense = (torch.optim.SGD(each, lr=RATE) for each in (tables, rest))
    losses = []
    for batch_of in zip(*(batches(rank) for rank in range(world_size)), strict=True):
        each = [train(batch)[0] for batch in batch_of]
        sparse.zero_grad()
        torch.stack(each).mean().backward()
        sparse.step()
        losses.append([float(loss) for loss in each])
        if len(losses) % batches_per_update == 0:
            dense.step()
            dense.zero_grad()
    return losses


def unsharded(train: nn.Module) -> nn.Module:
    """Return a model with its tables in memory, as they begin."""
    bags = train.model.sparse_arch.embedding_bag_collection
    for config in bags.embedding_bag_configs():
        bag = bags.embedding_bags[config.name]
        bag.to_empty(device="cpu")
        config.init_fn(bag.weight)
    return train


def without_streams() -> None:
    """Let TorchRec ask for streams on a CPU: torch's stand-in for one has no device."""

    def nothing(*_: object) -> None:
        return None

    torch.cpu.current_stream = torch.cuda.current_stream = nothing
    torch.Tensor.record_stream = nothing


def main() -> None:
    """Train under all pipelines and write the losses."""
    without_streams()
    rank, world_size, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    with joined(rank, world_size, world_size, folder):
        losses = {name: trained(Pipeline(name)) for name in sys.argv[4:]}
        losses["reference"] = [step[rank] for step in reference(world_size)]
        if hasattr(train_pipelines, "GradientAccumulationConfig"):  # from 1.6 on
            losses["accumulated"] = trained(Pipeline.SPARSE_DIST, 2)
            losses["accumulated reference"] = [step[rank] for step in reference(world_size, 2)]
        (folder / f"pipelines_{rank}.json").write_text(json.dumps(losses))


if __name__ == "__main__":
    main()
