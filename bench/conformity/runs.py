"""Starts the ranks of the training runs and brings their facts together with the synthesized."""

import json
import os
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

from bench.conformity.cells import Cell
from bench.conformity.facts import Difference, Fact, differences, order
from bench.conformity.synthesized import facts
from bench.forked_ranks import ROOT, command
from costmodel.domain.workload import OptimizerImplementation
from costmodel.step.optimizer import IMPLEMENTATIONS
from costmodel.step.synthesis import step_operations
from planner.files.json_text import dump_json

Trained: TypeAlias = tuple[tuple[Fact, ...], ...] | str
"""Facts by rank, or why TorchRec cannot run a cell."""
MOST_CELLS = 25
"""Cells of one set of processes: after some fifty, gloo's ranks lose one another."""
TIMEOUT = 1200
"""Seconds for all cells of one number of ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A cell's facts by rank, from both sides."""

    cell: Cell
    trained: Trained
    synthesized: tuple[tuple[Fact, ...], ...]

    @property
    def differences(self) -> tuple[Difference, ...]:
        """What any rank does not have in common."""
        if isinstance(self.trained, str):
            return ()
        pairs = zip(self.trained, self.synthesized, strict=True)
        return tuple(dict.fromkeys(each for pair in pairs for each in differences(*pair)))

    @property
    def same_order(self) -> bool:
        """Whether collectives and lookups follow one another alike on all ranks."""
        if isinstance(self.trained, str):
            return False
        pairs = zip(self.trained, self.synthesized, strict=True)
        return all(order(left) == order(right) for left, right in pairs)


def run(some: Sequence[Cell]) -> tuple[Result, ...]:
    """Train every cell and synthesize its step."""
    groups: dict[int, list[Cell]] = defaultdict(list)
    for cell in some:
        groups[cell.world_size].append(cell)
    trained = {
        name: each
        for world_size, members in groups.items()
        for name, each in _train(members, world_size)
    }
    return tuple(
        Result(cell=cell, trained=trained[cell.name], synthesized=_synthesize(cell))
        for cell in some
    )


def _synthesize(cell: Cell) -> tuple[tuple[Fact, ...], ...]:
    made = step_operations(cell.workload, cell.topology, cell.plan)
    turn = IMPLEMENTATIONS[OptimizerImplementation.FOR_LOOP][cell.workload.dense.optimizer]
    turn_time = turn.num_ops * cell.topology.hardware.host.op_time
    return tuple(facts(made, rank, turn_time) for rank in range(cell.world_size))


def _train(some: Sequence[Cell], world_size: int) -> Iterator[tuple[str, Trained]]:
    """Yield what every cell's ranks did, or why one could not; the rest gets new processes."""
    rest = list(some)
    while rest:
        now = rest[:MOST_CELLS]
        done, said = _attempt(now, world_size)
        for cell, ranks in zip(now, done, strict=False):
            yield cell.name, ranks
        if len(done) < len(now):
            yield now[len(done)].name, said
        rest = rest[min(len(done) + 1, len(now)) :]


def _attempt(
    some: Sequence[Cell], world_size: int
) -> tuple[list[tuple[tuple[Fact, ...], ...]], str]:
    """Train cells until one fails; return the facts of those before it, and what was said."""
    with TemporaryDirectory(prefix="conformity-") as name:
        folder = Path(name)
        text = dump_json([cell.name for cell in some])
        (folder / "cells.json").write_text(text, encoding="utf-8")
        done = _ran(folder, world_size)
        found = [_read(folder / f"facts_{rank}.jsonl") for rank in range(world_size)]
    return list(zip(*found, strict=False)), _error(done)


def _read(path: Path) -> list[tuple[Fact, ...]]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [tuple(Fact(*each) for each in json.loads(line)) for line in lines]


def _error(done: "subprocess.CompletedProcess[str]") -> str:
    """Return the first error that is not about another rank's end."""
    lines = [line for line in done.stdout.splitlines() if done.returncode and "Error: " in line]
    own = [line for line in lines if "gloo" not in line]
    return (own or lines or ["it ended without a word"])[0]


def _ran(folder: Path, world_size: int) -> "subprocess.CompletedProcess[str]":
    """Run all ranks of a folder's cells."""
    return subprocess.run(  # noqa: S603 - our own interpreter and module
        command("bench.conformity.worker", world_size, folder),
        cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=TIMEOUT,
    )  # fmt: skip
