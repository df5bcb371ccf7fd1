"""Plans of random workloads: within memory, covering every table, and the same when read again."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import planner
from costmodel.base.errors import PlannerError
from costmodel.base.limits import MOST_COLUMNS, MOST_IDS, MOST_ROWS
from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.validity import check_plan
from costmodel.domain.workload import DataType, DenseModel, EmbeddingTable, Pooling, Workload
from costmodel.memory.rank_memory import check_memory


def seldom(often: st.SearchStrategy, other: st.SearchStrategy) -> st.SearchStrategy:
    return st.integers(0, 29).flatmap(lambda n: other if n == 13 else often)


QUARTERS = seldom(st.integers(1, 128), st.integers(1, MOST_COLUMNS // 4))
TABLES = st.builds(
    EmbeddingTable,
    name=st.uuids().map(str),
    num_embeddings=seldom(st.integers(1, 10**7), st.integers(1, MOST_ROWS)),
    embedding_dim=QUARTERS.map(lambda n: 4 * n),
    pooling_factor=seldom(st.floats(1e-3, 100), st.floats(1e-9, MOST_IDS)),
    data_type=st.sampled_from([DataType.FP32, DataType.FP16, DataType.INT8]),
    pooling=st.sampled_from(Pooling),
    sharding_types=seldom(
        st.just(()), st.lists(st.sampled_from(ShardingType), min_size=1, max_size=3).map(tuple)
    ),
    compute_kernels=seldom(
        st.just(()), st.lists(st.sampled_from(ComputeKernel), min_size=1, max_size=2).map(tuple)
    ),
    ranks=seldom(st.just(()), st.lists(st.integers(0, 3), max_size=2, unique=True).map(tuple)),
)
WORKLOADS = st.builds(
    Workload,
    tables=st.lists(TABLES, min_size=1, max_size=6).map(tuple),
    dense=st.just(DenseModel(bottom_mlp=(16,), top_mlp=(8, 1))),
    local_batch_size=st.integers(1, 2**13),
)
HARDWARE = ("h100-sxm", "v100-nvlink", "cpu-gloo")


@pytest.mark.slow
@pytest.mark.nightly
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    workload=WORKLOADS,
    gpus=st.sampled_from([1, 2, 4, 16]),
    hardware=st.sampled_from(HARDWARE),
    sharder=st.sampled_from(["naive", "size_greedy", "auto"]),
)
def test_a_plan_is_what_it_says(
    tmp_path: Path, workload: Workload, gpus: int, hardware: str, sharder: str
) -> None:
    planned = None
    with contextlib.suppress(PlannerError):  # nothing fits, or constraints leave nothing
        planned = planner.plan(
            workload, gpus=gpus, hardware=hardware, sharder=sharder, baseline="none",
            time_limit=0.05,
        )  # fmt: skip
    event("refused" if planned is None else "planned")
    if planned is None:
        return
    check_plan(workload, planned.topology, planned.plan)
    check_memory(workload, planned.topology, planned.plan)
    report = planned.report
    assert report.search is not None
    assert report.search.bound is not None
    assert 0 < report.search.bound.seconds <= report.modelled.seconds < float("inf")
    planned.save(tmp_path / "plan.json")
    again = planner.load_plan(tmp_path / "plan.json")
    assert again.plan == planned.plan
    assert again.report.step_time == pytest.approx(report.step_time, rel=1e-9)
