import json
from pathlib import Path

import pytest
from machines import machine
from plans import plan, table, workload
from timelines import two_ranks

from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingType
from costmodel.step.operation_timeline import plan_timeline
from costmodel.step.timeline import Timeline
from planner.traces.replay.importing import load_run
from planner.traces.replay.modes import replay
from planner.traces.trace_folder import other_traces, write_traces


def two_nodes(one: float = 20.0, node: float = 500.0, every: float = 3000.0) -> Timeline:
    """Four ranks on two nodes: tables of one rank, of one node, and of all, by ids per sample."""
    ids = {"one": one, "node": node, "all": every}
    work = workload(*(table(name, dim=128, ids=mean) for name, mean in ids.items()))
    topology = Topology(hardware=machine(), world_size=4, local_world_size=2)
    how = {
        "one": (ShardingType.TABLE_WISE, (3,)),
        "node": (ShardingType.TABLE_ROW_WISE, (0, 1)),
        "all": (ShardingType.ROW_WISE, (0, 1, 2, 3)),
    }
    return plan_timeline(work, topology, plan(work, topology, how))


def test_a_folder_has_a_file_for_every_rank_written_with_its_rank_and_the_jobs_size(
    tmp_path: Path,
) -> None:
    written = write_traces(two_nodes(), tmp_path, ranks=(1, 3))
    assert [path.name for path in written] == ["rank1.json", "rank3.json"]
    assert sorted(tmp_path.iterdir()) == written
    for rank, path in zip((1, 3), written, strict=True):
        document = json.loads(path.read_text())
        assert document["distributedInfo"]["rank"] == rank
        assert document["distributedInfo"]["world_size"] == 4
        assert {event["pid"] for event in document["traceEvents"]} == {rank}


def test_a_ranks_file_is_the_same_whichever_others_are_written(tmp_path: Path) -> None:
    (alone,) = write_traces(two_nodes(), tmp_path / "alone", ranks=(2,))
    among = write_traces(two_nodes(), tmp_path / "among")
    assert alone.read_text() == among[2].read_text()


def test_traces_of_before_are_told_apart(tmp_path: Path) -> None:
    write_traces(two_ranks(), tmp_path)
    (tmp_path / "notes.json").write_text("{}")
    written = write_traces(two_ranks(), tmp_path, ranks=(1,))
    assert other_traces(tmp_path, written) == [tmp_path / "rank0.json"]
    assert not other_traces(tmp_path / "rank0.json", [])


@pytest.mark.parametrize("ranks", [(0,), (1, 2)])
def test_some_ranks_are_replayed_as_some_of_the_job(tmp_path: Path, ranks: tuple[int, ...]) -> None:
    timeline = two_nodes()
    write_traces(timeline, tmp_path / "own", ranks=ranks)
    run = load_run(tmp_path / "own")
    assert (run.job.recorded, run.job.size) == (ranks, 4)
    assert any("`planner simulate PLAN --trace DIR --ranks all`" in note for note in run.notes)
    done = replay(run)
    # a collective in the node runs during one of all ranks: absent ranks work beside both
    assert done.simulated_makespan == pytest.approx(timeline.step_ends[-1], rel=0.01)


@pytest.mark.parametrize("ranks", [(0, 2), (0, 1, 2, 3)])
def test_collectives_in_different_nodes_are_not_taken_for_one(
    tmp_path: Path, ranks: tuple[int, ...]
) -> None:
    # the nodes' reduce-scatters are more than 1 ms apart: as one, their clocks would not align
    timeline = two_nodes(node=3000.0, every=20.0)
    write_traces(timeline, tmp_path / "own", ranks=ranks)
    done = replay(load_run(tmp_path / "own"))
    assert done.simulated_makespan == pytest.approx(timeline.step_ends[-1], rel=1e-3)
