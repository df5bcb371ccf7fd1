"""Mutated inputs by the thousand, in processes of their own: a crash of one costs its batch."""

import multiprocessing
import os
import resource
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from bench.robustness.parsers import PARSERS, attempt, inputs, warm_up

_BATCH = 250
_MEMORY = 6 * 2**30
"""Bytes of address space: an input that takes more has got through a limit."""


@dataclass(slots=True)
class Score:
    """What became of the inputs of one parser."""

    tried: int = 0
    crashes: Counter[str] = field(default_factory=Counter)
    """By what went wrong."""
    hangs: int = 0
    slowest: float = 0.0
    """Seconds of one input."""
    seeds: dict[str, int] = field(default_factory=dict)
    """The first input with each crash."""

    def note(self, seed: int, wrong: str | None, seconds: float) -> None:
        """Take what became of one input."""
        self.tried += 1
        self.slowest = max(self.slowest, seconds)
        if wrong is None:
            return
        self.seeds.setdefault(wrong, seed)
        if wrong == "hang":
            self.hangs += 1
        else:
            self.crashes[wrong] += 1


def fuzz(name: str, count: int, first: int = 0) -> Score:
    """Try so many mutated inputs on a parser."""
    score = Score()
    for start in range(first, first + count, _BATCH):
        seeds = range(start, min(start + _BATCH, first + count))
        while seeds:
            done = 0
            for seed, wrong, seconds in _tried(name, seeds):
                score.note(seed, wrong, seconds)
                done = seed + 1 - seeds.start
            seeds = seeds[done:]
    return score


def _tried(name: str, seeds: range) -> Iterator[tuple[int, str | None, float]]:
    """Yield what became of inputs; the last one is what ended the process, if something did."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(name, seeds, theirs), daemon=True)
    process.start()
    theirs.close()
    last = seeds.start - 1
    try:
        while True:
            seed, wrong, seconds = ours.recv()
            yield seed, wrong, seconds
            last = seed
    except EOFError:
        pass
    process.join()
    if process.exitcode and last + 1 < seeds.stop:
        yield last + 1, f"the process ended with {process.exitcode}", 0.0


def _work(name: str, seeds: range, results: Connection) -> None:
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    parser = PARSERS[name]
    warm_up(parser)
    for seed, file, data in inputs(parser, seeds):
        start = time.monotonic()
        wrong = attempt(parser, data, file)
        results.send((seed, wrong, time.monotonic() - start))
