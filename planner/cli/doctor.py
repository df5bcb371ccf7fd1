"""``planner doctor``."""

from typing import Any

import click

from planner.cli.options import output_options
from planner.show.output import Output

_MISSING = 5


@click.command("doctor")
@output_options
def command(*, output: Output) -> None:
    """Check the installation: packages, profiles, plug-ins, settings."""
    from planner.doctor.health import checks

    found = checks()
    failed = [check for check in found if check.needed and not check.good]
    if output.json:
        output.data({"checks": [_data(check) for check in found], "good": not failed})
    else:
        widest = max(len(check.name) for check in found)
        for check in found:
            verdict = "ok" if check.good else "MISSING" if check.needed else "-"
            click.echo(f"  {check.name:<{widest}}   {verdict:<7}   {check.detail}")
    if failed:
        click.get_current_context().exit(_MISSING)


def _data(check: Any) -> dict[str, Any]:  # noqa: ANN401 - planner.doctor.health.Check, imported lazily
    return {
        "name": check.name,
        "good": check.good,
        "needed": check.needed,
        "detail": check.detail,
    }
