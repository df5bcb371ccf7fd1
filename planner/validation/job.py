"""The request to the ranks of a validation run, and their answers, as JSON."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from costmodel.base.units import Seconds
from planner.files.json_text import dump_json

JOB_FILE = "job.json"
NUM_BATCHES = 3
"""Number of batches that every rank takes turns with, as many as a pipeline has in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A request to train under some plans, files ``plan_0.json`` ... in the job's folder."""

    num_plans: int
    world_size: int
    local_world_size: int
    device: str
    """``cpu`` or ``cuda``."""
    repeats: int = 5
    """Number of rounds over all plans."""
    steps: int = 4
    """Number of timed steps of a plan in every round."""
    warmup: int = 5
    """Number of steps before them: the pipeline fills, memory is touched. A new model's first steps
    take new pages from the system."""
    profiled: int = 2
    """Number of steps of a plan under the profiler, after the last round."""
    seed: int = 0
    probes: tuple[Mapping[str, Any], ...] = ()
    """Kernels that are measured at the beginning of every round, each as ``family`` and ``point``
    of a measurements file; see ``planner.validation.machine_speed``."""

    @property
    def phases_apart(self) -> bool:
        """Whether the profiler gets processes of its own (``launch.run_job``)."""
        return self.device == "cpu" and self.profiled > 0

    @property
    def num_blocks(self) -> int:
        """Number of runs of consecutive steps under one plan, by which progress is counted."""
        return (self.repeats + self.phases_apart) * self.num_plans

    def write(self, folder: Path) -> None:
        """Write the job to a file in a folder."""
        (folder / JOB_FILE).write_text(dump_json(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> "Job":
        """Return the job in a folder."""
        return cls(**json.loads((folder / JOB_FILE).read_text(encoding="utf-8")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Consecutive steps of one plan on one rank."""

    wall: tuple[Seconds, ...]
    """Wall time of every step."""
    cpu: tuple[Seconds, ...]
    """Processor time of all of the rank's threads, of every step."""
    foreign: float
    """Share of the rank's core that other processes used meanwhile; 0: unknown."""
    probes: tuple[Seconds, ...] = ()
    """Seconds of every probe of the job at the beginning of the round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankResult:
    """The measurements of one plan on one rank."""

    blocks: tuple[Block, ...]
    phases: Mapping[str, Seconds] = field(default_factory=dict)
    """Seconds of a step by phase (``planner.validation.phases``)."""


def write_results(folder: Path, rank: int, results: list[RankResult]) -> None:
    """Write a rank's results, plan by plan."""
    path = folder / f"result_{rank}.json"
    path.write_text(dump_json([asdict(each) for each in results]), encoding="utf-8")


def read_results(folder: Path, rank: int) -> list[RankResult]:
    """Return a rank's results, plan by plan."""
    data = json.loads((folder / f"result_{rank}.json").read_text(encoding="utf-8"))
    return [rank_result(each) for each in data]


def rank_result(data: Mapping[str, Any]) -> RankResult:
    """Return a rank's result from plain data."""
    blocks = (
        Block(
            wall=tuple(each["wall"]),
            cpu=tuple(each["cpu"]),
            foreign=each["foreign"],
            probes=tuple(each.get("probes", ())),
        )
        for each in data["blocks"]
    )
    return RankResult(blocks=tuple(blocks), phases=data["phases"])
