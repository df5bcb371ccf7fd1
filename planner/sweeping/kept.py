"""Reading and writing ``sweep.json``, the file that lets a sweep go on after any point."""

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from costmodel.base.limits import MOST_ACCUMULATED, MOST_BYTES, MOST_RANKS, MOST_SAMPLES
from planner.files.disk import file_error, read_text
from planner.files.json_text import dump_json
from planner.show.columns import rows_data
from planner.sweeping.sweep_data import SCHEMA_VERSION, notes_data, point_columns, sweep_data
from planner.sweeping.sweep_points import Sweep, SweepPoint

FILE = "sweep.json"
_Time = Annotated[float, Field(gt=0, lt=1e9)]
_Size = Annotated[float, Field(ge=0, le=MOST_BYTES)]
_Gap = Annotated[float, Field(ge=0, le=1e18)]
_Count = Annotated[int, Field(ge=1, le=MOST_RANKS)]


class _KeptPoint(BaseModel):
    """The fields of a point that are read; others follow from them."""

    model_config = ConfigDict(extra="ignore", strict=True)

    hardware: str
    world_size: _Count
    num_nodes: _Count
    local_batch_size: Annotated[int, Field(ge=1, le=MOST_SAMPLES)]
    gradient_accumulation_steps: Annotated[int, Field(ge=1, le=MOST_ACCUMULATED)] = 1
    replica_group: str = ""
    group_size: _Count | None = None
    change: str = ""
    setting: str = ""
    step_time: Annotated[_Time | None, Field(alias="step_time_s")]
    step_time_low_s: _Time | None
    step_time_high_s: _Time | None
    gap: _Gap | None
    peak_memory_bytes: _Size | None
    usable_bytes: Annotated[_Size | None, Field(alias="usable_memory_bytes")]
    measured: str = ""
    unmeasured_share: Annotated[float | None, Field(ge=0, le=1)] = None
    sharder: str | None
    reason: str | None
    plan_file: str | None
    key: str


class _KeptSweep(BaseModel):
    """The content of ``sweep.json``."""

    model_config = ConfigDict(extra="ignore", strict=True)

    schema_version: Annotated[int, Field(ge=SCHEMA_VERSION, le=SCHEMA_VERSION)]
    notes: dict[str, list[str]] = {}
    """Keys of points by warning."""
    points: list[_KeptPoint]
    others: list[_KeptPoint] = []


def kept_points(directory: Path) -> dict[str, SweepPoint]:
    """Return the points that earlier sweeps left in a folder, by key, if their plan exists.

    Raises
    ------
    InputError
        There is a ``sweep.json`` that no sweep wrote, or no such folder.

    """
    if not directory.is_dir():
        hint = f"mkdir -p {shlex.quote(str(directory))}"
        raise file_error(directory, "there is no such directory", hint)
    path = directory / FILE
    if not path.exists():
        return {}
    try:
        kept = _KeptSweep.model_validate_json(read_text(path))
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        message = f"this is not the file of a sweep (`{place}`: {error.errors()[0]['msg']})"
        raise file_error(path, message, "name another folder, or remove this file") from None
    notes: dict[str, list[str]] = {}
    for note, keys in kept.notes.items():
        for key in keys:
            notes.setdefault(key, []).append(note)
    points = [_point(each, notes.get(each.key, ())) for each in (*kept.others, *kept.points)]
    gone = {point.task for point in points if not _is_whole(point, directory)}
    return {point.key: point for point in points if point.task not in gone}


def _is_whole(point: SweepPoint, directory: Path) -> bool:
    """Return whether a kept point has a reason, or the plan file that it names."""
    if point.plan_file is None:
        return point.reason is not None
    is_name = Path(point.plan_file).name == point.plan_file
    return is_name and (directory / point.plan_file).is_file()


def _point(kept: _KeptPoint, notes: Iterable[str]) -> SweepPoint:
    own = kept.model_dump()
    low, high = own.pop("step_time_low_s"), own.pop("step_time_high_s")
    interval = None if low is None or high is None else (low, high)
    return SweepPoint(**own, interval=interval, notes=tuple(notes))


def sweep_text_file(sweep: Sweep, known: Mapping[str, SweepPoint]) -> str:
    """Return the content of ``sweep.json``, including other sweeps' points in the same folder."""
    tasks = {point.task for point in sweep.points}
    others = [point for point in known.values() if point.task not in tasks]
    data = {
        **sweep_data(sweep),
        "notes": notes_data((*sweep.points, *others)),
        "others": rows_data(point_columns(sweep), others),
    }
    return dump_json(data, indent=1) + "\n"
