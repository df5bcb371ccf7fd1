"""What cannot be read of a model, and what helps."""

from dataclasses import dataclass, field

from costmodel.base.errors import PlannerError

GIVE_A_BATCH = (
    "give batches as the model's forward takes them (a tuple is its arguments): `--batches "
    "MODULE:FUNCTION`, or `sample_batches` of IterationTimePlanner"
)


@dataclass(eq=False)
class ReadingError(PlannerError):
    """A model's operators cannot be read; the message says why."""

    message: str
    hint: str | None = field(default=None)

    def __str__(self) -> str:
        return self.message


def refused(reason: str, hint: str | None = None) -> ReadingError:
    """Return the error that says why a model's operators cannot be read."""
    return ReadingError(f"the model's operators cannot be read: {reason}", hint)
