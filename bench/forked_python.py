"""Runs a Python command in a child of one process that has imported TorchRec.

    python -I -S bench/forked_python.py ARGUMENT...

does what ``python ARGUMENT...`` does, without the four seconds of processor time that importing
TorchRec takes. The command has its own arguments, folder, environment, standard streams and exit
code, and gets Ctrl-C and SIGTERM. Where no such process listens (``bench.fork_server``), Python
itself runs it. This file is imported by nothing but its own commands: it starts in milliseconds.
"""

import json
import os
import signal
import socket
import sys
from types import FrameType

ADDRESS = "SHARDWISE_FORK_SERVER"
"""Environment variable with the socket of the process that forks."""


def python_command() -> list[str]:
    """Return what runs Python: this file where a process listens that forks, else Python."""
    return [sys.executable, "-I", "-S", __file__] if ADDRESS in os.environ else [sys.executable]


def main() -> None:
    """Ask for the command, pass signals on to it, and end as it did."""
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(os.environ.get(ADDRESS, ""))
        except OSError:
            os.execv(sys.executable, [sys.executable, *sys.argv[1:]])  # noqa: S606 - as asked
        _ask(server)
        answers = server.makefile()
        _pass_signals(int(answers.readline()))
        _end(int(answers.readline()))


def _ask(server: socket.socket) -> None:
    request = {"arguments": sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ)}  # noqa: PTH109 - pathlib is slow
    socket.send_fds(server, [b"+"], [0, 1, 2])
    server.sendall(json.dumps(request).encode())
    server.shutdown(socket.SHUT_WR)


def _pass_signals(process: int) -> None:
    def pass_on(number: int, _: FrameType | None) -> None:
        os.kill(process, number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)


def _end(code: int) -> None:
    """End with the exit code of the command, or by the signal that ended it, a negative one."""
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main()
