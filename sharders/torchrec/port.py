"""TorchRec's planner, ported, as a sharder: it makes the plan, and our simulator times it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from costmodel.domain.plan import ShardingPlan, TableSharding
from sharders.problem.options import make_plan, make_sharding
from sharders.problem.sharding_problem import Budget, SearchResult, ShardingProblem
from sharders.torchrec.attempts import Counter, Memory, first_that_fits
from sharders.torchrec.candidates import Candidates, Integers
from sharders.torchrec.partitioner import Partitioner
from sharders.torchrec.proposers import proposals
from sharders.torchrec.search_space import SearchSpace, search_space

_UNRATED = float((1 << 63) - 1)
"""``MAX_SIZE`` of constants.py: only plans rated below are plans."""
NO_PLAN = "no combination of options that it tried has room"
_MOST_TRIES = 8
"""Number of combinations placed for a first plan, whatever the budget: some 2 s at 5,000 tables on
1,024 GPUs."""


@dataclass(frozen=True, slots=True)
class TorchRecPort:
    """Makes the plan that ``EmbeddingShardingPlanner`` makes with its defaults, without torch.

    Shard by shard the same as the sharder ``torchrec``, which runs the planner itself: its
    enumerator, estimators, proposers and partitioner of torchrec 1.9.2, for the machine that it
    takes by default, whatever the machine is. Combinations that cannot be rated better than the
    best so far are not partitioned to the end. Ignores the objective and the seed.
    """

    def shard(self, problem: ShardingProblem, budget: Budget, rng: Random) -> SearchResult:
        """Return the best rated plan when nothing is left to propose, or the budget is spent."""
        del rng
        space = search_space(problem)
        candidates = Candidates(space)

        def planned(memory: Memory, counter: Counter) -> ShardingPlan | str:
            partitioner = Partitioner(candidates, space.ranks, memory)
            found = _best(candidates, partitioner, counter)
            return NO_PLAN if found is None else _plan(problem, space, candidates, found)

        return first_that_fits(problem, budget, planned)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A combination of candidates, by table, and its places."""

    chosen: Integers
    places: Mapping[int, Sequence[int]]
    """Places of the column blocks, of tables that have a choice."""


def _best(candidates: Candidates, partitioner: Partitioner, counter: Counter) -> _Found | None:
    """Return the first of the best rated combinations; None: none has room."""
    best, found = _UNRATED, None
    for chosen in proposals(candidates):
        if not counter.may_propose():
            break
        rating = partitioner.rating(chosen, best)
        if rating < best:
            best, found = rating, _Found(chosen=chosen.copy(), places=partitioner.places)
        counter.fresh = found is None and partitioner.tries < _MOST_TRIES
    return found


def _plan(
    problem: ShardingProblem, space: SearchSpace, candidates: Candidates, found: _Found
) -> ShardingPlan:
    """Return a combination as our plan, tables in the workload's order."""
    shardings: dict[str, TableSharding] = {}
    for index, (table, number) in enumerate(zip(space.tables, found.chosen, strict=True)):
        option, places = candidates.found[number].option, found.places.get(index, ())
        shardings[table.name] = make_sharding(table, problem.topology, option, places)
    return make_plan(problem.topology, [shardings[table.name] for table in problem.workload.tables])
