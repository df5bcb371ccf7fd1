"""What the commands do, as functions: plan, compare, simulate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from costmodel.base.errors import (
    InfeasibleError,
    InputError,
    PlanMismatchError,
    PlannerError,
    Problem,
    UnknownNameError,
)
from costmodel.base.limits import MOST_RANKS
from costmodel.base.units import Seconds
from costmodel.domain.hardware import HardwareProfile, Topology
from costmodel.domain.plan import ShardingPlan
from costmodel.domain.validity import check_plan
from costmodel.domain.workload import Workload
from costmodel.memory.rank_memory import check_memory
from costmodel.step.graph import Stage
from planner.environment.compiled import interpreted_modules
from planner.environment.settings import DEFAULT_HARDWARE
from planner.files.disk import source_name, write_text
from planner.files.profiles import load_profile
from planner.files.workload import read_workload, refused
from planner.planning.baseline import DEFAULT_BASELINE, NONE, check_baseline, find_baseline
from planner.planning.confidence import confidences, ranked
from planner.planning.history import SearchHistory
from planner.planning.notes import note_on_change, note_on_nodes
from planner.planning.plugins import AUTO, sharder_names
from planner.planning.report import Baseline, Report, SearchReport, make_report
from planner.planning.running import run_apart, run_sharders
from planner.planning.search import Attempt, Search, search_end, several, sharders_for
from planner.planning.stages import PlanningStage, Stages
from planner.planning.views import Comparison, PlannedViews
from planner.show.format import count
from sharders.problem.options import refusals
from sharders.problem.sharding_problem import SearchStatus, ShardingProblem

if TYPE_CHECKING:
    from costmodel.step.timeline import Timeline
    from planner.files.plans import PlanFile
    from planner.planning.choice import Choice

JUDGING_PASSES = 2.0
"""What each look at another batch, or at another assumption, takes (``stages.PASSES``)."""
WITHOUT_CHOICE = (
    "the time limit left none for the models' errors: the step is as predicted, without an "
    "interval, and the plan is the fastest so predicted"
)
WorkloadLike: TypeAlias = Workload | str | Path
HardwareLike: TypeAlias = HardwareProfile | str | Path


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Planned(PlannedViews):
    """A plan, what it is for, and the report on it."""

    workload: Workload
    topology: Topology
    plan: ShardingPlan
    report: Report
    hardware_name: str
    """The profile's name, or the path it was read from."""
    torchrec: Mapping[str, Any] | None = None
    """Where in a TorchRec model the tables live, if known, for ``planner torchrec export``."""

    def to_dict(self) -> dict[str, Any]:
        """Return the content of ``plan.json``: the report, and the workload it is about."""
        from planner.files.plan_memory import PlanMemory
        from planner.files.plans import PlanFile, dump_plan_file
        from planner.planning.report_data import numbers_data

        search = self.report.search
        file = PlanFile(
            plan=self.plan,
            workload=self.workload,
            hardware=self.hardware_name,
            sharder=search.sharder if search else None,
            seed=search.seed if search else None,
            step_time=self.report.step_time,
            memory=PlanMemory.of(self.topology, self.hardware_name),
            torchrec=self.torchrec,
        )
        written = dump_plan_file(file)
        workload = written.pop("workload")
        return {**numbers_data(self.report), **written, "workload": workload}

    def save(self, path: str | Path) -> None:
        """Write ``plan.json``, as a whole or not at all; ``-`` is standard output."""
        from planner.files.plans import plan_text

        write_text(path, plan_text(self.to_dict()))


def node_count(gpus: int, nodes: int | None, hardware: HardwareProfile) -> int:
    """Return the number of nodes that so many GPUs in all are on.

    Raises
    ------
    ValueError
        They cannot be spread evenly, or a node has fewer, or they are no whole numbers.

    """
    per_node, unit = hardware.gpus_per_node, hardware.device.unit
    for number in (gpus, 1 if nodes is None else nodes):
        try:
            index(number)
        except TypeError:
            raise ValueError(
                f"numbers of {unit}s and nodes must be whole numbers, got {number!r}"
            ) from None
    gpus = int(gpus)
    least = -(-gpus // per_node)
    if not 1 <= gpus <= MOST_RANKS:
        raise ValueError(f"1 to {MOST_RANKS:,} {unit}s can be planned for, got {gpus:,}")
    if nodes is None:
        nodes = least
    even = next((more for more in range(max(least, nodes), gpus) if gpus % more == 0), gpus)
    if nodes < 1 or gpus % nodes:
        raise ValueError(
            f"{count(gpus, unit)} cannot be spread evenly over {count(nodes, 'node')}; "
            f"{count(even, 'node')} can have as many each"
        )
    if gpus // nodes > per_node:
        raise ValueError(
            f"a node of {hardware.name} has {count(per_node, unit)}; {gpus} need {even} nodes or "
            f"more, as many each, not {nodes}"
        )
    return nodes


def make_topology(hardware: HardwareProfile, gpus: int, nodes: int | None = None) -> Topology:
    """Return so many GPUs in all, spread evenly over nodes (None: as few as hold them)."""
    try:
        num_nodes = node_count(gpus, nodes, hardware)
    except ValueError as error:
        raise InputError("gpus", (Problem(message=str(error)),)) from None
    return Topology(hardware=hardware, world_size=gpus, local_world_size=gpus // num_nodes)


def plan(
    workload: WorkloadLike,
    *,
    gpus: int,
    nodes: int | None = None,
    hardware: HardwareLike = DEFAULT_HARDWARE,
    sharder: str = AUTO,
    baseline: str | None = DEFAULT_BASELINE,
    search: Search | None = None,
    **options: Any,  # noqa: ANN401 - the fields of Search
) -> Planned:
    """Search for the plan with the shortest expected step.

    Parameters
    ----------
    workload
        A workload, or the path of a workload file.
    gpus, nodes
        GPUs in all, and the number of nodes they are on (None: as few as hold them).
    hardware
        A profile, its name, or its path.
    sharder
        Name of a sharder, or ``auto``: all built-in ones, and a choice among their plans and the
        baseline's by the expected step (``planner.planning.choice``).
    baseline
        What the report compares with: a sharder, or nothing (None or ``none``); by default
        TorchRec's planner, ported.
    search, options
        How to search, as a ``Search`` or as its fields: ``seed``, ``time_limit`` in seconds, ...

    Raises
    ------
    PlannerError
        Bad input, no plan fits, a plug-in is broken.

    """
    search = _begun(search, options)
    task = _task(workload, hardware, gpus, nodes)
    try:
        return task.searched(sharder, baseline or NONE, search)
    except InfeasibleError as error:
        raise _advised(error, task.problem, search) from None


def _advised(error: PlannerError, problem: ShardingProblem, search: Search) -> PlannerError:
    """Return the error, of one that says that no plan fits with what would help."""
    from planner.planning.remedies import on_gpus, with_searched

    if not isinstance(error, InfeasibleError):
        return error
    return with_searched(error, problem.workload, problem.topology, search, on_gpus)


def plan_from(
    start: ShardingPlan, workload: Workload, topology: Topology, search: Search
) -> Planned:
    """Search again from a plan, for a workload and machine that it may not have been made for.

    Where it is valid and fits, it is where the search starts, and one of the plans to choose from.
    """
    known = (start,) if is_usable(workload, topology, start) else ()
    problem = ShardingProblem.of(workload, topology, known)
    task = _PlanningTask(problem=problem, hardware_name=topology.hardware.name)
    return task.searched(AUTO, NONE, _begun(search, {}))


def is_usable(workload: Workload, topology: Topology, plan: ShardingPlan) -> bool:
    """Return whether a plan is valid for a workload and machine, and fits."""
    try:
        check_plan(workload, topology, plan)
        check_memory(workload, topology, plan)
    except PlannerError:
        return False
    return True


def compare(
    workload: WorkloadLike,
    *,
    gpus: int,
    nodes: int | None = None,
    hardware: HardwareLike = DEFAULT_HARDWARE,
    sharders: Sequence[str] | str = (),
    search: Search | None = None,
    **options: Any,  # noqa: ANN401 - the fields of Search
) -> Comparison:
    """Run several sharders (none named: all, and ``auto``), and simulate their plans.

    The shortest expected step comes first.

    None knows what the others found, and each has the whole time limit. ``errors`` of the result
    has why a sharder has no plan, by its name; if none finds one, the first's error is raised.
    """
    task = _task(workload, hardware, gpus, nodes)
    search = replace(search or Search(), **options)
    names = several(sharders) or (*sharder_names(), AUTO)
    attempts = run_apart(names, task.problem, search)
    errors = {attempt.sharder: attempt.error for attempt in attempts if attempt.error}
    found = sorted((a for a in attempts if a.plan), key=lambda attempt: attempt.step_time)
    if not found:
        raise _advised(next(iter(errors.values())), task.problem, search)
    plans = [attempt.found for attempt in found]
    order = ranked(task.problem.workload, task.problem.topology, plans)
    compared = (
        task.planned(
            found[number],
            replace(
                task.report(
                    found[number],
                    (found[number],),
                    requested=found[number].sharder,
                    seed=search.seed,
                ),
                confidence=confidence,
            ),
        )
        for number, confidence in order
    )
    return Comparison(compared, errors)


def load_plan(path: str | Path) -> Planned:
    """Read a plan file and predict its step again, with the models of today.

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
    """Check a plan that comes from elsewhere, and predict its step."""
    from planner.files.plans import planned_topology

    topology = planned_topology(file)
    check_plan(file.workload, topology, file.plan)
    check_memory(file.workload, topology, file.plan)
    timeline = _simulated(file.workload, topology, file.plan)
    (confidence,) = confidences(file.workload, topology, (file.plan,))
    report = make_report(file.workload, topology, file.plan, timeline)
    notes = (*note_on_nodes(topology), *note_on_change(file.step_time, report.step_time))
    report = replace(report, confidence=confidence, notes=(*report.notes, *notes))
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlanningTask:
    """A problem to solve, and the name its hardware goes by."""

    problem: Any
    hardware_name: str

    def report(
        self,
        attempt: Attempt,
        attempts: Sequence[Attempt],
        *,
        requested: str,
        seed: int,
        bound: Seconds = 0.0,
    ) -> Report:
        """Simulate an attempt's plan."""
        from costmodel.step.program_timeline import plan_timeline
        from planner.planning.choice import known_loads

        workload, topology = self.problem.workload, self.problem.topology
        found = attempt.found
        bounds = [bound, *(each.bound for each in attempts if each.bound is not None)]
        timeline = plan_timeline(workload, topology, found, known_loads(self.problem))
        made = make_report(workload, topology, found, timeline)
        search = SearchReport(
            sharder=attempt.sharder,
            requested=requested,
            seed=seed,
            status=attempt.status.value,
            evaluated=sum(each.evaluated for each in attempts),
            time=sum(each.time for each in attempts),
            # it holds in the long run, and the last of the few steps that are timed may still take
            # less where a rank's delay has not reached the others
            bound=min(max(bounds), made.step_time) or None,
            proof=attempt.proof,
            compiled=not interpreted_modules(),
        )
        return replace(made, search=search)

    def searched(self, sharder: str, baseline: str, search: Search) -> Planned:
        """Search, choose among what was found and the baseline, and report on it, all in time."""
        from planner.planning.choice import choose
        from planner.planning.judging import make_verdict

        check_baseline(baseline)
        problem, names = self.problem, sharders_for(sharder)
        history = SearchHistory.of(search)
        search = replace(search, watch=history.watch)
        stages = Stages(problem, search)
        searching = stages.searching()
        attempts = run_sharders(names, problem, searching)
        found_after = history.ended()
        stages.begin(PlanningStage.BASELINE, attempts)
        told = find_baseline(baseline, problem, searching, attempts, stages.time_left)
        beside = told if isinstance(told, Baseline) else None
        stages.begin(PlanningStage.CHOICE, attempts)
        found, choice = self._candidates(attempts, beside), None
        if stages.fits(PlanningStage.CHOICE):
            choice = choose(
                problem,
                found,
                stages.time_left,
                improve=sharder == AUTO,
                max_plans=search.max_plans,
            )
        stages.begin(PlanningStage.BOUND, attempts)
        bound = stages.bound()
        stages.begin(PlanningStage.REPORT, attempts)
        fastest = min(found, key=lambda each: each.step_time) if sharder == AUTO else found[0]
        chosen = fastest if choice is None else choice.attempt
        report = self.report(chosen, attempts, requested=sharder, seed=search.seed, bound=bound)
        report = _with_search(
            report,
            first_plan=found_after[0].time,
            history=found_after,
            end=search_end(names, attempts).value,
            is_bare=stages.is_bare and all((each.bound or 0.0) <= bound for each in attempts),
        )
        if isinstance(told, str):
            report = replace(report, notes=(*report.notes, told))
        if choice is None:
            report = replace(report, notes=(*report.notes, WITHOUT_CHOICE), baseline=beside)
            return self.planned(chosen, report)
        if sharder == AUTO:
            verdict = make_verdict(
                problem,
                choice,
                bound=bound,
                host_time=report.breakdown.get(Stage.HOST, 0.0),
                time_left=lambda: stages.time_left(passes=JUDGING_PASSES),
            )
            report = replace(report, verdict=verdict)
        sure = replace(report, confidence=choice.confidence, baseline=beaten(beside, choice))
        return self.planned(chosen, sure)

    def _candidates(self, attempts: Sequence[Attempt], beside: Baseline | None) -> list[Attempt]:
        """Return the plans found, the fastest first, those known before and the baseline's."""
        found = sorted((a for a in attempts if a.plan), key=lambda attempt: attempt.step_time)
        given = [("start", seconds, plan) for seconds, plan in self.problem.known_times()]
        if beside is not None and beside.plan is not None:
            given.append((beside.sharder, beside.step_time, beside.plan))
        found += [
            Attempt(sharder=name, plan=plan, step_time=seconds, status=SearchStatus.GIVEN)
            for name, seconds, plan in given
        ]
        return found

    def planned(self, attempt: Attempt, report: Report) -> Planned:
        """Return an attempt's plan with everything it is about."""
        return Planned(
            workload=self.problem.workload,
            topology=self.problem.topology,
            plan=attempt.found,
            report=report,
            hardware_name=self.hardware_name,
        )


def _task(
    workload: WorkloadLike, hardware: HardwareLike, gpus: int, nodes: int | None
) -> _PlanningTask:
    profile = hardware if isinstance(hardware, HardwareProfile) else load_profile(hardware)
    loaded, document = (
        (workload, None) if isinstance(workload, Workload) else read_workload(workload)
    )
    topology = make_topology(profile, gpus, nodes)
    without_choice = refusals(loaded, topology)
    if without_choice:
        raise refused(loaded, document, without_choice)
    problem = ShardingProblem.of(loaded, topology)
    name = profile.name if isinstance(hardware, HardwareProfile) else str(hardware)
    return _PlanningTask(problem=problem, hardware_name=name)


def _begun(search: Search | None, options: Mapping[str, Any]) -> Search:
    """Return how to search, the time limit counting from now unless it does already."""
    given = replace(search or Search(), **options)
    return given if given.began is not None else replace(given, began=given.clock())


def beaten(baseline: Baseline | None, choice: "Choice") -> Baseline | None:
    """Add to a baseline how long its step is expected to be, and how likely a plan beats it."""
    if baseline is None or baseline.plan not in choice.plans:
        return baseline
    number = choice.plans.index(baseline.plan)
    return replace(
        baseline,
        expected=choice.samples.mean(number),
        probability_beaten=choice.samples.probability_faster(0, number),
    )


def _with_search(report: Report, **found: Any) -> Report:  # noqa: ANN401 - fields of SearchReport
    return replace(report, search=report.search and replace(report.search, **found))


def _simulated(workload: Workload, topology: Topology, plan: ShardingPlan) -> "Timeline":
    from costmodel.step.program_timeline import plan_timeline

    return plan_timeline(workload, topology, plan)
