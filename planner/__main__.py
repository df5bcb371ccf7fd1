"""``python -m planner`` and the script ``planner``; Ctrl-C also ends them during imports."""

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line and exit."""
    try:
        from planner.cli import main as run

        run()
    except KeyboardInterrupt as interrupt:
        from planner.environment.interrupts import INTERRUPTED, interrupted_code
        from planner.show.endings import Endings

        ended = Endings(sys.argv[1:]).interrupted(INTERRUPTED, interrupted_code(interrupt))
        sys.exit(ended)


if __name__ == "__main__":
    main()
