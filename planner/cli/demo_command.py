"""``planner demo``: a tour of the commands on a small model."""

import shlex
from pathlib import Path

import click

from costmodel.base.errors import MissingDependencyError
from planner.cli import cli
from planner.cli.values import FOLDER
from planner.files.workload_template import TEMPLATE


@click.command("demo")
@click.option(
    "-o", "--output", "directory", metavar="DIR", type=FOLDER, default="planner-demo",
    show_default=True, help="Where the model, its plan, a trace and a page go.",
)  # fmt: skip
def command(directory: str) -> None:
    """Plan, explain and simulate a small model, and write a page: a tour in under 20 s."""
    from planner.files.disk import make_folder, write_text

    folder = Path(directory)
    make_folder(folder)
    write_text(folder / "tables.yaml", TEMPLATE)
    click.echo(f"A model to plan is in {folder / 'tables.yaml'}: change it, and plan again.")
    for arguments in _tour(folder):
        click.echo(f"\n$ planner {shlex.join(arguments)}")
        code = cli.main(arguments, prog_name="planner", standalone_mode=False)
        if code:
            click.get_current_context().exit(code)
    click.echo("\nNext: planner --help, and your own model in a file like tables.yaml")


def _tour(folder: Path) -> list[list[str]]:
    """Return the commands: the page is left out where the library that draws it is missing."""
    from planner.pages.charts import check_library

    tables, plan = str(folder / "tables.yaml"), str(folder / "plan.json")
    how = ["--gpus", "8", "--hardware", "h100-sxm"]
    simulate = ["simulate", plan, "--trace", str(folder / "trace.json")]
    try:
        check_library()
        simulate += ["--html", str(folder / "page.html")]
    except MissingDependencyError as error:
        click.echo(f"There will be no page: {error} ({error.hint}).")
    return [
        ["plan", tables, *how, "--time-limit", "3s", "-o", plan],
        ["explain", plan, "--time-limit", "5s"],
        simulate,
    ]
