"""Beam search over column splits, with a greedy placement inside.

Zha et al.: Pre-train and Search: Efficient Embedding Table Sharding with Pre-trained Neural Cost
Models (NeuroShard), MLSys 2023: an outer beam search splits the costliest tables by columns, an
inner greedy places what comes out. Its costs are learned; here they are the objective's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from costmodel.base.errors import InfeasibleError
from costmodel.base.units import Seconds
from costmodel.domain.plan import ShardingPlan, ShardingType
from costmodel.domain.workload import EmbeddingTable
from sharders.greedy.cost_greedy import place_by_load
from sharders.problem.option_costs import OptionCost
from sharders.problem.sharding_problem import (
    Budget,
    Progress,
    SearchResult,
    SearchStatus,
    ShardingProblem,
)

BREADTH = 3
"""Number of sets of splits kept, NeuroShard's beam width."""
CANDIDATES = 10
"""Number of tables considered for one more split, NeuroShard's N."""
DEPTH = 10
"""Rounds without a faster plan before the search ends; NeuroShard's L splits in all."""


@dataclass(frozen=True, slots=True)
class Beam:
    """Splits the costliest tables, one more at a time, and keeps the best few sets of splits.

    Every table has a ladder of options: whole, then split ever finer (by columns; by rows where
    columns cannot be split), each with less load per shard. A round steps one of the
    ``candidates`` tables with the largest shards up its ladder, places everything by longest
    processing time within memory, and times the plan. No guarantee. Ignores the seed.
    """

    breadth: int = BREADTH
    candidates: int = CANDIDATES

    def shard(self, problem: ShardingProblem, budget: Budget, rng: Random) -> SearchResult:
        """Return the best plan when ``DEPTH`` rounds bring nothing, or the budget is spent."""
        del rng
        ladders = [_ladder(problem, table) for table in problem.workload.tables]
        search = _BeamSearch(problem, budget, ladders)
        beam = [search.time({})]
        quiet = 0
        while beam and quiet < DEPTH and not budget.spent(search.evaluated):
            before = search.best[0]
            beam = self._round(search, beam)
            quiet = 0 if search.best[0] < before else quiet + 1
        limit = budget.spent(search.evaluated)
        return SearchResult(
            plan=search.plan(),
            step_time=search.best[0],
            status=SearchStatus.LIMIT if limit else SearchStatus.CONVERGED,
            evaluated=search.evaluated,
        )

    def _round(self, search: "_BeamSearch", beam: Sequence["_State"]) -> list["_State"]:
        """Return the best of all sets of splits that are one step from the beam's."""
        states: list[_State] = []
        for state in beam:
            for index in search.costliest(state, self.candidates):
                if search.budget.spent(search.evaluated):
                    return states
                splits = {**state.splits, index: state.splits.get(index, 0) + 1}
                if splits not in [each.splits for each in states]:
                    states.append(search.time(splits))
        states.sort(key=lambda state: state.step_time)
        return states[: self.breadth]


@dataclass(frozen=True, slots=True)
class _State:
    """A set of splits (steps up the ladder, by table), and its step time."""

    splits: Mapping[int, int]
    step_time: Seconds


@dataclass(slots=True)
class _BeamSearch:
    """The best plan timed so far."""

    problem: ShardingProblem
    budget: Budget
    ladders: Sequence["_Ladder"]
    best: tuple[Seconds, ShardingPlan | None] = (float("inf"), None)
    evaluated: int = 0
    refused: list[InfeasibleError] = field(default_factory=list)

    def time(self, splits: Mapping[int, int]) -> _State:
        """Return a set of splits with its step time; infinite where tables do not fit."""
        candidates = [
            ladder.candidates(splits.get(index, 0)) for index, ladder in enumerate(self.ladders)
        ]
        self.evaluated += 1
        try:
            plan = place_by_load(self.problem, candidates)
        except InfeasibleError as refusal:
            self.refused.append(refusal)
            return _State(splits, float("inf"))
        step_time = self.problem.objective.step_time(plan)
        if step_time < self.best[0]:
            self.best = (step_time, plan)
            self.budget.report(Progress(evaluated=self.evaluated, best=step_time))
        return _State(splits, step_time)

    def plan(self) -> ShardingPlan:
        """Return the best plan.

        Raises
        ------
        InfeasibleError
            Nothing fitted.

        """
        if self.best[1] is None:
            raise self.refused[0]
        return self.best[1]

    def costliest(self, state: _State, most: int) -> list[int]:
        """Return the tables that can be split further, those with the largest shards first."""
        at = {i: state.splits.get(i, 0) for i in range(len(self.ladders))}
        free = [i for i, ladder in enumerate(self.ladders) if at[i] + 1 < len(ladder.steps)]
        return sorted(free, key=lambda i: (-self.ladders[i].steps[at[i]].shard_load, i))[:most]


@dataclass(frozen=True, slots=True)
class _Ladder:
    """A table's options from coarse to fine, each with less load per shard than the last."""

    steps: Sequence[OptionCost]
    spare: Sequence[OptionCost]
    """All other options, the cheapest first, for lack of room."""

    def candidates(self, step: int) -> list[OptionCost]:
        """Return the options to try, from a step on."""
        return [*self.steps[step:], *self.steps[:step], *self.spare]


def _ladder(problem: ShardingProblem, table: EmbeddingTable) -> _Ladder:
    """Return a table's options with ever more shards and less load each, and all the others."""
    every = sorted(
        problem.groundwork.costs.all_of(table),
        key=lambda cost: (cost.option.num_shards(problem.topology), cost.total_load),
    )
    copies = ShardingType.DATA_PARALLEL
    steps: list[OptionCost] = []
    for cost in every:
        if cost.option.sharding_type is copies and len(every) > 1:
            continue
        if not steps or cost.shard_load < steps[-1].shard_load:
            steps.append(cost)
    spare = sorted((c for c in every if c not in steps), key=lambda cost: cost.total_load)
    return _Ladder(steps or every, spare)
