"""Makes the reference of the command line: what ``--help`` says, command by command."""

from collections.abc import Iterator

import click

from planner.cli import cli

WIDTH = 88
HEAD = """# Command line

What `planner COMMAND --help` prints. All commands that print a report take `--json`: one JSON
object on standard output, of what went wrong, too (`error`, with `kind`, `message`, `hint` and
`exit_code`). Exit codes: 0 done, 1 a bug of ours, 2 usage, 3 bad input, 4 no plan fits, 5 something
needed is missing, 130 interrupted, 143 terminated.

Where a flag is not given, the environment is asked (`PLANNER_HARDWARE`, `PLANNER_SHARDER`,
`PLANNER_BASELINE`, `PLANNER_SEED`, `PLANNER_TIME_LIMIT`, `PLANNER_HEADROOM`), then `planner.toml`
in the working directory, then `planner/config.toml` in the user's configuration directory.
"""


def page() -> str:
    """Return the page."""
    return "\n".join([HEAD, *_sections(cli, "planner", None)])


def _sections(command: click.Command, name: str, parent: click.Context | None) -> Iterator[str]:
    context = click.Context(
        command,
        parent=parent,
        info_name=name,
        terminal_width=WIDTH,
        max_content_width=WIDTH,
        **command.context_settings,
    )
    yield f"## `{context.command_path}`\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            if found is not None:
                yield from _sections(found, each, context)
