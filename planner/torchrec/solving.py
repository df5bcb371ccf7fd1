"""Searching for the plan of a TorchRec model, and the errors where there is none."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torchrec.distributed.planner.types import PlannerError as TorchRecError
from torchrec.distributed.planner.types import PlannerErrorType
from torchrec.distributed.types import ShardingPlan as TorchRecPlan

from costmodel.base.errors import InfeasibleError, PlannerError, UnknownNameError
from costmodel.base.units import MS, Seconds, size_text
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ComputeKernel, ShardingPlan
from costmodel.domain.validity import check_plan
from costmodel.domain.workload import Workload
from costmodel.memory.rank_memory import (
    check_memory,
    could_hold,
    host_bytes_usable,
    host_reserve_text,
    rank_rooms,
    usable_bytes,
)
from planner.decision.choice import fastest_with_room
from planner.decision.confidence import confidences
from planner.planned.notes import notes_on
from planner.planned.report import Confidence
from planner.search.headroom import run_with_headroom
from planner.search.plugins import AUTO
from planner.search.search import Attempt, Search, sharders_for
from planner.show.format import count, duration, span
from planner.torchrec.error_types import INPUT_VALIDATION, with_hints
from planner.torchrec.model_reading import ModelTables
from planner.torchrec.other_tables import OtherTables, merged
from planner.torchrec.plan_conversion import TableLocation, from_torchrec, let_prefetch, to_torchrec
from planner.torchrec.plan_request import PlanRequest
from planner.torchrec.replication import (
    as_judged,
    frozen_tables,
    planned_with_care,
    without_replicas,
)
from planner.torchrec.topology import Reservation, on_ranks, with_less
from planner.verbs.changes import Case, Refit
from planner.verbs.loading import is_usable
from planner.verbs.remedies import with_searched
from planner.verbs.topologies import with_usable
from sharders.problem.sharding_problem import ShardingProblem

_IN_HBM = (ComputeKernel.FUSED, ComputeKernel.DENSE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """The workload read off a model, and the plan chosen for it."""

    workload: Workload
    topology: Topology
    locations: Mapping[str, TableLocation]
    plan: ShardingPlan
    confidence: Confidence
    """The expected step, how sure it is, and the causes of error."""
    other_time: Seconds
    """TorchRec's estimate in seconds for the tables that the cost model does not know; not in
    ``step_time``."""
    sharder: str
    """The sharder that found the plan."""
    torchrec_plan: TorchRecPlan
    """The plan that the planner returned."""
    hardware: str
    """Name or path of the hardware profile."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings about the step, as a report has them."""
        return tuple(notes_on(self.workload, self.topology))

    @property
    def step_time(self) -> Seconds:
        """The expected step, in seconds, without ``other_time``."""
        return self.confidence.step_time

    @property
    def summary(self) -> str:
        """The plan in one line, for a log."""
        other = f", and {self.other_time / MS:.3f} ms for other tables" if self.other_time else ""
        tables, ranks = len(self.workload.tables), self.topology.world_size
        return (
            f"{count(tables, 'table')} on {count(ranks, 'rank')}: step time "
            f"{duration(self.step_time)} ({span(self.confidence.interval)}, 90%){other} "
            f"({self.sharder})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOutcome:
    """A whole TorchRec plan, and the solution of the part that was planned here."""

    plan: TorchRecPlan
    solution: Solution | None
    """None if the cost model knows no table."""


def planned_around(
    request: PlanRequest,
    model: ModelTables,
    others: OtherTables,
    reserved: Reservation | None,
    sharder: str,
    search: Search,
) -> PlanOutcome:
    """Return the best plan of a model's tables, some of them being fixed already.

    Parameters
    ----------
    request, model
        What is planned, for what.
    others
        TorchRec's plan of tables that the cost model does not know.
    reserved
        Memory that a storage reservation leaves; None: there is none.
    sharder, search
        How the rest is searched; nothing is searched if nothing is left to choose.

    Raises
    ------
    torchrec.distributed.planner.types.PlannerError
        No plan fits, or a plan that is given is not one of these tables.

    """
    if not model.tables:
        return PlanOutcome(plan=others.plan, solution=None)
    workload, given = request.workload(model), request.fixed_of(model)
    topology = with_less(
        request.machine(workload, reserved),
        hbm_bytes=[each + model.wrapper_bytes for each in others.hbm_bytes],
        host_bytes=others.host_bytes,
    )
    unasked = None if request.replicate is False else frozen_tables(model)
    workload = without_replicas(workload, topology, unasked)
    if given.plan:
        check_given(given, model.locations, workload, topology)
    case, reserve = Case(workload=workload, topology=topology, grown=on_ranks), None
    if reserved is not None:
        case = replace(case, refit=_with_rooms_of(case))
        reserve = reserved.line(request.topology, usable_bytes(workload, topology))
    free = [each for each in model.locations.values() if not each.is_in(given)]
    made, found = merged(others.plan, given), "given"
    if free:
        told = request.dense is not None or request.training.optimizer is not None
        judged = None if request.replicate else as_judged(workload, told=told)
        attempt = find_plan(case, sharder, search, judged, reserve)
        plan = attempt.found
        chosen = to_torchrec(
            plan,
            model.locations,
            compute_device=request.topology.compute_device,
            local_world_size=request.topology.local_world_size,
            constraints=request.constraints_of(model),
        )
        made, found = merged(let_prefetch(chosen, request.pipeline), made), attempt.sharder
    if given.plan:
        plan = in_our_terms(made, model.locations, workload, topology)
        check_room(plan, workload, topology, reserve)
    return PlanOutcome(
        plan=made,
        solution=Solution(
            workload=workload,
            topology=topology,
            locations=model.locations,
            plan=plan,
            confidence=confidences(workload, topology, (plan,))[0],
            other_time=others.time,
            sharder=found,
            torchrec_plan=made,
            hardware=request.hardware,
        ),
    )


def check_given(
    given: TorchRecPlan,
    locations: Mapping[str, TableLocation],
    workload: Workload,
    topology: Topology,
) -> None:
    """Raise unless a given plan of some tables fits them and these ranks.

    Raises
    ------
    torchrec.distributed.planner.types.PlannerError
        It is one of other rows, columns or ranks, or not whole.

    """
    # the ranks that they are to be on are the plan's own here, and may have several blocks each
    tables = tuple(
        replace(table, ranks=()) for table in workload.tables if locations[table.name].is_in(given)
    )
    if not tables:
        return
    part = replace(workload, tables=tables)
    try:
        check_plan(part, topology, from_torchrec(given, locations, part, topology))
    except PlannerError as error:
        message = f"the plan that fixed_plan or plan_loader gives: {error}"
        raise TorchRecError(message, INPUT_VALIDATION) from error


def _with_rooms_of(case: Case) -> Refit:
    """Return a function that gives another workload's tables as much memory as a case's have.

    A change of the workload leaves a storage reservation as it is, as far as is known.
    """
    rooms = rank_rooms(case.workload, case.topology)

    def refit(workload: Workload, topology: Topology) -> Topology:
        same = topology.world_size == len(rooms)
        usable = rooms if same else (min(rooms),) * topology.world_size
        return with_usable(topology, workload, usable)

    return refit


def check_room(
    plan: ShardingPlan, workload: Workload, topology: Topology, reserve: str | None = None
) -> None:
    """Raise if a plan needs more memory than there is; ``reserve`` as in ``find_plan``.

    Raises
    ------
    torchrec.distributed.planner.types.PlannerError
        It does not fit.

    """
    try:
        check_memory(workload, topology, plan)
    except InfeasibleError as error:
        # its remedies are for a plan that is still to be found
        told = InfeasibleError(error.message, details=error.details)
        message = _with_remedies(_with_reserve(told, topology, reserve))
        raise TorchRecError(message, PlannerErrorType.INSUFFICIENT_STORAGE) from error


def in_our_terms(
    plan: TorchRecPlan,
    locations: Mapping[str, TableLocation],
    workload: Workload,
    topology: Topology,
) -> ShardingPlan:
    """Return a plan in our terms.

    Raises
    ------
    torchrec.distributed.planner.types.PlannerError
        The plan is not one of these tables.

    """
    try:
        return from_torchrec(plan, locations, workload, topology)
    except PlannerError as error:
        raise TorchRecError(str(error), INPUT_VALIDATION) from error


def retimed(solution: Solution, plan: TorchRecPlan) -> Solution:
    """Return the solution with another plan of its tables, timed."""
    workload, topology = solution.workload, solution.topology
    ours = in_our_terms(plan, solution.locations, workload, topology)
    (confidence,) = confidences(workload, topology, (ours,))
    return replace(solution, plan=ours, confidence=confidence, torchrec_plan=plan)


def find_plan(
    case: Case,
    sharder: str,
    search: Search,
    judged: Workload | None = None,
    reserve: str | None = None,
) -> Attempt:
    """Return the best plan that a sharder, or all of them, find.

    ``judged`` is the workload under which a plan that replicates tables must surely be faster than
    one that does not (``replication``); None: the best plan is taken, whatever it replicates.
    ``reserve`` is a line on what a storage reservation leaves; None: there is none.

    Raises
    ------
    torchrec.distributed.planner.types.PlannerError
        Tables take more memory than there is, or constraints leave no plan that fits.

    """
    workload, topology = case.workload, case.topology

    def find(some: Workload, within: Search, known: tuple[ShardingPlan, ...]) -> Attempt:
        return _found_in_hbm_first(some, topology, sharder, within, known)

    try:
        if judged is not None:
            return planned_with_care(find, workload, topology, search, judged)
        return find(workload, search, ())
    except InfeasibleError as error:
        kind = PlannerErrorType.INSUFFICIENT_STORAGE
        if could_hold(_in_hbm_if_allowed(workload), topology):
            kind = PlannerErrorType.STRICT_CONSTRAINTS
        searched = with_searched(_with_reserve(error, topology, reserve), case, search)
        raise TorchRecError(_with_remedies(searched), kind) from error
    except UnknownNameError as error:  # of a sharder
        raise TorchRecError(with_hints(error), INPUT_VALIDATION) from error
    except PlannerError as error:
        raise TorchRecError(with_hints(error), PlannerErrorType.STRICT_CONSTRAINTS) from error


def _found_in_hbm_first(
    workload: Workload,
    topology: Topology,
    sharder: str,
    search: Search,
    known: tuple[ShardingPlan, ...],
) -> Attempt:
    """Return what a search without host memory finds, else one with it: the former is faster."""
    resident = _in_hbm_if_allowed(workload)
    try:
        return _searched(resident, topology, sharder, search, known)
    except InfeasibleError as error:
        if resident == workload:
            raise
        without_host_memory = error
    try:
        return _searched(workload, topology, sharder, search, known)
    except InfeasibleError as error:
        raise _too_large_for_host(without_host_memory, workload, topology) from error


def _searched(
    workload: Workload,
    topology: Topology,
    sharder: str,
    search: Search,
    known: tuple[ShardingPlan, ...],
) -> Attempt:
    """Return the fastest plan of the sharders' tries, known plans that are usable among them."""
    usable = tuple(plan for plan in known if is_usable(workload, topology, plan))
    problem = ShardingProblem.of(workload, topology, usable)
    names = sharders_for(sharder)
    own, attempts = run_with_headroom(names, problem, search, fuller=sharder == AUTO)
    return fastest_with_room(own, problem, [each for each in attempts if each.plan])


def _in_hbm_if_allowed(workload: Workload) -> Workload:
    """Return the workload without UVM kernels, except for tables that allow no others."""
    tables = []
    for table in workload.tables:
        kernels = tuple(kernel for kernel in table.compute_kernels if kernel in _IN_HBM)
        tables.append(replace(table, compute_kernels=kernels or table.compute_kernels))
    return replace(workload, tables=tuple(tables))


def _too_large_for_host(
    error: InfeasibleError, workload: Workload, topology: Topology
) -> InfeasibleError:
    """Return the error that no plan fits in HBM and that host memory does not help."""
    host = topology.num_nodes * host_bytes_usable(topology)
    line = (
        f"{size_text(workload.weight_bytes)} of weights, and {size_text(host)} of host memory"
        f"{host_reserve_text(topology, topology.num_nodes)} for UVM kernels: no plan with them "
        "fits either"
    )
    return InfeasibleError(
        error.message, details=(*error.details, ("host", line)), remedies=error.remedies
    )


def _with_reserve(
    error: InfeasibleError, topology: Topology, reserve: str | None
) -> InfeasibleError:
    """Return an error whose line on a rank's memory tells what a storage reservation leaves."""
    if reserve is None:
        return error
    own = f"per {topology.hardware.device.unit}"
    details = [(label, reserve if label == own else text) for label, text in error.details]
    return replace(error, details=details)


def _with_remedies(error: InfeasibleError) -> str:
    """Return a whole error as text, with remedies in a script's words, not a command's."""
    remedies = [(_in_training(label), text) for label, text in error.remedies]
    hint = [] if error.hint is None else [("hint", _in_training(error.hint))]
    return "\n".join([
        str(error),
        *(f"{label}: {text}" for label, text in (*error.details, *remedies, *hint)),
    ])


def _in_training(text: str) -> str:
    """Return a command's text in the words of a training script."""
    return text.replace("--gpus", "world size").replace(" --nodes", ", nodes")
