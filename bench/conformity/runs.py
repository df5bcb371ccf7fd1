"""Starts the ranks of the training runs and brings their facts together with the synthesized."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

from bench.conformity.allocations import compiled
from bench.conformity.cells import Cell
from bench.conformity.facts import Difference, Fact, differences, order
from bench.conformity.synthesized import facts
from costmodel.base.units import Bytes
from costmodel.domain.workload import OptimizerImplementation
from costmodel.step.optimizer import IMPLEMENTATIONS
from costmodel.step.synthesis import program

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


def measured_memory(some: Sequence[Cell]) -> dict[str, list[dict[str, Bytes]]]:
    """Return the most bytes that every cell's ranks held, one process after another for each."""
    found = {}
    for cell in some:
        with TemporaryDirectory(prefix="conformity-") as name:
            folder = Path(name)
            (folder / "cells.json").write_text(json.dumps([cell.name]), encoding="utf-8")
            library = compiled(folder)
            ranks = [_start(rank, cell.world_size, folder, library) for rank in range(2)]
            outputs = [rank.communicate(timeout=TIMEOUT)[0] for rank in ranks]
            if any(rank.returncode for rank in ranks):
                raise RuntimeError(_error(outputs, [rank.returncode for rank in ranks]))
            lines = [
                (folder / f"facts_{rank}.jsonl").read_text(encoding="utf-8") for rank in (0, 1)
            ]
        found[cell.name] = [json.loads(line) for line in lines]
    return found


def _synthesize(cell: Cell) -> tuple[tuple[Fact, ...], ...]:
    made = program(cell.workload, cell.topology, cell.plan)
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
        text = json.dumps([cell.name for cell in some])
        (folder / "cells.json").write_text(text, encoding="utf-8")
        ranks = [_start(rank, world_size, folder) for rank in range(world_size)]
        try:
            outputs = [rank.communicate(timeout=TIMEOUT)[0] for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        found = [_read(folder / f"facts_{rank}.jsonl") for rank in range(world_size)]
    codes = [rank.returncode for rank in ranks]
    return list(zip(*found, strict=False)), _error(outputs, codes)


def _read(path: Path) -> list[tuple[Fact, ...]]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [tuple(Fact(*each) for each in json.loads(line)) for line in lines]


def _error(outputs: Sequence[str], codes: Sequence[int]) -> str:
    """Return the first error that is not about another rank's end."""
    lines = [line for output, code in zip(outputs, codes, strict=True) if code
             for line in output.splitlines() if "Error: " in line]  # fmt: skip
    own = [line for line in lines if "gloo" not in line]
    return (own or lines or ["it ended without a word"])[0]


def _start(
    rank: int, world_size: int, folder: Path, counter: Path | None = None
) -> subprocess.Popen[str]:
    """Start a rank; with a library that counts its allocations, it measures memory."""
    place = {"RANK": str(rank), "WORLD_SIZE": str(world_size), "OMP_NUM_THREADS": "1"}
    if counter is not None:
        place["LD_PRELOAD"] = str(counter)
    return subprocess.Popen(  # noqa: S603 - our own interpreter and module
        [
            sys.executable,
            "-m",
            "bench.conformity.worker",
            str(rank),
            str(world_size),
            str(folder),
            *([] if counter is None else ["memory"]),
        ],
        env={**os.environ, **place},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
