import json
from itertools import pairwise
from pathlib import Path

import pytest
from timelines import two_ranks

from costmodel.errors import InputError
from planner.io.trace import trace_events, trace_text, write_trace


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


def test_every_process_and_thread_has_a_name() -> None:
    events = list(trace_events(two_ranks()))
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in events if e["ph"] == "X"} <= named
    assert {e["args"]["name"] for e in events if e["name"] == "process_name"} == {
        "rank 0",
        "rank 1",
    }


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
