"""TorchRec's errors: kinds that not all of its versions have, and what becomes one."""

from collections.abc import Iterator
from contextlib import contextmanager

from torchrec.distributed.planner.types import PlannerError, PlannerErrorType

INPUT_VALIDATION = getattr(PlannerErrorType, "INPUT_VALIDATION", PlannerErrorType.OTHER)
"""What was asked for is wrong, whatever plans there are."""
INVALID_RANK_ASSIGNMENT = getattr(PlannerErrorType, "INVALID_RANK_ASSIGNMENT", INPUT_VALIDATION)
"""A shard is on a rank that there is not."""


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Turn the ValueError of a record of ours into TorchRec's error about what it is made of."""
    try:
        yield
    except ValueError as error:
        raise PlannerError(f"{what}: {error}", INPUT_VALIDATION) from error
