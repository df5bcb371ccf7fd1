"""Kinds of TorchRec's errors that some of its versions lack, and turning our errors into them."""

from collections.abc import Iterator
from contextlib import contextmanager

from torchrec.distributed.planner.types import PlannerError, PlannerErrorType

from costmodel.base.errors import InputError
from costmodel.base.errors import PlannerError as OwnError

INPUT_VALIDATION = getattr(PlannerErrorType, "INPUT_VALIDATION", PlannerErrorType.OTHER)
"""Kind of error for a wrong request, whatever plans there are."""
INVALID_RANK_ASSIGNMENT = getattr(PlannerErrorType, "INVALID_RANK_ASSIGNMENT", INPUT_VALIDATION)
"""Kind of error for a shard on a rank that does not exist."""


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Raise TorchRec's error for ours, or for a ValueError of a record, naming ``what``."""
    try:
        yield
    except ValueError as error:
        raise PlannerError(f"{what}: {error}", INPUT_VALIDATION) from error
    except OwnError as error:
        raise PlannerError(f"{what}: {with_hints(error)}", INPUT_VALIDATION) from error


def with_hints(error: OwnError) -> str:
    """Return an error of ours as text, with its hints."""
    problems = error.problems if isinstance(error, InputError) else ()
    hints = dict.fromkeys((error.hint, *(problem.hint for problem in problems)))
    return "\n".join([str(error), *(f"hint: {hint}" for hint in hints if hint)])
