"""What cannot be read of a model, and what helps."""

from costmodel.base.errors import StatedError

GIVE_A_BATCH = (
    "give batches as the model's forward takes them (a tuple is its arguments): `--batches "
    "MODULE:FUNCTION`, or `sample_batches` of IterationTimePlanner"
)


class ReadingError(StatedError):
    """A model's operators cannot be read; the message says why."""


def refused(reason: str, hint: str | None = None) -> ReadingError:
    """Return the error that says why a model's operators cannot be read."""
    return ReadingError(f"the model's operators cannot be read: {reason}", hint)
