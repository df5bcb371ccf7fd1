"""Writing a timeline as one Chrome trace, or as a folder with one per rank."""

import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from costmodel.step.timeline import Timeline
from planner.files.disk import check_writable, file_error, make_folder, write_text
from planner.files.json_text import dump_json
from planner.traces.chrome_trace import (
    Event,
    StepSpan,
    trace_events,
    trace_head,
    write_trace,
)


def is_folder(path: str | Path) -> bool:
    """Return whether a path is meant as a folder: it is one, or does not end in ``.json``."""
    return Path(path).is_dir() or not str(path).endswith(".json")


def check_traces_writable(path: str | Path) -> None:
    """Raise the InputError that writing there would raise, before any work is done."""
    if not is_folder(path):
        check_writable(path)
        return
    folder = Path(path)
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not there.is_dir():
        hint = "name a file that ends in `.json`, or a folder"
        raise file_error(path, f"cannot be a folder: `{there}` is a file", hint)
    if not os.access(there, os.W_OK):
        raise file_error(path, "cannot be written: permission denied")


def write_traces(
    timeline: Timeline, path: str | Path, steps: Iterable[StepSpan] = ()
) -> list[Path]:
    """Write one file, or in a folder one per rank as tools for profiler traces want them.

    Raises
    ------
    InputError
        There is no place for them.

    """
    check_traces_writable(path)
    if not is_folder(path):
        write_trace(timeline, path, steps)
        return [Path(path)]
    folder = Path(path)
    make_folder(folder)
    events = list(trace_events(timeline, steps))
    across = _across(events)
    written = []
    for rank in timeline.graph.ranks:
        document = {
            **trace_head(timeline, rank),
            "traceEvents": [
                event for event in events if event["pid"] == rank and event.get("id") not in across
            ],
        }
        file = folder / f"rank{rank}.json"
        write_text(file, dump_json(document))
        written.append(file)
    return written


def _across(events: Iterable[Event]) -> set[int]:
    """Return the numbers of arrows between ranks: in a file of one rank they would lack an end."""
    ranks: dict[int, set[int]] = defaultdict(set)
    for event in events:
        if "id" in event:
            ranks[event["id"]].add(event["pid"])
    return {number for number, ends in ranks.items() if len(ends) > 1}
