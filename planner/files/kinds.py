"""Telling which kind of our files a document is, so that errors name it and the right command."""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from costmodel.base.errors import InputError, Problem
from planner.files.source import Document


class FileKind(Enum):
    """Kinds of our files, by the name that messages use."""

    PLAN = "plan file"
    PROFILE = "hardware profile"
    WORKLOAD = "workload file"
    DENSE = "file of a dense model's operators"
    SWEEP = "sweep's own file"
    REPORT = "report that `--json` prints"


_KEYS: Sequence[tuple[FileKind, Mapping[str, type]]] = (
    (FileKind.PLAN, {"tables": list, "workload": object}),
    (FileKind.PROFILE, {"gpu": dict, "intra_node": dict}),
    (FileKind.DENSE, {"operators": list, "recorded": dict}),
    (FileKind.SWEEP, {"schema_version": int, "points": list}),
    (FileKind.REPORT, {"schema_version": int, "workload_name": str}),
    (FileKind.REPORT, {"schema_version": int, "profile": dict}),
    (FileKind.REPORT, {"schema_version": int, "error": dict}),
    (FileKind.WORKLOAD, {"tables": list}),
)
"""Keys and their types by which a kind is known. A plan has a workload's keys, so it comes
first."""

_TAKEN_BY = {
    FileKind.PLAN: "`planner explain`, `simulate`, `open` and `validate` take plan files, and "
    "`compare` two of them",
    FileKind.PROFILE: "hardware profiles are for `--hardware`",
    FileKind.WORKLOAD: "`planner plan`, `compare` and `sweep` take workload files; `plan` writes "
    "plan files",
    FileKind.DENSE: "`planner trace-model` writes it; `planner plan` takes workload files",
    FileKind.SWEEP: "the plan files of its points are beside it; `planner sweep -o` takes their "
    "folder",
    FileKind.REPORT: "that is for other programs; `planner plan -o FILE` writes a plan file, and "
    "`planner profiles show NAME` a profile",
}


def check_kind(document: Document, wanted: FileKind) -> None:
    """Raise InputError if a document is another kind of our files."""
    found = _kind(document.data)
    if found is None or found is wanted:
        return
    problem = Problem(
        message=f"this is a {found.value}, and a {wanted.value} is needed", hint=_TAKEN_BY[found]
    )
    raise InputError(document.source, (problem,))


def _kind(data: Any) -> FileKind | None:  # noqa: ANN401 - whatever the file holds
    """Return the kind of file that the keys of its data tell; None: of none."""
    if not isinstance(data, dict):
        return None
    for kind, keys in _KEYS:
        if all(key in data and isinstance(data[key], holds) for key, holds in keys.items()):
            return kind
    return None
