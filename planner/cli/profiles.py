"""``planner profiles``."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import click

from planner.cli.options import output_options
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
    from planner.show.profile_text import profiles_text

    profiles = [load_profile(name) for name in profile_names()]
    if output.json:
        output.data({"profiles": [_summary(profile) for profile in profiles]})
    else:
        output.lines(lambda width: profiles_text(profiles, width))


def _show(name: str, output: Output) -> None:
    from planner.files.profiles import dump_profile, load_profile
    from planner.show.profile_text import families_data, families_text

    profile = load_profile(name)
    if output.json:
        output.data({
            **_summary(profile),
            "families": families_data(profile),
            "profile": _plain(profile),
        })
    else:
        for line in (_HEADING, *families_text(profile, _WIDTH)):
            click.echo(f"# {line}".rstrip())
        click.echo(dump_profile(profile), nl=False)


def _plain(value: Any) -> Any:  # noqa: ANN401 - any part of a profile
    """Return frozen dataclasses as plain data, in SI, without what they computed themselves."""
    if is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value) if f.init}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return list(map(_plain, value)) if isinstance(value, tuple) else value


def _summary(profile: "HardwareProfile") -> dict[str, Any]:
    return {
        "name": profile.name,
        "gpu": profile.gpu.name,
        "gpus_per_node": profile.gpus_per_node,
        "memory_bytes": profile.gpu.memory_bytes,
        "memory_bandwidth_bytes_per_s": profile.gpu.memory_bandwidth,
        "collectives": sorted({(curve.op.value, curve.num_ranks) for curve in profile.curves}),
    }
