"""Step times of plans under many possible errors of the model: intervals, and odds between plans.

Every sample is one way in which the model may be wrong, the same for all plans (common random
numbers): what makes one plan slower than predicted mostly makes the others slower too, and
does not change which is faster. Per sample, durations are scaled and the step is timed by the same
recurrences as ever, so that an error off the critical path counts for nothing until it is on it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from costmodel.base.arrays import Array
from costmodel.base.units import Seconds
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingPlan, TableSharding
from costmodel.domain.workload import Workload
from costmodel.kernels.embedding import lookup_time
from costmodel.step.loads import PlanLoads
from costmodel.step.step_operations import StepOperations
from costmodel.step.synthesis import step_operations
from costmodel.uncertainty.error_model import Cause, ErrorModel, error_model
from costmodel.uncertainty.sampling import Draws, PlanNoise, Sampler
from costmodel.uncertainty.unread import unread_time

LEVEL = 0.9
"""Probability of the intervals on screen."""
_DENSE = 20
"""Sums over shards are matrix products if more than one in so many (table, rank) pairs has a
shard."""
_TINY = float(np.finfo(np.float64).tiny)

Indices = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class StepSamples:
    """Step times of several plans under sampled errors."""

    predicted: Array
    """Without errors, shape (plans,)."""
    times: Array
    """Shape (samples, plans)."""
    shared: Mapping[Cause, Array]
    """The shared errors by cause, in standard deviations, shape (samples,)."""

    def beside(self, other: "StepSamples") -> "StepSamples":
        """Return these plans and those of another machine or workload, sampled with equal draws."""
        return StepSamples(
            predicted=np.concatenate([self.predicted, other.predicted]),
            times=np.concatenate([self.times, other.times], axis=1),
            shared={**other.shared, **self.shared},
        )

    def of(self, plans: Sequence[int]) -> "StepSamples":
        """Return the samples of some of these plans, in another order."""
        order = list(plans)
        return StepSamples(
            predicted=self.predicted[order], times=self.times[:, order], shared=self.shared
        )

    def interval(self, plan: int = 0, level: float = LEVEL) -> tuple[Seconds, Seconds]:
        """Return the central interval of a plan's step with some probability, in seconds."""
        low, high = np.quantile(self.times[:, plan], [0.5 - level / 2, 0.5 + level / 2])
        return float(low), float(high)

    def mean(self, plan: int = 0) -> Seconds:
        """Return a plan's expected step, in seconds.

        It is longer than predicted where ranks wait for each other, as the slowest sets the pace.
        """
        return float(self.times[:, plan].mean())

    def probability_faster(self, plan: int, other: int) -> float:
        """Return the probability that one plan is faster than another.

        A half if they are the same.
        """
        mine, theirs = self.times[:, plan], self.times[:, other]
        return float(np.mean(mine < theirs) + 0.5 * np.mean(mine == theirs))

    def probability_fastest(self) -> tuple[float, ...]:
        """Return the probability that each plan is the fastest of all; equal plans share."""
        best = self.times == self.times.min(axis=1, keepdims=True)
        return tuple(
            float(share) for share in (best / best.sum(axis=1, keepdims=True)).mean(axis=0)
        )

    def regret(self, plan: int) -> Seconds:
        """Return the expected seconds by which a plan is slower than the fastest one."""
        return float(np.mean(self.times[:, plan] - self.times.min(axis=1)))

    def optimism(self) -> float:
        """Return by what share the step of the fastest of these plans is under-estimated.

        The winner's curse: of several plans, the one whose error is most in its favour tends to be
        picked. With m(k) plan k's mean and e(s, k) its error in sample s, both of log time, a
        sample's predictions m(k) + e(s, k) pick the plan k(s), whose time they miss by

            optimism = -E e(s, k(s))

        Zero for one plan, and for errors that all plans share; never negative.

        References
        ----------
        Smith and Winkler, The Optimizer's Curse, Management Science 52 (2006).

        """
        logs = np.log(self.times)
        errors = logs - logs.mean(axis=0)
        picked = logs.argmin(axis=1)
        return max(0.0, float(-np.take_along_axis(errors, picked[:, None], axis=1).mean()))

    def shares(self, plan: int = 0) -> Mapping[Cause, float]:
        """Return the share of a plan's variance that each cause's shared error explains.

        Squared correlations with the log step time, those left out that chance gives unrelated
        numbers once in twenty times (4 over their number). What is missing to 1 are the own errors
        of single kernels. Largest first.
        """
        wanted = np.log(self.times[:, plan])
        wanted = wanted - wanted.mean()
        total = float(wanted @ wanted)
        if not total:
            return {}
        shares = {
            cause: float(wanted @ score) ** 2 / (total * float(score @ score))
            for cause, score in self.shared.items()
        }
        least = 4.0 / len(wanted)
        known = [(cause, share) for cause, share in shares.items() if share >= least]
        whole = max(1.0, sum(share for _, share in known))  # by chance it may be a little above 1
        return {cause: share / whole for cause, share in sorted(known, key=lambda item: -item[1])}


def sample_steps(
    workload: Workload,
    topology: Topology,
    plans: Sequence[ShardingPlan],
    *,
    errors: ErrorModel | None = None,
    draws: Draws | None = None,
    loads: PlanLoads | None = None,
) -> StepSamples:
    """Return the step times of plans under errors of the machine's profile, or other errors.

    Lookup errors are drawn per table, and a rank's kernels have the mean of its tables', weighted
    by their time: two ranks that hold different tables are off by different factors, two plans that
    hold the same tables in the same place by the same. ``loads`` may know shards of the plans.
    """
    loads = loads or PlanLoads(workload, topology)
    draws = draws or Draws.of(topology)
    if errors is None:
        errors = error_model(topology, workload.dense.precision)
        errors = replace(errors, unread=unread_time(workload, topology.hardware.gpu))
    sampler = Sampler(topology, errors, draws)
    found = {
        plan: sampler.step_times(
            step_operations(workload, topology, plan, loads, every_batch=False),
            plan_noise(plan, draws, loads),
        )
        for plan in dict.fromkeys(plans)
    }
    return StepSamples(
        predicted=np.array([found[plan][0] for plan in plans]),
        times=np.stack([found[plan][1] for plan in plans], axis=1),
        shared=_shared(errors, draws),
    )


def sample_operations(step: StepOperations, topology: Topology, errors: ErrorModel) -> StepSamples:
    """Return the times of one step under errors; lookups of an operation share a factor."""
    draws = Draws.of(topology)
    predicted, times = Sampler(topology, errors, draws).step_times(step)
    return StepSamples(
        predicted=np.array([predicted]), times=times[:, None], shared=_shared(errors, draws)
    )


def plan_noise(plan: ShardingPlan, draws: Draws, loads: PlanLoads) -> PlanNoise:
    """Return a plan's own errors, made of those of its tables.

    The lookups of a rank have the mean of its tables' errors, weighted by time. The structure has
    one error per table and placement, weighted such that the squares add up to 1: two plans share
    it as far as they place tables alike.
    """
    workload, topology = loads.workload, loads.topology
    lookups = _Lookups.of(plan, loads)
    own = np.stack([draws.normal(f"lookups of {t.name}") for t in workload.tables], axis=1)
    placed = np.stack([draws.normal(_place(plan.table(t.name))) for t in workload.tables], axis=1)
    return PlanNoise(
        lookups=lookups.rank_means(own, topology.world_size),
        structure=placed @ np.sqrt(lookups.table_shares(len(workload.tables))),
    )


def _shared(errors: ErrorModel, draws: Draws) -> dict[Cause, Array]:
    """Return standard normal draws of each cause's shared error, shape (samples,)."""
    causes = [cause for cause, spread in errors.spreads.items() if spread.shared]
    if errors.unread:
        causes.append(Cause.UNREAD)
    return {cause: draws.normal(cause) for cause in causes}


def _place(sharding: TableSharding) -> str:
    """Return a text for where a table's shards are, the same for the same placement."""
    ranks = " ".join(map(str, sharding.ranks))
    return f"{sharding.table} {sharding.sharding_type} {sharding.compute_kernel} {ranks}"


@dataclass(frozen=True, slots=True, eq=False)
class _Lookups:
    """Seconds of the lookups of every table alone, on every rank that has a shard of it."""

    tables: Indices
    """Table of each entry, shape (shards,), as in the other arrays."""
    ranks: Indices
    seconds: Array

    @classmethod
    def of(cls, plan: ShardingPlan, loads: PlanLoads) -> "_Lookups":
        """Return the lookups of a plan, by rank."""
        rows = [(index, row) for index, own in enumerate(loads.rows(plan)) for row in own]
        traffic = np.array([row.traffic for _, row in rows])
        weighted = np.array([loads.workload.tables[index].weighted for index, _ in rows])
        alone = lookup_time(traffic, loads.topology.hardware, weighted=weighted)
        counts = [len(row.ranks) for _, row in rows]
        ranks = np.fromiter(chain.from_iterable(row.ranks for _, row in rows), dtype=np.intp)
        order = np.argsort(ranks, kind="stable")
        return cls(
            np.repeat([index for index, _ in rows], counts)[order],
            ranks[order],
            np.repeat(alone, counts)[order],
        )

    def table_shares(self, num_tables: int) -> Array:
        """Return every table's share of all seconds, shape (tables,); 0 where there are none."""
        seconds = np.bincount(self.tables, self.seconds, num_tables)
        shares: Array = seconds / max(float(seconds.sum()), _TINY)
        return shares

    def rank_means(self, values: Array, world_size: int) -> Array:
        """Return means over every rank's tables, weighted by seconds, shape (samples, ranks).

        ``values`` has shape (samples, tables). Most tables are on few ranks: sums over these take a
        tenth of a matrix product at 5,000 tables on 1,024 ranks, which is faster only if many are
        on all ranks.
        """
        total = np.bincount(self.ranks, self.seconds, world_size)
        weights = self.seconds / np.maximum(total, _TINY)[self.ranks]
        if len(weights) * _DENSE > values.shape[1] * world_size:
            matrix = np.zeros((values.shape[1], world_size))
            np.add.at(matrix, (self.tables, self.ranks), weights)
            product: Array = values @ matrix
            return product
        means = np.zeros((len(values), world_size))
        firsts = np.flatnonzero(np.diff(self.ranks, prepend=-1))
        for own, mean in zip(values, means, strict=True):
            mean[self.ranks[firsts]] = np.add.reduceat(own[self.tables] * weights, firsts)
        return means
