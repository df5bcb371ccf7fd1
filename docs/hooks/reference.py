"""Writes the pages of the reference that are made from the code: `python docs/hooks/reference.py`.

They are kept, so that links lead to them wherever the repository is read; a test compares.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import commands
import schemas
import torchrec_settings

FOLDER = Path(__file__).parents[1] / "reference"
PAGES: Mapping[str, Callable[[], str]] = {
    "commands.md": commands.page,
    "workload.md": lambda: schemas.page("workload"),
    "plan.md": lambda: schemas.page("plan"),
    "dense.md": lambda: schemas.page("dense"),
    "profile.md": lambda: schemas.page("profile"),
    "torchrec-settings.md": torchrec_settings.page,
}


def main() -> None:
    """Write the pages."""
    for name, make in PAGES.items():
        (FOLDER / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
