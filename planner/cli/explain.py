"""``planner explain``."""

import click

from planner.cli.options import output_options
from planner.show.output import Output


@click.command("explain")
@click.argument("plan", metavar="PLAN")
@output_options
def command(plan: str, *, output: Output) -> None:
    """Say why a PLAN's step takes as long as it does, and what would help."""
    from planner.planning.explain_data import explanation_data
    from planner.planning.explain_text import explanation_text
    from planner.planning.explanation import explain

    explanation = explain(plan)
    if output.json:
        output.data(explanation_data(explanation))
    else:
        output.lines(lambda width: explanation_text(explanation, width))
