import json
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from machines import machine
from perfetto import perfetto
from plans import plan, table, workload
from timelines import two_ranks

from costmodel.base.errors import InputError
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingType
from costmodel.step.operation_timeline import plan_timeline
from costmodel.step.timeline import Timeline
from planner.traces.chrome_trace import Event, trace_events, trace_text, write_trace
from planner.traces.trace_folder import write_traces


def ten_ranks() -> Timeline:
    """Three steps in fractions of nanoseconds; ranks have the numbers of threads."""
    tables = [table("wide", dim=128, ids=7.3), table("long", ids=33.7)]
    work = workload(*tables)
    topology = Topology(hardware=machine(), world_size=10, local_world_size=10)
    how = {
        "wide": (ShardingType.TABLE_WISE, (7,)),
        "long": (ShardingType.ROW_WISE, tuple(range(10))),
    }
    return plan_timeline(work, topology, plan(work, topology, how))


def slices(name: str) -> list[dict[str, object]]:
    return [event for event in trace_events(two_ranks()) if event["name"] == name]


def test_pid_is_the_rank_and_tid_the_stream() -> None:
    lookups = slices("lookup")
    assert [event["pid"] for event in lookups] == [0, 1]
    assert {event["tid"] for event in lookups} == {7}
    assert lookups[0]["cat"] == "kernel"
    assert lookups[0]["dur"] == pytest.approx(400.0)


def test_args_say_bytes_bound_and_source() -> None:
    args = slices("lookup")[0]["args"]
    assert isinstance(args, dict)
    assert (args["bytes"], args["bound_by"], args["source"]) == (1e6, "HBM bandwidth", "roofline")


def test_a_collective_covers_its_wait_as_profilers_show_it() -> None:
    _, waiting = slices("ncclDevKernel: output")
    assert (waiting["ts"], waiting["dur"]) == (200.0, 300.0)
    assert isinstance(waiting["args"], dict)
    assert waiting["args"]["waiting_us"] == pytest.approx(200.0)


def test_arrows_come_in_pairs_on_both_sides() -> None:
    arrows = [event for event in trace_events(two_ranks()) if event["ph"] in "sf"]
    starts = {event["id"]: event for event in arrows if event["ph"] == "s"}
    ends = {event["id"]: event for event in arrows if event["ph"] == "f"}
    assert starts.keys() == ends.keys()
    kinds = sorted(event["cat"] for event in starts.values())
    # per rank: one launch, lookup -> collective -> mlp; rank 0 is the last of the collective
    assert kinds == ["ac2g"] * 2 + ["collective"] + ["dependency"] * 4
    (across,) = [n for n, event in starts.items() if event["cat"] == "collective"]
    assert (starts[across]["pid"], ends[across]["pid"]) == (0, 1)


def test_of_some_ranks_there_are_the_same_events_but_no_arrows_to_others() -> None:
    timeline, shown = ten_ranks(), {2, 7}
    every, some = list(trace_events(timeline)), list(trace_events(timeline, ranks=(2, 7)))
    assert plain(some) == plain(event for event in every if event["pid"] in shown)
    ends: dict[int, set[int]] = {}
    for event in some:
        if event["ph"] in "sf":
            ends.setdefault(event["id"], set()).add(event["ph"])
    assert all(phases == {"s", "f"} for phases in ends.values())


def plain(events: Iterable[Event]) -> list[Event]:
    """Return slices and names without the numbers of calls, which count up in a file."""
    return [
        {**each, "args": {**each["args"], "correlation": None}}
        for each in events
        if each["ph"] not in "sf"
    ]


def test_arrows_of_collectives_come_from_those_that_were_last_of_all() -> None:
    assert "collective" in {event["cat"] for event in trace_events(two_ranks()) if "id" in event}
    for ranks in ((0,), (1,)):
        some = trace_events(two_ranks(), ranks=ranks)
        assert "collective" not in {event["cat"] for event in some if "id" in event}
    # the wide table is on rank 7: of ranks 2 and 3 none is what others wait for in its collectives
    timeline = ten_ranks()
    waits = {
        (event["pid"], event["tid"], event["ts"]): event["args"]["waiting_us"]
        for event in trace_events(timeline)
        if event["ph"] == "X" and "collective" in event["args"]
    }
    last = {
        ranks: [
            waits[event["pid"], event["tid"], event["ts"]]
            for event in trace_events(timeline, ranks=ranks)
            if event["ph"] == "s" and event["cat"] == "collective"
        ]
        for ranks in ((2, 3), (2, 7))
    }
    assert {*last[2, 3], *last[2, 7]} == {0.0}
    assert len(last[2, 3]) < len(last[2, 7])


def test_every_process_and_thread_has_a_name() -> None:
    events = list(trace_events(two_ranks()))
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in events if e["ph"] == "X"} <= named
    assert {e["args"]["name"] for e in events if e["name"] == "process_name"} == {
        "rank 0",
        "rank 1",
    }


@pytest.mark.parametrize("timeline", [two_ranks(), ten_ranks()], ids=["by hand", "synthesized"])
def test_perfetto_shows_every_slice_and_every_arrow(timeline: Timeline, tmp_path: Path) -> None:
    ranks = {node.rank for node in timeline.graph.nodes}
    found = perfetto(trace_text(timeline))
    assert not +found.problems
    events = list(trace_events(timeline))
    assert sum(map(len, found.slices.values())) == sum(event["ph"] == "X" for event in events)
    assert len(found.arrows) == sum(event["ph"] == "s" for event in events)
    assert found.slices.keys() == found.threads.keys()
    assert found.processes == {r: f"rank {r}" for r in range(timeline.graph.world_size)}
    for (rank, _), mine in found.slices.items():
        steps = [event["name"].startswith("ProfilerStep") for event in mine]
        assert all(steps) or not any(steps)
        assert rank in ranks
    for path in write_traces(timeline, tmp_path):
        assert not +perfetto(path.read_text(encoding="utf-8")).problems


def test_the_rules_of_perfetto_tell_what_would_be_lost() -> None:
    def event(**fields: object) -> dict[str, object]:
        return {"ph": "X", "name": "a", "cat": "c", "pid": 5, "tid": 1, "ts": 0, "dur": 2, **fields}

    events = [
        event(),
        event(ts=1.5, dur=1),
        event(ts=2, dur=0),
        event(tid=0),
        event(ph="f", id=1, bp="e"),
        event(ph="s", id=1, tid=9),
        event(ph="X", ts="soon"),
    ]
    found = perfetto(json.dumps({"traceEvents": events}))
    assert +found.problems == {
        "slice_spill_overlapping_complete_event": 1,
        "flow_end_without_start": 1,
        "flow_no_enclosing_slice": 1,
        "json_tokenizer_failure": 1,
    }
    assert found.slices.keys() == {(5, 1), (5, 5)}


def test_slices_of_a_thread_do_not_overlap() -> None:
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in trace_events(two_ranks()):
        if event["ph"] == "X":
            track = tracks.setdefault((event["pid"], event["tid"]), [])
            track.append((event["ts"], event["ts"] + event["dur"]))
    for track in tracks.values():
        track.sort()
        assert all(end <= start + 1e-3 for (_, end), (start, _) in pairwise(track))


def test_the_file_is_json_and_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    write_trace(two_ranks(), path)
    data = json.loads(path.read_text())
    assert data == json.loads(trace_text(two_ranks()))
    assert len(data["traceEvents"]) > 8
    assert [file.name for file in tmp_path.iterdir()] == ["trace.json"]


def test_an_unwritable_trace_is_the_users_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such directory"):
        write_trace(two_ranks(), tmp_path / "nowhere" / "trace.json")
