"""Attacks on the command line, one hostile input each: refused, or what came of it.

Each runs in a process of its own, whose CPU time and memory are limited, and needs nothing of the
planner but its command: ``python -m bench.robustness --only attacks --of CHECKOUT`` tries another
version's.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.robustness.attack_files import RAN, Words

MOST_TIME = 20
"""CPU seconds: most attacks that are refused take one, the import of torch five."""
MOST_WAIT = 120.0
"""Seconds until what neither computes nor ends counts as hanging."""
MOST_MEMORY = 2 * 2**30
"""Resident bytes; importing torch and torchrec takes 0.6 GB."""
_SPACE = 24 * 2**30
"""Address space: what asks for more has got through a limit."""
WITHSTOOD = "withstood"
_BAD_INPUT = 3
_CODES = {0, 2, 3, 4, 5}
_SCRIPT = "from planner.cli import main\nif __name__ == '__main__':\n    main()\n"
"""As pip installs it: the script's own folder is on the path, not the working directory."""


@dataclass(frozen=True, slots=True)
class Attack:
    """A hostile input."""

    point: str
    """What the threat model names: code, bounds, limits, parsers."""
    make: Callable[[Path], Words]
    """Writes its files into a folder, and returns the command that meets them there."""
    hidden: str | None = None
    """Text of another file that must not be shown."""
    most_time: int = MOST_TIME
    refused: bool = False
    """Whether any answer but a refusal shows what is not in the file."""


def outcome(attack: Attack, checkout: Path | None = None) -> str:
    """Return ``WITHSTOOD``, or what the attack did to a checkout's planner (None: to ours)."""
    with tempfile.TemporaryDirectory(prefix="attack-") as name:
        script = Path(name) / "bin" / "planner"
        folder = Path(name) / "work"
        script.parent.mkdir()
        folder.mkdir()
        script.write_text(_SCRIPT)
        words = (str(script), *attack.make(folder))
        with (folder / "said").open("w+b") as said:
            code, seconds, memory = _ran(folder, words, said.fileno(), checkout)
            said.seek(0)
            text = said.read().decode(errors="replace")
        if (folder / RAN).exists():
            return "ran what the file says"
        if attack.hidden is not None and attack.hidden in text:
            return "showed another file"
    return _came(attack, code, seconds, memory, text)


def _came(attack: Attack, code: int | str, seconds: float, memory: int, text: str) -> str:
    """Return what came of an attack that ran nothing, from how its process ended."""
    came = WITHSTOOD
    if code == "hang" and seconds < attack.most_time:
        came = "waited for ever"
    elif seconds > attack.most_time:
        came = f"ran for {attack.most_time} CPU seconds or more"
    elif "Traceback" in text:
        came = "traceback: " + next(line for line in reversed(text.split("\n")) if line)[:60]
    elif code not in _CODES:
        came = f"ended with {code}"
    elif attack.refused and code != _BAD_INPUT:
        came = "was read"
    elif memory > MOST_MEMORY:
        came = f"took {memory / 2**30:.1f} GiB"
    return came


def _ran(
    folder: Path, words: Words, output: int, checkout: Path | None
) -> tuple[int | str, float, int]:
    """Run a command; return its exit code, CPU seconds, and bytes of memory."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_TIME + 5, MOST_TIME + 10))
        resource.setrlimit(resource.RLIMIT_AS, (_SPACE, _SPACE))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    settings = {"XDG_CONFIG_HOME": str(folder), "PLANNER_COMPILE": "off"}
    path = {"PYTHONPATH": str(checkout or Path(__file__).parents[2])}
    interpreter = sys.executable if checkout is None else str(checkout / ".venv/bin/python")
    process = subprocess.Popen(  # noqa: S603 - our own command
        [interpreter, *words],
        cwd=folder, env={**os.environ, **settings, **path}, preexec_fn=limit,  # noqa: PLW1509
        stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
    )  # fmt: skip
    end = time.monotonic() + MOST_WAIT
    while True:
        done, status, used = os.wait4(process.pid, os.WNOHANG)
        if done:
            break
        if time.monotonic() > end:
            process.kill()
            _, _, used = os.wait4(process.pid, 0)
            return "hang", used.ru_utime + used.ru_stime, used.ru_maxrss * 1024
        time.sleep(0.02)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024
