"""Runs a module's ``main`` once per rank, in children of one process that has imported the module.

    python -m bench.forked_ranks MODULE WORLD_SIZE ARGUMENT...

Every rank finds MODULE RANK WORLD_SIZE ARGUMENT... in ``sys.argv``. Importing TorchRec takes some
four seconds of processor time, and most ranks of benches and tests train for less.
"""

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path

from bench.forked_python import python_command

ROOT = Path(__file__).parents[1]


def command(module: str, world_size: int, *arguments: object) -> Sequence[str]:
    """Return the command that starts all ranks, to be run in ``ROOT``."""
    ranks = map(str, (world_size, *arguments))
    return [*python_command(), "-m", "bench.forked_ranks", module, *ranks]


def main() -> None:
    """Start all ranks and wait for them; exit with 1 if one of them fails."""
    name, world_size, arguments = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    module = import_module(name)

    def rank_main(rank: int) -> None:
        sys.argv = [name, str(rank), str(world_size), *arguments]
        module.main()

    sys.exit(int(any(run_ranks(rank_main, world_size))))


def run_ranks(rank_main: Callable[[int], None], world_size: int) -> list[int]:
    """Run a function once per rank, in children of this process; return how each ended.

    This process must not have computed anything with torch: its threads are not in its children.
    """
    children = []
    for rank in range(world_size):
        child = os.fork()
        if child == 0:
            os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world_size)}
            _run(partial(rank_main, rank))
        children.append(child)
    return [os.waitpid(child, 0)[1] for child in children]


def _run(rank: Callable[[], None]) -> None:
    """Run a rank, and end its process whatever happens."""
    code = 1
    try:
        rank()
        code = 0
    except BaseException:  # noqa: BLE001 - whoever started the ranks reads it, whatever it is
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
