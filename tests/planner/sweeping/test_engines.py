"""Sweeps in processes and on local clusters: equal results, and what becomes of lost workers."""

import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import planner
from costmodel.base.errors import (
    InputError,
    MachineError,
    MissingDependencyError,
    UnknownNameError,
)
from planner.examples import example_workload
from planner.files.workload_text import dump_workload
from planner.sweeping import sweep as sweeping
from planner.sweeping.engines import SweepEngine

pytestmark = pytest.mark.slow


ROOT = Path(__file__).parents[3]
WAIT = 120.0
GRID = {
    "gpus": (2, 4), "hardware": ("h100-sxm", "h200-sxm"), "sharder": "random", "max_plans": 5,
}  # fmt: skip
MANY = (
    "--gpus", "2,4,8", "--local-batch", "256,512,1024,2048",
    "--hardware", "h100-sxm,a100-sxm-80gb",
    "--sharder", "naive", "--time-limit", "10ms", "-o", "kept",
)  # fmt: skip
NUM_MANY = 24


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True


def soon(wanted: Callable[[], bool]) -> bool:
    end = time.monotonic() + WAIT
    while not wanted():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


class Cluster:
    """A cluster of this machine, whose processes are its own."""

    def __init__(self, backend: str, place: Path) -> None:
        self.backend, self.place, self.port = backend, place, free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.processes: list[subprocess.Popen[bytes]] = []

    @property
    def flags(self) -> tuple[str, ...]:
        return ("--backend", self.backend, "--address", self.address)

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        with (self.place / "log").open("ab") as log:
            one = subprocess.Popen(  # noqa: S603 - our own
                [sys.executable, "-m", *command],
                cwd=ROOT, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self.processes.append(one)
        return one

    def end(self) -> None:
        for one in reversed(self.processes):
            one.kill()
            one.wait()


@pytest.fixture
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Start a scheduler and two workers, which nobody starts again."""
    pytest.importorskip("distributed", reason="the extra `dask` is not installed")
    cluster = Cluster("dask", tmp_path_factory.mktemp("dask"))
    scheduler = ("dask", "scheduler", "--host", "127.0.0.1", "--port", str(cluster.port))
    cluster.start(*scheduler, "--no-dashboard", "--no-show")
    try:
        assert soon(lambda: answers(cluster.port))
        for _ in range(2):
            cluster.start(
                "dask", "worker", cluster.address, "--nthreads", "1", "--no-nanny",
                "--no-dashboard",
            )  # fmt: skip
        yield cluster
    finally:
        cluster.end()


@pytest.fixture
def ray(tmp_path: Path) -> Iterator[Cluster]:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("the extra `ray` is not installed")
    cluster = Cluster("ray", tmp_path)
    cluster.start(
        "ray.scripts.scripts", "start", "--head", "--block", "--port", str(cluster.port),
        "--num-cpus", "2", "--include-dashboard", "false", "--disable-usage-stats",
        "--object-store-memory", "100000000",
    )  # fmt: skip
    try:
        assert soon(lambda: answers(cluster.port)), (tmp_path / "log").read_text()
        yield cluster
    finally:
        cluster.processes[0].terminate()  # it ends what it started
        cluster.processes[0].wait(WAIT)


def begun(place: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a sweep as a command, and return it once three points are done."""
    (place / "tables.yaml").write_text(dump_workload(example_workload(8)))
    command = [sys.executable, "-m", "planner", "sweep", "tables.yaml", *MANY, *arguments]
    return subprocess.Popen(  # noqa: S603 - our own
        command, cwd=place, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def after(number: int, running: subprocess.Popen[str]) -> str:
    """Return what a sweep says until so many points are done.

    It is read byte by byte: what a buffer took ahead would be lost to ``communicate``.
    """
    assert running.stderr is not None
    said = b""
    while said.count(b"\n") < number and (read := os.read(running.stderr.fileno(), 1)):
        said += read
    return said.decode()


def ended(running: subprocess.Popen[str], said: str) -> tuple[int, str, list[str]]:
    """Return the code a sweep ends with, what it says, and the points it has planned."""
    said += running.communicate(timeout=WAIT)[1]
    points = re.findall(rf" of {NUM_MANY}, \d+ s: (.*? samples each): ", said)
    return running.returncode, said, points


def kept(place: Path) -> list[str]:
    return [each["key"] for each in json.loads((place / "kept/sweep.json").read_text())["points"]]


def swept(**more: object) -> planner.Sweep:
    return planner.sweep(example_workload(4), **{**GRID, **more})


@pytest.fixture(scope="module")
def alone() -> planner.Sweep:
    """What one process finds."""
    return swept()


def test_processes_find_what_one_process_finds(alone: planner.Sweep) -> None:
    assert swept(jobs=2) == alone


def test_a_dask_cluster_finds_what_one_process_finds(dask: Cluster, alone: planner.Sweep) -> None:
    assert swept(backend="dask", address=dask.address) == alone


def test_a_ray_cluster_finds_what_one_process_finds(ray: Cluster, alone: planner.Sweep) -> None:
    script = f"""
import planner
from planner.examples import example_workload
grid = {GRID}
found = planner.sweep(example_workload(4), backend="ray", address={ray.address!r}, **grid)
print(found.to_csv())
"""
    found = subprocess.run(  # noqa: S603 - our own, in a process as Ray leaves threads behind
        [sys.executable, "-c", script],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=WAIT,
    )  # fmt: skip
    assert found.stdout.strip() == alone.to_csv().strip()


@pytest.mark.parametrize("name", ["dask", "ray"])
def test_a_sweep_goes_on_where_a_worker_is_lost(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    cluster: Cluster = request.getfixturevalue(name)
    running = begun(tmp_path, *cluster.flags)
    said = after(3, running)
    if name == "dask":
        cluster.processes[-1].kill()
    else:
        os.kill(ray_worker(cluster.port), signal.SIGKILL)
    code, said, points = ended(running, said)
    assert code == 0, said
    assert len(points) == len(set(points)) == NUM_MANY
    assert len(set(kept(tmp_path))) == NUM_MANY


def ray_worker(port: int) -> int:
    """Return a process of a cluster that does a task."""
    mine = re.compile(rf"--gcs-address=[\d.]+:{port}\b")
    raylets = {}
    for each in Path("/proc").glob("[0-9]*"):
        try:
            told = (each / "cmdline").read_text().replace("\0", " ")
            parent = int((each / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        raylets[int(each.name)] = (parent, told)
    owners = {pid for pid, (_, told) in raylets.items() if "raylet" in told and mine.search(told)}
    return next(
        pid
        for pid, (parent, told) in raylets.items()
        if parent in owners and told.startswith("ray::_called")
    )


@pytest.mark.parametrize("what", ["workers", "scheduler"])
def test_a_cluster_that_ends_is_told_of_and_the_same_command_goes_on(
    dask: Cluster, tmp_path: Path, what: str
) -> None:
    running = begun(tmp_path, *dask.flags)
    said = after(3, running)
    for one in dask.processes[1:] if what == "workers" else dask.processes[:1]:
        one.kill()
    code, said, points = ended(running, said)
    assert code == 3, said
    lines = said.splitlines()
    assert f"the cluster at {dask.address} has lost its workers, or has ended" in lines[-2]
    assert "the same command plans only what is not done yet" in lines[-1]
    assert "Traceback" not in said
    assert len(kept(tmp_path)) == len(points) >= 3
    code, said, more = ended(begun(tmp_path, "--jobs", "2"), "")
    assert code == 0
    assert not set(more) & set(points)
    assert len(more) + len(points) == len(set(kept(tmp_path))) == NUM_MANY


def test_a_ray_cluster_that_ends_is_told_of(ray: Cluster, tmp_path: Path) -> None:
    running = begun(tmp_path, *ray.flags)
    said = after(3, running)
    ray.processes[0].terminate()
    code, said, points = ended(running, said)
    assert code == 3, said
    assert "has lost its workers, or has ended" in said
    assert len(kept(tmp_path)) == len(points) >= 3


def test_ctrl_c_leaves_a_cluster_at_once(dask: Cluster, tmp_path: Path) -> None:
    running = begun(tmp_path, *dask.flags)
    said = after(3, running)
    running.send_signal(signal.SIGINT)
    began = time.monotonic()
    code, said, points = ended(running, said)
    assert (code, said.splitlines()[-1][:12]) == (130, "interrupted:")
    assert time.monotonic() - began < 20
    assert len(kept(tmp_path)) == len(points) >= 3


def test_processes_end_with_a_sweep_that_is_killed(tmp_path: Path) -> None:
    running = begun(tmp_path, "--jobs", "2")
    after(2, running)
    path = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    started = [int(each) for each in path.read_text().split()]
    running.kill()
    running.communicate()
    assert started
    assert soon(lambda: not any(Path(f"/proc/{each}/exe").exists() for each in started))


@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_an_address_where_nothing_answers(backend: str) -> None:
    pytest.importorskip({"dask": "distributed"}.get(backend, backend), reason="no such extra")
    with pytest.raises(MachineError, match=r"cluster answers at .*: .*refused") as told:
        swept(backend=backend, address=f"127.0.0.1:{free_port()}")
    assert "start one: `" in (told.value.hint or "")


def test_an_extra_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.environment.extras.find_spec", lambda _: None)
    for backend in ("dask", "ray"):
        with pytest.raises(MissingDependencyError) as told:
            swept(backend=backend, address="127.0.0.1:1")
        assert f"[{backend}]" in (told.value.hint or "")


def test_addresses_are_of_clusters_alone() -> None:
    with pytest.raises(InputError, match="`loky` takes no address"):
        SweepEngine(address="127.0.0.1:8786")
    with pytest.raises(InputError, match="`dask` needs an address"):
        SweepEngine(backend="dask")
    with pytest.raises(UnknownNameError, match="spark"):
        SweepEngine(backend="spark", address="127.0.0.1:1")


def test_a_worker_of_another_version_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = sweeping._planned_point
    monkeypatch.setattr(
        sweeping, "_planned_point", lambda task: planned(replace(task, version="0.0.1"))
    )
    with pytest.raises(MachineError, match=r"a worker .* there is no shardwise 0\.0\.1"):
        swept()
