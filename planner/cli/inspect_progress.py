"""Progress of counting a log: rows, and time left, on a terminal."""

from typing import TYPE_CHECKING, Self

from planner.show.output import Output

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class CountingLine:
    """A bar on a terminal's stderr that shows the rows counted and then vanishes."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if self._output.live:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            self._bar = Progress(
                TextColumn("{task.completed:,.0f} rows"),
                BarColumn(),
                TimeRemainingColumn(),
                TextColumn("left"),
                console=Console(stderr=True, no_color=None if self._output.color else True),
                transient=True,
            )
            self._task = self._bar.add_task("rows", total=None)
            self._bar.start()
        return self

    def show(self, done: int, total: int | None) -> None:
        """Show how many rows were counted, and how many there are; a total may be an estimate."""
        if self._bar is not None and self._task is not None:
            total = None if total is None else max(total, done)
            self._bar.update(self._task, completed=done, total=total)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
