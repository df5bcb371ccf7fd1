"""All commands of the command line, with arguments that each can be called with."""

from collections.abc import Iterator, Mapping

import click

from planner.cli import cli

ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "init": ("new.yaml",),
    "plan": ("tables.yaml", "--gpus", "2"),
    "compare": ("plan.json", "plan.json"),
    "sweep": ("tables.yaml", "--gpus", "2"),
    "explain": ("plan.json",),
    "simulate": ("plan.json",),
    "replay": ("traces",),
    "open": ("plan.json", "--no-browser"),
    "predict": ("traces", "--hardware", "h100-sxm"),
    "calibrate": ("--from-trace", "traces", "--hardware", "h100-sxm"),
    "validate": ("plan.json",),
    "estimate all_to_all": ("--bytes", "1", "--gpus", "2"),
    "estimate all_reduce": ("--bytes", "1", "--gpus", "2"),
    "estimate reduce_scatter": ("--bytes", "1", "--gpus", "2"),
    "estimate all_gather": ("--bytes", "1", "--gpus", "2"),
    "estimate gemm": ("--m", "1", "--n", "1", "--k", "1"),
    "estimate embedding": ("--rows", "1", "--dim", "4", "--batch", "1"),
    "inspect": ("ids.npz",),
    "torchrec export": ("plan.json",),
    "torchrec read-stats": ("job.log",),
    "torchrec stats": ("plan.json",),
    "torchrec import": ("plan.pt", "--workload", "tables.yaml", "--gpus", "2"),
    "trace-model": ("model:make",),
    "profiles": ("show", "h100-sxm"),
    "schema": ("workload",),
    "doctor": (),
    "completion": ("bash",),
    "demo": (),
}
WITHOUT_JSON = ("demo",)


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield every command that is no group, with its words."""
    yield from _within(cli, ())


def _within(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield " ".join(words), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from _within(found, (*words, name))
