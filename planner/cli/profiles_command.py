"""``planner profiles``."""

from typing import TYPE_CHECKING, Any

import click

from planner.cli.shared_options import output_options
from planner.cli.values import HARDWARE
from planner.show.output import Output

if TYPE_CHECKING:
    from costmodel.domain.hardware import HardwareProfile

_HEADING = (
    "Kernel families: where they come from, and how far off they were where nothing was fitted"
)
_WIDTH = 98


@click.command("profiles")
@click.argument("action", required=False, type=click.Choice(["list", "show"]), default="list")
@click.argument("name", required=False, type=HARDWARE)
@output_options
def command(action: str, *, name: str | None, output: Output) -> None:
    """List the hardware profiles, or `show NAME`: its kernel families and every number.

    `show` prints for each family of kernels its source, how many measurements it rests on, and its
    error on those held out, as comments before the profile in YAML.
    """
    if action == "show":
        if name is None:
            raise click.UsageError("Missing argument 'NAME'.")
        _show(name, output)
    elif name is not None:
        raise click.UsageError(f"Got unexpected extra argument ({name})")
    else:
        _list(output)


def _list(output: Output) -> None:
    from planner.files.profiles import load_profile, profile_names
    from planner.show.layout import rows_text
    from planner.show.profile_text import PROFILE_COLUMNS

    profiles = [load_profile(name) for name in profile_names()]
    if output.json:
        output.data({"profiles": [_summary(profile) for profile in profiles]})
    else:
        output.lines(lambda width: rows_text(PROFILE_COLUMNS, profiles, width=width))


def _show(name: str, output: Output) -> None:
    from costmodel.domain.families import kernel_families
    from planner.files.profiles import dump_profile, load_profile
    from planner.show.columns import plain, rows_data
    from planner.show.layout import rows_text
    from planner.show.profile_text import FAMILY_COLUMNS

    profile = load_profile(name)
    families = list(kernel_families(profile).items())
    if output.json:
        output.data({
            **_summary(profile),
            "families": rows_data(FAMILY_COLUMNS, families),
            "profile": plain(profile),
        })
    else:
        table = rows_text(FAMILY_COLUMNS, families, width=_WIDTH, gap=2)
        for line in (_HEADING, *(row.plain for row in table)):
            click.echo(f"# {line}".rstrip())
        click.echo(dump_profile(profile), nl=False)


def _summary(profile: "HardwareProfile") -> dict[str, Any]:
    return {
        "name": profile.name,
        "gpu": profile.gpu.name,
        "gpus_per_node": profile.gpus_per_node,
        "memory_bytes": profile.gpu.memory_bytes,
        "memory_bandwidth_bytes_per_s": profile.gpu.memory_bandwidth,
        "collectives": sorted({(curve.op.value, curve.num_ranks) for curve in profile.curves}),
    }
