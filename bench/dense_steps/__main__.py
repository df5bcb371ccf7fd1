"""Holds predicted steps of models against measured ones, on two cores of this machine.

python -m bench.dense_steps --profile FILE [--checkouts FOLDER] [--write] [NAME ...]

FILE is a profile that ``torchrun --nproc-per-node 2 -m planner calibrate --device cpu`` wrote on
the same machine; keep it idle for both. Nothing is fitted to the steps: what the five of
``examples/models`` take and, with FOLDER (a checkout of github.com/alibaba/TorchEasyRec in it), six
of its configurations, is predicted when they are planned, and measured afterwards.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from bench.dense_reading.reading import EXAMPLES
from bench.documented import ROOT
from bench.kept import parser_of, provenance, read, write

RESULTS = ROOT / "bench" / "results" / "dense_steps.json"
CONFIGURATIONS = (
    "deepfm_criteo", "masknet_criteo", "mmoe_taobao", "ple_taobao", "multi_tower_din_taobao",
    "dbmtl_taobao_seq",
)  # fmt: skip
LEAST_ERROR = 1e-3
"""Smallest error in a geometric mean: no step repeats better."""


def main() -> None:
    """Time, print, and with --write keep the results."""
    parser = parser_of(__doc__, RESULTS)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a part of a model's name")
    parser.add_argument(
        "--profile", type=Path, metavar="FILE", help="without it kept rows are shown"
    )
    parser.add_argument("--checkouts", type=Path, metavar="FOLDER")
    args = parser.parse_args()
    found = read(RESULTS)
    if args.profile is not None:
        from bench.dense_steps.training import timed_on_ranks

        for spec in _specs(args.checkouts, args.names):
            (row,) = timed_on_ranks(args.profile.resolve(), [spec]).values()
            name = spec.rpartition(":")[2]
            found["machine"] = {**provenance(), "profile": described(args.profile)}
            found.setdefault("models", {})[name] = row
            if args.write:
                write(RESULTS, found)
    print("\n".join(lines(found)))


def _specs(checkouts: Path | None, names: Sequence[str]) -> Iterator[str]:
    """Yield the models that are asked for, as ``bench.dense_steps.models`` names them."""
    theirs = () if checkouts is None else CONFIGURATIONS
    of_theirs = [f"{checkouts.resolve() / 'TorchEasyRec'}:{name}" for name in theirs if checkouts]
    for spec in (*EXAMPLES, *of_theirs):
        if not names or any(part in spec.rpartition(":")[2] for part in names):
            yield spec


def described(profile: Path) -> str:
    """Return the machine, date and versions that a profile's first lines say."""
    first = profile.read_text(encoding="utf-8").splitlines()[:2]
    return "; ".join(re.sub(r"^# *", "", line) for line in first)


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield a row for every model, and the geometric mean of all errors."""
    head = ("model", "operators", "measured", "middle half", "expected", "error")
    yield "{:<24}{:>10}{:>12}{:>18}{:>11}{:>8}".format(*head)
    errors = []
    for name, row in found.get("models", {}).items():
        steps = sorted(row["steps_ms"])
        measured, quarter = median(steps), len(steps) // 4
        error = row["expected_ms"] / measured - 1
        errors.append(abs(error))
        half = f"{steps[quarter]:.1f} to {steps[-1 - quarter]:.1f}"
        yield (
            f"{name:<24}{row['operators'] or 'layers':>10}{measured:>9.1f} ms{half:>18}"
            f"{row['expected_ms']:>8.1f} ms{error:>+8.1%}"
        )
    if errors:
        mean = math.exp(fmean(math.log(max(each, LEAST_ERROR)) for each in errors))
        yield f"geometric mean of {len(errors)} errors {mean:.1%}"


if __name__ == "__main__":
    main()
