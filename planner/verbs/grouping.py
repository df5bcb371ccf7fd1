"""Choosing how many ranks share all tables, where a job has several groups of ranks that each do.

Where the group size is to be chosen, every size and place that may hold the tables gets a plan at
once; then fewer and fewer of them get more and more time, from their best plan on, and the last one
the rest. Steps of the first plans say little (840 ms where 190 can be had: 856 tables on 1,024 H100
as one group; 228 and 105 in groups of 64), but which sizes are far off.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
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
from planner.search.running import run_sharders
from planner.search.search import Attempt, Search, fastest
from planner.show.format import count
from sharders.problem.options import refusals
from sharders.problem.sharding_problem import ShardingProblem

SHARDER = "annealing"
"""Who makes the plans that group sizes are compared by."""
ROUNDS = ((None, 0.0), (5, 0.15), (2, 0.2))
"""Largest number of group sizes in each round, and the share of the time that the round has."""
FIRST_SHARE = 0.35
"""Share of the time left after which the first round ends, however many sizes have no plan yet."""
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

    def topologies(self, job: Topology) -> tuple[Topology, ...]:
        """Return the topologies of a group that are to be weighed, of as many ranks or fewer.

        Raises
        ------
        InputError
            There is no such group; it says which sizes there are.

        """
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
) -> tuple[ShardingProblem, tuple[WeighedGroup, ...]]:
    """Return the problem of the best group, with its best plan as known, and all groups weighed.

    Raises
    ------
    InfeasibleError
        No plan fits any of them; that of the group tried last.

    """
    every = [
        _Contender(ShardingProblem.of(workload, each))
        for each in topologies
        if not refusals(workload, each)
    ]
    running, error, late = sorted(every, key=_averaging_time), None, _first_end(search)
    for most, share in ROUNDS:
        running = sorted(running, key=lambda each: each.step)[:most]
        for place, each in enumerate(running):
            if share or not place or not (search.interrupted() or search.clock() > late):
                error = each.search(_part(search, share / len(running))) or error
        running = [each for each in running if each.attempt is not None]
        if not running:
            raise _too_small(error, every) if error else _nothing_left(workload)
    best = min(running, key=lambda each: each.step)
    return best.problem, tuple(each.weighed(is_chosen=each is best) for each in every)


@dataclass(slots=True)
class _Contender:
    """A group topology's problem, and the best plan found so far."""

    problem: ShardingProblem
    attempt: Attempt | None = None
    was_tried: bool = False
    num_plans: int = 0

    @property
    def step(self) -> Seconds:
        """The best step by the models; infinite while there is no plan."""
        return inf if self.attempt is None else self.attempt.step_time

    def search(self, search: Search) -> InfeasibleError | None:
        """Search from the best plan on; return the error that no plan fits, if none does."""
        self.was_tried = True
        try:
            found = fastest(run_sharders((SHARDER,), self.problem, search))
        except InfeasibleError as error:
            return error
        self.attempt = found
        self.num_plans += found.evaluated
        self.problem = replace(self.problem, known=(found.found,))
        return None

    def weighed(self, *, is_chosen: bool) -> WeighedGroup:
        """Return what became of it."""
        found = None if self.attempt is None else Modelled(self.attempt.step_time)
        return WeighedGroup(
            topology=self.problem.topology,
            modelled=found,
            was_tried=self.was_tried,
            num_plans=self.num_plans,
            is_chosen=is_chosen,
        )


def _averaging_time(contender: _Contender) -> Seconds:
    """Return the mean rank's share of averaging in a step: what a group's step takes beside it."""
    return AveragingTime.exposed(contender.problem.workload, contender.problem.topology)


def _first_end(search: Search) -> Seconds:
    """Return the time of the clock from which sizes without a plan have to go without one."""
    now = search.clock()
    began = now if search.began is None else search.began
    return now + FIRST_SHARE * max(0.0, began + search.seconds - now)


def _part(search: Search, share: float) -> Search:
    """Return a search for a share of the time, or of the plans, in this process."""
    counted = None if search.max_plans is None else max(1, int(share * search.max_plans))
    return replace(
        search, time_limit=share * search.time_limit, max_plans=counted, jobs=1, storage=None
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
