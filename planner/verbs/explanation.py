"""Why a plan's step takes as long as it does, and which changes would make it shorter.

Every remedy is a plan that was searched for, starting from the present one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from costmodel.base.units import Bytes, Seconds
from costmodel.domain.plan import TableSharding
from costmodel.domain.workload import EmbeddingTable
from costmodel.engine.objective import Objective
from costmodel.kernels.embedding import embedding_estimate
from costmodel.step.graph import Node, NodeKind, Stage
from costmodel.step.operation_timeline import plan_timeline
from costmodel.step.step_operations import ProcessGroup
from costmodel.step.timeline import PathSegment, Timeline
from planner.decision.judging import explained_rival
from planner.decision.narrow import with_wider_blocks
from planner.planned.planned import Planned
from planner.planned.report import Report
from planner.planned.verdict import Rival
from planner.search.search import Search
from planner.verbs.alternatives import Alternatives, alternatives
from planner.verbs.diff import with_table
from planner.verbs.loading import load_plan
from planner.verbs.what_if import (
    Change,
    Remedy,
    asked_change,
    effect,
    remedies,
    usual_changes,
)

MOST_TOLD = 6
"""Number of tables that are looked at closely and described: those with most lookup time."""
TIME_LIMIT: Seconds = 10.0
"""Seconds for all what-ifs together; each begins from the plan: a second is mostly enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathRow:
    """A stretch of the critical path in one stage."""

    start: Seconds
    """Seconds from the beginning of the step."""
    seconds: Seconds
    stage: Stage
    rank: int | None
    """None: a collective of all ranks of its group."""
    bound_by: str
    source: str
    of_replicas: bool = False
    """Whether the rank's shards are averaged with their replicas in other groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableExplanation:
    """How one table is sharded, and the step if it were sharded otherwise."""

    sharding: TableSharding
    weight_bytes: Bytes
    lookup_share: float
    """Share of all tables' lookup time."""
    others: Alternatives | None = None
    """None: there are too many tables to try all of them."""
    effect: str = ""
    """The stage of the critical path that changes most with the table's nearest other type; only of
    the first ``MOST_TOLD`` tables."""
    wider_ratio: float | None = None
    """The step with half as many, twice as wide blocks of columns over the plan's own, both by the
    models; None: the blocks are not narrow, or it is not one of the first tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Where a step's time goes, why tables are where they are, and what would help."""

    report: Report
    last_rank: int
    """The rank that finishes last."""
    path: tuple[PathRow, ...]
    choices: tuple[TableExplanation, ...]
    remedies: tuple[Remedy, ...] = ()
    unplanned: tuple[tuple[str, str], ...] = ()
    """(change, reason) of changes for which no plan was found."""
    rival: Rival | None = None
    """What the plan is weighed against, as when it was chosen; None: no simpler plan fits."""


def explain(
    planned: Planned | str | Path,
    what_ifs: Sequence[str] = (),
    *,
    search: Search | None = None,
    **options: Any,  # noqa: ANN401 - the fields of Search
) -> Explanation:
    """Return why a plan's step takes so long, and what would make it shorter.

    Parameters
    ----------
    planned
        A plan, or the path of a plan file.
    what_ifs
        Changes to try, such as ``gpus=16`` (``what_if.asked_change``); none: the usual ones.
    search, options
        How to search after each change: the time limit is for all of them together.

    """
    loaded = planned if isinstance(planned, Planned) else load_plan(planned)
    changes = changes_of(loaded, what_ifs)
    own = replace(search or Search(time_limit=TIME_LIMIT), **options)
    refused: list[tuple[str, str]] = []
    each = remedies(loaded, changes, own, lambda text, error: refused.append((text, str(error))))
    found = sorted(each, key=lambda remedy: -remedy.samples_per_second)
    return replace(explained(loaded), remedies=tuple(found), unplanned=tuple(refused))


def changes_of(planned: Planned, what_ifs: Sequence[str]) -> tuple[Change, ...]:
    """Return the changes asked for, or else the usual ones."""
    asked = tuple(asked_change(planned, text) for text in what_ifs)
    return asked or tuple(usual_changes(planned))


def explained(planned: Planned) -> Explanation:
    """Return an explanation without remedies."""
    timeline = plan_timeline(planned.workload, planned.topology, planned.plan)
    return Explanation(
        report=planned.report,
        last_rank=timeline.graph.nodes[timeline.last_node].rank,
        path=path_rows(timeline),
        choices=_explained_tables(planned, timeline),
        rival=explained_rival(planned.workload, planned.topology, planned.plan),
    )


def path_rows(timeline: Timeline) -> tuple[PathRow, ...]:
    """Return the critical path of the last step, neighbours of one stage and rank merged."""

    def place(segment: PathSegment) -> tuple[Stage, int | None, bool]:
        node = timeline.graph.nodes[segment.node]
        sent = node.kind is NodeKind.COLLECTIVE and segment.stage is node.stage
        averaged = sent and node.resource == ProcessGroup.REPLICAS
        return segment.stage, None if sent and not averaged else node.rank, averaged

    begin, _ = timeline.window
    rows = []
    for (stage, rank, averaged), group in groupby(timeline.critical_path(), key=place):
        segments = list(group)
        longest = max(segments, key=lambda segment: segment.seconds)
        node = timeline.graph.nodes[longest.node]
        own = stage is node.stage
        rows.append(
            PathRow(
                start=segments[0].start - begin,
                seconds=sum(segment.seconds for segment in segments),
                stage=stage,
                rank=rank,
                bound_by=_bound_text(node) if own else "kernel launch",
                source=node.basis.origin if own else "",
                of_replicas=averaged,
            )
        )
    return tuple(rows)


def _bound_text(node: Node) -> str:
    """Return what limits a node's time, as text."""
    if node.basis.bound_by is not None:
        return node.basis.bound_by.value
    return "CPU time" if node.stage is Stage.HOST else ""


def _explained_tables(planned: Planned, timeline: Timeline) -> tuple[TableExplanation, ...]:
    """Return the explanation of every table, those with most lookup time first."""
    alone = {table.name: _lookup_time(planned, table) for table in planned.workload.tables}
    chosen = sorted(planned.plan.tables, key=lambda sharding: -alone[sharding.table])
    objective, total = Objective(planned.workload, planned.topology), sum(alone.values())
    others, now = alternatives(planned), planned.report.modelled.seconds
    found = []
    for number, sharding in enumerate(chosen):
        other, is_told = others.get(sharding.table), number < MOST_TOLD
        wider = (
            with_wider_blocks(planned.workload, planned.topology, planned.plan, [sharding])
            if is_told
            else None
        )
        nearest = other.nearest if other and not other.fixed and is_told else None
        found.append(
            TableExplanation(
                sharding=sharding,
                weight_bytes=planned.workload.table(sharding.table).weight_bytes,
                lookup_share=alone[sharding.table] / total if total else 0.0,
                others=other,
                effect="" if nearest is None else _effect_of(planned, timeline, nearest),
                wider_ratio=None if wider is None else objective.step_time(wider) / now,
            )
        )
    return tuple(found)


def _effect_of(planned: Planned, before: Timeline, other: TableSharding) -> str:
    """Return the stage that changes most with another sharding of one table."""
    changed = with_table(planned.plan, other)
    after = plan_timeline(planned.workload, planned.topology, changed)
    return effect(before.breakdown(), after.breakdown())


def _lookup_time(planned: Planned, table: EmbeddingTable) -> Seconds:
    """Return the seconds of a table's lookups, forward and backward, were it alone on a rank."""
    workload, topology = planned.workload, planned.topology
    estimates = embedding_estimate(
        (table,),
        num_samples=workload.local_batch_size * topology.world_size,
        optimizer=workload.optimizer_of(table),
        hardware=topology.hardware,
        output_type=workload.output_type,
    )
    return sum(estimate.seconds for estimate in estimates)
