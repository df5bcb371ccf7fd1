"""Columns of a plan's tables: ranks, critical path, and tables with their alternatives."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from math import inf

from costmodel.base.units import Bytes, Seconds
from costmodel.domain.plan import ComputeKernel, ShardingType, TableSharding
from costmodel.domain.workload import EmbeddingTable
from costmodel.memory.rank_memory import RankMemory
from planner.planned.planned import Planned
from planner.planned.replicas import WeighedGroup
from planner.planned.report import STAGE_NAMES, RankReport, Report
from planner.show.columns import (
    COUNT,
    FULL,
    MEMORY,
    NUMBER,
    WARNING,
    Column,
    Quantity,
    json_column,
    times,
)
from planner.show.format import bar, change, duration, memories, memory, percent
from planner.show.ranks import rank_list
from planner.verbs.alternatives import Alternatives, best_change
from planner.verbs.explanation import PathRow

MOST_WAITING, MOST_MEMORY = 0.1, 0.9
"""Shares of the step, and of usable memory, above which they are coloured."""
WHEN_WEIGHED = (
    "Steps so far, by the models, when this was chosen: what looked fast was searched longer, and "
    "the search went on with what is chosen alone."
)
_MEMORY_BAR = 16
_AMOUNT = Quantity("{:,.12g}".format)


def rank_columns(report: Report) -> list[Column[RankReport]]:
    """Return the columns of what ranks do in a step, and what they hold."""
    time, usable = times(report.step_time), report.usable_bytes

    def filled(held: Sequence[Bytes]) -> list[str]:
        texts = memories(held)
        widest = max(map(len, texts))
        return [
            f"{bar(share, _MEMORY_BAR, '·')}  {text:>{widest}}  {percent(share):>4}"
            for share, text in zip(map(share_of_usable, held), texts, strict=True)
        ]

    def share_of_usable(held: Bytes) -> float:
        return held / usable if usable > 0 else 1.0

    return [
        Column("Rank", lambda rank: rank.rank, NUMBER, key="rank"),
        Column("Lookup", lambda rank: rank.lookup, time),
        json_column("lookup_forward_s", lambda rank: rank.lookup_forward),
        json_column("lookup_backward_s", lambda rank: rank.lookup_backward),
        Column("Collectives", lambda rank: rank.communication, time, key="communication_s",
               priority=2),
        Column("Waiting", lambda rank: rank.waiting, time, key="waiting_s", priority=4,
               style=lambda rank: _above(rank.waiting, MOST_WAITING * report.step_time, WARNING)),
        Column("Idle", lambda rank: rank.idle, time, key="idle_s", priority=3),
        json_column("memory_bytes", lambda rank: rank.memory.total),
        Column(f"Tables, of {memory(usable)} for them", lambda rank: rank.memory.tables,
               Quantity(memory, filled, is_right=False), key="tables_memory_bytes", priority=1,
               style=lambda rank: _above(share_of_usable(rank.memory.tables), MOST_MEMORY, FULL)),
        json_column("memory", lambda rank: _part_bytes(rank.memory)),
    ]  # fmt: skip


def _part_bytes(memory: RankMemory) -> dict[str, Bytes]:
    return {f"{part.name}_bytes": getattr(memory, part.name) for part in fields(memory)}


def _above(value: float, most: float, style: str) -> str:
    """Return a style if a value is above a limit, else none."""
    return style if value > most else ""


def group_columns() -> list[Column[WeighedGroup]]:
    """Return the columns of group sizes that a plan's was chosen among."""
    return [
        Column("Group", lambda each: each.group_size, COUNT, key="group_size"),
        Column("Groups", lambda each: each.num_groups, COUNT, key="num_groups"),
        Column("Ranks of a group", lambda each: each.place, page="Ranks"),
        json_column("use_inter_host_allreduce", lambda each: each.topology.replicas is not None
                    and each.topology.replicas.use_inter_host_allreduce),
        Column("Step so far", lambda each: each.modelled and each.modelled.seconds,
               Quantity(duration), key="modelled_step_time_s"),
        Column("Plans tried", lambda each: each.num_plans, COUNT, key="num_plans"),
        Column("", lambda each: each.outcome, page="Outcome", key="outcome"),
    ]  # fmt: skip


def path_columns(end: Seconds = 0.0) -> list[Column[PathRow]]:
    """Return the columns of the critical path, which ends at ``end`` seconds."""
    return [
        Column("at", lambda row: row.start, times(end), key="start_s", page="At", priority=3),
        Column("took", lambda row: row.seconds, times(end), key="time_s", page="Took"),
        Column("stage", _path_stage, page="Stage"),
        json_column("stage"),
        json_column("of_replicas"),
        Column("rank", lambda row: row.rank, NUMBER, key="rank", page="Rank", none="all"),
        Column("limit", lambda row: row.bound_by, key="bound_by", page="Limit", priority=1),
        Column("from", lambda row: row.source, key="source", page="From", priority=2),
    ]


def _path_stage(row: PathRow) -> str:
    return f"{STAGE_NAMES[row.stage]}{' of replicas' if row.of_replicas else ''}"


def table_columns(
    report: Report, others: Mapping[str, Alternatives] | None = None
) -> list[Column[tuple[EmbeddingTable, TableSharding]]]:
    """Return the columns of embedding tables: size, sharding, and the step of other ways."""
    told = others or {}

    def best(name: str) -> float | None:
        return best_change(told[name]) if name in told else None

    return [
        Column("Table", lambda each: each[0].name),
        Column("Rows", lambda each: each[0].num_embeddings, _AMOUNT),
        Column("Columns", lambda each: each[0].embedding_dim, _AMOUNT),
        Column("Ids per sample", lambda each: each[0].pooling_factor, _AMOUNT),
        Column("Weights", lambda each: each[0].weight_bytes, MEMORY),
        Column("Sharding", lambda each: each[1].sharding_type),
        Column("Kernel", lambda each: each[1].compute_kernel),
        Column("Blocks", lambda each: len(each[1].shards), _AMOUNT),
        Column("Ranks", lambda each: rank_list(each[1].ranks, report.world_size)),
        Column("Otherwise", lambda each: told.get(each[0].name),
               alternatives_text, prose=True,
               page="" if others is None else None,
               sorted_by=lambda each: best(each[0].name)),
    ]  # fmt: skip


def plan_rows(planned: Planned) -> list[tuple[EmbeddingTable, TableSharding]]:
    """Return every table of a plan with its sharding."""
    places = [entry.sharding for entry in planned.report.tables]
    return [(planned.workload.table(each.table), each) for each in places]


def kind_text(sharding: TableSharding) -> str:
    """Return a sharding's type, and its kernel if that is not the type's usual one."""
    default = ComputeKernel.FUSED
    if sharding.sharding_type is ShardingType.DATA_PARALLEL:
        default = ComputeKernel.DENSE
    kernel = "" if sharding.compute_kernel is default else f", {sharding.compute_kernel}"
    return f"{sharding.sharding_type}{kernel}"


def alternatives_text(others: Alternatives, effect: str = "") -> str:
    """Return the change of the step in each other way, the least first; names where none fits.

    ``effect`` is the stage that the nearest way of another type changes most.
    """
    if others.fixed:
        return "on your `ranks`"
    if not others.ratios:
        return "no other way is allowed"
    nearest = others.nearest and others.nearest.sharding_type.value
    return ", ".join(
        _way_text(name, ratio, effect if name == nearest else "")
        for name, ratio in others.ratios.items()
    )


def _way_text(name: str, ratio: float, effect: str) -> str:
    if ratio == inf:
        return f"{name} needs more memory than the others leave"
    return f"{name} {change(ratio)}" + (f" ({effect})" if effect else "")
