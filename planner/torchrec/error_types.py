"""TorchRec's errors: kinds that not all of its versions have, and what becomes one."""

from collections.abc import Iterator
from contextlib import contextmanager

from torchrec.distributed.planner.types import PlannerError, PlannerErrorType

from costmodel.base.errors import InputError
from costmodel.base.errors import PlannerError as OwnError

INPUT_VALIDATION = getattr(PlannerErrorType, "INPUT_VALIDATION", PlannerErrorType.OTHER)
"""What was asked for is wrong, whatever plans there are."""
INVALID_RANK_ASSIGNMENT = getattr(PlannerErrorType, "INVALID_RANK_ASSIGNMENT", INPUT_VALIDATION)
"""A shard is on a rank that there is not."""


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Turn errors of ours, and the ValueError of a record, into TorchRec's about what it is."""
    try:
        yield
    except ValueError as error:
        raise PlannerError(f"{what}: {error}", INPUT_VALIDATION) from error
    except OwnError as error:
        raise PlannerError(f"{what}: {with_hints(error)}", INPUT_VALIDATION) from error


def with_hints(error: OwnError) -> str:
    """Return an error of ours as text, with what to do about it."""
    problems = error.problems if isinstance(error, InputError) else ()
    hints = dict.fromkeys((error.hint, *(problem.hint for problem in problems)))
    return "\n".join([str(error), *(f"hint: {hint}" for hint in hints if hint)])
