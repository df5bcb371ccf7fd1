"""A sweep of 200 points by every backend: `python -m bench.sweep_backends [--write]`.

Plans DLRM-DCNv2 for 4 to 32 GPUs of five machines and ten batches, each point within 0.1 s, as
commands: in two processes (loky), on a Dask cluster of two workers, on the same when one of them is
killed half way, and on Ray with two cores. ``done`` are the points whose result came, ``twice``
those that came more than once. The time is a command's from its start to its end; a cluster runs
before, but its workers have not planned anything yet. ``load`` is the machine's when it began.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from socket import create_connection, socket
from tempfile import TemporaryDirectory
from typing import Any

from bench.kept import markdown, print_and_keep, provenance
from costmodel.base.units import Seconds

ROOT = Path(__file__).parents[1]
OUT = Path(__file__).parent / "results" / "sweep_backends.json"
HARDWARE = ("a100-sxm-80gb", "h100-sxm", "h200-sxm", "b200-sxm", "mi300x")
BATCHES = tuple(512 * number for number in range(1, 11))
GPUS = (4, 8, 16, 32)
NUM_POINTS = len(HARDWARE) * len(BATCHES) * len(GPUS)
GRID = (
    "bench/workloads/dlrm_dcnv2.yaml",
    "--gpus", ",".join(map(str, GPUS)), "--hardware", ",".join(HARDWARE),
    "--local-batch", ",".join(map(str, BATCHES)), "--time-limit", "0.1s",
)  # fmt: skip
_DONE = re.compile(r"^\d+ of \d+, [\d.]+ s: (.*?samples each)", re.MULTILINE)
_STARTING: Seconds = 60.0


def _module(*arguments: str, **options: Any) -> "subprocess.Popen[str]":  # noqa: ANN401 - Popen's
    return subprocess.Popen(  # noqa: S603 - our own
        [sys.executable, "-m", *arguments], cwd=ROOT, text=True, **options
    )


def _answering(port: int) -> str:
    """Return an address of this machine once somebody listens there."""
    last = time.monotonic() + _STARTING
    while time.monotonic() < last:
        try:
            create_connection(("127.0.0.1", port), 1.0).close()
        except OSError:
            time.sleep(0.1)
        else:
            return f"127.0.0.1:{port}"
    raise TimeoutError(f"nothing listens at port {port}")


def _free_port() -> int:
    with socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def _ended(started: "list[subprocess.Popen[str]]") -> Iterator[None]:
    """End processes at the end, the last one first."""
    try:
        yield
    finally:
        for each in reversed(started):
            each.terminate()
            each.wait()


@contextmanager
def dask() -> "Iterator[tuple[str, subprocess.Popen[str]]]":
    """Start a scheduler and two workers; yield the address, and the worker to kill."""
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    port = _free_port()
    started: list[subprocess.Popen[str]] = []
    with _ended(started):
        at = ("--host", "127.0.0.1", "--port", str(port))
        started.append(_module("dask", "scheduler", *at, "--no-dashboard", "--no-show", **quiet))
        address = _answering(port)
        alone = ("--nthreads", "1", "--no-nanny", "--no-dashboard")
        started += [_module("dask", "worker", address, *alone, **quiet) for _ in range(2)]
        yield address, started[-1]


@contextmanager
def ray() -> Iterator[str]:
    """Start a Ray cluster of two cores, and yield its address."""
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    port = _free_port()
    head = _module(
        "ray.scripts.scripts", "start", "--head", "--block", "--port", str(port), "--num-cpus",
        "2", "--include-dashboard", "false", "--disable-usage-stats", **quiet,
    )  # fmt: skip
    with _ended([head]):
        yield _answering(port)


def swept(
    flags: Sequence[str], half_way: Callable[[], object] = lambda: None
) -> dict[str, float | int | str]:
    """Return what became of a sweep, with a function called when half of its points are done."""
    with TemporaryDirectory() as folder:
        load, began = os.getloadavg()[0], time.monotonic()
        running = _module(
            "planner", "sweep", *GRID, *flags, "-o", folder,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        said: list[str] = []
        for line in running.stderr or ():
            said.append(line)
            if len(_DONE.findall("".join(said))) == NUM_POINTS // 2 and _DONE.match(line):
                half_way()
        code, seconds = running.wait(), time.monotonic() - began
        files = len(list(Path(folder).glob("*-*.json")))
    points = _DONE.findall("".join(said))
    return {
        "code": code,
        "seconds": round(seconds, 1),
        "done": len(set(points)),
        "twice": len(points) - len(set(points)),
        "plan_files": files,
        "load": round(load, 1),
    }


def made() -> dict[str, Any]:
    """Return the sweeps by backend."""
    rows: dict[str, Mapping[str, float | int | str]] = {}
    rows["loky, two processes"] = swept(("--jobs", "2"))
    for name, kills in (("dask, two workers", False), ("dask, one of two killed", True)):
        with dask() as (address, worker):
            half_way: Callable[[], object] = worker.kill if kills else lambda: None
            rows[name] = swept(("--backend", "dask", "--address", address), half_way)
    if find_spec("ray"):
        with ray() as address:
            rows["ray, two cores"] = swept(("--backend", "ray", "--address", address))
    machine = f"{os.cpu_count()} cores, shared with other work"
    return {"date": provenance()["date"], "machine": machine, "points": NUM_POINTS, "rows": rows}


def table(results: Mapping[str, Any]) -> str:
    """Return the table of the README."""
    head = "backend", "points done", "twice", "plan files", "seconds", "load of two cores before"
    rows = [
        (
            name,
            f"{row['done']} of {results['points']}",
            row["twice"],
            row["plan_files"],
            f"{row['seconds']:.0f}",
            f"{row['load']:.1f}",
        )
        for name, row in results["rows"].items()
    ]
    return markdown(head, rows)


if __name__ == "__main__":
    print_and_keep(__doc__, OUT, made, lambda results: print(table(results)))
