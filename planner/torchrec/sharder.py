"""TorchRec's own planner as a sharder: it makes the plan, our simulator times it."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch
from torch import nn
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner
from torchrec.distributed.planner.proposers import (
    GreedyProposer,
    GridSearchProposer,
    UniformProposer,
)
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import (
    ParameterConstraints,
    PlannerError,
    Proposer,
    ShardingOption,
)
from torchrec.modules.embedding_configs import EmbeddingBagConfig, EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection
from torchrec.types import DataType as TorchRecType

from costmodel.base.errors import InfeasibleError
from costmodel.domain.plan import ShardingPlan, ShardingType, TableSharding
from costmodel.domain.workload import EmbeddingTable, Pooling
from costmodel.memory.rank_memory import check_memory, infeasible
from planner.torchrec.model_reading import DATA_TYPES, OPTIMIZER_CLASSES
from planner.torchrec.plans import TableLocation, from_torchrec
from planner.torchrec.topology import make_topology
from sharders.problem.options import TableOption, make_plan, make_sharding
from sharders.problem.sharding_problem import (
    Budget,
    Progress,
    SearchResult,
    SearchStatus,
    ShardingProblem,
)

MEMORY_SHARES = (1.0, 0.9, 0.75, 1.15, 1.4)
"""How much of the memory TorchRec is told of, tried in this order: it counts a shard's bytes in
another way than ``costmodel.memory``: its plan may not fit, or a plan that fits be refused."""

_TYPES = {
    known: TorchRecType[name]
    for name, known in reversed(DATA_TYPES.items())
    if name in TorchRecType.__members__
}
"""INT8, of as many bytes, stands for NFP8 where a version has none."""


@dataclass(frozen=True, slots=True)
class TorchRecPlanner:
    """Runs ``EmbeddingShardingPlanner`` on the workload's tables, on the meta device.

    Its proposers, partitioner and cost model are the defaults, for the machine it takes by default;
    ``grid_shard`` and column shards narrower than 128 only where a table asks for them, as
    its enumerator has it. It cannot be told which ranks a table is to be on: tables with ``ranks``
    are moved there afterwards. Ignores the objective and the seed.
    """

    def shard(self, problem: ShardingProblem, budget: Budget, rng: Random) -> SearchResult:
        """Let TorchRec propose until it has nothing left, or the budget is spent."""
        del rng
        counter = _Counter(budget=budget, reserve=len(MEMORY_SHARES) - 1)
        with _quiet():
            plan = _first_that_fits(problem, counter)
        step_time = problem.objective.step_time(plan)
        budget.report(Progress(evaluated=counter.proposed, best=step_time))
        return SearchResult(
            plan=plan,
            step_time=step_time,
            status=SearchStatus.LIMIT if counter.spent else SearchStatus.CONVERGED,
            evaluated=counter.proposed,
        )


@dataclass(slots=True)
class _Counter:
    """Counts proposals over all attempts; every attempt gets at least one."""

    budget: Budget
    reserve: int
    """Attempts still to come, one proposal of the budget kept for each."""
    proposed: int = 0
    spent: bool = False
    fresh: bool = field(default=True)
    """Whether this attempt has proposed nothing yet."""

    def may_propose(self) -> bool:
        """Count one more proposal, if there may be one."""
        if not self.fresh and self.budget.spent(self.proposed + self.reserve):
            self.spent = True
            return False
        self.fresh = False
        self.proposed += 1
        return True


class _Budgeted(Proposer):  # type: ignore[misc]  # torchrec has no types here
    """A proposer that ends when the budget does."""

    def __init__(self, proposer: Proposer, counter: _Counter) -> None:
        self._proposer = proposer
        self._counter = counter

    def load(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - passed on
        self._proposer.load(*args, **kwargs)

    def feedback(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - passed on
        self._proposer.feedback(*args, **kwargs)

    def propose(self) -> list[ShardingOption] | None:
        proposal: list[ShardingOption] | None = self._proposer.propose()
        return proposal if proposal and self._counter.may_propose() else None


def _first_that_fits(problem: ShardingProblem, counter: _Counter) -> ShardingPlan:
    refused = 0.0
    said = ""
    for share in MEMORY_SHARES:
        if share < refused:
            continue
        counter.fresh = True
        try:
            plan = _planned(problem, counter, share)
            check_memory(problem.workload, problem.topology, plan)
        except PlannerError as error:
            refused, said = share, str(error).strip().partition("\n")[0]
        except InfeasibleError as error:
            said = said or str(error)
        else:
            return plan
        counter.reserve = max(0, counter.reserve - 1)
    message = f"TorchRec's planner finds no plan: {said}" if said else None
    raise infeasible(problem.workload, problem.topology, message)


def _planned(problem: ShardingProblem, counter: _Counter, share: float) -> ShardingPlan:
    topology = problem.topology
    module, locations = _module(problem)
    proposers = (
        GridSearchProposer(),
        GreedyProposer(),
        GreedyProposer(use_depth=False),
        UniformProposer(),
    )
    planner = EmbeddingShardingPlanner(
        topology=make_topology(
            world_size=topology.world_size,
            local_world_size=topology.local_world_size,
            compute_device="cuda",
            hbm_cap=int(min(problem.rooms) * share),
            ddr_cap=int(problem.host_capacity / topology.local_world_size),
        ),
        batch_size=problem.workload.local_batch_size,
        constraints={
            locations[table.name].table: _constraints(problem, table)
            for table in problem.workload.tables
        },
        proposer=[_Budgeted(each, counter) for each in proposers],
        # the capacity has the reserve taken off already
        storage_reservation=FixedPercentageStorageReservation(0.0),
        stats=[],
        debug=False,
    )
    made = planner.plan(module, [EmbeddingBagCollectionSharder(), EmbeddingCollectionSharder()])
    return _with_fixed_tables(problem, from_torchrec(made, locations, problem.workload, topology))


def _with_fixed_tables(problem: ShardingProblem, plan: ShardingPlan) -> ShardingPlan:
    """Return the plan with tables where the user wants them, by the same type if it may be."""
    return make_plan(
        problem.topology,
        [_as_wanted(problem, table, plan.table(table.name)) for table in problem.workload.tables],
    )


def _as_wanted(
    problem: ShardingProblem, table: EmbeddingTable, sharding: TableSharding
) -> TableSharding:
    if not table.ranks:
        return sharding

    def difference(option: TableOption) -> tuple[bool, bool]:
        return (
            option.sharding_type is not sharding.sharding_type,
            option.compute_kernel is not sharding.compute_kernel,
        )

    nearest = min(problem.options[table.name], key=difference)
    return make_sharding(table, problem.topology, nearest)


def _module(problem: ShardingProblem) -> tuple[nn.Module, Mapping[str, TableLocation]]:
    """Return the workload's tables as collections on the meta device, and where each one is."""
    groups: dict[str, list[EmbeddingBagConfig | EmbeddingConfig]] = {}
    locations = {}
    for index, table in enumerate(problem.workload.tables):
        group = _group(table)
        locations[table.name] = TableLocation(
            module=group, table=f"t{index}"
        )  # names may have dots in them
        kind = EmbeddingConfig if table.pooling is Pooling.NONE else EmbeddingBagConfig
        config = kind(
            name=f"t{index}",
            num_embeddings=table.num_embeddings,
            embedding_dim=table.embedding_dim,
            feature_names=list(table.features),
            data_type=_TYPES.get(table.data_type, TorchRecType.INT8),
        )
        groups.setdefault(group, []).append(config)
    module = nn.ModuleDict({name: _collection(name, tables) for name, tables in groups.items()})
    tables = {f"t{index}": table for index, table in enumerate(problem.workload.tables)}
    for name, parameter in module.named_parameters():
        # where TorchRec's storage estimator looks for the optimizer
        optimizer = problem.workload.optimizer_of(tables[name.split(".")[-2]])
        vars(parameter)["_optimizer_classes"] = [OPTIMIZER_CLASSES[optimizer]]
    return module, locations


def _group(table: EmbeddingTable) -> str:
    """Return the collection a table is in; unpooled ones have one width each."""
    if table.pooling is Pooling.NONE:
        return f"unpooled_{table.embedding_dim}"
    return "weighted" if table.weighted else "pooled"


def _collection(group: str, configs: list[Any]) -> nn.Module:
    device = torch.device("meta")
    if group.startswith("unpooled"):
        return EmbeddingCollection(tables=configs, device=device)
    return EmbeddingBagCollection(tables=configs, device=device, is_weighted=group == "weighted")


def _constraints(problem: ShardingProblem, table: EmbeddingTable) -> ParameterConstraints:
    options = problem.options[table.name]
    kinds = dict.fromkeys(option.sharding_type for option in options)
    if ShardingType.GRID_SHARD not in table.sharding_types:
        kinds.pop(ShardingType.GRID_SHARD, None)
    return ParameterConstraints(
        sharding_types=[kind.value for kind in kinds],
        compute_kernels=list(dict.fromkeys(option.compute_kernel.value for option in options)),
        min_partition=table.min_shard_dim if table.min_shard_dim > 4 else None,
        pooling_factors=[table.pooling_factor / table.num_bags] * table.num_features,
        num_poolings=[table.bags_per_sample] * table.num_features,
        is_weighted=table.weighted,
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep TorchRec's messages, which are about its callers' habits, out of ours.

    It warns through the root logger, which sets up a handler for good unless there is one.
    """
    before, handler = logging.root.manager.disable, logging.NullHandler()
    logging.root.addHandler(handler)
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
        logging.root.removeHandler(handler)
