"""The protocol of sharders: the problem given, and the result returned."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Protocol

from costmodel.base.units import Bytes, Seconds
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingPlan
from costmodel.domain.workload import Workload
from costmodel.engine.objective import Objective
from sharders.problem.groundwork import Groundwork
from sharders.problem.options import TableOption

IMPROVED = 1e-6
"""Share of the step time that counts as an improvement: less may be rounding."""


class SearchObjective(Protocol):
    """An objective to minimise."""

    def step_time(self, plan: ShardingPlan) -> Seconds:
        """Return the predicted time of a training step under a valid plan."""
        ...


@dataclass(frozen=True, kw_only=True)
class ShardingProblem:
    """A workload to shard over a topology, the objective, and plans that are known.

    ``dataclasses.replace`` changes known plans or the objective; the groundwork stays the same one.
    """

    groundwork: Groundwork
    """The workload, the topology, and what a search derives from them."""
    objective: SearchObjective
    known: tuple[ShardingPlan, ...] = ()
    """Plans found already; a search may start from them."""

    @classmethod
    def of(
        cls,
        workload: Workload,
        topology: Topology,
        known: tuple[ShardingPlan, ...] = (),
        *,
        objective: SearchObjective | None = None,
    ) -> "ShardingProblem":
        """Return the problem of minimising the predicted step, or another objective."""
        objective = objective or Objective(workload, topology)
        return cls(groundwork=Groundwork(workload, topology), objective=objective, known=known)

    @property
    def workload(self) -> Workload:
        """The tables, and the step that reads them."""
        return self.groundwork.workload

    @property
    def topology(self) -> Topology:
        """The ranks, and what links them."""
        return self.groundwork.topology

    @property
    def options(self) -> Mapping[str, tuple[TableOption, ...]]:
        """Every table's legal options, by name."""
        return self.groundwork.options

    @property
    def num_options(self) -> int:
        """Number of options of all tables together."""
        return self.groundwork.num_options

    @property
    def rooms(self) -> tuple[Bytes, ...]:
        """HBM that every rank has for shards."""
        return self.groundwork.rooms

    @property
    def capacity(self) -> Bytes:
        """HBM that a rank has for shards; where ranks differ, the one that has most."""
        return self.groundwork.capacity

    @property
    def total_capacity(self) -> Bytes:
        """HBM that all ranks together have for shards."""
        return self.groundwork.total_capacity

    @property
    def host_capacity(self) -> Bytes:
        """Host memory that a node has for UVM tables."""
        return self.groundwork.host_capacity

    def known_times(self) -> list[tuple[Seconds, ShardingPlan]]:
        """Return the known plans, each after its step time."""
        return [(self.objective.step_time(plan), plan) for plan in self.known]

    def best_known(self) -> "SearchResult | None":
        """Return the best known plan as a result; None: there is none."""
        if not self.known:
            return None
        times = self.known_times()
        step_time, plan = min(times, key=lambda pair: pair[0])
        return SearchResult(
            plan=plan, step_time=step_time, status=SearchStatus.LIMIT, evaluated=len(times)
        )


class SearchStatus(StrEnum):
    """Why a search ended."""

    OPTIMAL = "optimal"
    """Nothing better exists, for the sharder's own objective."""
    CONVERGED = "converged"
    """The sharder has nothing left to try."""
    LIMIT = "limit"
    """The budget ran out."""
    GIVEN = "given"
    """It was not searched for: a baseline's plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The state of a search."""

    evaluated: int
    """Number of plans looked at."""
    best: Seconds
    bound: Seconds | None = None


def _never() -> bool:
    return False


def _forever() -> Seconds:
    return float("inf")


def _ignore(progress: Progress) -> None:
    del progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How long a search may go on; the caller has clocks and interrupts."""

    max_evaluations: int | None = None
    should_stop: Callable[[], bool] = _never
    """Called between plans; once it returns true, a sharder returns its best plan."""
    time_left: Callable[[], Seconds] = _forever
    """Returns the seconds left, for solvers that cannot be asked to stop."""
    report: Callable[[Progress], None] = _ignore

    def left(self, evaluated: int, most: int) -> int:
        """Return how many of ``most`` further plans may be looked at after so many."""
        if self.max_evaluations is None:
            return most
        return max(0, min(most, self.max_evaluations - evaluated))

    def spent(self, evaluated: int) -> bool:
        """Return whether to stop after so many plans."""
        over = self.max_evaluations is not None and evaluated >= self.max_evaluations
        return over or self.should_stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Value and bound of an objective of the sharder's own, which is not the step time."""

    value: Seconds
    """Value of its solution."""
    bound: Seconds | None
    """Lower bound of the value of all plans; None: not known."""

    @property
    def gap(self) -> float | None:
        """The share by which the value may be above the smallest one; None: not known."""
        if self.bound is None or self.value <= 0:
            return None
        return max(0.0, 1 - self.bound / self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The best plan a sharder found."""

    plan: ShardingPlan
    step_time: Seconds
    """By the problem's objective."""
    status: SearchStatus
    bound: Seconds | None = None
    """Lower bound of the objective of all valid plans; None: not known."""
    evaluated: int = 1
    """Number of plans looked at."""
    proof: Proof | None = None
    """Proof of a sharder that minimises something else than the step."""
    others: tuple[ShardingPlan, ...] = ()
    """Slower plans that differ from the best one: a search from them may end lower."""


class Sharder(Protocol):
    """Searches for a plan.

    The plan must be valid (``domain.validity``) and fit in memory (``costmodel.memory``); where
    none fits, ``InfeasibleError`` is raised. The same problem and random state give the same plan.
    ``planner.testing.SharderContract`` tests all of this.
    """

    def shard(self, problem: ShardingProblem, budget: Budget, rng: Random) -> SearchResult:
        """Return the best plan found within the budget: at least one, however small it is."""
        ...
