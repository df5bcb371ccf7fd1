"""What all tests need of the process that they run in."""

import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import DEVNULL, Popen

import pytest
from hypothesis import settings

from bench.forked_python import ADDRESS

settings.register_profile("same every time", derandomize=True, deadline=None, max_examples=50)
settings.register_profile("explore", deadline=None)
settings.load_profile("same every time")
"""A commit is judged by the same examples every time; every night, by new ones; never by speed."""
SERVER = Path(__file__).parents[1] / "bench/fork_server.py"


def pytest_configure(config: pytest.Config) -> None:
    """Start the process that forks for commands of all tests, once for all workers of xdist."""
    if hasattr(os, "fork") and not hasattr(config, "workerinput"):
        forking = _forking()
        forking.__enter__()
        config.add_cleanup(lambda: forking.__exit__(None, None, None))


@contextmanager
def _forking() -> Iterator[None]:
    """Have commands find the process that forks; in the end, end it and what it started."""
    with tempfile.TemporaryDirectory(prefix="fork-") as folder, _listener(folder) as listener:
        server = Popen(  # noqa: S603 - our own interpreter and file
            [sys.executable, SERVER, str(listener.fileno())],
            env={**os.environ, "PYTHONPATH": "", "PYTHONWARNINGS": ""},
            stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL,
            pass_fds=[listener.fileno()], start_new_session=True,
        )  # fmt: skip
        listener.close()
        try:
            yield
        finally:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGTERM)
            server.wait()


@contextmanager
def _listener(folder: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        os.environ[ADDRESS] = str(Path(folder, "socket"))
        listener.bind(os.environ[ADDRESS])
        listener.listen()
        yield listener
    del os.environ[ADDRESS]


@pytest.fixture(autouse=True, scope="session")
def _hear_ctrl_c() -> None:
    """Hear Ctrl-C where a shell began the tests in the background, whose processes ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is tried every night as slow, too: ``-m 'not slow'`` replaces ``not nightly``."""
    for item in items:
        if item.get_closest_marker("nightly"):
            item.add_marker(pytest.mark.slow)
