"""Models of ``examples/models`` in the study: a transformer over histories, a mixture of experts.

Their dense parts are lists of operators, read from small runs on the CPU; tables and batches are
those of ``bench.dense_steps``.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import cycle
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import ShardingEnv

from bench.dense_steps.models import LONGEST, timed_model
from costmodel.domain.plan import ShardingPlan
from costmodel.domain.workload import Optimizer, Pipeline, Pooling, Workload
from planner.torchrec import read_factory
from planner.torchrec.plan_conversion import TableLocation, to_torchrec

_LEARNING_RATE = 1e-3


class Example(NamedTuple):
    """A model as it is read, and where in it its tables are."""

    workload: Workload
    locations: Mapping[str, TableLocation]


@lru_cache
def example(name: str) -> Example:
    """Return one of ``examples/models``, with the lengths of its batches."""
    made = timed_model(name, 0)
    read, places = read_factory(
        f"examples.models.{name}:make_model", made.samples,
        dense_optimizer="sgd", precision="fp32", say=lambda _: None,
    )  # fmt: skip
    sparse = next(each for each in made.batches[0] if not isinstance(each, torch.Tensor))
    mean = float(sparse.lengths().float().mean())
    tables = tuple(
        replace(each, pooling_factor=mean * each.num_features, longest_bag=float(LONGEST))
        if each.pooling is Pooling.NONE
        else each
        for each in read.tables
    )
    return Example(
        replace(
            read, tables=tables, optimizer=Optimizer.ROWWISE_ADAGRAD, pipeline=Pipeline.NONE
        ),
        {table: TableLocation(**place) for table, place in places["tables"].items()},
    )  # fmt: skip


class ExampleTrainer:
    """Trains a model of ``examples/models`` under a plan, one batch after the other."""

    def __init__(self, name: str, plan: ShardingPlan, device: torch.device) -> None:
        made, (workload, locations) = timed_model(name, dist.get_rank()), example(name)
        self._parallel = DistributedModelParallel(
            made.model,
            env=ShardingEnv.from_process_group(dist.group.WORLD),
            device=device,
            plan=to_torchrec(plan, locations, compute_device=device.type, workload=workload),
            sharders=get_default_sharders(),
        )
        fused = set(self._parallel.fused_optimizer.params)
        dense = [each for path, each in self._parallel.named_parameters() if path not in fused]
        self._optimizer = torch.optim.SGD(dense, lr=_LEARNING_RATE)
        batches = (tuple(each.to(device) for each in batch) for batch in made.batches)
        self._batches = cycle(list(batches))

    def advance(self) -> Any:  # noqa: ANN401 - a tensor
        """Issue one step; return its loss, which a GPU may still have to compute."""
        result = self._parallel(*next(self._batches))
        loss = (result[0] if isinstance(result, tuple) else result).sum()
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad()
        return loss

    def step(self) -> float:
        """Train one step to the end; return its loss."""
        return float(self.advance())
