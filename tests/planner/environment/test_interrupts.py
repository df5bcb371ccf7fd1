import signal
from collections.abc import Iterator

import pytest

from planner.environment.interrupts import Terminated, interruptible


@pytest.fixture
def ignored_ctrl_c() -> Iterator[None]:
    """Ignore Ctrl-C, as do processes that a shell began in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ignored_ctrl_c")
def test_a_command_in_the_background_keeps_its_plan_when_told_to_end() -> None:
    with interruptible(ending=True) as interrupt:
        signal.raise_signal(signal.SIGTERM)
        assert interrupt.happened
        assert interrupt.exit_code == 128 + signal.SIGTERM
        signal.raise_signal(signal.SIGINT)  # still ignored
        with pytest.raises(Terminated):
            signal.raise_signal(signal.SIGTERM)


def test_the_first_ctrl_c_is_noted_and_the_second_raised() -> None:
    with interruptible() as interrupt:
        signal.raise_signal(signal.SIGINT)
        assert interrupt.happened
        with interruptible() as inner:  # the outer one hears it
            assert not inner.happened
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
