"""The ``planner`` command: arguments and exit codes, nothing else.

Commands are imported when used, and import what is heavy when they run, so that ``--version``,
``--help`` and completion are immediate.
"""

import atexit
import gc
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import click

from costmodel.base.errors import PlannerError
from planner.environment.collecting import seldom_collecting
from planner.environment.compiled import InterpretedSearchWarning
from planner.environment.interrupts import INTERRUPTED, interrupted_code, raising
from planner.files.standard_output import write_no_more
from planner.show.endings import Endings

USAGE = 2

_COMMANDS = (
    "init",
    "plan",
    "compare",
    "sweep",
    "explain",
    "simulate",
    "replay",
    "open",
    "predict",
    "calibrate",
    "validate",
    "estimate",
    "inspect",
    "torchrec",
    "trace-model",
    "profiles",
    "schema",
    "doctor",
    "completion",
    "demo",
)
"""Each is the object ``command`` of a module named ``<name>_command``, its hyphens underscores."""
_LEAST_MEMORY = 256 * 2**20
"""Bytes of address space: with less OpenBLAS, which numpy and scipy load, may try for memory for
ever, and hears no signal. A plan for a small model takes 200 MB, an inspection 250."""
_NOT_LOADED = "failed to map segment from shared object"
"""What the loader of libraries says where memory is short."""
_COMPLETE = "_PLANNER_COMPLETE"
"""Set by the scripts that ``planner completion`` prints."""


class LazyGroup(click.Group):
    """Commands imported by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of the help."""
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        module = f"{cmd_name.replace('-', '_')}_command"
        found: click.Command = import_module(f"planner.cli.{module}").command
        return found


@click.command(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.pass_context
@click.version_option(package_name="shardwise", prog_name="planner")
def cli(context: click.Context) -> None:
    """Predict a training step's time under any embedding sharding plan, and find the best plan.

    \b
    Start with:  planner init, then  planner plan tables.yaml --gpus 4
    """  # noqa: D301 - click's mark for lines to keep
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit: 0 done, 1 bug, 2 usage, 3 bad input, 4 no plan fits,
    5 something needed is missing, 130 interrupted, 143 terminated.
    """  # noqa: D205 - one sentence
    given = list(sys.argv[1:] if arguments is None else arguments)
    _open_streams()
    atexit.register(gc.freeze)  # nobody waits for cycles among thousands of tables
    with Endings(given) as endings:
        code = _exit_code(given, endings)
    sys.exit(code)


def _exit_code(arguments: list[str], endings: Endings) -> int:
    """Run a command; say why it ended, if it did not do what it was to do."""
    try:
        _keep_to_memory_limit()
        with raising(), seldom_collecting(), warnings.catch_warnings():
            warnings.simplefilter("ignore", InterpretedSearchWarning)  # reports say it themselves
            code = _run(arguments, endings)
            sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough, as `head` does
        write_no_more(sys.stdout)
        return 0
    except OSError as error:
        return endings.system_said(error)
    except MemoryError:
        return endings.out_of_memory()
    except (ImportError, SystemError) as error:
        if not _is_for_want_of_memory(error):
            raise
        return endings.out_of_memory()
    return code


def _keep_to_memory_limit() -> None:
    """Let libraries start no threads, each with memory of its own, where memory is limited.

    Raises
    ------
    MemoryError
        There is too little for them to load at all.

    """
    limit = _memory_limit()
    if limit is None:
        return
    if limit < _LEAST_MEMORY:
        raise MemoryError
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _memory_limit() -> int | None:
    """Return the bytes of ``ulimit -v``; None: there is none, or not on this system."""
    try:
        import resource
    except ModuleNotFoundError:
        return None
    except ImportError:  # there is no memory for it either
        return 0
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _is_for_want_of_memory(error: ImportError | SystemError) -> bool:
    """Return whether memory is short: extensions in C do not always say so themselves.

    An older numpy raises another error from the loader's.
    """
    if isinstance(error, ImportError):
        causes = (error, error.__cause__, error.__context__)
        return any(_NOT_LOADED in str(cause) for cause in causes)
    return _memory_limit() is not None


def _open_streams() -> None:
    """Have all three standard streams, also where some were closed (``>&-``).

    What goes to files and pipes is UTF-8 in any locale, as all files of ours are.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):
            encoding = None if stream.isatty() else "utf-8"
            stream.reconfigure(encoding=encoding, errors="replace")  # type: ignore[union-attr]


def _run(arguments: list[str], endings: Endings) -> int:
    """Run a command and return its exit code."""
    if os.environ.get(_COMPLETE):
        from click.shell_completion import shell_complete

        return shell_complete(cli, {}, "planner", _COMPLETE, os.environ[_COMPLETE])
    try:
        with cli.make_context("planner", arguments) as context:
            cli.invoke(context)
    except click.exceptions.Exit as done:
        return endings.left(done.exit_code)
    except click.ClickException as error:
        return endings.say(_usage(error), error.show)
    except PlannerError as error:
        from planner.show.error_text import error_json, render_error

        text = render_error(error)
        return endings.say(error_json(error), lambda: click.echo(text, err=True))
    except (KeyboardInterrupt, click.Abort) as interrupt:
        return endings.interrupted(INTERRUPTED, interrupted_code(interrupt))
    return 0


def _usage(error: click.ClickException) -> dict[str, object]:
    """Return a mistake in the command line as JSON has it."""
    where = error.ctx if isinstance(error, click.NoSuchOption) else None
    early = where is not None and where.parent is None
    hint = "give it after the command" if early else None
    message = error.message if early else error.format_message()
    return {"kind": "UsageError", "message": message, "hint": hint, "exit_code": USAGE}
