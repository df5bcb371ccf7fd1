"""Whether the verdict on a plan comes out alike: `python -m bench.verdict_flips [--quick]`.

Plans six workloads from several seeds, within several time limits, and on a machine that is kept
busy, and counts how often the sentences of the first screen say something else than they mostly do.
Numbers may differ: a sentence is compared without its digits. A verdict that says that too little
was searched counts by itself.
"""

import argparse
import multiprocessing
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.kept import provenance, updated
from planner.verbs.planning import plan
from planner.views.report_data import report_data

WORKLOADS = Path(__file__).parent / "workloads"
OUT = Path(__file__).parent / "results" / "verdict_flips.json"
CASES = {
    "dlrm_dcnv2": 8,
    "dlrm_mlperf": 8,
    "light_00": 4,
    "heavy_00": 4,
    "heavy_03": 4,
    "heavy_07": 8,
}
"""GPUs by workload, on H100s."""
SEEDS, LIMITS, BUSY_LIMIT = range(5), (5.0, 10.0, 20.0), 10.0
QUICK = tuple((seed, 5.0, False) for seed in range(3))
TOO_LITTLE = "searched enough"
"""Part of the sentence that says that nothing can be said."""
_DIGITS = re.compile(r"[<>]?\d[\d,.]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipRun:
    """One verdict."""

    seed: int
    limit: float
    busy: bool
    said: str
    """The sentences."""

    @property
    def key(self) -> str:
        """The sentences without numbers."""
        return _DIGITS.sub("#", self.said)


def _spin() -> None:
    while True:
        pass


@contextmanager
def busy_machine(busy: bool) -> Iterator[None]:  # noqa: FBT001 - on or off
    """Keep twice as many processes busy as there are processors."""
    context = multiprocessing.get_context("fork")
    several = range(2 * (os.cpu_count() or 1) if busy else 0)
    spinning = [context.Process(target=_spin, daemon=True) for _ in several]
    for each in spinning:
        each.start()
    try:
        yield
    finally:
        for each in spinning:
            each.kill()


def grid(quick: bool) -> list[tuple[int, float, bool]]:  # noqa: FBT001 - on or off
    """Return (seed, limit, whether the machine is busy) of every run."""
    if quick:
        return list(QUICK)
    idle = [(seed, limit, False) for limit in LIMITS for seed in SEEDS]
    return [*idle, *((seed, BUSY_LIMIT, True) for seed in SEEDS)]


def run(name: str, seed: int, limit: float, busy: bool) -> FlipRun:  # noqa: FBT001 - on or off
    """Return the verdict of one run."""
    with busy_machine(busy):
        path = WORKLOADS / f"{name}.yaml"
        made = plan(path, gpus=CASES[name], hardware="h100-sxm", seed=seed, time_limit=limit)
    verdict = report_data(made.report)["verdict"]
    said = " ".join(verdict["sentences"]) if verdict else f"nothing was {TOO_LITTLE}"
    return FlipRun(seed=seed, limit=limit, busy=busy, said=said)


def flips(runs: Sequence[FlipRun]) -> dict[str, Any]:
    """Return how many runs say something else than most of those that say anything."""
    telling = [each for each in runs if TOO_LITTLE not in each.said]
    keys = Counter(each.key for each in telling)
    most = keys.most_common(1)[0][1] if keys else 0
    return {
        "runs": len(runs),
        "too_little_searched": len(runs) - len(telling),
        "ways": len(keys),
        "flips": len(telling) - most,
        "said": [
            {"seed": each.seed, "limit_s": each.limit, "busy": each.busy, "said": each.said}
            for each in runs
        ],
    }


def main() -> None:
    """Count the flips of every workload, and keep them under a name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three seeds, 5 s, nothing kept")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--name", default="after")
    given = parser.parse_args()
    found: dict[str, Any] = {}
    for name in CASES:
        found[name] = flips([run(name, *each) for each in grid(given.quick)])
        told = {key: value for key, value in found[name].items() if key != "said"}
        print(name, told, flush=True)
    if not given.quick:
        kept = {**provenance(), "workloads": found}
        updated(given.out, lambda results: results.update({given.name: kept}))


if __name__ == "__main__":
    main()
