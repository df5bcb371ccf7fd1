"""Groups of ranks that each hold all tables: which there are, which is chosen, and what is said."""

from dataclasses import replace
from pathlib import Path

import pytest
from machines import topology

import planner
from costmodel.base.errors import InfeasibleError, InputError
from costmodel.base.units import GIB
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.engine.objective import Objective
from costmodel.memory.rank_memory import fits
from costmodel.step.graph import Stage
from costmodel.step.step_operations import ProcessGroup, group_ranks
from planner.examples import example_hardware, example_workload
from planner.files.profiles import load_profile
from planner.search.headroom import leaving
from planner.search.search import Search
from planner.verbs import grouping
from planner.verbs.explanation import explained
from planner.verbs.grouping import FIRST_PLANS, Grouping, best_group, group_sizes
from planner.verbs.what_if import asked_change, usual_changes
from planner.views.report_data import explanation_data

JOB = topology(32, 8)
WORKLOAD = example_workload(12)


def made_by_rule(gpus: int, group_size: int) -> planner.Planned:
    return planner.plan(
        WORKLOAD,
        gpus=gpus,
        hardware="h100-sxm",
        sharder="size_greedy",
        baseline="none",
        replica_group=planner.Grouping(group_size=group_size, use_inter_host_allreduce=False),
        max_plans=100,
    )


def shapes(found: tuple[Topology, ...]) -> list[tuple[int, int, bool]]:
    return [
        (each.world_size, each.local_world_size, each.replicas.use_inter_host_allreduce)
        for each in found
        if each.replicas is not None
    ]


def test_a_job_is_divided_by_its_divisors() -> None:
    assert group_sizes(topology(12, 4)) == [2, 3, 4, 6]
    # every third rank of four on a node: 0 3, 6, 9: two on the first node, one on the others
    assert shapes(Grouping(group_size=4).topologies(topology(12, 4))) == [(4, 4, True)]


def test_auto_has_every_size_in_every_place_and_the_job_as_one() -> None:
    found = Grouping(group_size="auto", sync_interval=5).topologies(JOB)
    assert found[-1] == JOB
    assert shapes(found) == [
        (2, 1, False), (2, 2, True), (4, 1, False), (4, 4, True),
        (8, 2, False), (8, 8, True), (16, 4, False), (16, 8, True),
    ]  # fmt: skip
    assert {each.num_ranks for each in found} == {32}
    intervals = {each.replicas.sync_interval for each in found if each.replicas}
    assert intervals == {5}


@pytest.mark.parametrize("size", ["aut", "16", 2.5])
def test_a_size_is_a_whole_number_or_auto(size: object) -> None:
    with pytest.raises(InputError, match=f"`{size}` is no size of groups") as refused:
        Grouping(group_size=size).topologies(JOB)  # type: ignore[arg-type]
    assert refused.value.problems[0].hint == "a whole number, or `auto`"


def test_a_group_tells_what_it_was_asked_as() -> None:
    asked = Grouping(group_size=8, sync_interval=5, use_inter_host_allreduce=True)
    (group,) = asked.topologies(JOB)
    assert Grouping.of(group) == asked
    assert Grouping.of(JOB) is None


def test_a_place_may_be_asked_for() -> None:
    asked = Grouping(group_size=8, use_inter_host_allreduce=False)
    assert shapes(asked.topologies(JOB)) == [(8, 2, False)]
    assert Grouping(group_size=32).topologies(JOB) == (JOB,)


def test_how_replicas_are_averaged_is_not_asked_of_one_group() -> None:
    with pytest.raises(InputError, match="one group of all 32 has no replicas to average"):
        Grouping(group_size=32, sync_interval=10).topologies(JOB)


@pytest.mark.parametrize("size", [1, 3, 12, 64])
def test_other_sizes_are_refused_with_those_there_are(size: int) -> None:
    with pytest.raises(InputError, match=f"no groups of {size} ") as caught:
        Grouping(group_size=size).topologies(JOB)
    (problem,) = caught.value.problems
    assert problem.hint == "sizes of groups here: 2, 4, 8, 16, 32 (one group of all); or `auto`"


def test_the_best_of_all_is_chosen_and_the_others_are_told() -> None:
    found = Grouping(group_size="auto").topologies(topology(8, 4, load_profile("h100-sxm")))
    large = replace(WORKLOAD, tables=tuple(  # so that averaging all over a slow network takes long
        replace(table, num_embeddings=20 * table.num_embeddings) for table in WORKLOAD.tables
    ))  # fmt: skip
    problem, _, weighed = best_group(large, found, Search(max_plans=4_000))
    (chosen,) = (each for each in weighed if each.is_chosen)
    assert chosen.topology == problem.topology
    steps = [each.modelled.seconds for each in weighed if each.modelled is not None]
    assert len(steps) == len(weighed) == len(found)
    assert chosen.modelled is not None
    assert chosen.modelled.seconds == min(steps)
    first = [each for each in weighed if each.outcome == "first plans only"]
    assert first
    assert all(1 <= each.num_plans < 2 * FIRST_PLANS for each in first)
    assert all(each.modelled.seconds > 1.1 * min(steps) for each in first if each.modelled)
    (known,) = problem.known
    assert Objective(large, problem.topology).step_time(known) == chosen.modelled.seconds


def test_plans_for_choosing_the_group_size_count_among_those_asked_for() -> None:
    made = planner.plan(
        WORKLOAD, gpus=16, hardware="h100-sxm", replica_group="auto", max_plans=600, baseline=None
    )
    report = made.report
    assert report.search is not None
    chosen_by = sum(each.num_plans for each in report.weighed_groups)
    assert 0.3 * 600 < chosen_by < report.search.evaluated <= 1.05 * 600


def test_sizes_are_compared_by_plans_that_leave_memory_free() -> None:
    small = example_hardware(memory_bytes=1 * GIB)
    found = Grouping(group_size=4).topologies(topology(8, 4, small))
    problem, *_ = best_group(WORKLOAD, found, Search(max_plans=500, headroom=0.7))
    (known,) = problem.known
    # all plans that leave 70% free: those known to a problem are not asked
    roomy = leaving(replace(problem, known=()), 0.7)
    assert fits(WORKLOAD, roomy.topology, known)


@pytest.mark.parametrize(("behind", "is_roomy"), [(1e9, True), (1e-9, False)])
def test_the_step_of_a_size_without_room_counts_as_longer(
    monkeypatch: pytest.MonkeyPatch, behind: float, *, is_roomy: bool
) -> None:
    monkeypatch.setattr(grouping, "FULLER_BEHIND", behind)
    found = Grouping(group_size="auto").topologies(
        topology(8, 4, example_hardware(memory_bytes=1 * GIB))
    )
    problem, attempt, _ = best_group(WORKLOAD, found, Search(max_plans=2_000, headroom=0.7))
    roomy = leaving(replace(problem, known=()), 0.7)
    assert fits(WORKLOAD, roomy.topology, attempt.found) is is_roomy


def test_the_same_seed_and_number_of_plans_choose_the_same() -> None:
    found = Grouping(group_size="auto").topologies(topology(8, 4, load_profile("h100-sxm")))
    once, again = (best_group(WORKLOAD, found, Search(max_plans=1_000))[-1] for _ in range(2))
    assert [each.modelled for each in once] == [each.modelled for each in again]


def test_groups_too_small_for_the_tables_say_how_many_ranks_do() -> None:
    heavy = replace(WORKLOAD, tables=tuple(
        replace(table, num_embeddings=100_000_000, embedding_dim=64) for table in WORKLOAD.tables
    ))  # fmt: skip
    small = example_hardware(memory_bytes=40 * GIB)
    with pytest.raises(InfeasibleError) as caught:
        planner.plan(heavy, gpus=32, hardware=small, replica_group=2, time_limit=0.2)
    # 12 tables of 24 GiB and their state, on 36 GiB each less what all ranks need
    assert caught.value.hint == "groups of 16 ranks or more (`--replica-group`), or `auto`"


def test_a_table_that_groups_cannot_average_is_refused() -> None:
    hosted = replace(WORKLOAD.tables[0], compute_kernels=(ComputeKernel.FUSED_UVM,))
    work = replace(WORKLOAD, tables=(hosted, *WORKLOAD.tables[1:]))
    with pytest.raises(InputError, match="no group of ranks can shard all tables"):
        planner.plan(work, gpus=8, hardware=example_hardware(), replica_group=4)


def test_a_plan_of_a_group_is_kept_and_explained(tmp_path: Path) -> None:
    sharded = replace(WORKLOAD, tables=tuple(
        replace(table, sharding_types=(ShardingType.TABLE_WISE, ShardingType.ROW_WISE))
        for table in WORKLOAD.tables
    ))  # fmt: skip
    made = planner.plan(
        sharded,
        gpus=16,
        hardware="h100-sxm",
        replica_group=planner.Grouping(group_size=8, sync_interval=4),
        max_plans=2_000,
    )
    report = made.report
    assert (report.world_size, report.num_ranks, report.num_nodes) == (8, 16, 2)
    samples = WORKLOAD.local_batch_size * 16 / report.step_time
    assert report.samples_per_second == pytest.approx(samples)
    assert report.replicas is not None
    assert report.averaging_time > 0
    assert report.search is not None
    assert report.search.evaluated > sum(each.num_plans for each in report.weighed_groups) > 0
    made.save(tmp_path / "plan.json")
    loaded = planner.load_plan(tmp_path / "plan.json")
    assert loaded.topology == made.topology
    assert loaded.report.modelled == report.modelled
    changes = {each.text: each for each in usual_changes(loaded)}
    assert not any("GPUs instead" in text for text in changes)
    seldom = changes["average every 40 steps instead of 4"]
    assert seldom.topology.replicas is not None
    assert seldom.topology.replicas.sync_interval == 40
    assert any("changes training" in note for note in seldom.notes)
    assert changes["groups of 4 instead of 8"].topology.world_size == 4
    assert changes["one group of all 16 instead of 8"].topology.replicas is None


def test_averaging_that_a_step_waits_for_is_named_and_timed() -> None:
    made = made_by_rule(32, 2)
    report = made.report
    # 16 replicas on nodes of 8: two nodes; within a step of one averaging, all of it is waited for
    assert report.replica_nodes == 2
    assert report.averaging_critical == pytest.approx(report.averaging_time, rel=0.01)
    assert 0 < report.averaging_critical <= report.breakdown[Stage.ALL_REDUCE]
    explanation = explained(made)
    averaged = [row for row in explanation.path if row.of_replicas]
    assert [(row.stage, row.rank is None) for row in averaged] == [(Stage.ALL_REDUCE, False)]
    stretch = report.step_time / report.modelled.seconds
    assert averaged[0].seconds * stretch == pytest.approx(report.averaging_critical)
    data = explanation_data(explanation)
    assert data["averaging_critical_path_s"] == report.averaging_critical
    assert data["replicas"]["num_groups"] == 16
    rows = [row for row in data["critical_path"] if row["of_replicas"]]
    assert [row["stage"] for row in rows] == ["all_reduce"]


def test_replicas_are_on_as_many_nodes_as_their_collectives_cross() -> None:
    report = planner.plan(
        WORKLOAD, gpus=2, hardware="h100-sxm", sharder="size_greedy", baseline="none"
    ).report
    for group in Grouping(group_size="auto").topologies(JOB):
        own = replace(
            report,
            world_size=group.world_size,
            local_world_size=group.local_world_size,
            replicas=group.replicas,
        )
        assert own.replica_nodes == group_ranks(group, ProcessGroup.REPLICAS).num_nodes


def test_what_ifs_keep_the_groups() -> None:
    made = made_by_rule(16, 8)
    changed = asked_change(made, "hardware=h200-sxm")
    assert changed.topology.replicas == made.topology.replicas
    assert changed.topology.hardware.name == "h200-sxm"
    twice = asked_change(made, "gpus=32")
    assert twice.text == "gpus=32 (4 nodes)"
    assert (twice.topology.world_size, twice.topology.num_ranks) == (8, 32)
    with pytest.raises(InputError, match="24 GPUs on 3 nodes are no groups of 8") as refused:
        asked_change(made, "gpus=24")
    assert refused.value.problems[0].hint is None  # no example with another number of GPUs
    page = made.to_html()
    assert "h100-sxm" in page
    assert "16 ×" in page
    assert "with the same shards, on 1 node, average them every step" in page
