"""Compiled code of the search: made once per machine, in the background.

The annealer has a core that numba compiles (``sharders.native``), which takes a minute or two
and is kept on disk, as an object file that later searches call without importing numba. A search
does not wait for it: until it is there, the search runs on numpy, and the first search that would
use it has it compiled by a process of its own, which may outlive it.
``PLANNER_COMPILE`` in the environment says ``wait`` (compile before searching) or ``off``
(never use compiled code); the default is ``background``.
"""

import hashlib
import importlib
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from random import Random
from typing import Any

import costmodel
import sharders
from costmodel.execution.native_code import Native
from planner.machine_code import processor, read
from sharders.problem import Budget, ShardingProblem

VARIABLE = "PLANNER_COMPILE"
BACKGROUND, WAIT, OFF = "background", "wait", "off"
SMALLEST = 100
"""Tables times GPUs from which on compiled code is worth loading: below, numpy is done sooner."""
MOST_RANKS = 32_767
"""Compiled code keeps ranks in 16 bits (``sharders.native.tables``)."""
PREFIX = "compiled-search-"
VERSIONS = 8
"""Of the code, or of where it is installed, to keep compiled; each takes some 10 MiB."""
GIVEN_UP_AFTER = 600.0
"""Seconds after which a process that was to compile is taken to have died."""


def is_compiled(problem: ShardingProblem) -> bool:
    """Return whether a search may use compiled code; see to it that a later one may."""
    if is_to_hand(problem):
        load()
        return True
    if not _is_wanted(problem):
        return False
    if os.environ.get(VARIABLE) == WAIT:
        compile_now()
        return True
    compile_in_background()
    return False


def is_to_hand(problem: ShardingProblem) -> bool:
    """Return whether there is compiled code that a search would use; nothing is loaded."""
    return _is_wanted(problem) and is_ready()


def _is_wanted(problem: ShardingProblem) -> bool:
    size = len(problem.workload.tables) * problem.topology.world_size
    off = os.environ.get(VARIABLE, BACKGROUND) == OFF
    few = problem.topology.world_size <= MOST_RANKS
    return size >= SMALLEST and few and not off and is_available()


@cache
def is_available() -> bool:
    """Return whether numba is installed."""
    try:
        version("numba")
    except PackageNotFoundError:
        return False
    return True


def is_ready() -> bool:
    """Return whether the code of this version has been compiled on this machine."""
    return _marker().exists()


def compile_now() -> None:
    """Compile, unless it has been done, which takes a minute or two; and load what was made."""
    if not is_ready():
        _compile()
    load()


@cache
def load() -> None:
    """Hand the search its compiled code; without any, have numba compile what is called."""
    from sharders.native.engine import ENTRIES

    try:
        code = read(_object_file(), [entry.name for entry in ENTRIES])
    except (OSError, RuntimeError):
        _keep()
        return
    for entry in ENTRIES:
        entry.code = code[entry.name]


def _compile() -> None:
    """Compile all that a search calls, and note that it was done."""
    from planner.examples import example_problem, example_workload
    from planner.object_code import noted, write
    from sharders.annealing import Annealing
    from sharders.native.engine import ENTRIES, Engine

    with suppress(OSError):  # numba then finds another place; nothing is noted
        directory().mkdir(parents=True, exist_ok=True)
    _keep()
    problem = example_problem(example_workload(8, seed=0), world_size=4)
    budget = Budget(max_evaluations=200, compiled=lambda: True)
    with noted(ENTRIES) as calls:
        plan = Annealing().shard(problem, budget, Random(0)).plan  # noqa: S311 - not hiding
        engine = Engine(problem, [plan])
        option, ranks = engine.choices_of(plan)
        engine.step_times(option[None], ranks[None])
    with suppress(OSError):
        with suppress(RuntimeError):  # later processes then go through numba
            write(_object_file(), calls)
        _marker().touch()
        _forget_oldest()


def _keep() -> None:
    """Have numba keep what it compiles in this version's directory.

    By itself numba looks for changes in a function's own file only, and would go on with what the
    functions it calls, and the constants it reads, were before.
    """
    config: Any = importlib.import_module("numba.core.config")
    importlib.import_module("sharders.native.engine")
    before = config.CACHE_DIR
    config.CACHE_DIR = str(directory())
    try:
        for function in Native.everyone:
            function.dispatcher  # noqa: B018 - chooses where to keep it
    finally:
        config.CACHE_DIR = before


def _forget_oldest() -> None:
    """Remove what was compiled of old versions."""
    made = [each for each in directory().parent.glob(f"{PREFIX}*") if each.is_dir()]
    made.sort(key=lambda each: each.stat().st_mtime, reverse=True)
    for each in made[VERSIONS:]:
        shutil.rmtree(each, ignore_errors=True)


def compile_in_background() -> None:
    """Start a process that compiles, unless one has been started."""
    claim = directory().with_suffix(".claimed")
    try:
        claim.parent.mkdir(parents=True, exist_ok=True)
        if claim.exists() and time.time() - claim.stat().st_mtime < GIVEN_UP_AFTER:
            return
        claim.touch()
    except OSError:
        return  # nowhere to keep a note: each search would start a process
    subprocess.Popen(
        [sys.executable, "-m", "planner.compiling"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


@cache
def directory() -> Path:
    """Return where what this numba has compiled of this code, for this processor, is kept."""
    made_by = sys.prefix, sys.version, version("numba"), version("llvmlite")
    place = Path(sharders.__file__).parent
    digest = hashlib.sha256(" ".join([str(place), *made_by, *processor()]).encode())
    for source in _sources():
        digest.update(source.read_bytes())
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home, "planner", f"{PREFIX}{digest.hexdigest()[:16]}")


def _marker() -> Path:
    """Return the file that exists once all of it has been compiled."""
    return directory() / "ready"


def _object_file() -> Path:
    """Return the file that processes without numba call the search from."""
    return directory() / "search.o"


def _sources() -> list[Path]:
    """Return the files whose code, or whose constants, are compiled."""
    model, search = Path(costmodel.__file__).parent, Path(sharders.__file__).parent
    return [
        Path(__file__).with_name("machine_code.py"),
        Path(__file__).with_name("object_code.py"),
        search / "guide.py",
        search / "moves.py",
        search / "search_state.py",
        *sorted(search.glob("native/*.py")),
        model / "plan.py",
        model / "execution" / "synthesis.py",
        model / "execution" / "template.py",
        *sorted(model.glob("execution/[ln]*.py")),
        *sorted(model.glob("kernels/*.py")),
    ]


if __name__ == "__main__":
    if hasattr(os, "nice"):
        os.nice(10)
    compile_now()
