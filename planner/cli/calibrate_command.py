"""``planner calibrate``."""

import math
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from costmodel.base.errors import InputError, Problem
from planner.cli.shared_options import output_options, refuse_given
from planner.cli.values import FILE, HARDWARE, WRITTEN, Parsed
from planner.environment.interrupts import interrupted_code
from planner.show.output import Output

if TYPE_CHECKING:
    from costmodel.domain.hardware import HardwareProfile
    from planner.calibration.session import Calibration, Request

_OPTIMIZERS = ("sgd", "rowwise_adagrad", "adagrad", "adam", "partial_rowwise_adam")
_NEEDED = ("torch", "fbgemm_gpu", "scipy")
"""Packages that measuring needs."""


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = math.nan
    if not 0 <= minutes < math.inf:
        raise ValueError(f"minutes must be 0 or more, got `{text}`")
    return minutes


@click.command("calibrate")
@click.option(
    "-o", "--output-file", "path", metavar="FILE", type=WRITTEN, help="Write the profile."
)
@click.option(
    "--grid",
    type=click.Choice(["quick", "full"]),
    help="How much to measure; by default quick on a CPU, full on GPUs.",
)
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    help="What to measure; by default cuda where there is one.",
)
@click.option(
    "--optimizer",
    "optimizers",
    type=click.Choice(_OPTIMIZERS),
    multiple=True,
    help="Fused into the embedding backward; may be repeated. By default rowwise_adagrad on a "
    "CPU, where each has a speed of its own; sgd, rowwise_adagrad and adam on a GPU.",
)
@click.option(
    "--minutes",
    type=Parsed("minutes", _minutes),
    help="Stop measuring after about so long; what tells most is measured first. By default "
    "everything is measured.",
)
@click.option("--name", help="Of the profile; by default the file's.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@click.option(
    "--remeasure", is_flag=True, help="Forget what an earlier run measured, instead of going on."
)
@click.option(
    "--from-trace",
    "traces",
    metavar="TRACES",
    type=FILE,
    help="Measure nothing: learn from profiler traces of all ranks of a job, as `planner replay` "
    "reads them.",
)
@click.option(
    "--host",
    "only_host",
    is_flag=True,
    help="Measure only what this machine's CPU takes to issue work; needs no GPU, and --hardware "
    "for everything else.",
)
@click.option(
    "--hardware",
    metavar="NAME|FILE",
    type=HARDWARE,
    help="The profile that gives what is not measured; needed with --from-trace and --host.",
)
@output_options
def command(  # noqa: PLR0913 - an argument per option
    *,
    path: str | None,
    grid: str | None,
    device: str | None,
    optimizers: tuple[str, ...],
    minutes: float | None,
    name: str | None,
    force: bool,
    remeasure: bool,
    traces: str | None,
    only_host: bool,
    hardware: str | None,
    output: Output,
) -> None:
    """Measure this machine, and write a hardware profile fitted to it.

    Run it alone for one device, or under torchrun for all devices and what is between them:

    \b
        planner calibrate -o mine.yaml
        torchrun --nproc-per-node 8 -m planner calibrate -o mine.yaml
        planner calibrate --host --hardware a100-sxm-80gb -o mine.yaml

    The quick grid takes a CPU three to six minutes, the full one a GPU about an hour; --minutes 10
    makes a coarser profile of either, and with --force the same command goes on. Measurements are
    kept next to FILE (mine.measurements.jsonl) as they are made: a run that was stopped goes on
    where it was, with the same command. Keep the machine idle meanwhile.
    """  # noqa: D301 - click's mark for lines to keep
    measuring = {
        "grid": grid, "device": device, "optimizer": optimizers, "minutes": minutes,
        "remeasure": remeasure,
    }  # fmt: skip
    if traces is not None:
        from planner.calibration.learned_report import learn_from_trace

        if hardware is None:
            raise click.UsageError("--from-trace needs --hardware, the profile to start from.")
        why = "traces are learned from as they are"
        refuse_given("measuring", why, host=only_host, **measuring)
        if path is not None and path != "-":
            _check_file(path, "--force overwrites it", force=force)
        learn_from_trace(traces, hardware, path, name, output)
        return
    if path is None or path == "-":
        raise click.UsageError("Missing option '-o': the file to write the profile to.")
    _check(path, force=force)
    if only_host:
        from planner.cli.calibrate_host import calibrate_host

        if hardware is None:
            raise click.UsageError("--host needs --hardware, the profile to start from.")
        refuse_given("measuring a device", "--host measures the CPU's part alone", **measuring)
        calibrate_host(hardware, path, name, output)
        return
    request = _request(Path(path), device, grid, optimizers, minutes)
    base = _base(hardware, request)
    if request.kind == "cpu":
        _keep_memory()
    _measure(request, Path(path), name, base, output=output, remeasure=remeasure)


def _check_file(path: str, hint: str, *, force: bool) -> None:
    """Refuse a file that cannot be written, or exists and is not to be replaced."""
    from planner.files.disk import check_writable

    check_writable(path)
    if Path(path).exists() and not force:
        problem = Problem(message="this file exists", hint=hint)
        raise InputError(path, [problem])


def _check(path: str, *, force: bool) -> None:
    """Raise what would stop the run, before anything is measured."""
    from planner.environment.extras import require

    hint = "--force overwrites it from what was measured; --remeasure, too, measures it all"
    _check_file(path, hint, force=force)
    require("planner calibrate", "torchrec", *_NEEDED)


def _request(
    path: Path,
    device: str | None,
    grid: str | None,
    optimizers: Sequence[str],
    minutes: float | None,
) -> "Request":
    import torch

    from costmodel.domain.workload import Optimizer
    from planner.calibration.grids import CPU_OPTIMIZERS, Grid
    from planner.calibration.session import Request

    kind = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if kind == "cuda" and not torch.cuda.is_available():
        problem = Problem(message="torch sees no CUDA device", hint="--device cpu measures the CPU")
        raise InputError("--device", [problem])
    lacking = set(optimizers) - set(CPU_OPTIMIZERS)
    if kind == "cpu" and lacking:
        problem = Problem(message=f"FBGEMM has no CPU kernel for {', '.join(sorted(lacking))}")
        raise InputError("--optimizer", [problem])
    return Request(
        measurements=path.with_suffix(".measurements.jsonl"),
        kind=kind,
        grid=Grid(grid or ("quick" if kind == "cpu" else "full")),
        optimizers=tuple(map(Optimizer, optimizers)),
        seconds=None if minutes is None else 60 * minutes,
    )


def _base(hardware: str | None, request: "Request") -> "HardwareProfile | None":
    """Return the profile that what is not measured comes from; None: none is named."""
    from costmodel.domain.hardware import Device
    from planner.calibration.base_profile import base_profile

    return base_profile(hardware, Device(request.kind)) if hardware else None


def _keep_memory() -> None:
    """Start this process anew, if need be, so that large tensors keep their memory.

    As `planner validate` trains; glibc reads the variables when a process starts.
    """
    from planner.calibration.machine import keeps_memory
    from planner.validation.launch import RANK_ENVIRONMENT

    if not keeps_memory():
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **RANK_ENVIRONMENT})  # noqa: S606


def _measure(
    request: "Request",
    path: Path,
    name: str | None,
    base: "HardwareProfile | None",
    *,
    output: Output,
    remeasure: bool,
) -> None:
    """Measure, and on the first rank fit and report; the others only measure."""
    from planner.calibration.calibration_report import busy_remark
    from planner.calibration.progress import MeasuringLine
    from planner.calibration.ranks import ranks_of
    from planner.calibration.session import calibrate, forget

    ranks = ranks_of()
    first = ranks.rank == 0
    speaker = output if first else Output(json=True, quiet=True)
    if remeasure and first:
        forget(request.measurements)
    busy = busy_remark() if first else None
    if busy:
        speaker.remark(busy)
    try:
        with MeasuringLine(speaker) as watcher, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's and fbgemm's, about themselves
            outcome = calibrate(request, ranks, watcher)
    except KeyboardInterrupt as interrupt:
        again = "the same command without --remeasure" if remeasure else "the same command"
        speaker.remark(_interrupted(request.measurements, again))
        raise click.exceptions.Exit(interrupted_code(interrupt)) from None
    if outcome is not None:
        _write(outcome, path, name or path.stem, base, output)


def _interrupted(measurements: Path, again: str) -> str:
    """Say how much is kept: what is measured in turns is, when the last turn is over."""
    from planner.calibration.records import read_measurements
    from planner.show.format import count

    found = read_measurements(measurements)
    points = len(found.records) + len(found.failures) if found else 0
    if not points:
        return "interrupted before any point was done"
    return f"interrupted; {measurements} has {count(points, 'point')}: {again} goes on from there"


def _write(
    outcome: "Calibration", path: Path, name: str, base: "HardwareProfile | None", output: Output
) -> None:
    """Fit the models, write the profile, and say how good it is."""
    from planner.calibration.calibration_report import (
        outcome_lines,
        profile_file,
        remarks,
        summary_data,
    )
    from planner.calibration.profile import fit_profile
    from planner.files.disk import write_text

    output.remark("Fitting the models")
    result = fit_profile(outcome.measured, outcome.machine, base)
    write_text(path, profile_file(result, outcome, name))
    if output.json:
        output.data(summary_data(result, outcome))
    else:
        output.lines(lambda width: outcome_lines(result, outcome, width))
    for remark in remarks(result, outcome):
        output.remark(remark)
    output.remark(f"Wrote {path}; use it with --hardware {path}")
