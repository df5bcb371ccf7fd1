"""What is changed around a script of others while it trains, none of its code being touched.

Its planner is this one or TorchRec's, and is watched; its tables begin with the same rows whatever
the plan; its losses are kept where their gradient is asked for, and training ends after a few.
"""

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial, wraps
from time import perf_counter
from typing import Any
from zlib import crc32

import numpy as np
import torch
import torch.distributed as dist
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from torch import nn
from torchrec.distributed import model_parallel
from torchrec.distributed.planner import planners
from torchrec.distributed.planner.planners import EmbeddingPlannerBase
from torchrec.distributed.planner.types import PlannerError
from torchrec.distributed.sharding_plan import get_default_sharders

from planner.torchrec import IterationTimePlanner

REPLACED = "EmbeddingShardingPlanner"
TORCHRECS: Any = planners.EmbeddingShardingPlanner
OURS = ("planner.", "bench.")
"""Where TorchRec's is asked as a baseline."""
TABLE_PARTS = ("embedding_bags.", "embeddings.")
"""Modules of collections that have a table's weights by its name."""


class SgdForAdam:
    """Stands for ``EmbOptimType`` in a script: FBGEMM's lookups on CPUs have no Adam."""

    ADAM = EmbOptimType.EXACT_SGD


class TrainingEnds(BaseException):
    """Enough steps have been trained; no script catches it."""


Planning = dict[str, Any]
"""What is known of a plan: seconds, how each table is sharded, the step that this project's model
predicts."""


def put_planner(kind: Any) -> None:  # noqa: ANN401 - a class
    """Let every module name a planner of a kind where it has named TorchRec's."""
    for name, module in list(sys.modules.items()):
        if not name.startswith(OURS) and vars(module).get(REPLACED) is TORCHRECS:
            setattr(module, REPLACED, kind)


def watched_planner(planning: Planning, *, ours: bool, **defaults: object) -> Any:  # noqa: ANN401
    """Return a class of planners, ours or TorchRec's, that tell of each plan.

    Parameters
    ----------
    planning
        Is told.
    ours
        Whether it is ``IterationTimePlanner``.
    defaults
        Arguments of that where a script does not give them; it predicts the step of TorchRec's
        plans, too.

    """
    kind = IterationTimePlanner if ours else TORCHRECS
    members = {"planning": planning, "ours": ours, "defaults": defaults}
    return type(kind.__name__, (_Watched, kind), members)


class _Watched(EmbeddingPlannerBase):  # type: ignore[misc]  # torchrec has no types here
    """Goes before the planner in a class that has both."""

    planning: Planning
    ours: bool
    defaults: Mapping[str, object]

    def __init__(self, *arguments: Any, **settings: Any) -> None:  # noqa: ANN401 - the planner's
        given = {**self.defaults, **settings}
        super().__init__(*arguments, **(given if self.ours else settings))
        self.watching = False
        self.predicting = partial(IterationTimePlanner, *arguments, **given)

    def plan(self, module: nn.Module, sharders: Any) -> Any:  # noqa: ANN401 - torchrec's types
        """Plan, and tell of it."""
        return self._watched(partial(super().plan, module, sharders), module, sharders)

    def collective_plan(self, module: nn.Module, sharders: Any = None, pg: Any = None) -> Any:  # noqa: ANN401
        """Plan on all ranks, and tell of it."""
        all_of = get_default_sharders() if sharders is None else sharders
        make = partial(super().collective_plan, module, all_of, pg)
        return self._watched(make, module, all_of)

    def _watched(self, make: Callable[[], Any], module: nn.Module, sharders: Any) -> Any:  # noqa: ANN401
        if self.watching:  # TorchRec's plan() within its collective_plan()
            return make()
        self.watching, started = True, perf_counter()
        plan = make()
        self.planning["seconds"] = perf_counter() - started
        self.planning["shardings"] = shardings(plan)
        if not dist.is_initialized() or dist.get_rank() == 0:
            self.planning["step"] = self._step(plan, module, sharders)
        self.watching = False
        return plan

    def _step(self, plan: Any, module: nn.Module, sharders: Any) -> float | None:  # noqa: ANN401
        """Return the predicted step of a plan; None: it has no table, or no memory for them."""
        again: Any = self
        if not self.ours:
            again = self.predicting(fixed_plan=plan)
            try:
                again.plan(module, sharders)
            except PlannerError:  # by this project's model
                return None
        return again.solution.step_time if again.solution else None


def shardings(plan: Any) -> dict[str, str]:  # noqa: ANN401 - a TorchRec plan
    """Return how each table is sharded, by module path and name: type, ranks and columns."""
    return {
        f"{path}.{name}": f"{each.sharding_type} {each.ranks}"
        for path, module in plan.plan.items()
        for name, each in module.items()
    }


def counted(plan: Mapping[str, str]) -> dict[str, int]:
    """Return how many tables have each sharding type."""
    return dict(sorted(Counter(each.partition(" ")[0] for each in plan.values()).items()))


def seed_all(seed: int) -> None:
    """Seed every generator that scripts draw from."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - it is scripts that draw from it
    torch.manual_seed(seed)


def begin_alike(seed: int, rank: int, watch: Callable[[], None]) -> None:
    """Once tables are sharded, fill them by their names, seed what is drawn after that, and watch.

    What is watched begins then, as a planner that reads the dense model runs it backward, too.

    TorchRec initialises each rank's shards, so weights and all later random numbers would depend on
    the plan.
    """
    parallel = model_parallel.DistributedModelParallel
    own = parallel.__init__

    @wraps(own)
    def sharded(self: nn.Module, *arguments: Any, **settings: Any) -> None:  # noqa: ANN401
        own(self, *arguments, **settings)
        fill_tables(self)
        seed_all(seed + rank)
        watch()

    parallel.__init__ = sharded


def fill_tables(model: nn.Module) -> None:
    """Fill every table, or what this rank has of it, with random rows that follow from its name."""
    for name, weights in model.state_dict().items():
        if not any(part in name for part in TABLE_PARTS) or not name.endswith(".weight"):
            continue
        full = _full_table(name, tuple(weights.size()))
        for (rows, columns), held in _shards(weights):
            with torch.no_grad():
                held.copy_(full[rows, columns])


def _full_table(name: str, size: tuple[int, ...]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(crc32(name.encode()))
    bound = size[-1] ** -0.5
    return torch.empty(size).uniform_(-bound, bound, generator=generator)


def _shards(weights: Any) -> Iterator[tuple[tuple[slice, slice], torch.Tensor]]:  # noqa: ANN401
    """Yield where in a table each shard of this rank is, and its tensor."""
    if not hasattr(weights, "local_shards"):
        yield (slice(None), slice(None)), weights
        return
    for each in weights.local_shards():
        begins, sizes = each.metadata.shard_offsets, each.metadata.shard_sizes
        rows, columns = (slice(b, b + s) for b, s in zip(begins, sizes, strict=True))
        yield (rows, columns), each.tensor


def keep_losses(losses: list[float], moments: list[float], steps: int) -> None:
    """Keep what gradients are asked of, which is a step's loss, and when; end after some steps."""
    own = torch.Tensor.backward

    @wraps(own)
    def backward(self: torch.Tensor, *arguments: Any, **settings: Any) -> None:  # noqa: ANN401
        losses.append(float(self.detach().sum()))
        moments.append(perf_counter())
        if len(losses) == steps:
            raise TrainingEnds
        own(self, *arguments, **settings)

    torch.Tensor.backward = backward
