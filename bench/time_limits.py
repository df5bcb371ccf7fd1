"""Whether `--time-limit` holds: `python -m bench.time_limits [--write]`.

Runs `planner plan` as a user does, on four workloads from 26 tables on 8 GPUs to 5,000 on 1,024,
with limits of 3, 10 and 60 seconds, alone and beside processes that keep every core busy. The limit
is wall time of the whole command, up to 10% and one second more: ``over`` is what it took beyond.
``others`` are the cores that were busy with none of this meanwhile: where that is not near 0, the
machine was not what the row says. ``processor`` is the command by a clock that stands still while
others have the processor, from its first import on: what it would be on a machine of its own.
The tables of the three larger ones are drawn from ``open_856.yaml``, some more than once.
"""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from bench.kept import parser_of, provenance, read, write
from bench.plan_quality import LOCAL_BATCH, WORKLOADS
from costmodel.base.units import Seconds
from planner.files.workload_reading import load_workload
from planner.files.workload_text import dump_workload
from planner.search.stages import LATE_SHARE, LATE_TIME

RESULTS = Path(__file__).parent / "results" / "time_limits.json"
LIMITS = (3, 10, 60)
PROCESSOR = "processor"
BUSY = {"idle": 0, "busy": 2, PROCESSOR: 0}
"""Processes beside the command that do nothing but compute."""
_BY_PROCESSOR_TIME = (
    "import time; time.monotonic = time.process_time; from planner.cli import main; main()"
)
GIVE_UP: Seconds = 200.0


@dataclass(frozen=True, slots=True)
class SizedWorkload:
    """So many tables on so many GPUs."""

    num_tables: int
    gpus: int

    def text(self) -> str:
        """Return its file: DLRM-DCNv2 for 26 tables, else drawn, always the same."""
        if self.num_tables == 26:
            return (WORKLOADS / "dlrm_dcnv2.yaml").read_text(encoding="utf-8")
        source = load_workload(WORKLOADS / "open_856.yaml")
        draw = Random(self.num_tables)  # noqa: S311 - a drawing
        tables = tuple(
            replace(draw.choice(source.tables), name=f"t{number}", feature_names=())
            for number in range(self.num_tables)
        )
        return dump_workload(
            replace(source, name=str(self), tables=tables, local_batch_size=LOCAL_BATCH)
        )

    def __str__(self) -> str:
        return f"{self.num_tables}x{self.gpus}"


SIZES = {
    str(each): each
    for each in (
        SizedWorkload(26, 8),
        SizedWorkload(300, 128),
        SizedWorkload(2000, 256),
        SizedWorkload(5000, 1024),
    )
}


@contextmanager
def busy(processes: int) -> Iterator[Sequence[int]]:
    """Let so many processes compute, until the block ends; yield their ids."""
    running = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)
    ]
    try:
        yield [process.pid for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()


def timed(
    path: Path, gpus: int, limit: float, beside: Sequence[int] = (), *, by_processor: bool = False
) -> dict[str, Any]:
    """Run the command beside some processes; return wall and CPU seconds, and what it found."""
    target = path.with_suffix(".plan.json")
    arguments = ["plan", str(path), "--gpus", str(gpus), "--time-limit", f"{limit}s"]
    how = ["-m", "planner"]
    if by_processor:
        how = ["-c", _BY_PROCESSOR_TIME]
    command = [sys.executable, *how, *arguments, "-o", str(target), "--quiet"]
    around = _machine_time(beside)
    before, start = _children_time(), time.monotonic()
    subprocess.run(command, check=True, timeout=GIVE_UP, stdout=subprocess.DEVNULL)  # noqa: S603
    wall, own = time.monotonic() - start, _children_time() - before
    around = _machine_time(beside) - around
    seconds = own if by_processor else wall
    found = json.loads(target.read_text(encoding="utf-8"))
    return {
        "wall_s": round(wall, 2),
        "cpu_s": round(own, 2),
        "others": round(max(0.0, (around - own) / wall), 2),
        "over_s": round(max(0.0, seconds - limit), 2),
        "holds": seconds <= limit * (1 + LATE_SHARE) + LATE_TIME,
        "first_plan_s": round(found["first_plan_s"], 2),
        "expected_ms": round(1e3 * found["step_time_s"], 2),
    }


def _children_time() -> Seconds:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _machine_time(beside: Sequence[int]) -> Seconds:
    """Return what all cores have been busy since the machine began, but with some processes.

    What the hypervisor has given to others counts, too.
    """
    ticks = os.sysconf("SC_CLK_TCK")
    first = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:9]
    user, nice, system, _idle, _waiting, *interrupts_and_stolen = map(int, first)
    machine = user + nice + system + sum(interrupts_and_stolen)
    for pid in beside:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        machine -= int(fields[11]) + int(fields[12])
    return machine / ticks


def show(name: str, record: Mapping[str, Any]) -> None:
    """Print one command's times."""
    said = "holds" if record["holds"] else "DOES NOT HOLD"
    print(
        f"{name:<24}{record['wall_s']:7.2f} s wall{record['cpu_s']:7.2f} s CPU"
        f"{record['over_s']:7.2f} s over  {record['expected_ms']:9.2f} ms  "
        f"others {record['others']:4.2f}  {said}",
        flush=True,
    )


def measured(
    sizes: Sequence[str], limits: Sequence[float], kinds: Sequence[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every command's name and times."""
    with TemporaryDirectory() as folder:
        for size in sizes:
            path = Path(folder) / f"{size}.yaml"
            path.write_text(SIZES[size].text(), encoding="utf-8")
            for kind in kinds:
                with busy(BUSY[kind]) as beside:
                    for limit in limits:
                        name = f"{size} {limit:g}s {kind}"
                        by_processor = kind == PROCESSOR
                        record = timed(
                            path, SIZES[size].gpus, limit, beside, by_processor=by_processor
                        )
                        yield name, record


def main() -> None:
    """Run what is asked for, print, and with --write keep the results."""
    parser = parser_of(__doc__, RESULTS)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=SIZES)
    parser.add_argument("--limits", nargs="+", type=float, default=LIMITS)
    parser.add_argument("--kinds", nargs="+", default=list(BUSY), choices=BUSY)
    args = parser.parse_args()
    kept = read(RESULTS)
    print(f"{os.cpu_count()} cores")
    for name, record in measured(args.sizes, args.limits, args.kinds):
        kept[name] = {**record, **provenance()}
        show(name, record)
        if args.write:
            write(RESULTS, kept)


if __name__ == "__main__":
    main()
