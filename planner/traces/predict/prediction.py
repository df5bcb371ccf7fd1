"""A training step predicted from execution traces and a hardware profile."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from costmodel.base.errors import InputError, Problem
from costmodel.base.units import Seconds
from costmodel.kernels.collectives import RankGroup
from costmodel.step.graph import Stage
from costmodel.step.simulator import simulate
from costmodel.step.timeline import Timeline
from planner.files.profiles import load_profile
from planner.files.workload_reading import load_workload
from planner.traces.execution.operator_trace import OperatorTrace, operator_traces, runs_on_cpu
from planner.traces.execution.step_work import work_of_step
from planner.traces.execution.walk import RankWork, is_lookup
from planner.traces.predict.gpu_graph import gpu_machine
from planner.traces.predict.kernel_models import Timed
from planner.traces.predict.lookups import TracedLookups
from planner.traces.predict.measured import measured_steps
from planner.traces.predict.timed_graph import TargetMachine, timed_graph
from planner.traces.trace_files import Document, read_documents


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStep:
    """One rank's predicted step, and its measured one."""

    rank: int
    predicted: Seconds
    measured: Seconds | None
    """Step in the profiler trace beside the execution trace, including the cost of profiling; None:
    there is none, or it is of a CPU and the hardware a GPU or the reverse."""
    stages: Mapping[Stage, Seconds]
    """Seconds of its threads and streams by stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyTime:
    """Kernels of one kind, per rank and step."""

    family: str
    count: float
    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownOperator:
    """An operator that no model knows."""

    name: str
    count: int
    """Calls in a step, of all ranks."""
    share: float
    """Share of the predicted kernel time, estimated from the bytes of its tensors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A predicted step of all ranks, with its parts."""

    source: str
    hardware: str
    step_time: Seconds
    ranks: Sequence[RankStep]
    families: Sequence[FamilyTime]
    unknown: Sequence[UnknownOperator]
    num_kernels: int
    """Kernels of all ranks in a step."""
    extrapolated: float
    """Share of the kernel time outside of the measured range."""
    timeline: Timeline

    @property
    def measured(self) -> Seconds | None:
        """The slowest rank's measured step in seconds; None unless all were measured."""
        times = [rank.measured for rank in self.ranks if rank.measured is not None]
        return max(times) if len(times) == len(self.ranks) else None


def predict(
    path: str | Path, hardware: str | Path, workload: str | Path | None = None
) -> Prediction:
    """Return the predicted step of a job, from the execution traces of all its ranks.

    ``workload``: the file of the tables that they look up, if they do.

    Raises
    ------
    InputError
        The traces or the profile cannot be used.
    UnknownNameError
        No profile has that name.

    """
    documents, source = read_documents(path), str(path)
    return predict_documents(
        documents,
        source,
        str(hardware),
        lambda num_ranks: _machine(hardware, num_ranks, source, workload),
    )


def predict_documents(
    documents: Sequence[tuple[str, Document]],
    source: str,
    hardware: str,
    machine_of: Callable[[int], TargetMachine],
) -> Prediction:
    """Return the step predicted from documents, on a machine with as many ranks.

    Parameters
    ----------
    documents
        Execution traces, and profiler traces beside them, with their names.
    source
        The documents' name in errors.
    hardware
        The machine's name.
    machine_of
        Makes the machine of a number of ranks.

    """
    traces = operator_traces(documents, source)
    works = work_of_step(traces, source)
    machine = machine_of(len(traces))
    if machine.lookups is None:
        _refuse_lookups(works, source)
    else:
        machine.lookups.check(works, source)
    made = timed_graph(works, machine)
    timeline = simulate(made.graph)
    pids = {trace.rank: trace.pid for trace in traces}
    comparable = machine.on_cpu == runs_on_cpu(traces)
    measured = measured_steps(documents, pids) if comparable else {}
    kernels = made.kernels
    total = sum(kernel.estimate.seconds for kernel in kernels)
    beyond = sum(k.estimate.seconds for k in kernels if k.estimate.extrapolated)
    return Prediction(
        source=source,
        hardware=hardware,
        step_time=timeline.step_time,
        ranks=[_rank_step(timeline, trace, measured) for trace in traces],
        families=_families(kernels, len(traces)),
        unknown=_unknown(kernels, total),
        num_kernels=len(kernels),
        extrapolated=beyond / total if total else 0.0,
        timeline=timeline,
    )


def _refuse_lookups(works: Sequence[RankWork], source: str) -> None:
    """Raise if traces have FBGEMM's lookups, whose time depends on data that traces lack.

    They have the number of ids, but neither how often ids repeat nor the tables' widths and rows.
    By the bytes of tensors alone, a step of DLRM on 8 V100s was predicted 70% too short.
    """
    lookups = sorted(each.name for work in works for each in work.items if is_lookup(each.name))
    if not lookups:
        return
    message = (
        f"`{lookups[0]}` looks embeddings up by FBGEMM, and an execution trace does not say how "
        "often ids repeat, which decides how long that takes"
    )
    hint = (
        "describe the tables in a workload file (`planner init` writes one) and give it by "
        "`--workload`, or `planner replay` the profiler's traces"
    )
    raise InputError(source, (Problem(message=message, hint=hint),))


def _machine(
    hardware: str | Path, num_ranks: int, source: str, workload: str | Path | None
) -> TargetMachine:
    gpus = load_profile(hardware)
    local = min(num_ranks, gpus.gpus_per_node)
    if num_ranks % local:
        message = f"{num_ranks} ranks do not fill nodes of {gpus.gpus_per_node} GPUs evenly"
        raise InputError(source, (Problem(message=message, hint="use another profile"),))
    lookups = None
    if workload is not None:
        lookups = TracedLookups(load_workload(workload), gpus, num_ranks)
    return gpu_machine(gpus, RankGroup(num_ranks=num_ranks, ranks_per_node=local), lookups)


def _rank_step(
    timeline: Timeline, trace: OperatorTrace, measured: Mapping[int, Seconds]
) -> RankStep:
    """Return a rank's step as predicted and measured, and its stages, the longest first."""
    stages: dict[Stage, Seconds] = defaultdict(float)
    for busy in timeline.busy(trace.rank).values():
        for stage, seconds in busy.items():
            stages[stage] += seconds
    return RankStep(
        rank=trace.rank,
        predicted=_own_time(timeline, trace.rank),
        measured=measured.get(trace.rank),
        stages=dict(sorted(stages.items(), key=lambda item: -item[1])),
    )


def _own_time(timeline: Timeline, rank: int) -> Seconds:
    """Return the seconds between the ends of one rank's last two steps."""
    last = timeline.graph.num_steps - 1
    ends = dict.fromkeys(range(last + 1), 0.0)
    for node, end in zip(timeline.graph.nodes, timeline.ends, strict=True):
        if node.rank == rank:
            ends[node.step] = max(ends[node.step], end)
    return ends[last] - ends.get(last - 1, 0.0)


def _families(kernels: Sequence[Timed], num_ranks: int) -> list[FamilyTime]:
    """Return kernels and seconds of every family, per rank, the longest first."""
    return [
        FamilyTime(family=name, count=count / num_ranks, seconds=seconds / num_ranks)
        for name, count, seconds in _summed((each.family, each) for each in kernels)
    ]


def _unknown(kernels: Sequence[Timed], total: Seconds) -> list[UnknownOperator]:
    """Return the operators without a model, with their share of ``total``, the longest first."""
    unknown = ((each.name, each) for each in kernels if not each.known)
    return [
        UnknownOperator(name=name, count=count, share=seconds / total)
        for name, count, seconds in _summed(unknown)
    ]


def _summed(named: Iterable[tuple[str, Timed]]) -> list[tuple[str, int, Seconds]]:
    """Return number and seconds of the kernels of each name, the longest first."""
    times: dict[str, list[Seconds]] = defaultdict(list)
    for name, kernel in named:
        times[name].append(kernel.estimate.seconds)
    summed = [(name, len(own), sum(own)) for name, own in times.items()]
    return sorted(summed, key=lambda each: -each[2])
