"""``planner init``."""

import shlex
from pathlib import Path
from typing import Any

import click

from costmodel.base.errors import InputError, Problem
from planner.cli.pages import check_stdout
from planner.cli.shared_options import (
    ModelTold,
    factory_option,
    model_options,
    output_options,
    told_of_model,
)
from planner.cli.values import FILE
from planner.show.output import Output


@click.command("init")
@click.argument("path", metavar="FILE", type=FILE, default="tables.yaml")
@factory_option("The tables of a TorchRec model (meta device will do) instead of a small model's.")
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
    """Write a workload FILE with comments to start from (tables.yaml; - is stdout).

    What the dense part of a model runs is written beside it (tables.dense.json).
    """
    from planner.files.disk import STANDARD_STREAM, check_writable, write_text
    from planner.files.workload_template import TEMPLATE

    told = told_of_model(factory, flags, output)
    check_stdout({"FILE": path, "`--json`": STANDARD_STREAM if output.json else None})
    check_writable(path)
    _check_new(path, force=force)
    text, dense = TEMPLATE, None
    if factory is not None:
        text, dense = _of_model(factory, told, path, force=force)
    write_text(path, text)
    if output.json:
        output.data({"file": path, "dense_file": dense})
    elif path != STANDARD_STREAM:
        wrote = path if dense is None else f"{path} and {dense}"
        output.remark(f"Wrote {wrote}\nNext: planner plan {shlex.quote(path)} --gpus 8")


def _check_new(path: str, *, force: bool) -> None:
    from planner.files.disk import STANDARD_STREAM

    if path != STANDARD_STREAM and Path(path).exists() and not force:
        problem = Problem(message="this file exists", hint="name another, or --force")
        raise InputError(path, (problem,))


def _of_model(factory: str, told: ModelTold, path: str, *, force: bool) -> tuple[str, str | None]:
    """Return a model's workload as text, and the file that its operators are written to.

    On standard output they are in the text.
    """
    from planner.files.dense import save_operators
    from planner.files.disk import STANDARD_STREAM
    from planner.files.workload_template import FROM_MODEL
    from planner.files.workload_text import dump_workload_data, workload_data
    from planner.torchrec import read_factory

    workload, _ = read_factory(factory, **told)
    data, operators, beside = workload_data(workload), workload.dense.operators, None
    if operators is not None and path != STANDARD_STREAM:
        beside = str(Path(path).with_suffix(".dense.json"))
        _check_new(beside, force=force)
        save_operators(operators, beside)
        data["dense"]["operators"] = Path(beside).name
    return FROM_MODEL.format(factory=factory) + dump_workload_data(data), beside
