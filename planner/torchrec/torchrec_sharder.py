"""TorchRec's own planner as a sharder: it makes the plan, and our simulator times it.

``sharders.torchrec`` is a port of it, compared with it plan by plan (``bench.torchrec_port``).
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import torch
from torch import nn
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.proposers import (
    GreedyProposer,
    GridSearchProposer,
    UniformProposer,
)
from torchrec.distributed.planner.shard_estimators import EmbeddingStorageEstimator
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import (
    ParameterConstraints,
    PerfModel,
    PlannerError,
    Proposer,
    ShardEstimator,
    ShardingOption,
)
from torchrec.modules.embedding_configs import EmbeddingBagConfig, EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection
from torchrec.types import DataType as TorchRecType

from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingPlan
from costmodel.domain.workload import EmbeddingTable, Pooling
from planner.torchrec.model_reading import DATA_TYPES, OPTIMIZER_CLASSES
from planner.torchrec.modules import full_name
from planner.torchrec.option_reading import ReadOptions
from planner.torchrec.plan_conversion import TableLocation, from_torchrec
from planner.torchrec.topology import make_topology
from sharders.problem.options import make_plan
from sharders.problem.sharding_problem import Budget, SearchResult, ShardingProblem
from sharders.torchrec.attempts import Counter, Memory, first_that_fits
from sharders.torchrec.search_space import allowed, collection, min_partition

_TYPES = {
    known: TorchRecType[name]
    for name, known in reversed(DATA_TYPES.items())
    if name in TorchRecType.__members__
}
"""TorchRec's type of ours; INT8, of as many bytes, stands for NFP8 where a version has none."""


@dataclass(frozen=True, slots=True)
class TorchRecPlanner:
    """Runs ``EmbeddingShardingPlanner`` on the workload's tables, on the meta device.

    Its proposers, partitioner and cost model are the defaults, for the machine it takes by default;
    ``grid_shard`` and column shards narrower than 128 only where a table asks for them, as its
    enumerator has it. It cannot place tables on given ranks: tables with ``ranks`` are moved there
    afterwards. Ignores the objective and the seed.
    """

    our_times: bool = False
    """Whether its shards' times are those of our cost model (``ShardTimer``)."""
    our_step: bool = False
    """Whether it rates its proposals by the simulated step."""

    def shard(self, problem: ShardingProblem, budget: Budget, rng: Random) -> SearchResult:
        """Return TorchRec's plan, found when it proposes nothing more or the budget is spent."""
        del rng
        with _quiet():
            return first_that_fits(problem, budget, partial(_planned, self, problem))


class _Budgeted(Proposer):  # type: ignore[misc]  # torchrec has no types here
    """A proposer that ends when the budget does."""

    def __init__(self, proposer: Proposer, counter: Counter) -> None:
        self._proposer = proposer
        self._counter = counter

    def load(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - passed on
        self._proposer.load(*args, **kwargs)

    def feedback(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - passed on
        self._proposer.feedback(*args, **kwargs)

    def propose(self) -> list[ShardingOption] | None:
        proposal: list[ShardingOption] | None = self._proposer.propose()
        return proposal if proposal and self._counter.may_propose() else None


class _OurTimes(ShardEstimator):  # type: ignore[misc]  # torchrec has no types here
    """Estimates by our cost model, with all that the problem's tables say of their ids."""

    def __init__(self, read: ReadOptions, topology: Topology) -> None:
        self._read, self._topology = read, topology

    def estimate(self, sharding_options: list[ShardingOption], *_: Any, **__: Any) -> None:  # noqa: ANN401 - sharders, by names that versions have
        found = self._read.perfs(sharding_options, self._topology)
        for option, perfs in zip(sharding_options, found, strict=True):
            for shard, perf in zip(option.shards, perfs, strict=True):
                shard.perf = perf


class _OurStep(PerfModel):  # type: ignore[misc]  # torchrec has no types here
    """Rates proposals by the problem's objective."""

    def __init__(self, read: ReadOptions, problem: ShardingProblem) -> None:
        self._read, self._problem = read, problem

    def rate(self, plan: list[ShardingOption]) -> float:
        found = make_plan(self._problem.topology, list(map(self._read.sharding, plan)))
        return self._problem.objective.step_time(found)


def _planned(
    settings: TorchRecPlanner, problem: ShardingProblem, memory: Memory, counter: Counter
) -> ShardingPlan | str:
    """Return the plan of TorchRec's planner, or the message of its refusal."""
    topology = problem.topology
    module, locations = _module(problem)
    read = ReadOptions(
        workload=problem.workload,
        names={full_name(each.module, each.table): name for name, each in locations.items()},
    )
    told = {
        "topology": make_topology(
            world_size=topology.world_size,
            local_world_size=topology.local_world_size,
            compute_device="cuda",
            hbm_cap=memory.hbm,
            ddr_cap=memory.host,
        ),
        "constraints": {
            locations[table.name].table: _constraints(problem, table)
            for table in problem.workload.tables
        },
    }
    batch_size = problem.workload.local_batch_size
    times = [_OurTimes(read, topology), EmbeddingStorageEstimator(**told)]
    proposers = (
        GridSearchProposer(),
        GreedyProposer(),
        GreedyProposer(use_depth=False),
        UniformProposer(),
    )
    planner = EmbeddingShardingPlanner(
        **told,
        batch_size=batch_size,
        enumerator=EmbeddingEnumerator(
            **told, batch_size=batch_size, estimator=times if settings.our_times else None
        ),
        performance_model=_OurStep(read, problem) if settings.our_step else None,
        proposer=[_Budgeted(each, counter) for each in proposers],
        # the capacity has the reserve taken off already
        storage_reservation=FixedPercentageStorageReservation(0.0),
        stats=[],
        debug=False,
    )
    sharders = [EmbeddingBagCollectionSharder(), EmbeddingCollectionSharder()]
    try:
        made = planner.plan(module, sharders)
    except PlannerError as error:
        return str(error).strip().partition("\n")[0]
    return from_torchrec(made, locations, problem.workload, topology)


def _module(problem: ShardingProblem) -> tuple[nn.Module, Mapping[str, TableLocation]]:
    """Return the workload's tables as collections on the meta device, and each one's location."""
    groups: dict[str, list[EmbeddingBagConfig | EmbeddingConfig]] = {}
    locations = {}
    for index, table in enumerate(problem.workload.tables):
        group = collection(table)
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


def _collection(group: str, configs: list[Any]) -> nn.Module:
    """Return TorchRec's module for tables that are all pooled, weighted or unpooled."""
    device = torch.device("meta")
    if group.startswith("unpooled"):
        return EmbeddingCollection(tables=configs, device=device)
    return EmbeddingBagCollection(tables=configs, device=device, is_weighted=group == "weighted")


def _constraints(problem: ShardingProblem, table: EmbeddingTable) -> ParameterConstraints:
    kinds, kernels = allowed(problem, table)
    return ParameterConstraints(
        sharding_types=[kind.value for kind in kinds],
        compute_kernels=[kernel.value for kernel in kernels],
        min_partition=min_partition(table),
        pooling_factors=[table.pooling_factor / table.num_bags] * table.num_features,
        num_poolings=[table.bags_per_sample] * table.num_features,
        is_weighted=table.weighted,
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress TorchRec's messages, which are about the habits of its callers.

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
