"""``planner schema``."""

import click

from planner.cli.shared_options import output_options
from planner.files.schemas import SCHEMAS, schema
from planner.show.output import Output


@click.command("schema")
@click.argument("kind", type=click.Choice(tuple(SCHEMAS)))
@output_options
def command(kind: str, *, output: Output) -> None:
    """Print the JSON Schema of a file, for editors that check and complete YAML."""
    from planner.files.json_text import dump_json

    found = schema(kind)
    if output.json:
        output.data({"kind": kind, "schema": found})
    else:
        click.echo(dump_json(found, indent=2))
