"""What all tests need of the process that they run in."""

import signal

import pytest


@pytest.fixture(autouse=True, scope="session")
def _hear_ctrl_c() -> None:
    """Hear Ctrl-C where a shell began the tests in the background, whose processes ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
