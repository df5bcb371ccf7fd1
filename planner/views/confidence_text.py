"""How sure a step is, as text: an interval, a mean, and the causes of error."""

from collections.abc import Iterator, Mapping

from rich.text import Text

from costmodel.uncertainty.error_model import Cause
from planner.planned.report import Report
from planner.show.format import percent
from planner.show.layout import wrapped

_MOST_CAUSES = 4
_WORTH = 0.02
"""A cause of error is named if it has at least this share of the variance."""
CAUSE_NAMES: Mapping[Cause, str] = {
    Cause.HOST: "host time",
    Cause.COPY: "copies from the host",
    Cause.LOOKUP: "lookup forward",
    Cause.UPDATE: "lookup backward",
    Cause.GEMM: "matrix products",
    Cause.MEMORY: "kernels limited by memory",
    Cause.BY_BYTES: "operators without a model",
    Cause.LATENCY: "latency of collectives",
    Cause.ALL_TO_ALL: "all-to-all",
    Cause.ALL_REDUCE: "all-reduce",
    Cause.REDUCE_SCATTER: "reduce-scatter",
    Cause.ALL_GATHER: "all-gather",
    Cause.ALL_TO_ALL_ACROSS: "all-to-all across nodes",
    Cause.ALL_REDUCE_ACROSS: "all-reduce across nodes",
    Cause.REDUCE_SCATTER_ACROSS: "reduce-scatter across nodes",
    Cause.ALL_GATHER_ACROSS: "all-gather across nodes",
    Cause.STRUCTURE: "steps that kernels do not explain",
    Cause.UNREAD: "the unread dense part",
}


def confidence_text(report: Report, width: int) -> Iterator[Text]:
    """Yield what a step's variance comes from."""
    confidence = report.confidence
    shares = [(cause, share) for cause, share in confidence.causes.items() if share >= _WORTH]
    named = [f"{CAUSE_NAMES[Cause(c)]} {percent(share)}" for c, share in shares[:_MOST_CAUSES]]
    yield from wrapped(f"Its width comes from {', '.join(named) or 'single kernels'}", width)
