"""Training steps on this machine: time, stages, memory."""

from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, TypeAlias

import torch
import torch.distributed as dist

from bench.gpu_study.accelerator import Accelerator, write_trace
from bench.gpu_study.examples import ExampleTrainer
from bench.gpu_study.models import EXAMPLE_SAMPLES, step_file
from bench.gpu_study.points import StepPoint
from bench.gpu_study.traces import traced_stages
from costmodel.base.units import Seconds
from planner.calibration.records import Record, record_of
from planner.calibration.timing import summary
from planner.files.plans import PlanFile
from planner.validation.batches import make_batches
from planner.validation.checks import check_workload
from planner.validation.job import NUM_BATCHES, Job
from planner.validation.launch import run_job
from planner.validation.profiling import profiled_phases
from planner.validation.trainer import Trainer, release

_WARM_UPS = 5
_STEPS = 10
"""In a row, of which nobody waits for any but the last."""
_ROUNDS = 5
_TRACED_STEPS = 3
_BUDGET: Seconds = 10.0
AnyTrainer: TypeAlias = Trainer | ExampleTrainer
_BACKENDS = {"cpu": "gloo", "cuda": "nccl"}


def measure_step(point: StepPoint, accelerator: Accelerator, traces: Path) -> Record:
    """Train a model for some steps.

    ``step`` is the time of one of `_STEPS` in a row, ``synchronized`` that of one whose end is
    waited for. The facts are the stages by the profiler, and the most memory allocated and
    reserved. A GPU's trace is kept in the folder ``traces``.
    """
    file = step_file(point, on_cpu=accelerator.device.synchronous)
    if point.model not in EXAMPLE_SAMPLES:
        check_workload(file.workload, point.model)
    if point.world_size > 1:
        return _ranks_record(point, file, accelerator.kind)
    with TemporaryDirectory() as folder:
        join(accelerator.kind, Path(folder))
        try:
            return _record(point, file, accelerator, traces)
        finally:
            dist.destroy_process_group()
            release()
            accelerator.reset_memory()


def join(kind: str, folder: Path) -> None:
    """Make a process group of this process alone: TorchRec wants one."""
    dist.init_process_group(
        _BACKENDS[kind], init_method=f"file://{folder}/rendezvous", rank=0, world_size=1
    )


def _record(point: StepPoint, file: PlanFile, accelerator: Accelerator, traces: Path) -> Record:
    device = torch.device(accelerator.device.name)
    accelerator.reset_memory()
    trainer = _trainer(point, file, device)
    for _ in range(_WARM_UPS):
        trainer.step()
    rows, waited = _rounds(trainer, accelerator), _rounds(trainer, accelerator, in_a_row=1)
    allocated, reserved = accelerator.peak_memory()
    facts = {
        **_stages(
            trainer, accelerator, traces / f"{point.model}_{point.local_batch_size}_rank0.json.gz"
        ),
        "allocated_bytes": allocated,
        "reserved_bytes": reserved,
    }
    timings = {"step": summary(rows, rows), "synchronized": summary(waited, waited)}
    return replace(record_of(point, timings), facts=facts)


def _trainer(point: StepPoint, file: PlanFile, device: torch.device) -> AnyTrainer:
    if point.model in EXAMPLE_SAMPLES:
        return ExampleTrainer(point.model, file.plan, device)
    batches = [batch.to(device) for batch in make_batches(file.workload, NUM_BATCHES, (0, 0))]
    return Trainer(file.workload, file.plan, batches, device)


def _rounds(trainer: AnyTrainer, accelerator: Accelerator, in_a_row: int = _STEPS) -> list[Seconds]:
    """Return the time of a step, round by round; at least two rounds, however long they take.

    The wall clock's on a GPU; on a CPU, whose one rank waits for nobody, the processor's.
    """
    times: list[Seconds] = []
    device, begin = accelerator.device, perf_counter()
    while len(times) < 2 or (len(times) < _ROUNDS and perf_counter() - begin < _BUDGET):
        device.synchronize()
        with device.stopwatch() as watch:
            for _ in range(in_a_row):
                trainer.advance()
            device.synchronize()
        total = watch.seconds() if device.synchronous else watch.wall()
        times.append(total / in_a_row)
    return times


def _stages(trainer: AnyTrainer, accelerator: Accelerator, path: Path) -> dict[str, Any]:
    """Return a step by stage of the device, whose trace is kept, or by phase of a host."""
    if accelerator.device.synchronous:
        return {"stages": profiled_phases(trainer.step, _TRACED_STEPS)}
    path.parent.mkdir(exist_ok=True)
    trace = write_trace(accelerator, trainer.advance, _TRACED_STEPS, path)
    return traced_stages(trace, _TRACED_STEPS)


def _ranks_record(point: StepPoint, file: PlanFile, kind: str) -> Record:
    """Train on several ranks, each a process; they share a GPU where there are too few."""
    job = Job(
        num_plans=1, world_size=point.world_size, local_world_size=point.world_size, device=kind,
        repeats=3, steps=4, warmup=_WARM_UPS, profiled=0,
    )  # fmt: skip
    ranks = [each[0] for each in run_job([file], job, _ignore)]
    rounds = [
        median(
            max(steps) for steps in zip(*(rank.blocks[turn].wall for rank in ranks), strict=True)
        )
        for turn in range(job.repeats)
    ]
    return record_of(point, {"synchronized": summary(rounds, rounds)})


def _ignore(done: Any) -> None:  # noqa: ANN401 - a number of blocks
    del done
