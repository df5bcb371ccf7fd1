"""A replay with its breakdown and its what-if questions."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from costmodel.base.errors import InputError, Problem
from planner.traces.replay.breakdown import Breakdown, breakdown
from planner.traces.replay.importing import ImportedRun, load_run
from planner.traces.replay.modes import Mode, Replay, replay, replay_graph
from planner.traces.replay.questions import what_if


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A what-if question with its answer."""

    change: str
    replay: Replay
    assumptions: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """Everything about one replay."""

    source: str
    run: ImportedRun
    replay: Replay
    breakdown: Breakdown | None
    """Where the time goes; None except in the graph mode."""
    answers: Sequence[Answer]


def replay_report(
    path: str | Path,
    *,
    mode: str = "graph",
    execution: str | Path | None = None,
    questions: Sequence[str] = (),
    cycle: int | None = None,
) -> ReplayReport:
    """Return the replay of traces, with answers to what-if questions.

    Of several cycles of the profiler one is replayed, by default the last.

    Raises
    ------
    InputError
        The traces cannot be replayed, or a question not be understood.

    """
    run = load_run(path, execution, cycle)
    changes = [what_if(run, question, str(path)) for question in questions]
    try:
        done = replay(run, Mode(mode))
    except ValueError as error:
        message = f"the traces contradict themselves: {error}"
        hint = "give traces of the same steps of one job"
        raise InputError(str(path), (Problem(message=message, hint=hint),)) from None
    return ReplayReport(
        source=str(path),
        run=run,
        replay=done,
        breakdown=breakdown(done.timeline) if done.timeline is not None else None,
        answers=[
            Answer(
                change=change.text,
                replay=replay_graph(run, change.graph, done.timeline),
                assumptions=change.assumptions,
            )
            for change in changes
        ],
    )
