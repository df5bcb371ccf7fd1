"""``planner explain``."""

from typing import TYPE_CHECKING, Any

import click

from planner.cli.options import output_options
from planner.show.output import Output

if TYPE_CHECKING:
    from planner.planning.explanation import Explanation


@click.command("explain")
@click.argument("plan", metavar="PLAN")
@output_options
def command(plan: str, *, output: Output) -> None:
    """Say why a PLAN's step takes as long as it does, and what would help."""
    from planner.planning.explain_text import explanation_text
    from planner.planning.explanation import explain

    explanation = explain(plan)
    if output.json:
        output.data(_data(explanation))
    else:
        output.lines(lambda width: explanation_text(explanation, width))


def _data(explanation: "Explanation") -> dict[str, Any]:
    from planner.files.plans import table_data
    from planner.planning.report_data import confidence_data

    return {
        "step_time_s": explanation.report.step_time,
        "step_time_interval_s": explanation.report.interval,
        "uncertainty": confidence_data(explanation.report.confidence),
        "last_rank": explanation.last_rank,
        "critical_path": [
            {
                "start_s": row.start,
                "time_s": row.seconds,
                "stage": row.stage.value,
                "rank": row.rank,
                "bound_by": row.bound_by,
                "source": row.source,
            }
            for row in explanation.path
        ],
        "choices": [
            {
                **table_data(choice.sharding),
                "alone_s": choice.alone,
                "mean_lookup_s": choice.mean,
                "fixed": choice.fixed,
                "whole_step_time_s": choice.whole_step_time,
                "whole_fits": choice.whole_fits,
            }
            for choice in explanation.choices
        ],
        "remedies": [
            {
                "change": remedy.change,
                "step_time_s": remedy.step_time,
                "samples_per_s": remedy.samples_per_second,
                "effect": remedy.effect,
            }
            for remedy in explanation.remedies
        ],
    }
