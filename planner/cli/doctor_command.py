"""``planner doctor``."""

from typing import TYPE_CHECKING

import click

from planner.cli.shared_options import output_options
from planner.show.output import Output

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.text import Text

    from planner.doctor.health import Check

_MISSING = 5


@click.command("doctor")
@output_options
def command(*, output: Output) -> None:
    """Check the installation: packages, profiles, plug-ins, settings."""
    from planner.doctor.health import checks
    from planner.show.columns import plain

    found = checks()
    failed = [check for check in found if check.needed and not check.good]
    if output.json:
        output.data({"checks": plain(found), "good": not failed})
    else:
        output.lines(lambda _: _lines(found))
    if failed:
        click.get_current_context().exit(_MISSING)


def _lines(found: "Sequence[Check]") -> "Iterator[Text]":
    """Yield a line for each check, and below what is not good how to mend it."""
    from rich.text import Text

    widest = max(len(check.name) for check in found)
    for check in found:
        verdict = "ok" if check.good else "BROKEN" if check.needed else "-"
        style = "" if check.good or not check.needed else "bold red"
        yield Text.assemble(
            f"  {check.name:<{widest}}   ", (f"{verdict:<6}", style), f"   {check.detail}"
        )
        if check.remedy:
            yield Text(f"  {'':<{widest}}            {check.remedy}")
    broken = [check.name for check in found if check.needed and not check.good]
    said = f"Broken: {', '.join(broken)}" if broken else "All that is needed is there"
    yield Text(said, style="bold red" if broken else "")
