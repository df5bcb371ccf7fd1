"""``planner open``."""

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.shared_options import output_options
from planner.cli.values import FILE
from planner.show.output import Output

if TYPE_CHECKING:
    from planner.editing.edit_server import EditServer


@click.command("open")
@click.argument("plan", metavar="PLAN", type=FILE)
@click.option(
    "-o",
    "--output",
    "target",
    metavar="FILE",
    type=FILE,
    help="Where the button saves; by default beside the PLAN as PLAN-edited.json, or -edited-2. "
    "Name the PLAN itself to change it.",
)
@click.option(
    "--port",
    type=click.IntRange(min=0, max=65535),
    default=0,
    help="Of the address; by default any that is free.",
)
@click.option("--no-browser", is_flag=True, help="Print the address only.")
@output_options
def command(plan: str, *, target: str | None, port: int, no_browser: bool, output: Output) -> None:
    """Change a PLAN by hand on a page: drag tables to other ranks, and see the step change.

    The page is served to this machine alone, at an address that has a secret in it, until Ctrl-C.
    """
    from planner.editing.edit_server import EditServer
    from planner.editing.edits import EditSession
    from planner.files.disk import STANDARD_STREAM, check_writable
    from planner.files.plans import load_plan_file
    from planner.verbs.loading import judge

    if STANDARD_STREAM in {plan, target}:
        raise click.UsageError("a plan is changed in files, not on standard input or output")
    file = load_plan_file(plan)
    saved = Path(target) if target is not None else free_name(Path(plan))
    check_writable(saved)
    session = EditSession(file=file, planned=judge(file), target=saved)
    with EditServer(session, port) as server:
        if output.json:
            output.data({"url": server.url, "target": str(saved)})
        else:
            click.echo(server.url)
        output.remark(f"Saves to {saved}; Ctrl-C ends")
        if not no_browser:
            webbrowser.open(server.url)
        _serve(server)


def _serve(server: "EditServer") -> None:
    """Serve until Ctrl-C, which is how it is meant to end."""
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        return


def free_name(plan: Path) -> Path:
    """Return a file beside a plan that does not exist yet."""
    number = 1
    while True:
        more = "" if number == 1 else f"-{number}"
        path = plan.with_name(f"{plan.stem}-edited{more}.json")
        if not path.exists():
            return path
        number += 1
