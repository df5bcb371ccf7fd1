"""Loading a plan made before, and predicting its step again."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from costmodel.base.errors import (
    InfeasibleError,
    InputError,
    PlanMismatchError,
    PlannerError,
    Problem,
    UnknownNameError,
)
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingPlan
from costmodel.domain.validity import check_plan
from costmodel.domain.workload import Workload
from costmodel.memory.rank_memory import check_memory
from planner.decision.confidence import confidences
from planner.files.disk import source_name
from planner.planned.notes import note_on_change, note_on_nodes
from planner.planned.planned import Planned
from planner.planned.report import SearchReport, make_report

if TYPE_CHECKING:
    from costmodel.step.timeline import Timeline
    from planner.files.plans import PlanFile


def load_plan(path: str | Path) -> Planned:
    """Return a plan file's plan, with its step predicted by the present models.

    Raises
    ------
    PlannerError
        The file is no plan, or not one for its workload and machine; the message names it.

    """
    from planner.files.plans import load_plan_file

    file = load_plan_file(path)
    try:
        return judge(file)
    except PlanMismatchError as error:
        raise replace(error, message=f"{source_name(path)}: {error}") from None
    except InfeasibleError as error:  # what is enough is for who plans again
        remedies, hint = (), "plan again"
        message = f"{source_name(path)}: {error}"
        raise replace(error, message=message, remedies=remedies, hint=hint) from None
    except UnknownNameError as error:
        problem = Problem(message=str(error), hint=error.hint)
        raise InputError(source_name(path), (problem,)) from None


def judge(file: "PlanFile") -> Planned:
    """Return the plan of a file, checked, with its step predicted."""
    from planner.files.plans import planned_topology

    topology = planned_topology(file)
    check_plan(file.workload, topology, file.plan)
    check_memory(file.workload, topology, file.plan)
    timeline = _simulated(file.workload, topology, file.plan)
    (confidence,) = confidences(file.workload, topology, (file.plan,))
    report = make_report(file.workload, topology, file.plan, timeline, confidence)
    notes = (*note_on_nodes(topology), *note_on_change(file.step_time, report.step_time))
    report = replace(report, notes=(*report.notes, *notes))
    if file.sharder is not None:
        found = SearchReport(
            sharder=file.sharder,
            requested=file.sharder,
            seed=file.seed or 0,
            status="loaded",
            evaluated=0,
            time=0.0,
        )
        report = replace(report, search=found)
    return Planned(
        workload=file.workload,
        topology=topology,
        plan=file.plan,
        report=report,
        hardware_name=file.hardware,
        torchrec=file.torchrec,
    )


def simulate(planned: Planned | str | Path) -> "Timeline":
    """Return the timeline of a plan, or of a plan file."""
    loaded = planned if isinstance(planned, Planned) else load_plan(planned)
    return _simulated(loaded.workload, loaded.topology, loaded.plan)


def is_usable(workload: Workload, topology: Topology, plan: ShardingPlan) -> bool:
    """Return whether a plan is valid for a workload and machine, and fits."""
    try:
        check_plan(workload, topology, plan)
        check_memory(workload, topology, plan)
    except PlannerError:
        return False
    return True


def _simulated(workload: Workload, topology: Topology, plan: ShardingPlan) -> "Timeline":
    from costmodel.step.operation_timeline import plan_timeline

    return plan_timeline(workload, topology, plan)
