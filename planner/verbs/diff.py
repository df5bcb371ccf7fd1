"""What changed from one plan to another, and what each change adds to the step."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from costmodel.base.errors import InputError, Problem
from costmodel.base.units import Seconds
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingPlan, TableSharding
from costmodel.domain.workload import Workload
from costmodel.engine.objective import Objective
from costmodel.uncertainty.step_samples import sample_steps
from planner.decision.confidence import probability_faster
from planner.planned.planned import Planned
from planner.planned.report import Report
from planner.show.format import count, duration
from planner.verbs.loading import load_plan


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
    """One table that the two plans shard differently."""

    table: str
    old: TableSharding | None
    """None: the old workload does not have the table."""
    new: TableSharding | None
    step_time_change: Seconds | None = None
    """Seconds that the change adds to the step after all changes listed before it, so that all of
    them add up; None: unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDiff:
    """Two plans, and how they differ."""

    old: Report
    new: Report
    changes: tuple[TableChange, ...]
    """Changed tables, those with the largest gain alone first; then added and removed ones."""
    num_unchanged: int
    probability_faster: float
    """Probability that the new plan is faster."""
    differ_in: tuple[str, ...] = ()
    """Those of workload, machine and ranks that differ between the plans."""
    other_model: str = ""
    """How the two models differ; empty: they do not."""

    def __repr__(self) -> str:
        return (
            f"<PlanDiff: {duration(self.old.step_time)} to {duration(self.new.step_time)} a step, "
            f"{count(len(self.changes), 'table')} changed, {self.num_unchanged:,} not>"
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings: that the models differ, and those of each report."""
        models = f"the plans are for different models ({self.other_model}): their steps do "
        old, new = self.old.notes, self.new.notes
        return (
            *([f"{models}different work"] if self.other_model else ()),
            *(note for note in old if note in new),
            *(f"the old plan: {note}" for note in old if note not in new),
            *(f"the new plan: {note}" for note in new if note not in old),
        )

    @property
    def other_change(self) -> Seconds:
        """Seconds of the step's change that no table's change explains.

        They come from another workload, machine or ranks, and from tables whose own part is
        unknown.
        """
        told = sum(each.step_time_change or 0.0 for each in self.changes)
        return self.new.step_time - self.old.step_time - told

    @property
    def speedup(self) -> float:
        """The old plan's step over the new one's."""
        return self.old.step_time / self.new.step_time

    @property
    def throughput_ratio(self) -> float:
        """Samples per second of the new plan, on all its ranks, over those of the old."""
        return self.new.samples_per_second / self.old.samples_per_second


def compare_plans(old: Planned | str | Path, new: Planned | str | Path) -> PlanDiff:
    """Return the differences of two plans or plan files, with what each change adds to the step.

    Raises
    ------
    PlannerError
        A file is no plan, or the plans share fewer than half their tables.

    """
    before, after = (each if isinstance(each, Planned) else load_plan(each) for each in (old, new))
    return _diff(before, after)


def _diff(old: Planned, new: Planned) -> PlanDiff:
    """Compare two plans table by table."""
    before = {sharding.table: sharding for sharding in old.plan.tables}
    after = {sharding.table: sharding for sharding in new.plan.tables}
    both = [name for name in before if name in after]
    if 2 * len(both) < max(len(before), len(after)):
        message = f"the plans are of different models: they share {count(len(both), 'table')}, of "
        message += f"{len(before):,} and {len(after):,}"
        hint = "their steps do different work: compare plans that share half their tables"
        raise InputError("compare", (Problem(message=message, hint=hint),))
    changed = [name for name in both if before[name] != after[name]]
    changes = _effects(old, new, [(before[name], after[name]) for name in changed])
    added = [TableChange(table=n, old=None, new=s) for n, s in after.items() if n not in before]
    removed = [TableChange(table=n, old=s, new=None) for n, s in before.items() if n not in after]
    return PlanDiff(
        old=old.report,
        new=new.report,
        changes=(*changes, *added, *removed),
        num_unchanged=len(both) - len(changed),
        probability_faster=probability_faster(
            (new.workload, new.topology, new.plan), (old.workload, old.topology, old.plan)
        ),
        differ_in=_differences(old, new),
        other_model=_other_model(old.workload, new.workload),
    )


def _differences(old: Planned, new: Planned) -> tuple[str, ...]:
    """Return in what the plans' inputs differ: `workload`, `machine`, `ranks`, `averaging`."""
    was, now = old.topology, new.topology
    differs = {
        "workload": replace(old.workload, name="") != replace(new.workload, name=""),
        "machine": was.hardware != now.hardware,
        "ranks": _ranks(was) != _ranks(now),
        "averaging": _averaging(was) != _averaging(now),
    }
    return tuple(what for what, is_other in differs.items() if is_other)


def _ranks(topology: Topology) -> tuple[object, ...]:
    """Return how many ranks there are, where, and in which groups."""
    replicas = topology.replicas
    groups = replicas and (replicas.num_groups, replicas.use_inter_host_allreduce)
    return topology.world_size, topology.local_world_size, topology.node_ranks, groups


def _averaging(topology: Topology) -> tuple[object, ...]:
    """Return how the replicas of groups are averaged; empty: there are none."""
    replicas = topology.replicas
    return () if replicas is None else (replicas.sync_interval, replicas.sharding_strategy)


def _other_model(old: Workload, new: Workload) -> str:
    """Return how two models differ, inputs, batches and data types apart; empty: they do not."""
    was, now = (
        {each.name: (each.num_embeddings, each.embedding_dim) for each in workload.tables}
        for workload in (old, new)
    )
    same = sum(now.get(name) == size for name, size in was.items())
    if same < max(len(was), len(now)):
        return f"{same:,} of {len(was):,} and {len(now):,} tables are the same"
    layers = [(d.bottom_mlp, d.interaction, d.top_mlp, d.operators) for d in (old.dense, new.dense)]
    return "" if layers[0] == layers[1] else "their dense layers differ"


def _effects(
    old: Planned, new: Planned, changed: Sequence[tuple[TableSharding, TableSharding]]
) -> list[TableChange]:
    """Return the changed tables, each with the seconds it adds after those before it.

    Effects of single changes do not add up: two changes may help only together. So each is made
    after the others; the effect alone gives the order only.
    """
    same_ranks = (old.plan.world_size, old.plan.local_world_size) == (
        new.plan.world_size,
        new.plan.local_world_size,
    )
    objective, plan = Objective(old.workload, old.topology), old.plan
    alone, told = [], []
    for was, now in changed:
        if same_ranks and old.workload.table(was.table) == new.workload.table(was.table):
            alone.append((objective.step_time(with_table(plan, now)), was.table, was, now))
        else:
            told.append(TableChange(table=was.table, old=was, new=now))
    effects, step_time, loads = [], old.report.step_time, objective.loads
    for _, name, was, now in sorted(alone, key=lambda each: each[:2]):
        plan, before = with_table(plan, now), step_time
        step_time = sample_steps(old.workload, old.topology, (plan,), loads=loads).mean()
        effects.append(
            TableChange(table=name, old=was, new=now, step_time_change=step_time - before)
        )
    return [*effects, *told]


def with_table(plan: ShardingPlan, sharding: TableSharding) -> ShardingPlan:
    """Return the plan with one table sharded differently."""
    tables = (sharding if each.table == sharding.table else each for each in plan.tables)
    return replace(plan, tables=tuple(tables))
