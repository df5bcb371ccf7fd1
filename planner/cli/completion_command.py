"""``planner completion``."""

import click

from planner.cli import _COMPLETE, cli
from planner.cli.shared_options import output_options
from planner.show.output import Output


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@output_options
def command(shell: str, *, output: Output) -> None:
    """Print the script that completes commands: `eval "$(planner completion bash)"`."""
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    if made is None:
        raise click.UsageError(f"no completion for {shell}")
    script = made(cli, {}, "planner", _COMPLETE).source()
    if output.json:
        output.data({"shell": shell, "script": script})
    else:
        click.echo(script)
