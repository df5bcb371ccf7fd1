"""The process that has imported TorchRec, and forks for every command of ``bench.forked_python``.

    python bench/fork_server.py DESCRIPTOR_OF_A_LISTENING_SOCKET

It imports when the first command comes. A command's process ends as Python's processes do: what was
registered to run at exit runs, and an error is shown.
"""

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

IMPORTED = ("altair", "highspy", "pyarrow.dataset", "pydantic", "rich.console", "torchrec", "yaml")
"""What takes long to import, and is nothing of ours."""
STREAMS = ("stdin", "stdout", "stderr")


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonCommand:
    """A command of Python, and where it runs."""

    arguments: Sequence[str]
    folder: str
    environment: dict[str, str]
    streams: Sequence[int]
    """Descriptors of its standard input, output and errors."""


def requested(listener: socket.socket) -> PythonCommand:
    """Return each request in a process of its own; the process that calls this never returns."""
    select.select([listener], [], [])
    for name in IMPORTED:
        with suppress(ImportError):
            import_module(name)
    gc.freeze()  # objects that the collector never visits stay in memory that children share
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no child of this process is waited for
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return _attended(connection)
        connection.close()


def _attended(connection: socket.socket) -> PythonCommand:
    """Return the request in a child; this process answers with its number and how it ended."""
    _, streams, *_ = socket.recv_fds(connection, 1, 3)
    with connection.makefile(encoding="utf-8") as sent:
        said = json.loads(sent.read())
    child = os.fork()
    if child == 0:
        connection.close()
        return PythonCommand(**said, streams=streams)
    for stream in streams:
        os.close(stream)
    with suppress(BrokenPipeError):
        connection.sendall(f"{child}\n".encode())
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        connection.sendall(f"{code}\n".encode())
    os._exit(0)


def take_on(request: PythonCommand) -> None:
    """Take on the streams, folder, environment and warnings of a command, and hear Ctrl-C."""
    for number, (name, stream) in enumerate(zip(STREAMS, request.streams, strict=True)):
        os.dup2(stream, number)
        os.close(stream)
        old = getattr(sys, name)
        new = open(number, old.mode, encoding=old.encoding, errors=old.errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    sys.path[:1] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    for action in reversed(os.environ.get("PYTHONWARNINGS", "").split(",")):
        _warn(action)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if "OMP_NUM_THREADS" in os.environ and "torch" in sys.modules:  # read when that is loaded
        sys.modules["torch"].set_num_threads(int(os.environ["OMP_NUM_THREADS"]))


def _warn(action: str) -> None:
    if action:
        sys.warnoptions.append(action)
        warnings.simplefilter(action)  # type: ignore[arg-type] # a simple one


def run(arguments: Sequence[str]) -> None:
    """Run ``-W ACTION`` once or not at all, then ``-c CODE``, ``-m MODULE``, ``-`` or a script."""
    sys.orig_argv = [sys.executable, *arguments]
    if arguments[0] == "-W":
        _warn(arguments[1])
        arguments = arguments[2:]
    kind, *rest = arguments
    main = sys.modules["__main__"] = ModuleType("__main__")
    if kind == "-m":
        sys.path.insert(0, str(Path.cwd()))
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return
    sys.path.insert(0, "")
    if kind == "-c":
        code, *rest = rest
        name = "<string>"
    elif kind == "-":
        code, name = sys.stdin.read(), "<stdin>"
    else:
        sys.path[0], main.__file__ = str(Path(kind).resolve().parent), kind
        code, name = Path(kind).read_text(encoding="utf-8"), kind
    sys.argv = [kind, *rest]
    exec(compile(code, name, "exec", dont_inherit=True), main.__dict__)  # noqa: S102 - as Python


def main() -> None:
    """Become what is asked for; end before Python takes every module apart, a third of a second."""
    code = [1]
    atexit.register(lambda: _end(code[0]))  # the first registered is the last to run
    request = requested(socket.socket(fileno=int(sys.argv[1])))
    take_on(request)
    try:
        run(request.arguments)
    except SystemExit as done:
        code[0] = done.code if isinstance(done.code, int) else int(done.code is not None)
        raise
    except KeyboardInterrupt:
        code[0] = -signal.SIGINT
        raise
    code[0] = 0


def _end(code: int) -> None:
    """End this process with an exit code, or by the signal that a negative one says."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code & 255)


if __name__ == "__main__":
    main()
