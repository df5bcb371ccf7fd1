"""``python -m planner`` and the script ``planner``; Ctrl-C also ends them during imports."""

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line and exit."""
    try:
        from planner.cli import main as run

        if sys.argv[1:2] == ["inspect"]:
            _outlive_readers()
        run()
    except KeyboardInterrupt as interrupt:
        from planner.environment.interrupts import INTERRUPTED, interrupted_code
        from planner.show.endings import Endings

        ended = Endings(sys.argv[1:]).interrupted(INTERRUPTED, interrupted_code(interrupt))
        sys.exit(ended)


def _outlive_readers() -> None:
    """Return in a fork, whose end this process tells of: damaged files end libraries in C++."""
    from planner.environment.forks import CRASHES, can_fork, forked
    from planner.show.endings import Endings

    if can_fork() and (ended := forked()) is not None:
        sys.exit(Endings(sys.argv[1:]).of_process(ended, crashed=-ended in CRASHES))


if __name__ == "__main__":
    main()
