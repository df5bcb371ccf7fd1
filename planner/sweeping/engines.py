"""Where points of a sweep are planned: by joblib, in processes or on a Dask or Ray cluster.

A cluster is reached through ``concurrent.futures``, as joblib's own ways to Dask and Ray wait for
ever for a task whose workers were killed.
"""

import asyncio
import os
import pickle
import socket
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event, Thread
from typing import Any, TypeVar

from joblib import Parallel, delayed, register_parallel_backend
from joblib.parallel import ParallelBackendBase

from costmodel.base.errors import InputError, MachineError, Problem, UnknownNameError
from costmodel.base.units import Seconds
from planner.environment.extras import require
from planner.environment.interrupts import held_back, told_by_another
from planner.environment.processes import end_with, safe_path
from planner.files.disk import os_reason

LOKY, DASK, RAY = "loky", "dask", "ray"
BACKENDS = (LOKY, DASK, RAY)
AGAIN = "with -o DIR, the same command plans only what is not done yet"
_FEWER = f"sweep with fewer --jobs; {AGAIN}"
_ENDED = "a process that planned a point was ended from outside, perhaps for want of memory"
_CONNECTING: Seconds = 10.0
"""Seconds to wait for a cluster's answer, and for its first worker."""
_LOOK_EVERY: Seconds = 1.0
_MOST_LOOKS = 15
"""Looks at a cluster without any worker after which it is given up: one that is started again, or
grows as it is used, has some by then."""
_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepEngine:
    """Where to plan points."""

    backend: str = LOKY
    address: str | None = None
    """Address of a Dask scheduler or a Ray cluster that runs already."""
    jobs: int = 1
    """Number of processes of this machine; a cluster has as many as its workers have cores."""

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise UnknownNameError("backend", self.backend, BACKENDS)
        if (self.address is None) != (self.backend == LOKY):
            message = f"`{self.backend}` {'takes no' if self.address else 'needs an'} address"
            hint = "`tcp://HOST:8786` of a Dask scheduler, or `HOST:6379` of a Ray cluster"
            raise InputError("--address", (Problem(message=message, hint=hint),))

    def results(
        self, work: Callable[[_Task], _Result], tasks: Sequence[_Task]
    ) -> Generator[_Result, None, None]:
        """Yield a function's result for every task, as soon as it is there.

        An exception that is thrown into this iterator ends the processes, or leaves the cluster.

        Raises
        ------
        MachineError
            There is no such cluster, or workers were lost that cannot be replaced.

        """
        if not tasks:
            return
        if self.backend == LOKY:
            yield from self._by_loky(work, tasks)
            return
        require(f"--backend {self.backend}", self.backend, *_PACKAGES[self.backend])
        with _connected(self.backend, self.address or "") as cluster:
            register_parallel_backend("cluster", lambda **_: _ClusterBackend(cluster))
            losses: tuple[type[BaseException], ...] = (*cluster.losses, CancelledError, _LostError)
            parallel = Parallel(
                backend="cluster", n_jobs=-1, batch_size=1, return_as="generator_unordered"
            )
            try:
                yield from parallel(delayed(_unpacked)(work, pickle.dumps(task)) for task in tasks)
            except ModuleNotFoundError as error:
                raise cluster.lacking(error) from error
            except losses as error:
                raise cluster.lost() from error

    def _by_loky(
        self, work: Callable[[_Task], _Result], tasks: Sequence[_Task]
    ) -> Iterator[_Result]:
        from joblib.externals.loky.process_executor import BrokenProcessPool

        jobs = min(self.jobs, len(tasks))
        parallel = Parallel(
            n_jobs=jobs, batch_size=1, max_nbytes=None, return_as="generator_unordered"
        )
        try:
            with safe_path(), held_back():  # processes are started here
                results = parallel(delayed(_worked)(work, os.getpid(), task) for task in tasks)
        except OSError as error:
            message = f"{jobs} processes cannot be started here: {os_reason(error)}"
            raise MachineError(message, _FEWER) from error
        try:
            yield from results
        except BrokenProcessPool as error:
            raise MachineError(_ENDED, _FEWER) from error


def _unpacked(work: Callable[[_Task], _Result], packed: bytes) -> _Result:
    """Do a task on a cluster, unpacked here: arrays that Ray unpacks cannot be written to."""
    task: _Task = pickle.loads(packed)  # noqa: S301 - what our own sweep sent
    return work(task)


def _worked(work: Callable[[_Task], _Result], parent: int, task: _Task) -> _Result:
    """Do a task, in a process that ends with its parent, which handles signals."""
    if os.getpid() != parent:
        told_by_another()
        end_with(parent)
    return work(task)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cluster:
    """A cluster that was reached."""

    address: str
    submit: Callable[[Callable[[], Any]], "Future[Any]"]
    cores: Callable[[], float]
    """Returns the cores of all workers, 0 if there are none."""
    leave: Callable[[], None]
    losses: tuple[type[BaseException], ...]
    """Raised where workers or the cluster were lost."""

    def lost(self) -> MachineError:
        """Return the error of a cluster that has ended, or workers that end again and again."""
        message = f"the cluster at {self.address} has lost its workers, or has ended"
        return MachineError(message, f"start it again, perhaps with more memory; {AGAIN}")

    def lacking(self, error: ImportError) -> MachineError:
        """Return the error of workers where a package is missing."""
        message = f"workers at {self.address} lack the package `{error.name or error}`"
        return MachineError(message, "install shardwise there, of the same version as here")


class _LostError(Exception):
    """A cluster stayed without workers."""


class _ClusterBackend(ParallelBackendBase):  # type: ignore[misc] # joblib has no types
    """Has joblib's tasks done by a cluster."""

    supports_retrieve_callback = True
    supports_return_generator = True

    def __init__(self, cluster: _Cluster) -> None:
        super().__init__(nesting_level=0)
        self._cluster = cluster
        self._waiting: dict[Future[Any], Callable[[Future[Any]], object]] = {}
        self._over, self._watching = Event(), Thread(target=self._watch, daemon=True)

    def effective_n_jobs(self, n_jobs: int) -> int:
        """Return the number of tasks that are done at once."""
        del n_jobs
        return max(1, int(self._cluster.cores()))

    def configure(self, n_jobs: int = 1, parallel: object = None, **_: object) -> int:
        """Prepare a call, and return the number of tasks that are done at once."""
        self.parallel = parallel
        self._watching.start()
        return self.effective_n_jobs(n_jobs)

    def terminate(self) -> None:
        """End a call."""
        self._over.set()
        self._watching.join(_CONNECTING)

    def _watch(self) -> None:
        """Have all tasks fail once the cluster stays without workers: nobody else tells of it."""
        missed = 0
        while missed < _MOST_LOOKS and not self._over.wait(_LOOK_EVERY):
            missed = 0 if self._cluster.cores() else missed + 1
        failed: Future[Any] = Future()
        failed.set_exception(_LostError())
        for callback in () if self._over.is_set() else list(self._waiting.values()):
            callback(failed)

    def submit(
        self, func: Callable[[], Any], callback: "Callable[[Future[Any]], object]"
    ) -> "Future[Any]":
        """Have a task done, and call back once it is."""
        future = self._cluster.submit(func)
        self._waiting[future] = callback
        future.add_done_callback(self._waiting.pop)
        future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: "Future[Any]") -> Any:  # noqa: ANN401 - of any task
        """Return what a task returned, or raise what it raised."""
        return out.result()


@contextmanager
def _connected(backend: str, address: str) -> Iterator[_Cluster]:
    """Reach a cluster, and leave it at the end.

    Raises
    ------
    MachineError
        None answers there, or it has no workers.

    """
    try:
        _check_answers(address)
        cluster = _REACHED[backend](address)
    except (OSError, ValueError, RuntimeError, OverflowError) as error:
        said = os_reason(error) if isinstance(error, OSError) else str(error).strip()
        reason = said.partition("\n")[0]
        start = _STARTED[backend]
        message = f"no {backend.capitalize()} cluster answers at {address}: {reason}"
        raise MachineError(message, f"start one: {start}") from error
    try:
        over = Event()
        if not any(cluster.cores() or over.wait(1.0) for _ in range(int(_CONNECTING))):
            message = f"the cluster at {address} has no workers"
            raise MachineError(message, f"start some: {_STARTED[backend]}")
        yield cluster
    finally:
        cluster.leave()


def _check_answers(address: str) -> None:
    """Raise OSError where nobody listens at an address: Ray tries for minutes."""
    host, _, port = address.rpartition("//")[2].rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), _CONNECTING).close()


def _dask(address: str) -> _Cluster:
    import logging

    from distributed import Client
    from distributed.client import FutureCancelledError
    from distributed.comm import CommClosedError
    from distributed.scheduler import KilledWorker

    for name in ("distributed", "distributed.client", "tornado.application", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    client = Client(address, timeout=_CONNECTING, set_as_default=False)
    executor = client.get_executor(pure=False)

    def cores() -> float:
        # a client that has just lost its scheduler raises AttributeError
        with suppress(OSError, ValueError, RuntimeError, AttributeError, asyncio.CancelledError):
            return float(sum(client.ncores().values()))
        return 0.0

    return _Cluster(
        address=address,
        submit=executor.submit,
        cores=cores,
        leave=client.close,
        losses=(KilledWorker, FutureCancelledError, CommClosedError),
    )


def _ray(address: str) -> _Cluster:
    import logging

    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    import ray

    is_ours = not ray.is_initialized()
    if is_ours:
        ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
    called, errors = ray.remote(_called), ray.exceptions
    head = ray.get_runtime_context().gcs_address
    ours = {errors.RayTaskError}  # what a task raised

    def cores() -> float:
        with suppress(errors.RayError, OSError):
            _check_answers(head)  # Ray waits for a minute, and then ends this process
            return float(ray.cluster_resources().get("CPU", 0.0))
        return 0.0

    def leave() -> None:
        if is_ours:
            ray.shutdown()

    return _Cluster(
        address=address,
        submit=lambda func: called.remote(func).future(),
        cores=cores,
        leave=leave,
        losses=tuple(each for each in errors.RayError.__subclasses__() if each not in ours),
    )


def _called(func: Callable[[], Any]) -> Any:  # noqa: ANN401 - of any task
    return func()


_REACHED: dict[str, Callable[[str], _Cluster]] = {DASK: _dask, RAY: _ray}
_PACKAGES = {DASK: ("dask", "distributed"), RAY: ("ray",)}
_STARTED = {
    DASK: "`dask scheduler`, and `dask worker ADDRESS --nworkers auto --nthreads 1` on machines",
    RAY: "`ray start --head`, and `ray start --address ADDRESS` on other machines",
}
