"""Heaviest cycles of a whole step, host threads and device together, of plans with certain groups.

Of plans that have some groups, and maybe others, every one runs the operations of these groups in
the same order: what other groups bring only adds to what an operation waits for. So every cycle of
the step of these operations alone is one of every such plan, and weighs no less there.

Operations of the other groups count, too, where a cycle goes from one operation to a later one by
the queue of their resource: a plan that has what is between the two runs it there, one after the
other, and in a plan that lacks it the two follow one another all the same. With a duration that is
0 without their features, and no dependency but their place in the queue, they are in the step that
cycles are sought in.

Which ranks have work for a group is up to the plan. So a cycle is counted in several ways, each of
them a mean over ranks: over all of them, where a group counts as launched on the least share of the
ranks that any of its options has work for; over those ranks that have work for one group, which
pay its launches in full, have at least the mean lookups of it, and maybe none of others; and over
those that have work for any group, which pay at least the launches of the cheapest one.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from costmodel.base.units import Seconds
from costmodel.bounds.feature_index import FeatureIndex, Vector
from costmodel.bounds.op_times import BusyShares, OpTimes, takes_all_as_long
from costmodel.bounds.paths import WeightedCycle, is_sure
from costmodel.engine.contraction import Contracted, Contraction
from costmodel.step.cuts import GroupKernel
from costmodel.step.groups import GroupKey
from costmodel.step.synthesis import NUM_STEPS
from costmodel.step.template import Template, TemplateOp, WorkKind


def step_of(template: Template, groups: Collection[GroupKey]) -> Template:
    """Return the operations of all plans with some groups, as a step.

    Operations of other groups are in it, too, each at its place in the queue of its resource and
    with no other dependency, if features of a plan make them last: whenever a plan has them they
    are there, and without them the operations before and after follow one another.
    """
    sure = {number for number, op in enumerate(template.ops) if op.exists(groups)}
    wanted = [n for n, op in enumerate(template.ops) if n in sure or (_lasts(op) and is_sure(op))]
    place = {number: at for at, number in enumerate(wanted) if number in sure}

    def placed(number: int) -> TemplateOp:
        op = template.ops[number]
        if number in sure:
            return op.moved(place)
        return op._replace(after=(), after_previous=(), launched_by=None)

    return replace(template, ops=tuple(map(placed, wanted)))


def _lasts(op: TemplateOp) -> bool:
    """Return whether an operation's duration grows with features of a plan."""
    return op.work.kernel is not None or bool(op.work.amount.weights)


@dataclass(frozen=True, slots=True)
class _Ranks:
    """Ranks over which a cycle's weight is a mean."""

    times: OpTimes
    counted: Vector
    """1 for features whose mean over these ranks is at least that over all ranks, else 0."""
    cases: tuple[OpTimes, ...]
    """Lower bounds of durations: each of these ranks takes at least as long as one of them."""


@dataclass(frozen=True)
class StepCycles:
    """Heavy cycles of plans that have some groups, and maybe others."""

    template: Template
    """Operations of all the plans."""
    index: FeatureIndex
    largest: Vector
    """Upper bounds of z over all plans."""
    present: frozenset[GroupKey]
    """Groups that all the plans have."""
    shares: Mapping[GroupKey, float]
    """Smallest share of the ranks with work for a group; 0 where a shard may have none."""

    def heaviest(self, z: Vector, than: Seconds = 0.0) -> Iterator[WeightedCycle]:
        """Yield a heavy cycle for given features and each choice of ranks, above ``than``.

        Heavy ones of the mean rank have no more work than that: a sum over a path of means is at
        least the cycle's weight.
        """
        for ranks in self._choices:
            seconds, counted = ranks.times.of(z), ranks.times.of(z * ranks.counted)
            for number in self._together:
                counted[number] = seconds[number]
            path = self._path(counted)
            if path is not None and path[1] + sum(counted[each] for each in path[0]) > than:
                yield self._cycle(path, z, ranks)

    def _cycle(self, path: tuple[list[int], Seconds], z: Vector, ranks: _Ranks) -> WeightedCycle:
        """Return a path's weight as a function of z, as a mean over some ranks."""
        numbers, lags = path
        constants, together, own_slopes = ranks.times.formulas(numbers, z)
        kinds = [self._ops[number].work.kind for number in numbers]
        exchanges = np.array([kind is WorkKind.EXCHANGE for kind in kinds], dtype=bool)
        lags += float(constants[exchanges].sum())
        own = [number for number, late in zip(numbers, exchanges, strict=True) if not late]

        def least(times: OpTimes) -> Seconds:
            return lags + sum(map(times.constant, own))

        return WeightedCycle(
            constant=min(map(least, ranks.cases)),
            weights=together + own_slopes * ranks.counted,
            common=together + own_slopes * self.index.of_plan,
            floor=least(self._anywhere),
            lookups=self._lookups <= set(numbers),
        )

    def _path(self, times: Mapping[int, Seconds]) -> tuple[list[int], Seconds] | None:
        """Return the operations of a heavy cycle, and the sum of the lags between them.

        None where no cycle.

        Of ``NUM_STEPS`` consecutive steps, it is the chain that the last one's end waited for, from
        where it passes an operation that it also passes in the step before.
        """
        durations = [times[number] for number in self._numbers]
        count = len(durations)
        ends: list[Seconds] = []
        waited: list[tuple[int, Seconds]] = []
        for step in range(NUM_STEPS):
            first = step * count
            for duration, sources in zip(durations, self._sources, strict=True):
                latest, source, lag = 0.0, -1, 0.0
                for place, after in sources:
                    at = first + place
                    end = (ends[at] if at >= 0 else 0.0) + after
                    if end >= latest:
                        latest, source, lag = end, at, after
                ends.append(latest + duration)
                waited.append((source, lag))
        at = max(((NUM_STEPS - 1) * count + place for place in self._final), key=ends.__getitem__)
        passed: list[int] = []
        lags: list[Seconds] = []
        known: dict[int, int] = {}
        while at >= 0:
            if at + count in known:
                begin = known[at + count]
                return [self._numbers[each % count] for each in passed[begin:]], sum(lags[begin:])
            known[at] = len(passed)
            passed.append(at)
            at, lag = waited[at]
            lags.append(lag)
        return None

    @cached_property
    def _program(self) -> Template:
        """The operations of all the plans, as a step."""
        return step_of(self.template, self.present)

    @cached_property
    def _contracted(self) -> Contracted:
        return Contraction(self._program).contract()

    @cached_property
    def _numbers(self) -> list[int]:
        """Numbers of the operations that are not contracted into lags."""
        return list(self._contracted.ops.tolist())

    @cached_property
    def _sources(self) -> list[list[tuple[int, Seconds]]]:
        """(place, lag) that each of them waits for.

        A place less the count is in the step before.
        """
        made, count = self._contracted, len(self._contracted.ops)
        places = np.where(made.sources < 0, -1 - made.sources - count, made.sources)
        waits = list(zip(places.tolist(), made.lags.tolist(), strict=True))
        return [waits[begin:end] for begin, end in pairwise(made.starts.tolist())]

    @cached_property
    def _final(self) -> list[int]:
        """Places of the operations that end a step."""
        return list(self._contracted.finals.tolist())

    @cached_property
    def _ops(self) -> dict[int, TemplateOp]:
        return {number: self._program.ops[number] for number in self._numbers}

    @cached_property
    def _together(self) -> frozenset[int]:
        """Numbers of collectives that take as long on all ranks."""
        return frozenset(number for number, op in self._ops.items() if takes_all_as_long(op))

    @cached_property
    def _lookups(self) -> frozenset[int]:
        """Numbers of all lookups and updates.

        And one that does not exist if groups may be missing.
        """
        kernels = {op.work.kernel for op in self.template.ops} - {None}
        found = frozenset(n for n, op in self._ops.items() if op.work.kernel is not None)
        here = {self._ops[n].work.kernel for n in found}
        return found if kernels == here else frozenset({-1})

    def _times(self, shares: BusyShares) -> OpTimes:
        hardware = self.template.topology.hardware
        return OpTimes(self._ops, self.index, self.largest, self.present, hardware, shares)

    @cached_property
    def _kernels(self) -> dict[GroupKey, list[GroupKernel]]:
        """Lookup kernels of the groups that all the plans have."""
        kernels = dict.fromkeys(op.work.kernel for op in self._ops.values())
        return {
            group: [each for each in kernels if each is not None and each[0] == group]
            for group in self.present
        }

    def _everywhere(self) -> dict[GroupKey | GroupKernel, float]:
        """Return groups that all ranks have work for, and their kernels if they have one."""
        return self._busy(group for group, share in self.shares.items() if share >= 1.0)

    def _busy(self, groups: Iterable[GroupKey]) -> dict[GroupKey | GroupKernel, float]:
        """Return the busy shares of groups, and of their kernels if a group has a single one."""
        shares: dict[GroupKey | GroupKernel, float] = {}
        for group in groups:
            shares[group] = self.shares[group]
            if len(self._kernels[group]) == 1:
                shares[self._kernels[group][0]] = self.shares[group]
        return shares

    @cached_property
    def _anywhere(self) -> OpTimes:
        """Lower bounds of durations on any one rank, whatever it looks up."""
        return self._times(self._everywhere())

    @cached_property
    def _choices(self) -> list[_Ranks]:
        """Choices of ranks over which a cycle's weight is a mean."""
        even = self._times(self._busy(self.present))
        every = _Ranks(even, np.ones(self.index.size), (even,))
        choices = [self._with_work_for(group) for group in self._elsewhere]
        if len(choices) < 2:
            return [every, *choices]
        some = [
            *((group, 1.0) for group in self._elsewhere),
            *self._likely(self._elsewhere).items(),
        ]
        shares: BusyShares = {each: share / len(choices) for each, share in some}
        any_of_them = _Ranks(
            times=self._times({**shares, **self._everywhere()}),
            counted=np.maximum.reduce([each.counted for each in choices]),
            cases=tuple(case for each in choices for case in each.cases),
        )
        return [every, *choices, any_of_them]

    def _with_work_for(self, group: GroupKey) -> _Ranks:
        """Return the ranks that have work for a group: for at least one of its kernels."""
        here: BusyShares = {**self._everywhere(), group: 1.0}
        return _Ranks(
            times=self._times({**here, **self._likely([group])}),
            counted=np.maximum(self.index.of_plan, self.index.of_group(group)),
            cases=tuple(self._times({**here, each: 1.0}) for each in self._kernels[group]),
        )

    @property
    def _elsewhere(self) -> list[GroupKey]:
        """Groups for which, or for whose kernels, some ranks may have no work."""
        known = sorted(group for group in self.present if self.shares[group] > 0.0)
        return [each for each in known if self.shares[each] < 1.0 or len(self._kernels[each]) > 1]

    def _likely(self, groups: Iterable[GroupKey]) -> dict[GroupKey | GroupKernel, float]:
        """Return the shares with which kernels of groups count while a path is looked for."""
        kernels = (self._kernels[group] for group in groups)
        return {each: 1.0 / len(own) for own in kernels for each in own}
