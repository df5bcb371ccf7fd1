from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from machines import topology
from rich.console import Console
from rich.text import Text
from timelines import two_ranks

from costmodel.base.modelled import Modelled
from costmodel.base.units import GIB, MS
from costmodel.domain.plan import ComputeKernel, Shard, ShardingType, TableSharding
from costmodel.domain.replica_groups import ReplicaGroups, ShardingStrategy
from costmodel.memory.rank_memory import RankMemory
from costmodel.step.graph import Stage
from planner.planned.replicas import WeighedGroup
from planner.planned.report import (
    Baseline,
    Confidence,
    Report,
    SearchReport,
    TableReport,
    rank_reports,
)
from planner.show.ranks import shown_ranks
from planner.views.report_data import report_data
from planner.views.report_text import averaging_sentences, report_text
from planner.views.timeline_text import timeline_text

CONFIDENCE = Confidence(
    level=0.9,
    interval=(0.9 * MS, 1.1 * MS),
    step_time=1.0 * MS,
    optimism=0.015,
    num_candidates=9,
    probability_fastest=0.6,
    causes={"host": 0.5, "structure": 0.3, "gemm": 0.01},
)


def written(lines: object) -> str:
    console = Console(file=StringIO(), width=100, highlight=False, soft_wrap=True)
    for line in lines:  # type: ignore[attr-defined]
        assert isinstance(line, Text)
        console.print(line)
    file = console.file
    assert isinstance(file, StringIO)
    return file.getvalue()


def sharding(name: str, kind: ShardingType, *ranks: int) -> TableSharding:
    shards = tuple(
        Shard(rank=rank, row_offset=0, num_rows=8, column_offset=4 * i, num_columns=4)
        for i, rank in enumerate(ranks)
    )
    kernel = ComputeKernel.DENSE if kind is ShardingType.DATA_PARALLEL else ComputeKernel.FUSED
    return TableSharding(table=name, sharding_type=kind, compute_kernel=kernel, shards=shards)


def against(
    sharder: str, step_time: float, beaten: float = 0.93, reason: str | None = None
) -> Baseline:
    return Baseline(
        sharder=sharder,
        step_time=step_time,
        modelled=Modelled(step_time),
        probability_beaten=beaten,
        reason=reason,
    )


def made(num_tables: int = 1, confidence: Confidence = CONFIDENCE) -> Report:
    modelled = two_ranks()
    timeline = modelled.stretched(confidence.step_time)
    memory = (RankMemory(weights=30 * GIB, dense_model=2 * GIB), RankMemory(weights=60 * GIB))
    return Report(
        workload="model",
        num_tables=num_tables + 2,
        weight_bytes=90 * GIB,
        local_batch_size=16384,
        hardware="h100-sxm",
        hardware_assumed=True,
        world_size=2,
        local_world_size=2,
        modelled=Modelled(modelled.step_time),
        confidence=confidence,
        breakdown=timeline.breakdown(),
        ranks=rank_reports(timeline, memory),
        usable_bytes=60 * GIB,
        tables=(
            TableReport(
                sharding=sharding("user_history", ShardingType.COLUMN_WISE, 0, 1),
                weight_bytes=60 * GIB,
            ),
            TableReport(
                sharding=sharding("tiny", ShardingType.DATA_PARALLEL, 0, 1), weight_bytes=1.0
            ),
            *(
                TableReport(
                    sharding=sharding(f"item_{i}", ShardingType.TABLE_WISE, 1), weight_bytes=2.0
                )
                for i in range(num_tables)
            ),
        ),
        search=SearchReport(
            sharder="size_greedy",
            requested="auto",
            seed=0,
            status="converged",
            evaluated=7,
            time=0.1,
        ),
        baseline=against("torchrec_port", 1.3 * MS),
    )


REPORT = """\
3 tables, 90.0 GiB of weights + state · local batch 16,384 · 2 × h100-sxm (assumed; set --hardware)

  step time   1.00 ms  (0.90 - 1.10 ms, 90%)    32.8 M samples/s
  baseline    1.30 ms  TorchRec's planner (1.9.2), ported; this plan is 1.30× faster with P 93%

  Where the step goes (critical path)
    dense forward   0.50 ms  50%  ████████████████████
    lookup forward  0.40 ms  40%  ████████████████
    all-to-all      0.10 ms  10%  ████

  Ranks (their times overlap)
  Rank    Lookup   Collectives   Waiting      Idle   Tables, of 60.0 GiB for them
     0   0.40 ms       0.10 ms   0.00 ms   0.10 ms   ████████········  30.0 GiB   50%
     1   0.20 ms       0.10 ms   0.20 ms   0.30 ms   ████████████████  60.0 GiB  100%
  Rank 1 is full: larger tables or a larger batch may not fit.

  Tables
    column_wise      user_history → all
    data_parallel    tiny → all
    table_wise       item_0 → 1
"""


def test_the_whole_report() -> None:
    assert written(report_text(made(), 100)) == REPORT


@pytest.mark.parametrize(
    ("baseline", "text"),
    [
        (
            against("torchrec", 2 * MS),
            "TorchRec's own planner; this plan is 2.00×",
        ),
        (against("beam", MS), "beam; this plan is as fast"),
        (against("beam", 2 * MS), "beam; this plan is 2.00× faster with P 93%"),
        (
            against("torchrec_port", 0.5 * MS, reason="stopped after 9 plans"),
            "TorchRec's planner (1.9.2), ported, stopped after 9 plans; this plan is 2.00× slower",
        ),
    ],
)
def test_a_baseline_is_called_what_it_is(baseline: Baseline, text: str) -> None:
    assert text in written(report_text(replace(made(), baseline=baseline), 100))


def test_what_is_left_to_gain_is_a_ratio_of_two_steps_by_the_models() -> None:
    report = made()
    assert "to gain" not in written(report_text(report, 100))
    assert report.search is not None
    search = replace(report.search, bound=Modelled(0.96 * MS))
    longer = replace(report, confidence=replace(CONFIDENCE, step_time=1.3 * MS), search=search)
    text = written(report_text(longer, 100))
    assert "to gain        4.0%  at most, by any other plan, if" in text  # 1 - 0.96 / 1.00
    one = WeighedGroup(topology=topology(4), modelled=None)
    text = written(report_text(replace(longer, weighed_groups=(one,)), 100))
    assert "by any other plan for such a group, if the models are right" in text
    bare = replace(report, search=replace(search, bound=Modelled(0.1 * MS), is_bare=True))
    text = written(report_text(bare, 100))
    assert "to gain       90.0%  at most, were there no embedding work: no time was left" in text


def test_the_only_step_on_screen_is_the_expected_one() -> None:
    longer = made(confidence=replace(CONFIDENCE, step_time=1.25 * MS))
    text = written(report_text(longer, 100))
    assert "step time   1.25 ms  (0.90 - 1.10 ms, 90%)    26.2 M samples/s" in text
    assert "dense forward   0.62 ms  50%" in text  # 0.50 of 1.00 ms by the models
    assert "1.00 ms" not in text


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_narrow_terminals_lose_columns_not_names(width: int) -> None:
    text = written(report_text(made(num_tables=200), width))
    assert "user_history → all" in text
    assert "more" in text
    assert max(map(len, text.splitlines()[3:])) <= max(width, 50)


def test_a_long_name_is_never_cut() -> None:
    name = "a_table_with_a_name_of_no_small_length_" * 4
    entry = TableReport(sharding=sharding(name, ShardingType.TABLE_WISE, 1), weight_bytes=9.0)
    text = written(report_text(replace(made(), tables=(entry,)), 60))
    assert f"{name} → 1" in text


def test_names_cannot_move_the_cursor() -> None:
    entry = TableReport(
        sharding=sharding("a\x1b[2Jb", ShardingType.TABLE_WISE, 1), weight_bytes=9.0
    )
    assert "\x1b" not in written(report_text(replace(made(), tables=(entry,)), 100))


def test_many_ranks_are_summarised() -> None:
    report = made()
    many = tuple(replace(report.ranks[0], rank=rank) for rank in range(64))
    assert "56 less busy ranks" in written(report_text(replace(report, ranks=many), 100))


def test_a_rank_that_is_nearly_full_has_its_sentence() -> None:
    report = made()
    text = written(report_text(replace(report, usable_bytes=62.4 * GIB), 100))
    assert "Rank 1 has 2.4 GiB left: larger tables or a larger batch may not fit." in text
    assert "may not fit" not in written(report_text(replace(report, usable_bytes=70 * GIB), 100))


def test_a_headroom_that_is_not_met_is_said() -> None:
    report = replace(made(), usable_bytes=75 * GIB)  # the fullest has a fifth free
    assert report.search is not None
    for asked, told in (
        (0.0, "asks for none."),
        (0.1, "asks for 10%."),
        (0.5, "asks for 50%, which no plan found leaves, so all memory was searched."),
    ):
        searched = replace(report, search=replace(report.search, headroom=asked))
        text = " ".join(written(report_text(searched, 100)).split())
        assert f"rank 1, has 15.0 GiB (20%) free; `--headroom` {told}" in text


@pytest.mark.parametrize(
    ("asked", "place", "said"),
    [
        (
            {"sync_interval": 1},
            "on 2 nodes, average them every step",
            "(`default`: weights, then optimizer state, all-reduced): 2.50 ms of a step, 25%.",
        ),
        (
            {"sync_interval": 4, "use_inter_host_allreduce": True},
            "on 4 nodes, average them every 4 steps",
            "optimizer state, all-reduced): 2.50 ms of a step, 25%; 10.0 ms in those that do.",
        ),
        (
            {"sharding_strategy": ShardingStrategy.FULLY_SHARDED},
            "on 2 nodes, average them every step",
            "scattered after their lookup, gathered before their update): 2.50 ms of a step, 25%.",
        ),
    ],
)
def test_how_replicas_are_averaged_is_said_with_its_share(
    asked: dict[str, Any], place: str, said: str
) -> None:
    replicas = ReplicaGroups(num_groups=16, ranks_per_node=8, **asked)
    # ranks of a group are alone on their node, or two neighbours
    report = replace(
        made(confidence=replace(CONFIDENCE, step_time=10 * MS)),
        replicas=replicas,
        local_world_size=2 if replicas.use_inter_host_allreduce else 1,
        averaging_time=10 * MS,
        averaging_critical=2.5 * MS,
    )
    sentences = averaging_sentences(report, replicas)
    assert sentences.startswith("The job is 16 groups of 2 ranks, ")
    assert f"each holds all tables. The 16 ranks with the same shards, {place} (`" in sentences
    assert sentences.endswith(said)
    assert f", over {report.replica_nodes} nodes" in written(report_text(report, 100))


def test_group_sizes_that_are_not_listed_are_counted() -> None:
    groups = tuple(
        WeighedGroup(
            topology=topology(size, 1), modelled=Modelled(size * MS), num_plans=3 * size,
            is_chosen=size == 1,
        )
        for size in range(1, 11)
    )  # fmt: skip
    text = written(report_text(replace(made(), weighed_groups=groups), 100))
    (chosen,) = (line.split() for line in text.splitlines() if line.endswith("chosen"))
    assert chosen == ["1", "1", "all", "1.00", "ms", "3", "chosen"]
    assert "2 more, slower or without a plan: all are in --json and --html." in text
    text = written(report_text(replace(made(), weighed_groups=groups[:8]), 100))
    assert "slower or without a plan" not in text


def test_data_is_in_si_and_sums_up() -> None:
    data = report_data(made())
    assert data["schema_version"] == 2
    assert data["modelled_step_time_s"] == pytest.approx(1e-3)
    assert data["step_time_s"] == pytest.approx(1e-3)
    assert sum(data["breakdown"].values()) == pytest.approx(1e-3)
    assert data["peak_memory_bytes"] == 60 * GIB
    assert data["ranks"][0]["memory_bytes"] == 32 * GIB
    assert data["baseline"]["speedup"] == pytest.approx(1.3)
    assert data["tables"][0]["name"] == "user_history"
    assert set(data["breakdown"]) <= {stage.value for stage in Stage}


TIMELINE = """\
1.00 ms per step (0.90 - 1.10 ms, 90%); one column is 50.0 us
  rank 0   compute llllllll  dddddddddd
           world           aa
  rank 1   compute llll      dddddddddd
           world       ....aa

  l lookup forward   a all-to-all
  d dense forward   . waiting
"""


def test_the_whole_timeline() -> None:
    whole = two_ranks()
    assert written(timeline_text(whole, 41, made(), shown_ranks(whole))) == TIMELINE


def test_a_part_of_the_timeline_says_so() -> None:
    lines = written(timeline_text(two_ranks(), 80, made(), shown_ranks(two_ranks(), [1])))
    assert "rank 1   compute" in lines
    assert "rank 0" not in lines
    assert "  1 of 2 ranks; `--ranks 0-7,12` or `all` shows others\n" in lines
