"""The sharders that Lin et al. compare: table-wise, one pass over the tables.

Lin, Sun, Bhattacharya, Feng, Feng, Owens: Towards Universal Performance Modeling for Machine
Learning Training on Multi-GPU Platforms, arXiv 2404.12674, Table III; names as in their
run_random_experiments.sh (github.com/owensgroup/ml_perf_model). The greedies are those of
DreamShard (Zha et al., NeurIPS 2022; github.com/daochenzha/dreamshard, dreamshard/sharders.py):
tables by decreasing cost, each to the rank with the smallest sum of costs so far.

All are memory-aware here (``problem.placement``), and split what fits nowhere whole. E rows,
D columns, L ids per sample.
"""

from dataclasses import dataclass
from math import log10
from random import Random as RandomState

import numpy as np

from costmodel.domain.workload import EmbeddingTable
from costmodel.inputs.distribution import unique_curve
from sharders.problem.first_fit import Occupancy, Order, Ranks, least_loaded
from sharders.problem.placement import Score, place_tables
from sharders.problem.sharding_problem import (
    Budget,
    Progress,
    SearchResult,
    SearchStatus,
    ShardingProblem,
)


@dataclass(frozen=True, slots=True)
class Naive:
    """Table i on rank i mod W, or on the next rank that has room.

    DreamShard's ``naive``. Ignores the seed.
    """

    def shard(self, problem: ShardingProblem, budget: Budget, rng: RandomState) -> SearchResult:
        """Place every table once."""
        del rng
        world_size = problem.topology.world_size
        twice = np.tile(np.arange(world_size), 2)

        def round_robin(index: int, occupancy: Occupancy) -> Ranks:
            del occupancy
            return twice[index % world_size :][:world_size]

        return _one_pass(problem, budget, _nothing, round_robin, sort=False)


@dataclass(frozen=True, slots=True)
class Random:
    """Every table on a rank drawn uniformly from those that have room.

    DreamShard's ``random``, made memory-aware. One draw, by the given random state.
    """

    def shard(self, problem: ShardingProblem, budget: Budget, rng: RandomState) -> SearchResult:
        """Place every table once."""
        world_size = problem.topology.world_size

        def shuffled(index: int, occupancy: Occupancy) -> Ranks:
            del index, occupancy
            return np.array(rng.sample(range(world_size), world_size))

        return _one_pass(problem, budget, _nothing, shuffled, sort=False)


@dataclass(frozen=True, slots=True)
class SizeGreedy:
    """Balances bytes of weights, E D times the element size.

    DreamShard's ``size_greedy``. Ignores the seed.
    """

    def shard(self, problem: ShardingProblem, budget: Budget, rng: RandomState) -> SearchResult:
        """Place every table once."""
        del rng
        return _greedy(problem, budget, lambda table: table.weight_bytes)


@dataclass(frozen=True, slots=True)
class LookupGreedy:
    """Balances looked-up elements, L D.

    DreamShard's ``lookup_greedy``. Ignores the seed.
    """

    def shard(self, problem: ShardingProblem, budget: Budget, rng: RandomState) -> SearchResult:
        """Place every table once."""
        del rng
        return _greedy(problem, budget, _lookups)


@dataclass(frozen=True, slots=True)
class NormLookupGreedy:
    """Balances looked-up elements normalised by reuse: distinct rows of a global batch times D.

    The paper names ``norm_lookup_greedy`` and its published code calls it, but the file that
    defines it is in a fork whose commit is not public any more. This is our reading: lookups
    divided by the table's mean reuse, what the lookup must at least fetch from memory. Ignores
    the seed.
    """

    def shard(self, problem: ShardingProblem, budget: Budget, rng: RandomState) -> SearchResult:
        """Place every table once."""
        del rng
        samples = problem.workload.local_batch_size * problem.topology.world_size

        def distinct_elements(table: EmbeddingTable) -> float:
            curve = unique_curve(table.inputs, table.num_embeddings)
            return curve.unique_rows(samples * table.pooling_factor) * table.embedding_dim

        return _greedy(problem, budget, distinct_elements)


@dataclass(frozen=True, slots=True)
class SizeLookupGreedy:
    """Balances looked-up elements weighted by size, L D log10(E).

    DreamShard's ``size_lookup_greedy``. Ignores the seed.
    """

    def shard(self, problem: ShardingProblem, budget: Budget, rng: RandomState) -> SearchResult:
        """Place every table once."""
        del rng
        return _greedy(problem, budget, lambda table: _lookups(table) * log10(table.num_embeddings))


def _nothing(table: EmbeddingTable) -> float:
    """Return 0 as a table's score."""
    del table
    return 0.0


def _lookups(table: EmbeddingTable) -> float:
    return table.pooling_factor * table.embedding_dim


def _greedy(problem: ShardingProblem, budget: Budget, score: Score) -> SearchResult:
    return _one_pass(problem, budget, score, least_loaded)


def _one_pass(
    problem: ShardingProblem, budget: Budget, score: Score, order: Order, *, sort: bool = True
) -> SearchResult:
    """Return the plan of one pass over the tables, with its step time."""
    plan = place_tables(problem, score, order, sort=sort)
    step_time = problem.objective.step_time(plan)
    budget.report(Progress(evaluated=1, best=step_time))
    return SearchResult(plan=plan, step_time=step_time, status=SearchStatus.CONVERGED)
