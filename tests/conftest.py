"""What all tests need of the process that they run in."""

import signal

import pytest
from hypothesis import settings

settings.register_profile("same every time", derandomize=True, deadline=None, max_examples=50)
settings.register_profile("explore", deadline=None)
settings.load_profile("same every time")
"""A commit is judged by the same examples every time; every night, by new ones; never by speed."""


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
