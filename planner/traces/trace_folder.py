"""Writing a timeline as one Chrome trace, or as a folder with one per rank."""

import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from costmodel.step.timeline import Timeline
from planner.files.disk import check_writable, file_error, make_folder
from planner.traces.chrome_trace import StepSpan, write_trace


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
    timeline: Timeline,
    path: str | Path,
    steps: Iterable[StepSpan] = (),
    ranks: Sequence[int] | None = None,
) -> list[Path]:
    """Write some ranks' traces (None: all ranks') in one file, or in a folder in one per rank.

    Tools for profiler traces want one per rank.

    Raises
    ------
    InputError
        There is no place for them.

    """
    check_traces_writable(path)
    if not is_folder(path):
        write_trace(timeline, path, steps, ranks)
        return [Path(path)]
    folder = Path(path)
    make_folder(folder)
    steps, written = tuple(steps), []
    for rank in timeline.graph.ranks if ranks is None else ranks:
        file = folder / f"rank{rank}.json"
        write_trace(timeline, file, steps, (rank,))
        written.append(file)
    return written


def other_traces(path: str | Path, written: Collection[Path]) -> list[Path]:
    """Return the files of a folder that are named as those written there, and were not now."""
    if not is_folder(path):
        return []
    return sorted(set(Path(path).glob("rank*.json")).difference(written))
