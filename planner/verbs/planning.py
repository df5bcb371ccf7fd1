"""Making a plan: a problem, a search against the clock, a choice, a report."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from costmodel.base.errors import (
    InfeasibleError,
    PlannerError,
)
from costmodel.base.modelled import Modelled
from costmodel.base.units import Seconds
from costmodel.domain.hardware import HardwareProfile, Topology
from costmodel.domain.plan import ShardingPlan
from costmodel.domain.workload import Workload
from costmodel.step.graph import Stage
from planner.environment.compiled import (
    INTERPRETED,
    REMEDY,
    InterpretedSearchWarning,
    interpreted_modules,
)
from planner.environment.settings import DEFAULT_HARDWARE
from planner.files.profiles import load_profile
from planner.files.workload_reading import read_workload, refused
from planner.planned.planned import Planned
from planner.planned.replicas import WeighedGroup
from planner.planned.report import Baseline, Confidence, Report, SearchReport, make_report
from planner.planned.verdict import Fuller
from planner.search.baseline import (
    DEFAULT_BASELINE,
    NONE,
    check_baseline,
    cut_short,
    find_baseline,
)
from planner.search.headroom import OWN_RESERVE, run_with_headroom
from planner.search.history import SearchHistory
from planner.search.plugins import AUTO
from planner.search.search import (
    Attempt,
    Search,
    SearchEnd,
    fastest,
    plan_status,
    search_end,
    sharders_for,
)
from planner.search.stages import PlanningStage, Stages
from planner.verbs.grouping import Grouping, best_group
from planner.verbs.loading import is_usable
from planner.verbs.topologies import make_topology
from sharders.problem.options import refusals
from sharders.problem.sharding_problem import SearchStatus, ShardingProblem

if TYPE_CHECKING:
    from planner.decision.choice import Choice

JUDGING_PASSES = 2.0
"""Time of one look at another batch or assumption, in times of the first plan
(``stages.PASSES``)."""
FEW_SAMPLES = 16
"""Number of samples of the models' errors where the limit left no time for choosing: the mean is
within 1% of that of all samples, in half the time (5,000 tables on 1,024 ranks)."""
WITHOUT_CHOICE = "no time was left for choosing: the plan is the best of the search alone"
WorkloadLike: TypeAlias = Workload | str | Path
HardwareLike: TypeAlias = HardwareProfile | str | Path


def plan(  # noqa: PLR0913 -- one argument per thing asked; all but two have defaults
    workload: WorkloadLike,
    *,
    gpus: int,
    nodes: int | None = None,
    hardware: HardwareLike = DEFAULT_HARDWARE,
    sharder: str = AUTO,
    baseline: str | None = DEFAULT_BASELINE,
    replica_group: int | Literal["auto"] | Grouping | None = None,
    search: Search | None = None,
    **options: Any,  # noqa: ANN401 - the fields of Search
) -> Planned:
    """Return the plan with the shortest expected step that a search finds.

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
        baseline's by the expected step (``planner.decision.choice``).
    baseline
        What the report compares with: a sharder, or nothing (None or ``none``); by default
        TorchRec's planner, ported.
    replica_group
        Ranks that share all tables, where several groups each have all of them (TorchRec's
        ``DMPCollection``); ``auto``: as many as are best; None: all ranks are one group. The plan
        is that of one group. A ``Grouping`` says also where their ranks are, and how often their
        replicas are averaged.
    search, options
        How to search, as a ``Search`` or as its fields: ``seed``, ``time_limit`` in seconds, ...

    Raises
    ------
    PlannerError
        Bad input, no plan fits, a plug-in is broken.

    Warns
    -----
    InterpretedSearchWarning
        The search is not compiled, as where a checkout's sources are imported.

    """
    if interpreted_modules():
        warnings.warn(f"{INTERPRETED}: {REMEDY}", InterpretedSearchWarning, stacklevel=2)
    search = _begun(search, options)
    task = planning_task(workload, hardware, gpus, nodes)
    if replica_group is not None:
        if not isinstance(replica_group, Grouping):
            replica_group = Grouping(group_size=replica_group)
        return task.grouped(replica_group, search).searched(sharder, baseline or NONE, search)
    try:
        return task.searched(sharder, baseline or NONE, search)
    except InfeasibleError as error:
        raise advised(error, task.problem, search) from None


def advised(error: PlannerError, problem: ShardingProblem, search: Search) -> PlannerError:
    """Return an error that no plan fits with remedies that were found; other errors as they are."""
    from planner.verbs.changes import Case
    from planner.verbs.remedies import with_searched

    if not isinstance(error, InfeasibleError):
        return error
    case = Case(workload=problem.workload, topology=problem.topology)
    return with_searched(error, case, search)


def plan_from(
    start: ShardingPlan,
    workload: Workload,
    topology: Topology,
    search: Search,
    *,
    sharder: str = AUTO,
    baseline: str = NONE,
    hardware_name: str | None = None,
) -> Planned:
    """Return a plan searched for from another one, which may be of another workload or machine.

    If that one is valid and fits, the search starts there, it is a candidate, and the report may
    compare with it (``baseline``: ``start``).
    """
    known = (start,) if is_usable(workload, topology, start) else ()
    problem = ShardingProblem.of(workload, topology, known)
    name = topology.hardware.name if hardware_name is None else hardware_name
    task = PlanningTask(problem=problem, hardware_name=name)
    return task.searched(sharder, baseline, _begun(search, {}))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningTask:
    """A problem to solve, and the name of its hardware."""

    problem: Any
    hardware_name: str
    weighed: tuple[WeighedGroup, ...] = ()
    """Group sizes that the problem's was chosen among."""
    known_took: Seconds = 0.0
    """Work after which the problem's known plan had been found."""

    def grouped(self, grouping: Grouping, search: Search) -> "PlanningTask":
        """Return the task of planning for one of several groups of the ranks, the best one."""
        workload, job = self.problem.workload, self.problem.topology
        problem, found, weighed = best_group(workload, grouping.topologies(job), search)
        return replace(self, problem=problem, weighed=weighed, known_took=found.gained_for)

    def _rest(self, search: Search) -> Search:
        """Return the search with what choosing the group size left of its plans, if counted."""
        search = replace(search, known_took=self.known_took)
        if search.max_plans is None or not self.weighed:
            return search
        spent = sum(each.num_plans for each in self.weighed)
        return replace(search, max_plans=max(1, search.max_plans - spent))

    def report(
        self,
        attempt: Attempt,
        attempts: Sequence[Attempt],
        confidence: Confidence,
        *,
        requested: str,
        search: Search,
        bound: Seconds = 0.0,
    ) -> Report:
        """Return the report on an attempt's plan, simulated."""
        from costmodel.step.operation_timeline import plan_timeline
        from planner.decision.choice import known_loads

        workload, topology = self.problem.workload, self.problem.topology
        found = attempt.found
        bounds = [bound, *(each.bound for each in attempts if each.bound is not None)]
        timeline = plan_timeline(workload, topology, found, known_loads(self.problem))
        made = make_report(workload, topology, found, timeline, confidence)
        # it holds in the long run, and the last of the few steps that are timed may still take
        # less where a rank's delay has not reached the others
        least = min(max(bounds), made.modelled.seconds)
        told = SearchReport(
            sharder=attempt.sharder,
            requested=requested,
            seed=search.seed,
            status=attempt.status.value,
            evaluated=sum(each.evaluated for each in attempts)
            + sum(each.num_plans for each in self.weighed),
            time=sum(each.time for each in attempts),
            bound=Modelled(least) if least else None,
            proof=attempt.proof,
            compiled=not interpreted_modules(),
            headroom=None if requested in OWN_RESERVE else search.headroom,
        )
        return replace(made, search=told, weighed_groups=self.weighed)

    def searched(self, sharder: str, baseline: str, search: Search) -> Planned:
        """Return the chosen plan: search, choose among plans found and the baseline's, report."""
        from planner.decision.choice import choose
        from planner.decision.judging import make_verdict

        check_baseline(baseline)
        search = self._rest(search)
        problem, names = self.problem, sharders_for(sharder)
        history = SearchHistory.of(search)
        search = replace(search, watch=history.watch)
        stages = Stages(problem, search)
        searching = stages.searching()
        own, attempts = run_with_headroom(names, problem, searching, fuller=sharder == AUTO)
        found_after = history.ended()
        stages.begin(PlanningStage.BASELINE, attempts)
        same = attempts if own is problem else ()
        told = find_baseline(baseline, problem, searching, same, stages.time_left)
        beside = told if isinstance(told, Attempt) else None
        stages.begin(PlanningStage.CHOICE, attempts)
        found, choice = self._candidates(attempts, beside), None
        if stages.fits(PlanningStage.CHOICE):
            choice = choose(
                own,
                found,
                stages.time_left,
                improve=sharder == AUTO,
                max_plans=search.max_plans,
                whole=problem,
            )
        stages.begin(PlanningStage.BOUND, attempts)
        bound = stages.bound()
        stages.begin(PlanningStage.REPORT, attempts)
        best = fastest(found) if sharder == AUTO else found[0]
        chosen = best if choice is None else choice.attempt
        confidence, against = self._sure(chosen, beside, choice)
        report = self.report(
            chosen, attempts, confidence, requested=sharder, search=search, bound=bound
        )
        report = replace(report, baseline=against)
        ended = search_end(names, attempts)
        end = SearchEnd.INTERRUPTED if search.interrupted() else ended
        report = _with_search(
            report,
            status=plan_status(chosen.status, end),
            first_plan=found_after[0].time,
            history=found_after,
            end=end.value,
            is_bare=stages.is_bare and all((each.bound or 0.0) <= bound for each in attempts),
        )
        report = replace(report, notes=(*report.notes, *_notes(told, choice)))
        if choice is not None and sharder == AUTO:
            verdict = make_verdict(
                problem,
                choice,
                rival=_rival(baseline, beside, choice),
                host_time=report.breakdown.get(Stage.HOST, 0.0),
                in_time=lambda: stages.fits(PlanningStage.REPORT),
                time_left=lambda: stages.time_left(passes=JUDGING_PASSES),
            )
            if report.free_share < search.headroom and verdict.fuller is None:
                fuller = Fuller(is_chosen=True, of_group=bool(self.weighed))
                verdict = replace(verdict, fuller=fuller)
            report = replace(report, verdict=verdict)
        return self.planned(chosen, report)

    def _sure(
        self, chosen: Attempt, beside: Attempt | None, choice: "Choice | None"
    ) -> tuple[Confidence, Baseline | None]:
        """Return the chosen plan's step, and the baseline's under the same errors."""
        from planner.decision.choice import known_loads
        from planner.decision.confidence import confidences

        if choice is not None and (beside is None or beside.plan in choice.plans):
            confidence, sampled = choice.confidence, choice.of(beside)
        else:
            workload, topology = self.problem.workload, self.problem.topology
            plans = (chosen.found,) if beside is None else (chosen.found, beside.found)
            known = known_loads(self.problem)
            confidence, *rest = confidences(workload, topology, plans, FEW_SAMPLES, known)
            sampled = rest[0] if rest else None
        if beside is None or sampled is None:
            return confidence, None
        return confidence, Baseline(
            sharder=beside.sharder,
            step_time=sampled.step_time,
            modelled=Modelled(beside.step_time),
            reason=cut_short(beside),
            plan=beside.plan,
            probability_beaten=sampled.probability_beaten,
        )

    def _candidates(self, attempts: Sequence[Attempt], beside: Attempt | None) -> list[Attempt]:
        """Return the plans to choose from: found ones, fastest first, known ones, the baseline."""
        found = sorted((a for a in attempts if a.plan), key=lambda attempt: attempt.step_time)
        found += [
            Attempt(sharder="start", plan=plan, step_time=seconds, status=SearchStatus.GIVEN)
            for seconds, plan in self.problem.known_times()
        ]
        if beside is not None:
            found.append(replace(beside, status=SearchStatus.GIVEN, others=()))
        return found

    def planned(self, attempt: Attempt, report: Report) -> Planned:
        """Return an attempt's plan with its workload, machine and report."""
        return Planned(
            workload=self.problem.workload,
            topology=self.problem.topology,
            plan=attempt.found,
            report=report,
            hardware_name=self.hardware_name,
        )


def planning_task(
    workload: WorkloadLike, hardware: HardwareLike, gpus: int, nodes: int | None
) -> PlanningTask:
    """Return a problem with its files read and checked against each other."""
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
    return PlanningTask(problem=problem, hardware_name=name)


def _begun(search: Search | None, options: Mapping[str, Any]) -> Search:
    """Return how to search, with the time limit counting from now if it does not count yet."""
    given = replace(search or Search(), **options)
    return given if given.began is not None else replace(given, began=given.clock())


def _notes(told: Attempt | str | None, choice: "Choice | None") -> Iterator[str]:
    """Yield warnings of a search: how slow it was, and what there was no time for."""
    if interpreted_modules():
        yield f"{INTERPRETED}, and finds worse plans in its time: {REMEDY}"
    if isinstance(told, str):
        yield told
    if choice is None:
        yield WITHOUT_CHOICE


def _rival(baseline: str, beside: Attempt | None, choice: "Choice") -> Attempt | None:
    """Return the plan made by rule that a choice is weighed against; None: it is not known.

    That is the faster one by the models of a simple plan and the default baseline's, unless another
    baseline was asked for, or none. A baseline that was cut short is another one each time.
    """
    if baseline != DEFAULT_BASELINE:
        return choice.simple
    if beside is None or cut_short(beside):
        return None
    return fastest([beside, *([] if choice.simple is None else [choice.simple])])


def _with_search(report: Report, **found: Any) -> Report:  # noqa: ANN401 - fields of SearchReport
    return replace(report, search=report.search and replace(report.search, **found))
