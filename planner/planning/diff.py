"""What changed from one plan to another, and what each change is worth."""

from dataclasses import dataclass, replace
from pathlib import Path

from costmodel.base.units import Seconds
from costmodel.domain.plan import TableSharding
from costmodel.engine.objective import Objective
from planner.planning.api import Planned, load_plan
from planner.planning.confidence import probability_faster
from planner.planning.report import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
    """One table that the two plans shard differently."""

    table: str
    old: TableSharding | None
    """None: the old workload does not have the table."""
    new: TableSharding | None
    step_time_change: Seconds | None = None
    """Change of the old plan's step with only this table as in the new one; None: it cannot be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDiff:
    """Two plans beside each other."""

    old: Report
    new: Report
    changes: tuple[TableChange, ...]
    """Changed tables, those that gain most first; then added and removed ones."""
    num_unchanged: int
    probability_faster: float
    """How likely the new plan is faster, given how far off the models have been."""

    @property
    def speedup(self) -> float:
        """Expected step of the old plan over that of the new."""
        return self.old.expected / self.new.expected


def compare_plans(old: Planned | str | Path, new: Planned | str | Path) -> PlanDiff:
    """Return what changed between two plans or plan files, and what each change is worth."""
    before, after = (each if isinstance(each, Planned) else load_plan(each) for each in (old, new))
    return _diff(before, after)


def _diff(old: Planned, new: Planned) -> PlanDiff:
    """Compare two plans table by table."""
    before = {sharding.table: sharding for sharding in old.plan.tables}
    after = {sharding.table: sharding for sharding in new.plan.tables}
    both = [name for name in before if name in after]
    changed = [name for name in both if before[name] != after[name]]
    changes = [_change(old, new, before[name], after[name]) for name in changed]
    changes.sort(key=lambda change: (change.step_time_change or 0.0, change.table))
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
    )


def _change(old: Planned, new: Planned, was: TableSharding, now: TableSharding) -> TableChange:
    change = TableChange(table=was.table, old=was, new=now)
    same_ranks = (old.plan.world_size, old.plan.local_world_size) == (
        new.plan.world_size,
        new.plan.local_world_size,
    )
    if not same_ranks or old.workload.table(was.table) != new.workload.table(was.table):
        return change
    tables = tuple(now if each.table == was.table else each for each in old.plan.tables)
    objective = Objective(old.workload, old.topology)
    moved = objective.step_time(replace(old.plan, tables=tables))
    return replace(change, step_time_change=moved - objective.step_time(old.plan))
