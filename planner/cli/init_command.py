"""``planner init``."""

import shlex
from pathlib import Path
from typing import Any

import click

from costmodel.base.errors import InputError, Problem
from planner.cli.pages import check_stdout
from planner.cli.shared_options import model_options, output_options, told_of_model
from planner.cli.values import FILE
from planner.show.output import Output


@click.command("init")
@click.argument("path", metavar="FILE", type=FILE, default="tables.yaml")
@click.option(
    "--from-torchrec",
    "factory",
    metavar="MODULE:FUNCTION",
    help="The tables of a TorchRec model (meta device will do) instead of a small model's.",
)
@model_options
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@output_options
def command(
    path: str,
    *,
    factory: str | None,
    force: bool,
    output: Output,
    **flags: Any,  # noqa: ANN401 - what a model does not say
) -> None:
    """Write a workload FILE with comments to start from (tables.yaml; - is stdout)."""
    from planner.files.disk import STANDARD_STREAM, check_writable, write_text
    from planner.files.workload_template import FROM_MODEL, TEMPLATE

    told = told_of_model(factory, flags, output)
    check_stdout({"FILE": path, "`--json`": STANDARD_STREAM if output.json else None})
    check_writable(path)
    if path != STANDARD_STREAM and Path(path).exists() and not force:
        problem = Problem(message="this file exists", hint="name another, or --force")
        raise InputError(path, (problem,))
    text = TEMPLATE
    if factory is not None:
        from planner.files.workload_text import dump_workload
        from planner.torchrec import read_factory

        workload, _ = read_factory(factory, **told)
        text = FROM_MODEL.format(factory=factory) + dump_workload(workload)
    write_text(path, text)
    if output.json:
        output.data({"file": path})
    elif path != STANDARD_STREAM:
        output.remark(f"Wrote {path}\nNext: planner plan {shlex.quote(path)} --gpus 8")
