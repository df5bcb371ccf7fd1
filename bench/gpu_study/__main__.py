"""Measure this machine and judge the models: ``python -m bench.gpu_study --minutes 9 -o DIR``."""

import argparse
import os
import sys
from pathlib import Path

from bench.gpu_study.study import PARTS, GpuStudy, run
from bench.gpu_study.supervise import PATIENCE
from costmodel.base.errors import PlannerError


def main() -> None:
    """Run the study, or go on with one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--minutes", type=float, default=9.0, help="to measure for")
    parser.add_argument(
        "--ranks", type=int, help="for collectives; by default all GPUs, or two cores"
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=PATIENCE,
        help="seconds after which a point counts as hanging",
    )
    parser.add_argument(
        "--only", choices=PARTS, action="append", help="part of the study; may be repeated"
    )
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder, kept as it is")
    given = parser.parse_args()
    ranks = given.ranks or _ranks(given.device)
    study = GpuStudy(
        folder=given.output,
        kind=given.device,
        minutes=given.minutes,
        num_ranks=ranks,
        patience=given.patience,
        parts=tuple(given.only or PARTS),
    )
    try:
        print(run(study))
    except PlannerError as error:
        sys.exit(f"error: {error}" + (f"\nhint: {error.hint}" if error.hint else ""))


def _ranks(kind: str) -> int:
    if kind == "cpu":
        return min(2, len(os.sched_getaffinity(0)))
    import torch

    return max(1, int(torch.cuda.device_count()))


if __name__ == "__main__":
    main()
