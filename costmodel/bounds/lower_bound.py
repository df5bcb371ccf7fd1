"""A lower bound on the step time of any plan, by Lagrangian relaxation.

**Why it holds.** The rules of a step are max-plus linear, so its steady-state time is the weight
per step of the heaviest cycle: a walk along dependencies from an operation to the same operation
of a later step. Hence the weight of *any* cycle, and any weighted mean of cycles, is a bound.

The cycles used are of two kinds. Those of ``bounds.step_cycles`` run through host threads and
device alike, along the operations of the groups that all plans in question have, and those that
others put into the same queues. Those of ``bounds.paths`` run over one rank's streams, from the
first to the last operation of a step, along dependencies that are there whatever the plan. An
operation that a plan does not have counts nothing, and what it stood between has to follow one
another without it: only operations of which each two do (``bounds.precedence``) are on a cycle.
Collectives take as long on every rank, so the mean over ranks of such a cycle's weight is a bound,
too.

That mean is at least linear in the choice of the tables' options: lookups are bounded by HBM or by
the L2 cache (whichever the cycle is given), both sums over shards; collectives take at least what
lines below their curves say (``op_times``) of what the fullest rank sends (``fullest_ranks``): what
the mean one does, or one table's largest shard; latencies of groups that a plan may lack are left
out. Another cycle runs through the rank that holds the largest shard of one table, or all tables
that are given to it, with these lookups instead of the mean ones. One more is that of the host's
threads (``StepGraph.host``).

So with z the features of a plan (sums over tables), c a cycle's weights, and y >= 0 weights of
cycles that add up to 1, no plan is faster than

    sum over cycles of y (constant + c z)
        >=  sum over cycles of y constant + sum over tables of min over options of (y c z)

Memory enters with a price: no plan uses more than all ranks have, and no shard is larger than what
one has. The best y are the prices of a linear program over options (``relaxation``), and cycles
join it: the heaviest for the best mixture of options so far. Any y gives a valid bound, so stopping
early costs tightness only.

Groups have fixed costs: latencies, and the host's work for them. A mixture pays them by halves, so
the plans are divided by which groups they have, the least bound first: with a group, its fixed
costs count in full; without it, its options are gone. The least of the parts' bounds holds for all.
A part begins with the cycles and choices that had weight in the one it was divided from.

A mixture halves tables, too, which no plan does; of hundreds of tables a few are in halves, of few
uneven ones those that the step waits for. So once its groups are decided, a part is divided by the
group that such a table is in, while a table alone takes as much as counts (``Relaxation.halved``).
The result is also at least the time of a step without any embedding work.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from math import inf

from costmodel.base.units import Seconds
from costmodel.bounds.option_features import OptionFeatures
from costmodel.bounds.relaxation import PartLimits, Relaxation, Solved
from costmodel.bounds.step_program import unlimited
from costmodel.domain.hardware import Topology
from costmodel.domain.workload import Workload
from costmodel.engine.timer import StepTimer
from costmodel.step.synthesis import Templates

MOST_PARTS = 120
"""Largest number of parts that plans are divided into: as many as are needed where all tables can
be one module, of which 6 or 7 sharding types can be there or not."""
_ROUNDING = 1e-9


def step_time_bound(
    workload: Workload, topology: Topology, time_left: Callable[[], Seconds] = unlimited
) -> Seconds:
    """Return a lower bound of the step of all valid plans.

    Parameters
    ----------
    workload, topology
        What is planned. Every sharding type, kernel and split that is valid for the tables is
        taken into account, whether or not a sharder would offer it, and the memory of all ranks
        together.
    time_left
        Asked between steps of some milliseconds; at 0 the bound so far is the answer. Half of the
        time may go into describing tables, the busiest first: those that are not reached count for
        nothing, which only lowers the bound.

    Returns
    -------
        Seconds; infinite where the tables need more memory than there is.

    """
    return max(improving_bounds(workload, topology, time_left))


def improving_bounds(
    workload: Workload, topology: Topology, time_left: Callable[[], Seconds] = unlimited
) -> Iterator[Seconds]:
    """Yield lower bounds as ``step_time_bound`` finds them, in seconds, the largest last.

    The first is the step without any embedding work. Between two of them the caller may do
    something else, and give more time.
    """
    templates = Templates(workload, topology)
    alone = StepTimer(templates.of(()), ()).step_time(()) * (1 - _ROUNDING)
    templates = replace(templates, every_batch=True)  # cycles are of all that is done
    yield alone
    until = time_left() / 2 if time_left() < inf else 0.0
    options = OptionFeatures(workload, topology).all(lambda: time_left() > until)
    if options.kernels:
        relaxation = Relaxation.of(templates, options)
        if relaxation is None:
            yield inf
            return
        for bound in _branched(relaxation, time_left):
            yield max(alone, bound * (1 - _ROUNDING))


@dataclass(frozen=True, slots=True, order=True)
class _Part:
    """The plans that have some groups and lack others, and have some tables in certain groups."""

    bound: Seconds
    number: int
    limits: PartLimits = field(compare=False)
    solved: Solved = field(compare=False)
    halves: tuple[PartLimits, ...] = field(compare=False)
    """Limits of the parts to divide it into next; none: it is not divided. By the group with most
    of the mixture, among groups that may be there or not; one with nothing of it will do: some
    costs of others are sure only in plans that lack it. Without such groups, by a table's."""


def _branched(whole: Relaxation, time_left: Callable[[], Seconds]) -> Iterator[Seconds]:
    """Yield the smallest bound of parts that make up all plans, after each division."""
    parts = [_part(whole, 0, PartLimits(), Solved(), time_left)]
    count = 1
    yield parts[0].bound
    while parts[0].halves and count < MOST_PARTS and time_left() > 0:
        part = heappop(parts)
        for limits in part.halves:
            child = _part(whole, count, limits, part.solved, time_left)
            heappush(parts, replace(child, bound=max(child.bound, part.bound)))
            count += 1
        yield parts[0].bound


def _part(
    whole: Relaxation,
    number: int,
    limits: PartLimits,
    parent: Solved,
    time_left: Callable[[], Seconds],
) -> _Part:
    """Return the part of plans within some limits, with its bound."""
    relaxation = whole.restricted(limits)
    if relaxation is None or not relaxation.has_room:
        return _Part(inf, number, limits, parent, ())
    solved = relaxation.maximum(parent, time_left)
    shares = relaxation.shares(solved)
    known = {group for group, _ in relaxation.options.signature()} & shares.keys()
    undecided = known - limits.present
    halves: tuple[PartLimits, ...] = ()
    if undecided:
        halves = limits.by_group(max(undecided, key=lambda group: (shares[group], group)))
    elif halved := relaxation.halved(solved):
        halves = limits.by_table(*halved)
    return _Part(solved.bound, number, limits, solved, halves)
