"""``--html FILE``, of commands that have a page."""

from collections.abc import Callable, Mapping

import click

from planner.cli.values import WRITTEN
from planner.show.output import Output

html_option = click.option(
    "--html", metavar="FILE", type=WRITTEN, help="Write a page that opens from disk; - is stdout."
)


def check_page(path: str | None, output: Output, /, **others: str | None) -> None:
    """Raise, before any work is done, what writing a page there would raise.

    ``others``: files that other options write. Only one of all that the command writes may be
    standard output; what ``--output`` writes there is the JSON that ``--json`` asks for.
    """
    written = {f"`--{name}`": file for name, file in {"html": path, **others}.items()}
    json = "-" if output.json and others.get("output") != "-" else None
    check_stdout({**written, "`--json`": json})
    if path is not None:
        from planner.files.disk import check_writable
        from planner.pages.charts import check_library

        check_library()
        check_writable(path)


def check_stdout(written: Mapping[str, str | None]) -> None:
    """Refuse to write several things to standard output, given by what asks for them."""
    to_stdout = [asked for asked, file in written.items() if file == "-"]
    if len(to_stdout) > 1:
        raise click.UsageError(f"{' and '.join(to_stdout)} would be mixed on standard output")


def write_page(path: str | None, make: Callable[[], str], output: Output) -> None:
    """Write a page, if one was asked for."""
    if path is not None:
        from planner.files.disk import write_text

        write_text(path, make())
        if path != "-":
            output.remark(f"Wrote {path}; open it in a browser")
