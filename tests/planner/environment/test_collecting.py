"""Python looks for garbage seldom while plans are made, and as before afterwards."""

import gc
from collections.abc import Iterator

import pytest

from planner.environment.collecting import seldom_collecting


@pytest.fixture
def _kept() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@seldom_collecting()
def fail() -> None:
    raise KeyError(gc.get_threshold()[0])


@pytest.mark.usefixtures("_kept")
@pytest.mark.parametrize(("before", "meanwhile"), [(700, 50_000), (0, 0)])
def test_thresholds_are_others_for_a_while_unless_told_never_to_look(
    before: int, meanwhile: int
) -> None:
    gc.set_threshold(before, 10, 10)
    with pytest.raises(KeyError, match=str(meanwhile)):
        fail()
    assert gc.get_threshold() == (before, 10, 10)
