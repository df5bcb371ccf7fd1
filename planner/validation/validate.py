"""Validation: predict plans, train under them, compare."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from costmodel.domain.hardware import Device, HardwareProfile
from costmodel.step.operation_timeline import plan_timeline
from costmodel.step.simulator import simulate
from planner.calibration.records import Record
from planner.decision.confidence import confidences
from planner.environment.extras import require_torchrec
from planner.files.plans import PlanFile, topology_of
from planner.validation.checks import check_machine, check_same_job, check_workload
from planner.validation.job import Job, RankResult
from planner.validation.judge import Outcome, Verdict, judge, outcome
from planner.validation.launch import run_job
from planner.validation.machine_speed import (
    Slowdowns,
    common_slowdown,
    probe_data,
    probes,
    slowdowns,
    slowed,
)
from planner.validation.phases import StepPrediction


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """Plans of one workload, predicted and measured."""

    outcomes: tuple[Outcome, ...]
    verdict: Verdict
    hardware: str
    device: Device
    job: Job
    slowdowns: Slowdowns = field(default_factory=dict)
    """Slowdown by family; empty if the calibration's measurements are not there to be repeated."""
    slowdown: float | None = None
    """Slowdown of the machine since its calibration; None as ``slowdowns`` are empty."""
    at_speed: tuple[Outcome, ...] = ()
    """Outcomes with predictions for the machine's speed during the run; empty as ``slowdowns``."""


def validate(
    files: Sequence[PlanFile],
    names: Sequence[str],
    profile: HardwareProfile,
    *,
    calibrated: Sequence[Record] = (),
    progress: Callable[[int, int], None] | None = None,
    **options: Any,  # noqa: ANN401 - fields of Job: repeats, steps, warmup, profiled, seed
) -> Validation:
    """Return predicted and measured steps after training under every plan, in turns.

    Parameters
    ----------
    files, names
        Plans of one workload and number of ranks, and what to call them.
    profile
        Of this machine: what predicts the steps, and whether they run on its CPU or GPUs.
    calibrated
        What the profile was fitted to, if it is known: some of it is measured again, to tell the
        machine's speed from the model's error.
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
    chosen = probes(calibrated) if profile.device is Device.CPU else ()
    job = Job(
        num_plans=len(files),
        world_size=files[0].plan.world_size,
        local_world_size=files[0].plan.local_world_size,
        device=profile.device.value,
        probes=probe_data(chosen),
        **options,
    )
    total = job.num_blocks
    ranks = run_job(files, job, lambda done: progress(done, total) if progress else None)
    return compared(files, names, profile, job=job, ranks=ranks, probed=chosen)


def modelled(file: PlanFile, profile: HardwareProfile, slowdown: float = 1.0) -> StepPrediction:
    """Return a plan's step by the models, on a machine slower by a factor."""
    timeline = plan_timeline(file.workload, topology_of(file, profile), file.plan)
    if slowdown != 1.0:
        timeline = simulate(slowed(timeline.graph, slowdown))
    return StepPrediction.of(timeline, synchronous=profile.device is Device.CPU)


def expected(file: PlanFile, profile: HardwareProfile, slowdown: float = 1.0) -> StepPrediction:
    """Return a plan's expected step with its interval, on a machine slower by a factor.

    Both are longer than the models' step by as much as on the machine as it was calibrated.
    """
    topology = topology_of(file, profile)
    (confidence,) = confidences(file.workload, topology, (file.plan,))
    made, plain = modelled(file, profile, slowdown), modelled(file, profile)
    ratio = made.step_time / plain.step_time
    low, high = confidence.interval
    return replace(
        made, step_time=ratio * confidence.step_time, interval=(ratio * low, ratio * high)
    )


def compared(
    files: Sequence[PlanFile],
    names: Sequence[str],
    profile: HardwareProfile,
    *,
    job: Job,
    ranks: Sequence[Sequence[RankResult]],
    probed: Sequence[Record] = (),
    predict: Callable[[PlanFile, HardwareProfile, float], StepPrediction] = expected,
) -> Validation:
    """Return the comparison of measured and predicted steps.

    ``ranks`` has every rank's results by plan; ``probed`` are the kernels of the calibration that
    every round measured again. What is compared is what ``predict`` says: benches of the models
    alone take ``modelled``.
    """
    slowdown = common_slowdown(probed, ranks)

    def judged(slowdown: float) -> tuple[Outcome, ...]:
        return tuple(
            outcome(name, predict(file, profile, slowdown), [rank[index] for rank in ranks])
            for index, (file, name) in enumerate(zip(files, names, strict=True))
        )

    outcomes = judged(1.0)
    return Validation(
        outcomes=outcomes,
        slowdowns=slowdowns(probed, ranks),
        slowdown=slowdown,
        at_speed=judged(slowdown) if slowdown else (),
        verdict=judge(outcomes),
        hardware=profile.name,
        device=profile.device,
        job=job,
    )
