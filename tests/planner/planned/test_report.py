"""No number of a report is one that cannot be, whatever the workload, machine and plan."""

import pytest
from hypothesis import HealthCheck, given, reject, settings
from strategies import Case, cases, topologies, workloads

import planner
from costmodel.base.errors import InfeasibleError
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import EmbeddingTable, Workload
from costmodel.memory.rank_memory import fits, rank_rooms
from costmodel.step.operation_timeline import plan_timeline
from planner.decision.confidence import confidences
from planner.planned.report import Report, make_report
from planner.views.report_data import report_data

SLACK = 1 + 1e-9


def numbers(data: object) -> list[float]:
    """Return all numbers of plain data."""
    if isinstance(data, dict | list | tuple):
        each = data.values() if isinstance(data, dict) else data
        return [number for value in each for number in numbers(value)]
    return [data] if isinstance(data, int | float) else []


def check_step(report: Report) -> None:
    step = report.step_time * SLACK
    assert report.step_time > 0
    assert sum(report.breakdown.values()) == pytest.approx(report.step_time)
    assert min(report.breakdown.values()) > 0
    for rank in report.ranks:
        times = rank.lookup_forward, rank.lookup_backward, rank.lookup
        times += rank.communication, rank.waiting, rank.idle
        assert all(0 <= time <= step for time in times)
        forward, backward = sorted((rank.lookup_forward, rank.lookup_backward))
        assert backward <= rank.lookup * SLACK <= (forward + backward) * SLACK**2
    for each in report.extrapolated:
        assert 0 <= each.time <= step
        assert 0 <= each.critical <= report.breakdown.get(each.stage, 0.0) * SLACK
    assert 1 <= report.imbalance * SLACK <= report.world_size * SLACK**2


def check_memory(report: Report, workload: Workload, ranks: Topology) -> None:
    rooms = rank_rooms(workload, ranks)
    assert report.usable_bytes == max(rooms)
    for rank, room in zip(report.ranks, rooms, strict=True):
        assert rank.memory.tables <= room * SLACK
        assert rank.memory.stashed <= rank.memory.weights * SLACK
        assert rank.memory.total <= ranks.hardware.gpu.memory_bytes


@given(cases())
def test_every_time_of_a_rank_lies_in_the_step(case: Case) -> None:
    workload, ranks, plan = case
    (sure,) = confidences(workload, ranks, (plan,), most=8)
    report = make_report(workload, ranks, plan, plan_timeline(workload, ranks, plan), sure)
    check_step(report)
    if fits(workload, ranks, plan):
        check_memory(report, workload, ranks)
    assert min(numbers(report_data(report))) >= 0


@pytest.mark.slow
@given(workloads(), topologies())
@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow])
def test_what_a_search_reports_is_in_its_bounds(workload: Workload, ranks: Topology) -> None:
    try:
        planned = planner.plan(
            workload, gpus=ranks.world_size, nodes=ranks.num_nodes, hardware=ranks.hardware,
            max_plans=20, baseline="none",
        )  # fmt: skip
    except InfeasibleError:
        reject()
    report = planned.report
    check_step(report)
    check_memory(report, workload, planned.topology)
    sure, search, verdict = report.confidence, report.search, report.verdict
    assert search is not None
    assert verdict is not None
    low, high = sure.interval
    assert 0 < low <= sure.step_time <= high
    assert all(0 <= each <= 1 for each in (sure.probability_fastest, sure.probability_beaten))
    assert all(0 <= share <= 1 for share in sure.causes.values())
    assert sum(sure.causes.values()) <= SLACK
    assert search.bound is not None
    assert 0 < search.bound.seconds <= report.modelled.seconds * SLACK
    steps = [point.modelled.seconds for point in search.history]
    assert steps == sorted(steps, reverse=True)  # the plan chosen of those found may take longer
    assert search.bound.seconds <= steps[-1] * SLACK
    assert verdict.host_time <= report.step_time * SLACK
    rival = verdict.rival
    assert rival is None or 0 <= rival.probability_slower <= 1
    samples = workload.local_batch_size * workload.gradient_accumulation_steps * ranks.world_size
    assert report.samples_per_second == pytest.approx(samples / sure.step_time)


def test_ranks_without_a_table_wait_no_longer_than_the_step() -> None:
    """1.6 billion rows on one node of two: the other's collectives wait, two at a time."""
    table = EmbeddingTable(
        name="user", num_embeddings=1_600_000_000, embedding_dim=16,
        sharding_types=(ShardingType.TABLE_ROW_WISE,),
    )  # fmt: skip
    report = planner.plan(
        Workload(tables=(table,), local_batch_size=4096), gpus=16, nodes=2,
        hardware="a100-sxm-80gb", baseline="none", max_plans=1,
    ).report  # fmt: skip
    assert sum(rank.memory.weights == 0 for rank in report.ranks) == 8
    for rank in report.ranks:
        assert rank.waiting < report.step_time
    assert max(rank.waiting for rank in report.ranks) > 0.5 * report.step_time
