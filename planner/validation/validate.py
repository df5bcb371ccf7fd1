"""Validation as one call: predict plans, train under them, judge."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from costmodel.domain.hardware import Device, HardwareProfile, Topology
from costmodel.step.simulator import simulate
from costmodel.step.synthesis import synthesize
from planner.environment.torchrec_presence import require_torchrec
from planner.files.plans import PlanFile
from planner.validation.checks import check_machine, check_same_job, check_workload
from planner.validation.job import Job
from planner.validation.judge import Outcome, Verdict, judge, outcome
from planner.validation.launch import run_job
from planner.validation.phases import StepPrediction


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """Plans of one workload, predicted and measured."""

    outcomes: tuple[Outcome, ...]
    verdict: Verdict
    hardware: str
    device: Device
    job: Job


def validate(
    files: Sequence[PlanFile],
    names: Sequence[str],
    profile: HardwareProfile,
    *,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,  # noqa: ANN401 - fields of Job: repeats, steps, warmup, profiled, seed
) -> Validation:
    """Train under every plan with DistributedModelParallel, in turns, and compare.

    Parameters
    ----------
    files, names
        Plans of one workload and number of ranks, and what to call them.
    profile
        Of this machine: what predicts the steps, and whether they run on its CPU or GPUs.
    progress
        Is told how many blocks of steps are done, of how many.
    options
        How to measure: fields of ``Job``.

    Raises
    ------
    PlannerError
        The plans do not belong together, cannot be trained, or not on this machine; a rank failed.

    """
    require_torchrec("validating plans")
    check_same_job(files, names)
    check_workload(files[0].workload, names[0])
    for file in files:
        check_machine(file, topology_of(file, profile))
    job = Job(
        num_plans=len(files),
        world_size=files[0].plan.world_size,
        local_world_size=files[0].plan.local_world_size,
        device=profile.device.value,
        **options,
    )
    total = job.num_blocks
    ranks = run_job(files, job, lambda done: progress(done, total) if progress else None)
    outcomes = tuple(
        outcome(name, predicted(file, profile), [rank[index] for rank in ranks])
        for index, (file, name) in enumerate(zip(files, names, strict=True))
    )
    return Validation(
        outcomes=outcomes,
        verdict=judge(outcomes),
        hardware=profile.name,
        device=profile.device,
        job=job,
    )


def topology_of(file: PlanFile, profile: HardwareProfile) -> Topology:
    """Return the ranks a plan is for, on a machine."""
    return Topology(
        hardware=profile,
        world_size=file.plan.world_size,
        local_world_size=file.plan.local_world_size,
    )


def predicted(file: PlanFile, profile: HardwareProfile) -> StepPrediction:
    """Return a plan's simulated step."""
    timeline = simulate(synthesize(file.workload, topology_of(file, profile), file.plan))
    return StepPrediction.of(timeline, synchronous=profile.device is Device.CPU)
