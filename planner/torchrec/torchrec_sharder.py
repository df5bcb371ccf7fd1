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

from costmodel.domain.plan import ShardingPlan
from costmodel.domain.workload import EmbeddingTable, Pooling
from planner.torchrec.model_reading import DATA_TYPES, OPTIMIZER_CLASSES
from planner.torchrec.plan_conversion import TableLocation, from_torchrec
from planner.torchrec.topology import make_topology
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

    def shard(self, problem: ShardingProblem, budget: Budget, rng: Random) -> SearchResult:
        """Return TorchRec's plan, found when it proposes nothing more or the budget is spent."""
        del rng
        with _quiet():
            return first_that_fits(problem, budget, partial(_planned, problem))


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


def _planned(problem: ShardingProblem, memory: Memory, counter: Counter) -> ShardingPlan | str:
    """Return the plan of TorchRec's planner, or the message of its refusal."""
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
            hbm_cap=memory.hbm,
            ddr_cap=memory.host,
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
