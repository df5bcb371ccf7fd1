"""Keeping a plan file from being overwritten by the plan of another workload."""

from pathlib import Path

from costmodel.base.errors import InputError, PlannerError, Problem
from costmodel.domain.workload import Workload
from planner.files.plans import load_plan_file
from planner.files.workload_reading import load_workload


def check_same_workload(path: str | Path, workload: Workload | str) -> Workload | str:
    """Return the workload if a plan for it may overwrite a file.

    It may if there is no file, or a plan of a workload of the same name. Where one of the two has
    no name of its own, at least half of their tables must have the same names. A workload from
    standard input can be read once only, which is why it is returned.

    Raises
    ------
    InputError
        The file holds a plan of another workload, or something else.

    """
    if not Path(path).exists():
        return workload
    loaded = workload if isinstance(workload, Workload) else load_workload(workload)
    try:
        old = load_plan_file(path).workload
    except PlannerError:
        held = "no plan that can be read"
    else:
        if _is_same(old, loaded):
            return loaded if workload == "-" else workload
        held = f"a plan of another workload, `{old.name}` with {len(old.tables)} tables"
    message = f"holds {held}: it is not overwritten unasked"
    hint = f"write the plan to another file, or over this one, with `-o PLAN` (-o {path})"
    raise InputError(str(path), (Problem(message=message, hint=hint),))


def _is_same(old: Workload, new: Workload) -> bool:
    """Return whether two workloads are one: by name, or else by half of all tables in common."""
    unnamed = Workload(tables=old.tables[:1]).name
    if unnamed not in {old.name, new.name}:
        return old.name == new.name
    before, after = ({table.name for table in each.tables} for each in (old, new))
    return 2 * len(before & after) >= len(before | after)
