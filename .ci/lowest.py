"""Print the lowest versions that ``pyproject.toml`` allows, as constraints for pip."""

import re
import tomllib
from pathlib import Path

EXTRAS = ("inspect", "search")
"""Extras whose packages users install; those of developers are as new as they come."""
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)>=([0-9.]+)")


def main() -> None:
    """Print one constraint per line."""
    text = Path(__file__).parents[1].joinpath("pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    extras = project["optional-dependencies"]
    for requirement in (*project["dependencies"], *(r for name in EXTRAS for r in extras[name])):
        match = _REQUIREMENT.fullmatch(requirement)
        if match is None:
            raise SystemExit(f"`{requirement}` does not say which version is the lowest")
        print(f"{match[1]}=={match[2]}.*")


if __name__ == "__main__":
    main()
