"""``planner calibrate --host``: what this machine takes to issue work, without its GPUs."""

from dataclasses import replace
from pathlib import Path

from planner.show.output import Output


def calibrate_host(hardware: str, path: str, name: str | None, output: Output) -> None:
    """Measure host times, and write the profile ``hardware`` with them."""
    from rich.text import Text

    from planner.calibration.host_profile import host_profile, measured_host
    from planner.files.disk import write_text
    from planner.files.profiles import dump_profile, load_profile
    from planner.show.format import duration

    base = load_profile(hardware)
    host = measured_host()
    profile = replace(host_profile(base, host), name=name or Path(path).stem)
    write_text(path, dump_profile(profile))
    if output.json:
        output.data({
            "host": {f"{field}_s": seconds for field, seconds in host.times.items()},
            "before": {f"{field}_s": getattr(base.host, field) for field in host.times},
            "disagreement": host.errors.median,
        })
    else:
        output.lines(
            lambda _: (
                Text(
                    f"  {field:<18} {duration(seconds):>8}, "
                    f"{duration(getattr(base.host, field))} in {hardware}"
                )
                for field, seconds in host.times.items()
            )
        )
    output.remark(f"Wrote {path}; use it with --hardware {path}")
