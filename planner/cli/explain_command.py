"""``planner explain``."""

from dataclasses import replace

import click

from planner.cli.pages import check_page, html_option, write_page
from planner.cli.shared_options import SEED, TIME, output_options
from planner.cli.values import FILE
from planner.environment.interrupts import interruptible
from planner.show.output import Output, ProgressLine


@click.command("explain")
@click.argument("plan", metavar="PLAN", type=FILE)
@click.option(
    "--what-if",
    "what_ifs",
    multiple=True,
    metavar="WHAT=VALUE",
    help="Only this change, instead of the usual ones; repeatable: hardware=h200-sxm, batch=16384, "
    "gpus=16, dtype=fp16, host=graphs (the dense model in CUDA graphs) or host=0.5 (half of it); "
    "of a plan of groups also sync-interval=10, replica-group=8.",
)
@click.option(
    "--time-limit",
    type=TIME,
    metavar="20s",
    help="For all what-ifs together; each is searched again from the plan [default: 10s].",
)
@click.option("--seed", type=SEED, help="Of everything random.")
@html_option
@output_options
def command(
    plan: str,
    *,
    what_ifs: tuple[str, ...],
    time_limit: float | None,
    seed: int | None,
    html: str | None,
    output: Output,
) -> None:
    """Say why a PLAN's step takes as long as it does, and what would help."""
    from planner.environment.settings import DEFAULT, resolve
    from planner.search.search import Search
    from planner.verbs.explanation import TIME_LIMIT, changes_of, explained
    from planner.verbs.loading import load_plan, simulate
    from planner.verbs.what_if import remedies
    from planner.views.explain_text import explained_text, remedies_text
    from planner.views.plan_page import plan_page
    from planner.views.report_data import explanation_data

    check_page(html, output)
    with ProgressLine(output) as reading:
        reading.say("timing the plan")
        planned = load_plan(plan)
        changes = changes_of(planned, what_ifs)
        reading.say("timing every table sharded otherwise")
        explanation = explained(planned)
    if not output.json and html != "-":
        output.lines(lambda width: explained_text(explanation, width))
    settings = resolve({"time_limit": time_limit, "seed": seed})
    given = settings.origins["time_limit"] != DEFAULT
    limit = settings.time_limit if given else TIME_LIMIT
    progress = ProgressLine(output, limit)
    found = []
    refused: list[tuple[str, str]] = []
    with interruptible(ending=True) as interrupt, progress:
        search = Search(
            seed=settings.seed,
            time_limit=limit,
            headroom=settings.headroom,
            interrupted=lambda: interrupt.happened,
            watch=progress.watch,
        )
        tried = remedies(
            planned, changes, search, lambda text, why: refused.append((text, str(why)))
        )
        for remedy in tried:
            found.append(remedy)
            if interrupt.happened:
                break
    found.sort(key=lambda remedy: -remedy.samples_per_second)
    explanation = replace(explanation, remedies=tuple(found), unplanned=tuple(refused))
    if output.json:
        output.data(explanation_data(explanation))
    elif html != "-":
        output.lines(lambda width: remedies_text(explanation, width))
    write_page(html, lambda: plan_page(planned, simulate(planned), explanation), output)
    if interrupt.happened:
        output.remark(f"interrupted after {len(found)} of {len(changes)} what-ifs")
        click.get_current_context().exit(interrupt.exit_code)
