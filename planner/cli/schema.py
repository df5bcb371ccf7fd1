"""``planner schema``."""

import click

from planner.cli.options import output_options
from planner.show.output import Output


@click.command("schema")
@click.argument("kind", type=click.Choice(["workload"]))
@output_options
def command(kind: str, *, output: Output) -> None:
    """Print the JSON Schema of a file, for editors that check and complete YAML."""
    import json

    from planner.files.workload import workload_schema

    schema = workload_schema()
    if output.json:
        output.data({"kind": kind, "schema": schema})
    else:
        click.echo(json.dumps(schema, indent=2, ensure_ascii=False))
