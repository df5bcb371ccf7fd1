import pytest
from needed import needs_data

from bench.fitting.sources import DATA
from bench.kept import read
from bench.printed_plan import RESULTS, printed
from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import DataType, Pooling
from planner.files.plans import PlanFile
from planner.files.profiles import load_profile
from planner.torchrec.printed_plan import printed_plan
from planner.torchrec.printed_statistics import read_statistics
from planner.verbs.loading import judge


@pytest.fixture(scope="module")
def plan() -> PlanFile:
    return printed()


def test_the_plan_is_the_printed_one(plan: PlanFile) -> None:
    unpooled = [table for table in plan.workload.tables if table.pooling is Pooling.NONE]
    assert (len(plan.workload.tables), plan.plan.world_size) == (1935, 96)
    assert [table.pooling_factor for table in unpooled] == [6066, 9099]
    kinds = [sharding.sharding_type for sharding in plan.plan.tables]
    assert kinds.count(ShardingType.COLUMN_WISE) == 1933
    assert {table.data_type for table in plan.workload.tables} == {DataType.FP16}


@needs_data
def test_reading_the_log_again_makes_the_same_plan(plan: PlanFile) -> None:
    stats = read_statistics(DATA / "torchrec_production_plan_stats.txt.gz")
    file, unsaid = printed_plan(stats, load_profile(plan.hardware), plan.hardware)
    assert (file.plan, file.workload, file.memory) == (plan.plan, plan.workload, plan.memory)
    assert any("1,600,000,000 elements in 3.0 GiB" in text for text in unsaid)


@pytest.mark.slow
def test_results_are_of_the_present_model(plan: PlanFile) -> None:
    kept = read(RESULTS)
    modelled = judge(plan).report.modelled.seconds
    assert modelled == pytest.approx(kept["printed"]["step_time"], rel=0.02)
    for row in kept["searches"]:
        assert row["bound"] <= row["step_time"] < kept["printed"]["step_time"]
        assert row["wall"] <= row["limit"]
