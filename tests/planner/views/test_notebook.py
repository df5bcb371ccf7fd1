"""What notebooks and pages are given of a plan: sums by hand, names that are not trusted."""

from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest

import planner
from costmodel.base.errors import SharderFailedError
from costmodel.base.units import MS
from costmodel.domain.plan import (
    ComputeKernel,
    Shard,
    ShardingPlan,
    ShardingType,
    TableSharding,
)
from costmodel.domain.workload import EmbeddingTable, Workload
from planner.examples import example_hardware, example_workload
from planner.files.plans import PlanFile
from planner.pages import document
from planner.planned.planned import Comparison
from planner.show.format import duration
from planner.verbs.loading import judge
from planner.views.compare_columns import each_found, sharder_columns
from planner.views.compare_page import diff_page
from planner.views.compare_text import diff_text
from planner.views.plan_charts import (
    breakdown_spec,
    memory_rows,
    memory_spec,
    plan_timeline_spec,
    ranks_spec,
)
from planner.views.plan_columns import plan_rows, table_columns
from planner.views.plan_page import headline


@pytest.fixture(scope="module")
def planned() -> planner.Planned:
    return planner.plan(
        example_workload(12), gpus=4, hardware=example_hardware(), sharder="naive",
        baseline="none", time_limit=0.05,
    )  # fmt: skip


@pytest.fixture(scope="module")
def timeline(planned: planner.Planned) -> planner.Timeline:
    return planner.simulate(planned)


@pytest.fixture
def _no_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "vega_bundle", lambda: "")


def test_a_plan_says_in_a_line_what_it_is(planned: planner.Planned) -> None:
    assert repr(planned).startswith("<Planned workload: 12 tables on 4 × example, ")
    assert len(repr(planned)) < 150


def test_one_of_a_thing_is_no_plural(planned: planner.Planned) -> None:
    one = replace(planned, report=replace(planned.report, num_tables=1))
    assert repr(one).startswith("<Planned workload: 1 table on ")
    assert repr(Comparison((planned,))).startswith("<Comparison of 1 sharder: ")
    assert repr(planner.Sweep(workload="", num_tables=1, points=())).endswith(
        "0 points, 0 with a plan, 0 on the front>"
    )


def test_a_timeline_says_in_a_line_what_it_is(timeline: planner.Timeline) -> None:
    assert "on 4 ranks" in repr(timeline)
    assert len(repr(timeline)) < 150


def test_a_notebook_shows_the_headline_and_every_table(planned: planner.Planned) -> None:
    shown = planned._repr_html_()
    assert shown.count("<tr>") == 1 + 12
    assert all(f"<b>{value}</b>" in shown for name, value in headline(planned.report))


def test_pages_have_one_step() -> None:
    plan = planner.plan(example_workload(4), gpus=2, sharder="naive", max_plans=10)
    report = plan.report
    assert report.baseline is not None
    assert report.step_time > report.modelled.seconds
    facts = dict(headline(report))
    assert facts["step time"] == duration(report.confidence.step_time)
    assert facts[report.baseline.sharder].startswith(duration(report.baseline.step_time))
    found = each_found([report], {})
    times = next(each for each in sharder_columns(found) if each.title == "Step time")
    assert times.texts(found) == [facts["step time"]]
    (panel,) = breakdown_spec([report], ["step"])["layer"][1]["data"]["values"]
    assert (panel["low"] * MS, panel["high"] * MS) == pytest.approx(report.interval)


def test_a_notebook_keeps_few_of_many_tables() -> None:
    many = planner.plan(
        example_workload(200), gpus=4, sharder="naive", baseline="none", time_limit=0.05
    )
    assert "140 more" in many._repr_html_()
    assert len(many._repr_html_()) < 60_000


def test_the_critical_path_on_the_chart_sums_to_the_step(planned: planner.Planned) -> None:
    rows = breakdown_spec([planned.report], ["step"])["data"]["values"]
    assert sum(row["ms"] for row in rows) == pytest.approx(planned.report.step_time / MS)


def test_streams_of_a_rank_work_no_longer_than_the_step(
    planned: planner.Planned, timeline: planner.Timeline
) -> None:
    rows = ranks_spec(timeline.stretched(planned.report.step_time))["data"]["values"]
    total: dict[tuple[int, str], float] = defaultdict(float)
    for row in rows:
        total[row["rank"], row["stream"]] += row["ms"]
    step = planned.report.step_time / MS
    assert {rank for rank, _ in total} == {0, 1, 2, 3}
    assert max(total.values()) <= step * 1.001
    # the compute stream is all there is to a step: what is not work is idle
    computing = [ms for (_, stream), ms in total.items() if stream == "compute"]
    assert computing == pytest.approx([step] * 4, rel=0.02)


def test_the_timeline_lies_in_the_step_and_outlines_the_critical_path(
    planned: planner.Planned, timeline: planner.Timeline
) -> None:
    rows = plan_timeline_spec(timeline.stretched(planned.report.step_time), range(4))["data"][
        "values"
    ]
    step = planned.report.step_time / MS
    assert all(-1e-4 <= row["start"] <= row["end"] <= step + 1e-4 for row in rows)
    critical = sum(row["end"] - row["start"] for row in rows if row.get("critical"))
    assert 0.5 * step <= critical <= 1.001 * step  # the rest is between launches and kernels
    assert any(row["after"] for row in rows)


def test_the_ranks_asked_for_are_drawn(timeline: planner.Timeline) -> None:
    rows = plan_timeline_spec(timeline, (1, 3))["data"]["values"]
    assert {row["row"].split()[1] for row in rows} == {"1", "3"}


def test_the_treemap_has_all_memory_of_a_rank(planned: planner.Planned) -> None:
    rows = memory_rows(planned)
    for rank in planned.report.ranks:
        own = [row for row in rows if row["rank"] == rank.rank]
        of = {
            kind: sum(r["bytes"] for r in own if r["kind"] == kind) for kind in ("tables", "free")
        }
        assert of["tables"] == pytest.approx(rank.memory.tables)
        assert of["tables"] + of["free"] == pytest.approx(planned.report.usable_bytes)
    assert len(memory_spec(planned)["data"][0]["values"]) == len(rows) + 4 + 1


@pytest.mark.usefixtures("_no_bundle")
def test_names_from_files_are_no_markup(planned: planner.Planned) -> None:
    evil = "</script><img src=x onerror=alert(1)>"
    tables = list(planned.workload.tables)
    tables[0] = replace(tables[0], name=evil)
    workload = replace(planned.workload, tables=tuple(tables), name=evil)
    named = planner.plan(workload, gpus=2, sharder="naive", baseline="none", time_limit=0.05)
    page = named.to_html()
    assert "<img" not in page
    assert page.count("</script>") == 2
    assert "<img" not in named._repr_html_()


@pytest.mark.usefixtures("_no_bundle")
def test_two_plans_beside_each_other(planned: planner.Planned) -> None:
    other = planner.plan(
        planned.workload, gpus=4, hardware=example_hardware(), sharder="cost_greedy",
        baseline="none", time_limit=0.05,
    )  # fmt: skip
    page = diff_page(planner.compare_plans(planned, other), ("old.json", "new.json"))
    assert "old.json and new.json" in page
    assert "Tables that are sharded otherwise" in page
    assert planner.compare_plans(planned, other).other_model == ""
    both = Comparison((planned, other))
    assert repr(both).startswith("<Comparison of 2 sharders: naive ")
    assert both._repr_html_().count("<tr>") == 1 + 2
    assert "cost_greedy" in both.to_html()
    with_error = Comparison((planned,), {"lns": SharderFailedError("lns", "KeyError: 7")})
    assert "sharder `lns` failed: KeyError: 7" in with_error._repr_html_()
    assert "sharder `lns` failed: KeyError: 7" in with_error.to_html()


def test_comparing_returns_a_tuple_that_notebooks_can_show() -> None:
    found = planner.compare(example_workload(4), gpus=2, sharders="naive", time_limit=0.05)
    assert isinstance(found, tuple)
    (only,) = found
    assert found[0] is only
    assert "naive" in found._repr_html_()


def test_rows_for_pandas(planned: planner.Planned) -> None:
    pytest.importorskip("pandas")
    frame = planned.to_dataframe()
    assert len(frame) == sum(len(table.shards) for table in planned.plan.tables)
    assert {"name", "sharding_type", "rank", "num_rows"} <= set(frame)
    assert list(Comparison((planned,)).to_dataframe()["sharder"]) == ["naive"]


def test_charts_of_altair_are_valid(planned: planner.Planned) -> None:
    pytest.importorskip("altair")
    for chart in (planned.plot_breakdown(), planned.plot_ranks(), planned.plot_timeline(0)):
        assert chart.to_dict()["width"] == 640  # it validates against Vega-Lite's schema


def test_every_table_has_a_row(planned: planner.Planned) -> None:
    rows = plan_rows(planned)
    assert {len(column.texts(rows)) for column in table_columns(planned.report)} == {12}


def test_plans_of_different_models_are_compared_with_a_warning(planned: planner.Planned) -> None:
    tables = list(planned.workload.tables)
    tables[0] = replace(tables[0], num_embeddings=2 * tables[0].num_embeddings)
    workload = replace(planned.workload, tables=tuple(tables))
    other = planner.plan(workload, gpus=2, sharder="naive", baseline="none", time_limit=0.05)
    diff = planner.compare_plans(planned, other)
    same = len(tables) - 1
    assert diff.other_model == f"{same} of {same + 1} and {same + 1} tables are the same"
    (first, *_) = diff_text(diff, 200)
    assert first.plain.startswith("warning: the plans are for different models")


@pytest.mark.usefixtures("_no_bundle")
def test_pages_warn_as_reports_do(planned: planner.Planned) -> None:
    warned = replace(planned, report=replace(planned.report, notes=("int8 cannot be trained",)))
    diff = planner.compare_plans(planned, warned)
    assert "<li>int8 cannot be trained" in warned.to_html()
    assert "<li>int8 cannot be trained" in Comparison((warned, planned)).to_html()
    assert "<li>the new plan: int8 cannot be trained" in diff_page(diff, ("a", "b"))
    assert "Warnings" not in planned.to_html()


def halves(*ranks: int, **fields: Any) -> TableSharding:  # noqa: ANN401 - of a sharding
    shards = tuple(
        Shard(rank=rank, row_offset=0, num_rows=100, column_offset=32 * place, num_columns=32)
        for place, rank in enumerate(ranks)
    )
    return TableSharding(table="a", sharding_type=ShardingType.COLUMN_WISE, shards=shards, **fields)


@pytest.mark.parametrize(
    ("new", "shown"),
    [
        (halves(0, 1, compute_kernel=ComputeKernel.FUSED_UVM), "column_wise, fused_uvm → all"),
        (
            halves(0, 1, compute_kernel=ComputeKernel.FUSED_UVM_CACHING, cache_load_factor=0.125),
            "column_wise, fused_uvm_caching, 12.5% cached → all",
        ),
        (halves(1, 0), "column_wise → all, in other shards"),
    ],
)
@pytest.mark.usefixtures("_no_bundle")
def test_what_changed_of_a_table_is_seen(new: TableSharding, shown: str) -> None:
    table = EmbeddingTable(
        name="a", num_embeddings=100, embedding_dim=64, compute_kernels=tuple(ComputeKernel)
    )
    workload = Workload(tables=(table,))
    plans = [
        judge(
            PlanFile(
                plan=ShardingPlan(tables=(each,), world_size=2, local_world_size=2),
                workload=workload,
                hardware="h100-sxm",
            )
        )
        for each in (halves(0, 1), new)
    ]
    diff = planner.compare_plans(*plans)
    (line,) = (line.plain for line in diff_text(diff, 200) if "~ a" in line.plain)
    assert f"column_wise → all   {shown}  " in line
    assert shown in diff_page(diff, ("old.json", "new.json"))


def test_what_two_plans_differ_in_is_named_with_the_tables_that_go_with_it(
    planned: planner.Planned,
) -> None:
    elsewhere = planner.plan(
        planned.workload, gpus=2, hardware=example_hardware(), sharder="naive",
        baseline="none", time_limit=0.05,
    )  # fmt: skip
    diff = planner.compare_plans(planned, elsewhere)
    moved = len(diff.changes)
    *_, total, _, _, _ = (line.plain for line in diff_text(diff, 200))
    assert moved
    assert diff.differ_in == ("ranks",)
    assert f": other ranks and {moved} tables sharded otherwise for that" in total
    text = "The new plan is for other ranks (4 on 1 node → 2 on 1 node)."
    assert text in "\n".join(line.plain for line in diff_text(diff, 200))
    assert text in diff_page(diff, ("old.json", "new.json"))
    same = planner.compare_plans(planned, planned)
    assert same.differ_in == ()
    assert repr(same).endswith(" a step, 0 tables changed, 12 not>")
    assert len(repr(same)) < 150


def test_steps_of_more_samples_are_compared_by_samples_per_second(
    planned: planner.Planned,
) -> None:
    # twice the batch in the same plan, and the step is the host's: as long with twice the samples
    workload = replace(planned.workload, local_batch_size=2 * planned.workload.local_batch_size)
    doubled = judge(PlanFile(plan=planned.plan, workload=workload, hardware="h100-sxm"))
    single = judge(PlanFile(plan=planned.plan, workload=planned.workload, hardware="h100-sxm"))
    diff = planner.compare_plans(single, doubled)
    assert diff.differ_in == ("workload",)
    assert diff.speedup == pytest.approx(1.0, rel=1e-3)
    assert diff.throughput_ratio == pytest.approx(2 * diff.speedup)
    *_, step, throughput = (line.plain for line in diff_text(diff, 200))
    assert step.endswith("(as fast)")
    assert throughput.endswith("samples/s (2.00× more)")
