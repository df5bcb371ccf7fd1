"""Progress of a calibration: bars on a terminal, lines elsewhere."""

from typing import TYPE_CHECKING, Self

from planner.show.format import count
from planner.show.output import Output

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class MeasuringLine:
    """Shows on stderr an overall bar and one per kernel family, those of the first rank.

    They are the first rank's; the others' are alike.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self._bars: Progress | None = None
        self._task: TaskID | None = None
        self._all: TaskID | None = None

    def __enter__(self) -> Self:
        if self._output.live:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
            )

            console = Console(stderr=True, no_color=None if self._output.color else True)
            self._bars = Progress(
                TextColumn("{task.description:<12}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=console,
            )
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def expect(self, total: int) -> None:
        """Show the overall bar, of ``total`` points."""
        if self._bars is not None:
            self._all = self._bars.add_task("all", total=total)
        elif total:
            self._output.remark(f"{count(total, 'point')} to measure in all")

    def begin(self, family: str, total: int, done: int) -> None:
        """Show a family's bar."""
        if self._bars is not None:
            self._task = self._bars.add_task(family, total=total)
        elif total:
            before = f" ({done} measured before or by other ranks)" if done else ""
            self._output.remark(f"Measuring {family}: {count(total, 'point')}{before}")

    def advance(self) -> None:
        """Move the bars by a point."""
        for task in (self._all, self._task):
            if self._bars is not None and task is not None:
                self._bars.advance(task)
