"""A plan that is changed by hand: one block moved at a time, each step undone if need be."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from costmodel.base.errors import InputError, Problem
from costmodel.base.units import Seconds
from costmodel.domain.plan import ShardingPlan, TableSharding
from costmodel.domain.validity import check_plan
from costmodel.memory.rank_memory import check_memory, memory_per_rank, usable_bytes
from costmodel.step.operation_timeline import plan_timeline
from planner.decision.confidence import confidences
from planner.decision.narrow import on_ranks
from planner.files.plans import PlanFile
from planner.planned.planned import Planned
from planner.planned.report import rank_reports
from planner.show.format import change, duration, memory, percent
from planner.verbs.diff import with_table
from planner.verbs.loading import judge

EDITED = "edited by hand"
_SAME = 5e-4
"""Share of the step below which a change is shown as 0.0%."""


@dataclass(slots=True)
class EditSession:
    """The plans that edits led to, the present one last, and the path where it is saved."""

    file: PlanFile
    planned: Planned
    """The plan of the file, with its report."""
    target: Path
    _plans: list[ShardingPlan] = field(init=False)

    def __post_init__(self) -> None:
        self._plans = [self.planned.plan]

    @property
    def plan(self) -> ShardingPlan:
        """The present plan."""
        return self._plans[-1]

    def move(self, table: str, block: int, rank: int) -> None:
        """Move a column block of a table to a rank, or the rank's node where its rows are split.

        Raises
        ------
        PlannerError
            There is no such block or rank, the table is on all ranks, or the plan would be invalid
            or not fit in memory; then nothing has changed.

        """
        workload, topology = self.planned.workload, self.planned.topology
        sharding = next((each for each in self.plan.tables if each.table == table), None)
        if sharding is None or not 0 <= block < len(sharding.block_ranks):
            raise _refused(f"there is no block {block} of a table `{table}`")
        if not 0 <= rank < topology.world_size:
            raise _refused(f"there is no rank {rank}: they are 0 to {topology.world_size - 1}")
        fixed = self._fixed_by(sharding)
        if fixed:
            raise _refused(f"table `{table}` cannot be moved; {fixed}")
        ranks = list(sharding.block_ranks)
        ranks[block] = rank
        moved = on_ranks(workload, self.plan, sharding, ranks, sharding.sharding_type)
        plan = with_table(self.plan, moved)
        if plan == self.plan:
            return
        check_plan(workload, topology, plan)
        check_memory(workload, topology, plan)
        self._plans.append(plan)

    def _fixed_by(self, sharding: TableSharding) -> str:
        """Return why a table cannot be moved; empty: it can."""
        kind = sharding.sharding_type
        if self.planned.workload.table(sharding.table).ranks:
            return "its `ranks` say where it is"
        one_node = kind.within_node and self.planned.topology.num_nodes == 1
        return f"{kind}: all ranks have it" if kind.everywhere or one_node else ""

    def undo(self) -> None:
        """Go back to the plan before the last move, if there is one."""
        if len(self._plans) > 1:
            self._plans.pop()

    def step_time(self) -> Seconds:
        """Return the expected step of the present plan."""
        planned = self.planned
        return confidences(planned.workload, planned.topology, (self.plan,))[0].step_time

    def edited(self) -> Planned:
        """Return the present plan with its report, as it is saved."""
        if len(self._plans) == 1:
            return self.planned
        before = (self.file.sharder or "").removesuffix(EDITED).removesuffix(", ")
        by = f"{before}, {EDITED}" if before else EDITED
        return judge(replace(self.file, plan=self.plan, sharder=by))

    def save(self) -> Path:
        """Write the present plan, as a whole or not at all, and return the path.

        Raises
        ------
        InputError
            The file cannot be written.

        """
        self.edited().save(self.target)
        return self.target

    def state(self) -> dict[str, Any]:
        """Return all that the page shows, as JSON-able data."""
        workload, topology, plan = self.planned.workload, self.planned.topology, self.plan
        before, now = self.planned.report.step_time, self.step_time()
        usable = usable_bytes(workload, topology)
        timeline = plan_timeline(workload, topology, plan).stretched(now)
        ranks = rank_reports(timeline, memory_per_rank(workload, topology, plan))
        shares = [each.memory.tables / usable if usable > 0 else 1.0 for each in ranks]
        return {
            "step_time_s": now,
            "step": duration(now),
            "before": duration(before),
            "change": "none" if abs(now / before - 1) < _SAME else change(now / before),
            "moves": len(self._plans) - 1,
            "target": str(self.target),
            "ranks": [
                {
                    "lookups": each.lookup / now,
                    "lookup_text": duration(each.lookup),
                    "memory": share,
                    "memory_text": f"{memory(each.memory.tables)}, {percent(share)}",
                }
                for each, share in zip(ranks, shares, strict=True)
            ],
            "tables": [
                {
                    "name": sharding.table,
                    "type": sharding.sharding_type.value,
                    "size": memory(workload.table(sharding.table).weight_bytes),
                    "movable": not self._fixed_by(sharding),
                    "blocks": _blocks(plan, index),
                }
                for index, sharding in enumerate(plan.tables)
            ],
        }


def _blocks(plan: ShardingPlan, index: int) -> list[list[int]]:
    """Return the ranks of every column block of a table."""
    blocks: dict[int, list[int]] = {}
    for shard in plan.tables[index].shards:
        blocks.setdefault(shard.column_offset, []).append(shard.rank)
    return list(blocks.values())


def _refused(message: str) -> InputError:
    return InputError("move", (Problem(message=message),))
