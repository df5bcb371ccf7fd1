from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete

from planner.cli import cli


def offered(*words: str) -> dict[str, str]:
    """Return what a shell offers for the last word, by value, and the kind of each."""
    completer = ShellComplete(cli, {}, "planner", "_PLANNER_COMPLETE")
    found: list[Any] = completer.get_completions(list(words[:-1]), words[-1])
    return {item.value: item.type for item in found}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("plan", "--hardware", "h100"), {"h100": "file", "h100-sxm": "plain"}),
        (("plan", "t.yaml", "--sharder", "ann"), {"annealing": "plain"}),
        (("plan", "t.yaml", "--baseline", "non"), {"none": "plain"}),
        (("plan", "ta"), {"ta": "file"}),
        (("compare", "old.json", "ne"), {"ne": "file"}),
        (("simulate", "plan.json", "--html", ""), {"": "file"}),
        (("sweep", "t.yaml", "--hardware", "h100-sxm,mi3"), {"h100-sxm,mi300x": "plain"}),
    ],
)
def test_values_are_offered(words: tuple[str, ...], expected: dict[str, str]) -> None:
    assert expected.items() <= offered(*words).items()


def test_every_file_that_a_command_takes_is_completed() -> None:
    context = click.Context(cli)
    for name in cli.list_commands(context):
        found = cli.get_command(context, name)
        assert found is not None
        for parameter in found.params:
            if (parameter.metavar or "").split("|")[0] in {"FILE", "PLAN", "TRACES"}:
                items = parameter.type.shell_complete(context, parameter, "x")
                assert [item.type for item in items][:1] == ["file"], f"{name} {parameter.name}"
