"""One rank of a validation run: ``python -m planner.validation.worker FOLDER``.

The launcher sets RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE. The same processes train all
plans, in turns, so that changes over minutes affect all alike.
"""

import logging
import sys
from dataclasses import replace
from os import environ
from pathlib import Path
from time import perf_counter, process_time

import torch
import torch.distributed as dist

from planner.calibration.device import open_device
from planner.calibration.machine import cache_bytes
from planner.calibration.measuring import Measurer
from planner.calibration.points import read_point
from planner.environment.cores import CoreWatch, pin_to_core
from planner.environment.processes import end_now
from planner.files.plans import PlanFile, load_plan_file
from planner.validation.batches import make_batches
from planner.validation.job import NUM_BATCHES, Block, Job, RankResult, write_results
from planner.validation.profiling import profiled_phases
from planner.validation.trainer import Trainer, release


def main() -> None:
    """Train under all plans of the job in the folder, and write the measurements."""
    logging.disable(logging.WARNING)
    folder = Path(sys.argv[1])
    job, rank = Job.read(folder), int(environ["RANK"])
    core = pin_to_core(int(environ["LOCAL_RANK"])) if job.device == "cpu" else None
    if job.device == "cpu":
        torch.set_num_threads(1)
    device = _device(job)
    dist.init_process_group(
        backend=_backend(job),
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=job.world_size,
    )
    write_results(folder, rank, _Rank(job, folder, device, core).run())
    dist.barrier()
    dist.destroy_process_group()
    end_now()


def _backend(job: Job) -> str:
    """Return the backend of collectives: NCCL refuses two ranks on one GPU, gloo does not."""
    shared = job.device == "cuda" and torch.cuda.device_count() < job.local_world_size
    return "gloo" if shared or job.device == "cpu" else "nccl"


def _device(job: Job) -> torch.device:
    if job.device == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", int(environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


class _Rank:
    """Measures all plans, round by round."""

    def __init__(self, job: Job, folder: Path, device: torch.device, core: int | None) -> None:
        self.job, self.device = job, device
        self.watch = CoreWatch(core)
        self.files = [load_plan_file(folder / f"plan_{i}.json") for i in range(job.num_plans)]
        self.progress = folder / "progress"
        seed = (job.seed, int(environ["RANK"]))
        batches = make_batches(self.files[0].workload, NUM_BATCHES, seed)
        self.batches = [batch.to(device) for batch in batches]

    def run(self) -> list[RankResult]:
        """Return the results, plan by plan."""
        blocks: list[list[Block]] = [[] for _ in self.files]
        phases: list[dict[str, float]] = [{} for _ in self.files]
        for turn in range(self.job.repeats):
            last = turn == self.job.repeats - 1
            probed = self._probed()
            for index, file in enumerate(self.files):
                trainer = self._trainer(file)
                blocks[index].append(replace(self._block(trainer), probes=probed))
                if last and self.job.profiled:
                    phases[index] = profiled_phases(trainer.step, self.job.profiled)
                del trainer
                self._tell(turn * len(self.files) + index + 1)
        return [
            RankResult(blocks=tuple(blocks[i]), phases=phases[i]) for i in range(len(self.files))
        ]

    def _probed(self) -> tuple[float, ...]:
        """Return the seconds of the job's probes, measured on all ranks at once."""
        if not self.job.probes:
            return ()
        release()
        cache = cache_bytes(self.job.device, self.job.local_world_size)
        measurer = Measurer(open_device(self.job.device, 0, cache), meet=dist.barrier)
        points = [read_point(probe["family"], probe["point"]) for probe in self.job.probes]
        return tuple(sum(measurer.measure(point).seconds.values()) for point in points)

    def _trainer(self, file: PlanFile) -> Trainer:
        release()
        return Trainer(file.workload, file.plan, self.batches, self.device)

    def _block(self, trainer: Trainer) -> Block:
        for _ in range(self.job.warmup):
            trainer.step()
        dist.barrier()
        self.watch.start()
        wall, cpu = [], []
        for _ in range(self.job.steps):
            began, used = perf_counter(), process_time()
            trainer.step()
            wall.append(perf_counter() - began)
            cpu.append(process_time() - used)
        return Block(wall=tuple(wall), cpu=tuple(cpu), foreign=self.watch.foreign_share())

    def _tell(self, done: int) -> None:
        if dist.get_rank() == 0:
            self.progress.write_text(str(done), encoding="ascii")


if __name__ == "__main__":
    main()
