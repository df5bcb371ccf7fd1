"""``planner validate``."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.shared_options import SEED, output_options
from planner.cli.values import FILE, HARDWARE
from planner.show.output import Output

if TYPE_CHECKING:
    from planner.calibration.records import Record


@click.command("validate")
@click.argument("plans", nargs=-1, required=True, metavar="PLAN...", type=FILE)
@click.option(
    "--hardware",
    metavar="NAME|FILE",
    type=HARDWARE,
    help="Profile of this machine, by default the one each plan was made with.",
)
@click.option("--repeats", type=click.IntRange(min=1, max=10_000), default=5, show_default=True,
              help="Rounds over all plans.")  # fmt: skip
@click.option("--steps", type=click.IntRange(min=1, max=10_000), default=4, show_default=True,
              help="Timed steps of a plan in each round.")  # fmt: skip
@click.option("--no-phases", is_flag=True, help="Do not run a few more steps under the profiler.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Of the random batches.")
@output_options
def command(
    plans: tuple[str, ...],
    *,
    hardware: str | None,
    repeats: int,
    steps: int,
    no_phases: bool,
    seed: int,
    output: Output,
) -> None:
    """Train under PLANs on this machine, and compare their steps with the predicted ones.

    One process per rank builds the workload's DLRM with TorchRec's DistributedModelParallel and
    trains it on random batches with the workload's distributions. On a CPU some kernels of the
    calibration are measured again meanwhile, if its measurements are still beside the profile: what
    they take longer is the machine's, and not the model's error.
    """
    from planner.files.plans import load_plan_file, load_plan_hardware
    from planner.files.profiles import load_profile
    from planner.validation.validate import validate
    from planner.validation.validation_text import validation_data, validation_text

    files = [load_plan_file(plan) for plan in plans]

    def progress(done: int, total: int) -> None:
        if output.live:
            click.echo(f"\r\x1b[K{done} of {total} blocks of steps", nl=done == total, err=True)

    validation = validate(
        files,
        _names(plans),
        load_profile(hardware) if hardware else load_plan_hardware(files[0]),
        calibrated=_calibrated(hardware or files[0].hardware),
        progress=progress,
        repeats=repeats,
        steps=steps,
        profiled=0 if no_phases else 2,
        seed=seed,
    )
    if output.json:
        output.data(validation_data(validation))
    else:
        output.lines(lambda width: validation_text(validation, width))


def _calibrated(profile: str) -> "tuple[Record, ...]":
    """Return the measurements beside a profile, or none."""
    from planner.calibration.records import read_measurements

    path = Path(profile).with_suffix(".measurements.jsonl")
    measured = read_measurements(path) if path.exists() else None
    return measured.records if measured else ()


def _names(plans: tuple[str, ...]) -> list[str]:
    """Return short names of the plans, the paths where those are not unique."""
    stems = [Path(plan).stem for plan in plans]
    return stems if len(set(stems)) == len(stems) else list(plans)
