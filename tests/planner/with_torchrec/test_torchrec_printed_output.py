"""Printing a plan's statistics needs no torchrec."""

from dataclasses import replace

import pytest

import planner
from costmodel.base.units import MS
from costmodel.domain.workload import UNREAD_DENSE
from costmodel.memory.rank_memory import memory_per_rank, usable_bytes
from planner.examples import example_workload
from planner.files.plans import planned_topology
from planner.files.profiles import load_profile
from planner.planned.planned import Planned
from planner.torchrec.printed_output import printed_lines
from planner.torchrec.printed_plan import printed_plan
from planner.torchrec.printed_statistics import PrintedStatistics, parse_statistics

PROFILE = "a100-sxm-80gb"


@pytest.fixture(scope="module")
def planned() -> Planned:
    workload = replace(example_workload(), dense=UNREAD_DENSE)
    options = {"sharder": "cost_greedy", "baseline": None, "max_plans": 50}
    return planner.plan(workload, gpus=16, hardware=PROFILE, **options)


@pytest.fixture(scope="module")
def stats(planned: Planned) -> PrintedStatistics:
    return parse_statistics("\n".join(printed_lines(planned)), "log")


def test_what_is_printed_is_read_back(planned: Planned, stats: PrintedStatistics) -> None:
    file, unsaid = printed_plan(stats, load_profile(PROFILE), PROFILE, nodes=2)
    assert file.plan.world_size == 16
    for ours in planned.plan.tables:
        back = file.plan.table(ours.table)
        assert back.sharding_type is ours.sharding_type
        assert back.compute_kernel is ours.compute_kernel
        assert sorted(back.ranks) == sorted(ours.ranks)
    for table in planned.workload.tables:
        back_table = file.workload.table(table.name)
        kept = ("num_embeddings", "embedding_dim", "pooling", "weighted", "data_type")
        assert [getattr(back_table, n) for n in kept] == [getattr(table, n) for n in kept]
        assert back_table.pooling_factor == pytest.approx(table.pooling_factor, abs=5e-4)
        assert back_table.num_features == table.num_features
    assert any("fp32, the widest" in text for text in unsaid)


def test_memory_is_as_it_was(planned: Planned, stats: PrintedStatistics) -> None:
    file, _ = printed_plan(stats, load_profile(PROFILE), PROFILE, nodes=2)
    before = usable_bytes(planned.workload, planned.topology)
    # three sizes that are printed to a thousandth of a GiB
    assert usable_bytes(file.workload, planned_topology(file)) == pytest.approx(before, abs=2e6)


def test_ranks_have_their_predictions(planned: Planned) -> None:
    lines = printed_lines(planned)
    assert len({len(line) for line in lines}) == 1
    assert f"Predicted step {planned.report.step_time / MS:.3f} ms" in lines[2]
    assert f"by the models, as below, {planned.report.modelled.seconds / MS:.3f} ms" in lines[2]
    memory = memory_per_rank(planned.workload, planned.topology, planned.plan)
    first = next(line for line in lines if line.split()[1:2] == ["0"])
    assert f"{memory[0].total / 2**30:.3f} (" in first
    path = next(line for line in lines if "comms + compute" in line)
    whole = float(path.split(":")[1].rstrip(" #"))
    parts = [line for line in lines if "Maximum of" in line]
    assert whole == pytest.approx(
        sum(float(each.split(": ")[1].split()[0]) for each in parts), 0.01
    )
    assert 0 < whole * MS < planned.report.step_time


def test_tables_go_by_their_places_in_the_model(planned: Planned) -> None:
    name = planned.workload.tables[0].name
    place = {"device": "cuda", "tables": {name: {"module": "over.ebc", "table": name}}}
    lines = printed_lines(replace(planned, torchrec=place))
    assert any(f"over.ebc.{name} " in line for line in lines)
