"""Deciding which tables are replicated: no frozen one, others only where that is surely faster.

A replicated table (``data_parallel``) is a parameter of its own, which the training loop's dense
optimizer updates, and nothing in the backward: replicating it changes what is trained unless the
loop is changed. TorchRec's planner hardly ever does it, so scripts do not expect it.
"""

from collections.abc import Callable, Collection
from dataclasses import replace

from costmodel.base.errors import InfeasibleError
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ComputeKernel, ShardingPlan, ShardingType
from costmodel.domain.workload import EmbeddingTable, Optimizer, Workload
from costmodel.engine.objective import Objective
from costmodel.uncertainty.sampling import NUM_SAMPLES, Draws
from costmodel.uncertainty.step_samples import sample_steps
from planner.decision.choice import INTERPRETED_SAMPLES
from planner.environment.compiled import interpreted_modules
from planner.planned.verdict import SAME_STEP
from planner.search.search import Attempt, Search
from planner.torchrec.communication import fused_params
from planner.torchrec.model_reading import ModelTables
from planner.torchrec.modules import FoundTable
from sharders.problem.options import refusals
from sharders.problem.sharding_problem import SearchStatus

SURE = 0.95
"""Probability from which a step counts as surely shorter, by more than ``SAME_STEP``."""
FIRST_SHARE = 0.5
"""Share of the time limit for the search with replication; the search without has the rest."""

Find = Callable[[Workload, Search, tuple[ShardingPlan, ...]], Attempt]
"""Returns a workload's best plan, given plans known already; raises InfeasibleError."""


def is_frozen(found: FoundTable) -> bool:
    """Return whether a table is not trained: no gradients, or a learning rate of 0.

    The rate is that of the optimizer set in the backward, or of the sharder's fused parameters.
    """
    return not getattr(found.parameter, "requires_grad", True) or has_no_rate(found)


def has_no_rate(found: FoundTable) -> bool:
    """Return whether the table's update in the backward has a learning rate of 0."""
    own = getattr(found.parameter, "_optimizer_kwargs", None) or ()
    rates = [each.get("lr") for each in own] or [fused_params(found).get("learning_rate")]
    return all(rate is not None and bool(rate == 0) for rate in rates)


def frozen_tables(model: ModelTables) -> frozenset[str]:
    """Return the names of a model's frozen tables that the cost model knows."""
    frozen = {(each.path, each.name) for each in model.found if is_frozen(each)}
    return frozenset(
        name for name, at in model.locations.items() if (at.module, at.table) in frozen
    )


def unreplicated(table: EmbeddingTable) -> EmbeddingTable:
    """Return a table without the choice of replication, if another choice is left."""
    kinds = tuple(kind for kind in table.sharding_types if kind is not ShardingType.DATA_PARALLEL)
    kernels = tuple(each for each in table.compute_kernels if each is not ComputeKernel.DENSE)
    if not kinds or kinds == table.sharding_types:
        return table
    return replace(table, sharding_types=kinds, compute_kernels=kernels)


def without_replicas(
    workload: Workload, topology: Topology, tables: Collection[str] | None = None
) -> Workload:
    """Return a workload in which some tables, or all, are not replicated if they may be sharded."""
    apart = [
        unreplicated(each) if tables is None or each.name in tables else each
        for each in workload.tables
    ]
    tried = replace(workload, tables=tuple(apart))
    refused = {each.table for each in refusals(tried, topology)}
    kept = (
        before if before.name in refused else after
        for before, after in zip(workload.tables, apart, strict=True)
    )
    return replace(workload, tables=tuple(kept))


def as_judged(workload: Workload, *, told: bool) -> Workload:
    """Return the workload under which plans that replicate tables are compared with others.

    ``told`` is whether the dense optimizer is given, which updates all rows of these tables. If it
    is not, it is taken to be Adam, which takes longest.
    """
    if told:
        return workload
    return replace(workload, dense=replace(workload.dense, optimizer=Optimizer.ADAM))


def planned_with_care(
    find: Find, workload: Workload, topology: Topology, search: Search, judged: Workload
) -> Attempt:
    """Return the best plan that replicates no table, unless one that does is surely faster.

    If the first search replicates nothing and came to its end, there is no second.

    Parameters
    ----------
    find, workload, topology, search
        What is searched, and how.
    judged
        The workload under which plans with replicated tables are compared with others.

    Raises
    ------
    InfeasibleError
        No plan fits.

    """
    apart = without_replicas(workload, topology)
    if apart == workload:
        return find(workload, search, ())
    started = search.clock()

    def rest() -> Search:
        left = search.time_limit - (search.clock() - started)
        return replace(search, time_limit=max(0.0, left))

    try:
        first = find(judged, replace(search, time_limit=FIRST_SHARE * search.time_limit), ())
    except InfeasibleError:  # what is judged may need more memory
        return find(apart, rest(), ())
    first = replace(first, step_time=Objective(workload, topology).step_time(first.found))
    replicated = _replicates(first.found, workload, apart)
    if not replicated and (first.early is not None or first.status is not SearchStatus.LIMIT):
        return first
    try:
        second = find(apart, rest(), () if replicated else (first.found,))
    except InfeasibleError:
        return first
    if not replicated:
        return min(first, second, key=lambda each: each.step_time)
    sure = _is_surely_faster(judged, topology, first.found, second.found)
    return first if sure else second


def _replicates(plan: ShardingPlan, workload: Workload, apart: Workload) -> bool:
    """Return whether a plan replicates a table that may be sharded."""
    return any(
        before is not after and plan.table(before.name).sharding_type is ShardingType.DATA_PARALLEL
        for before, after in zip(workload.tables, apart.tables, strict=True)
    )


def _is_surely_faster(
    workload: Workload, topology: Topology, first: ShardingPlan, second: ShardingPlan
) -> bool:
    """Return whether the first plan is faster than the second by more than the models may err."""
    objective = Objective(workload, topology)
    if objective.step_time(first) > (1 - SAME_STEP) * objective.step_time(second):
        return False
    draws = Draws.of(topology, INTERPRETED_SAMPLES if interpreted_modules() else NUM_SAMPLES)
    samples = sample_steps(workload, topology, (first, second), draws=draws)
    shorter = samples.times[:, 0] <= (1 - SAME_STEP) * samples.times[:, 1]
    return float(shorter.mean()) >= SURE
