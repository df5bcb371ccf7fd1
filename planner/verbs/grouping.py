"""Choosing how many ranks share all tables, where a job has several groups of ranks that each do.

Where the group size is to be chosen, every size and place that may hold the tables gets some plans
by usual rules; then fewer and fewer of them get more and more time, and the last one the rest. A
single plan says little: of 856 tables on 256 H100, in groups of 16 and of all 256, it takes 197 and
297 ms, the best of 20 plans 156 and 128, what a search finds 116 and 105.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from operator import index
from typing import Literal

from costmodel.base.errors import InfeasibleError, InputError, Problem
from costmodel.base.modelled import Modelled
from costmodel.base.units import Seconds
from costmodel.domain.hardware import Topology
from costmodel.domain.replica_groups import ReplicaGroups, ShardingStrategy, local_group_size
from costmodel.domain.workload import Workload
from costmodel.memory.rank_memory import least_ranks
from costmodel.step.replica_sync import AveragingTime
from planner.planned.replicas import WeighedGroup
from planner.search.headroom import leaving
from planner.search.running import run_sharders
from planner.search.search import Attempt, Search, fastest
from planner.show.format import count
from sharders.problem.options import refusals
from sharders.problem.sharding_problem import ShardingProblem

SHARDER = "annealing"
"""Who makes the plans that group sizes are compared by."""
FIRST_PLANS = 20
"""Plans of every group size in the first round: a tenth of a CPU second at 856 tables, one of it
where a group has 1,024 ranks."""
FIRST_SHARE = 0.35
"""Share of the time left, or of the plans, after which the first round ends, however many sizes
have no plan yet."""
ROUNDS = ((10, 3.0, 0.15), (3, 1.5, 0.1))
"""Largest number of group sizes in each later round, their steps as a multiple of the shortest at
most, and the share of the time that the round has. Of 856 tables on 2,048 H100, groups of 64 are
the best: they come ninth by first plans, and second by searches of 0.3 seconds. First plans may
take six times as long as what a search finds (150 tables of which a few are large).
"""
FULLER_BEHIND = 1.1
"""Where no plan of a group size leaves memory free (``Search.headroom``), its step counts as so
many times as long: a fuller plan is chosen if it is surely the faster one."""
AUTO: Literal["auto"] = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """What is asked of the groups that a job's ranks are divided into."""

    group_size: int | Literal["auto"]
    sync_interval: int = 1
    """Steps from one averaging of replicas to the next."""
    sharding_strategy: ShardingStrategy = ShardingStrategy.DEFAULT
    """The collectives that average."""
    use_inter_host_allreduce: bool | None = None
    """Whether groups are of consecutive ranks; None: whichever is faster."""

    @classmethod
    def of(cls, topology: Topology) -> "Grouping | None":
        """Return what a group's topology was asked as; None: all ranks are one group."""
        replicas = topology.replicas
        if replicas is None:
            return None
        return cls(
            group_size=topology.world_size,
            sync_interval=replicas.sync_interval,
            sharding_strategy=replicas.sharding_strategy,
            use_inter_host_allreduce=replicas.use_inter_host_allreduce,
        )

    def topologies(self, job: Topology) -> tuple[Topology, ...]:
        """Return the topologies of a group that are to be weighed, of as many ranks or fewer.

        Raises
        ------
        InputError
            There is no such group; it says which sizes there are.

        """
        try:
            index(0 if self.group_size == AUTO else self.group_size)
        except TypeError:
            asked = f"`{self.group_size}` is no size of groups"
            raise _refused(asked, hint=f"a whole number, or `{AUTO}`") from None
        try:
            ReplicaGroups(
                num_groups=2,
                ranks_per_node=job.local_world_size,
                sync_interval=self.sync_interval,
                sharding_strategy=self.sharding_strategy,
            )
        except ValueError as error:
            raise _refused(str(error)) from None
        if self.group_size == job.world_size:
            if self != Grouping(group_size=self.group_size):
                raise _refused(
                    f"one group of all {job.world_size:,} has no replicas to average",
                    hint="leave out how they are averaged, or give smaller groups",
                )
            return (job,)
        if self.group_size == AUTO:
            return (*self._groups(job, group_sizes(job)), job)
        found = tuple(self._groups(job, [self.group_size]))
        if found:
            return found
        unit = job.hardware.device.unit
        sizes = sorted({each.world_size for each in self._groups(job, group_sizes(job))})
        listed = ", ".join(map(str, [*sizes, job.world_size]))
        raise _refused(
            f"{count(job.world_size, unit)} on {count(job.num_nodes, 'node')} are no groups of "
            f"{self.group_size} with as many ranks on each of their nodes",
            hint=f"sizes of groups here: {listed} (one group of all); or `{AUTO}`",
        )

    def _groups(self, job: Topology, sizes: Sequence[int]) -> Iterator[Topology]:
        """Yield the group topologies of some sizes, in each place that is asked for."""
        asked = self.use_inter_host_allreduce
        for size in sizes:
            for consecutive in (False, True) if asked is None else (asked,):
                found = self._group(job, size, consecutive=consecutive)
                if found is not None:
                    yield found

    def _group(self, job: Topology, size: int, *, consecutive: bool) -> Topology | None:
        """Return the topology of a job's group; None: there is none of that size there."""
        if size < 2 or size >= job.world_size or job.world_size % size:
            return None
        num_groups, per_node = job.world_size // size, job.local_world_size
        try:
            local = local_group_size(size, num_groups, per_node, consecutive=consecutive)
        except ValueError:
            return None
        replicas = ReplicaGroups(
            num_groups=num_groups,
            ranks_per_node=per_node,
            use_inter_host_allreduce=consecutive,
            sync_interval=self.sync_interval,
            sharding_strategy=self.sharding_strategy,
        )
        return replace(job, world_size=size, local_world_size=local, replicas=replicas)


def group_sizes(job: Topology) -> list[int]:
    """Return the sizes of groups that a job's ranks can be divided into, smallest first."""
    ranks = job.world_size
    return [size for size in range(2, ranks // 2 + 1) if ranks % size == 0]


def _refused(message: str, hint: str | None = None) -> InputError:
    return InputError("replica group", (Problem(message=message, hint=hint),))


def best_group(
    workload: Workload, topologies: Sequence[Topology], search: Search
) -> tuple[ShardingProblem, Attempt, tuple[WeighedGroup, ...]]:
    """Return the problem of the best group, its best plan, which is known to it, and all groups.

    Raises
    ------
    InfeasibleError
        No plan fits any of them; that of the group tried last.

    """
    every = [
        _Contender(problem, leaving(problem, search.headroom))
        for problem in (ShardingProblem.of(workload, each) for each in topologies)
        if not refusals(workload, problem.topology)
    ]
    error = _first_plans(every, search)
    running = [each for each in every if each.attempt is not None]
    if not running:
        raise _too_small(error, every) if error else _nothing_left(workload)
    for most, behind, share in ROUNDS:
        fastest_first = sorted(running, key=lambda each: each.step)
        near = fastest_first[0].step * behind
        running = [each for each in fastest_first[:most] if each.step <= near]
        goes_on = len(running) > 1 and not search.interrupted()
        for each in running if goes_on else ():
            each.search(_part(search, share / len(running)))
            each.was_searched = True
    best = min(running, key=lambda each: each.step)
    weighed = tuple(each.weighed(is_chosen=each is best) for each in every)
    return *best.solved, weighed


@dataclass(slots=True)
class _Contender:
    """A group topology's problem, and the best plan found so far."""

    problem: ShardingProblem
    roomy: ShardingProblem
    """The problem whose ranks keep memory free; the same one where none is to be kept, or no plan
    leaves so much."""
    is_full: bool = False
    """Whether no plan leaves as much memory free as asked for."""
    attempt: Attempt | None = None
    was_tried: bool = False
    was_searched: bool = False
    num_plans: int = 0

    @property
    def step(self) -> Seconds:
        """The best step by the models, longer of full ranks; infinite while there is no plan."""
        if self.attempt is None:
            return inf
        return self.attempt.step_time * (FULLER_BEHIND if self.is_full else 1.0)

    def search(self, search: Search) -> InfeasibleError | None:
        """Search anew; return the error that no plan fits, if none does.

        A longer search does first what a shorter one did.
        """
        self.was_tried = True
        error = self._search(search)
        if error is not None and self.roomy is not self.problem:
            self.roomy, self.is_full = self.problem, True
            error = self._search(search)
        return error

    def _search(self, search: Search) -> InfeasibleError | None:
        try:
            found = fastest(run_sharders((SHARDER,), self.roomy, search))
        except InfeasibleError as error:
            return error
        self.attempt = found if self.attempt is None else fastest((found, self.attempt))
        self.num_plans += found.evaluated
        return None

    @property
    def solved(self) -> tuple[ShardingProblem, Attempt]:
        """The problem with its best plan as known, and that plan; only where there is one."""
        if self.attempt is None:
            raise ValueError("no plan was found")
        return replace(self.problem, known=(self.attempt.found,)), self.attempt

    def weighed(self, *, is_chosen: bool) -> WeighedGroup:
        """Return what became of it."""
        found = None if self.attempt is None else Modelled(self.attempt.step_time)
        return WeighedGroup(
            topology=self.problem.topology,
            modelled=found,
            was_tried=self.was_tried,
            was_searched=self.was_searched,
            num_plans=self.num_plans,
            is_chosen=is_chosen,
        )


def _first_plans(sizes: Sequence[_Contender], search: Search) -> InfeasibleError | None:
    """Give every group size a plan, then more, until the first round has had its time.

    Those with the shortest step so far come first, to begin with those that average fastest.
    Returns the error that no plan fits, if it does so nowhere.
    """
    error, first = None, _first_round(search, len(sizes))
    by_averaging = sorted(sizes, key=_averaging_time)
    for place, each in enumerate(by_averaging):
        if not place or not first.interrupted():
            error = each.search(replace(first, max_plans=1)) or error
    for each in sorted(by_averaging, key=lambda each: each.step):
        if each.attempt is not None and not first.interrupted():
            each.search(first)
    return error


def _averaging_time(contender: _Contender) -> Seconds:
    """Return the mean rank's share of averaging in a step: what a group's step takes beside it."""
    return AveragingTime.exposed(contender.problem.workload, contender.problem.topology)


def _first_round(search: Search, num_sizes: int) -> Search:
    """Return the search for the first plans of one of several group sizes.

    It is interrupted once the first round has had its share of the time.
    """
    now = search.clock()
    began = now if search.began is None else search.began
    late = now + FIRST_SHARE * max(0.0, began + search.seconds - now)
    plans = FIRST_PLANS
    if search.max_plans is not None:
        plans = min(plans, int(FIRST_SHARE * search.max_plans / max(1, num_sizes)))
    return replace(
        _alone(search, search.time_limit, max(1, plans)),
        interrupted=lambda: search.interrupted() or search.clock() > late,
    )


def _part(search: Search, share: float) -> Search:
    """Return a search for a share of the time, or of the plans."""
    counted = None if search.max_plans is None else max(1, int(share * search.max_plans))
    return _alone(search, share * search.time_limit, counted)


def _alone(search: Search, time_limit: Seconds, max_plans: int | None) -> Search:
    """Return a search with limits of its own, in this process, that does not end before them."""
    return replace(
        search, time_limit=time_limit, max_plans=max_plans, patience=inf, jobs=1, storage=None
    )


def _too_small(error: InfeasibleError, every: Sequence[_Contender]) -> InfeasibleError:
    """Return the error that no plan fits a group, with how many ranks the tables need at least."""
    problem = max((each.problem for each in every), key=lambda each: each.topology.world_size)
    needed = ceil(least_ranks(problem.workload, problem.topology))
    job = problem.topology.num_ranks
    more = range(max(needed, problem.topology.world_size + 1), job + 1)
    least = next((size for size in more if job % size == 0), None)
    larger = f"groups of {least} ranks or more (`--replica-group`), or `{AUTO}`"
    return replace(error, hint="more GPUs (`--gpus`)" if least is None else larger)


def _nothing_left(workload: Workload) -> InputError:
    """Return the error that no group can have all tables as their constraints want them."""
    names = ", ".join(f"`{table.name}`" for table in workload.tables if table.ranks)
    return _refused(
        f"no group of ranks can shard all tables{f' ({names} have `ranks`)' if names else ''}",
        hint="allow `fused` weights and more sharding types, or plan without groups",
    )
