from dataclasses import replace

import pytest

from costmodel.base.errors import InputError
from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.workload import DataType, DenseModel, EmbeddingTable, Optimizer, Workload
from costmodel.engine.objective import Objective
from planner import Planned, explain, plan
from planner.files.plans import PlanFile
from planner.files.profiles import load_profile
from planner.search.search import Search
from planner.show.format import count
from planner.verbs.explanation import changes_of, explained
from planner.verbs.loading import judge
from planner.verbs.topologies import make_topology
from planner.verbs.what_if import LAUNCHES, asked_change, usual_changes
from planner.verbs.what_if import remedies as remedies_of
from planner.views.explain_text import remedies_text
from sharders.problem.options import TableOption, make_plan, make_sharding

FOREACH = "dense optimizer with foreach=True"


def remedies(kind: ShardingType) -> dict[str, float]:
    tables = (
        EmbeddingTable(name="small", num_embeddings=1000, embedding_dim=16, sharding_types=(kind,)),
        EmbeddingTable(name="large", num_embeddings=10**6, embedding_dim=16, sharding_types=(
            ShardingType.TABLE_WISE,
        )),
    )  # fmt: skip
    work = Workload(
        tables=tables, dense=replace(DenseModel(), optimizer=Optimizer.ADAGRAD),
        local_batch_size=512,
    )  # fmt: skip
    planned: Planned = plan(work, gpus=2, hardware="h100-sxm", sharder="naive", baseline="none")
    wanted = {FOREACH, *LAUNCHES.values()}
    asked = [change for change in usual_changes(planned) if change.text in wanted]
    found = remedies_of(planned, asked, Search(max_plans=20))
    return {**{each.change: each.step_time for each in found}, "now": planned.report.step_time}


@pytest.mark.slow
def test_an_explanation_names_the_rival_that_the_plan_was_weighed_against() -> None:
    tables = tuple(
        EmbeddingTable(name=f"t{i}", num_embeddings=10**6, embedding_dim=64, pooling_factor=2)
        for i in range(5)
    )
    planned = plan(Workload(tables=tables), gpus=2, max_plans=400)
    assert planned.report.verdict is not None
    assert planned.report.verdict.rival is not None
    assert explained(planned).rival == planned.report.verdict.rival


def test_two_narrow_blocks_are_weighed_against_a_whole_table() -> None:
    """A table of one block of columns would be in no sharding group that there is."""
    table = EmbeddingTable(name="t", num_embeddings=10**6, embedding_dim=32, pooling_factor=8)
    topology = make_topology(load_profile("h100-sxm"), 2)
    columns = TableOption(sharding_type=ShardingType.COLUMN_WISE, num_column_shards=2)
    cut = make_plan(topology, [make_sharding(table, topology, columns, (0, 1))])
    whole = TableOption(sharding_type=ShardingType.TABLE_WISE)
    wide = make_plan(topology, [make_sharding(table, topology, whole, (0,))])
    for types in ((), (ShardingType.COLUMN_WISE,)):
        workload = Workload(tables=(replace(table, sharding_types=types),), local_batch_size=512)
        planned = judge(PlanFile(plan=cut, workload=workload, hardware="h100-sxm"))
        (choice,) = explained(planned).choices
        objective = Objective(workload, topology)
        ratio = objective.step_time(wide) / objective.step_time(cut)
        assert choice.wider_ratio == (None if types else pytest.approx(ratio, rel=1e-12))


def test_foreach_helps_where_a_replicated_table_brings_the_optimizer_s_loop() -> None:
    found = remedies(ShardingType.DATA_PARALLEL)
    assert found[FOREACH] < 0.9 * found["now"]


def test_foreach_is_what_torch_takes_without_replicated_tables() -> None:
    assert FOREACH not in remedies(ShardingType.TABLE_WISE)


def test_fewer_launches_help_where_the_host_is_slower_than_the_gpu() -> None:
    found = remedies(ShardingType.TABLE_WISE)
    assert found["dense model in CUDA graphs"] < found["dense model by torch.compile"]
    assert found["dense model by torch.compile"] < 0.95 * found["now"]


def planned_on(gpus: int, **options: object) -> Planned:
    work = Workload(
        tables=tuple(
            EmbeddingTable(name=f"t{i}", num_embeddings=10**6, embedding_dim=64, pooling_factor=20)
            for i in range(3)
        ),
        local_batch_size=4096,
    )
    return plan(work, gpus=gpus, baseline="none", max_plans=300, **options)


@pytest.fixture(scope="module")
def naive() -> Planned:
    return planned_on(2, sharder="naive")


@pytest.mark.slow
def test_what_is_asked_for_is_what_planning_anew_finds() -> None:
    planned = planned_on(4)
    asked = ("gpus=2", "hardware=a100-sxm-80gb", "dtype=fp16", "batch=2048", "host=graphs")
    found = {each.change: each for each in explain(planned, asked, max_plans=300).remedies}
    assert set(found) == set(asked)
    two, other = planned_on(2), planned_on(4, hardware="a100-sxm-80gb")
    assert found["gpus=2"].step_time == pytest.approx(two.report.step_time, rel=0.03)
    assert found["gpus=2"].num_changed is None
    again = found["hardware=a100-sxm-80gb"]
    assert again.step_time == pytest.approx(other.report.step_time, rel=0.03)
    assert found["host=graphs"].step_time < planned.report.step_time
    assert found["batch=2048"].step_time < planned.report.step_time


def test_every_change_that_the_hint_offers_can_be_asked_for(naive: Planned) -> None:
    with pytest.raises(InputError) as refused:
        asked_change(naive, "weather=fine")
    (problem,) = refused.value.problems
    assert problem.hint is not None
    offered = problem.hint.removeprefix("write one of ").split(", ")
    assert {"host=graphs", "host=0.5"} < set(offered)
    asked = [asked_change(naive, each).text.partition(" (")[0] for each in offered]
    assert asked == offered


@pytest.mark.parametrize(
    ("gpus", "nodes", "asked", "then"),
    [
        (4, 2, "gpus=4", (4, 2)),
        (4, 2, "gpus=8", (8, 4)),  # nodes of two, though the profile's have eight
        (4, 2, "gpus=2", (2, 1)),
        (4, 1, "gpus=8", (8, 1)),
        (8, 1, "gpus=16", (16, 2)),
        (16, 2, "gpus=8", (8, 1)),
        (16, 2, "hardware=l40s-pcie", (16, 2)),
    ],
)
def test_a_change_is_on_nodes_as_they_are_and_says_where_their_number_differs(
    naive: Planned, gpus: int, nodes: int, asked: str, then: tuple[int, int]
) -> None:
    topology = make_topology(naive.topology.hardware, gpus, nodes)
    change = asked_change(replace(naive, topology=topology), asked)
    assert (change.topology.world_size, change.topology.num_nodes) == then
    said = f" ({count(then[1], 'node')})" if then[1] != nodes else ""
    assert change.text == asked + said


def test_the_machines_next_slower_and_next_faster_are_among_what_ifs(naive: Planned) -> None:
    *_, slower, faster = usual_changes(naive)  # on an H100 of 3.0 TB/s
    assert (slower.text, faster.text) == ("on h100-hbm2e", "on h200-sxm")
    assert faster.topology.hardware.name == "h200-sxm"
    assert faster.topology.world_size == naive.topology.world_size


def test_half_the_gpus_are_tried_with_what_makes_tables_fit(naive: Planned) -> None:
    large = EmbeddingTable(name="large", num_embeddings=600_000_000, embedding_dim=128)
    workload = replace(naive.workload, tables=(large, *naive.workload.tables))
    planned = replace(naive, workload=workload, topology=make_topology(naive.topology.hardware, 8))
    halves = [each for each in usual_changes(planned) if each.text.startswith("4 GPUs")]
    assert [each.text for each in halves] == [
        "4 GPUs instead of 8, 1 table cached", "4 GPUs instead of 8, 1 table in fp16",
    ]  # fmt: skip
    cached, halved = (each.workload.table("large") for each in halves)
    assert ComputeKernel.FUSED_UVM_CACHING in cached.compute_kernels
    assert halved.data_type is DataType.FP16


def test_more_gpus_say_how_many_nodes_they_are_on(naive: Planned) -> None:
    topology = make_topology(naive.topology.hardware, 8)
    *_, more, fewer, _, _ = usual_changes(replace(naive, topology=topology))
    assert more.text == "16 GPUs instead of 8 (2 nodes)"
    assert fewer.text == "4 GPUs instead of 8"
    large = make_topology(replace(topology.hardware, gpus_per_node=72), 72)
    smaller = asked_change(replace(naive, topology=large), "hardware=h200-sxm")
    assert smaller.text == "hardware=h200-sxm (9 nodes)"


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ("gpu=2", "cannot be changed"),
        ("gpus=two", "`two` is not a number"),
        ("gpus=8,16", "`8,16` is not a number"),
        ("host=slow", "what its time is multiplied by"),
        ("dtype=fp17", "no data type `fp17`"),
        ("hardware=h1000", "h1000"),
        ("host=0", "what its time is multiplied by"),
        ("batch=0", "a whole number from 1"),
    ],
)
def test_a_change_that_cannot_be_is_refused(naive: Planned, asked: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        explain(naive, (asked,))


@pytest.mark.parametrize("written", ["16k", "16384", "16,384", "16_384"])
def test_numbers_are_written_as_for_sweeps(naive: Planned, written: str) -> None:
    assert asked_change(naive, f"batch={written}").workload.local_batch_size == 16384


def test_a_change_is_warned_of_as_a_plan_for_it_would_be(naive: Planned) -> None:
    found = explain(naive, ("dtype=int8", "dtype=fp16"), max_plans=5)
    notes = {each.change: each.notes for each in found.remedies}
    (note,) = notes.pop("dtype=int8")
    assert "int8 cannot be trained" in note
    assert notes == {"dtype=fp16": ()}
    assert f"    warning: dtype=int8: {note}" in [line.plain for line in remedies_text(found, 200)]


def test_a_change_that_no_plan_is_found_with_says_why(naive: Planned) -> None:
    found = explain(naive, ("batch=16_000_000", "batch=64"), max_plans=5)
    assert [each.change for each in found.remedies] == ["batch=64"]
    ((change, reason),) = found.unplanned
    assert change == "batch=16_000_000"
    assert "no plan fits" in reason


def test_an_interrupt_keeps_what_was_found(naive: Planned) -> None:
    calls: list[int] = []

    def press() -> bool:
        calls.append(1)
        return len(calls) > 1

    search = Search(max_plans=20, interrupted=press)
    changes = changes_of(naive, ("batch=128", "batch=256"))
    assert len(list(remedies_of(naive, changes, search))) <= 1
