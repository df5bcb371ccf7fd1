"""Hardware profiles: YAML to ``HardwareProfile`` and back.

A number is written ``{value: 80 GiB, source: "..."}``, under its field's name. The source is a
sentence for people; ``kind`` beside it is a ``Source`` (``measured``, ``datasheet``, ``assumed``),
``measured`` if it is left out. The fitted sections, ``gemm`` and ``collectives``, name their source
once per entry.
"""

from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from costmodel.base.errors import UnknownNameError
from costmodel.domain.hardware import HardwareProfile
from planner.files.disk import read_text
from planner.files.profile_reading import profile_from_document
from planner.files.profile_yaml import profile_text
from planner.files.source import parse_yaml


def profile_names() -> tuple[str, ...]:
    """Return the names of the profiles that come with the planner."""
    names = (entry.name for entry in files("planner").joinpath("profiles").iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml")))


def load_profile(name_or_path: str | Path) -> HardwareProfile:
    """Read a profile, by its name or from a YAML file.

    Raises
    ------
    UnknownNameError
        No profile has that name, and it does not look like a path.
    InputError
        The file cannot be read, or is no profile; every problem found.

    """
    name = str(name_or_path)
    if name in profile_names():
        return _packaged(name)
    path = Path(name_or_path)
    is_named = path.suffix in {".yaml", ".yml", ".json"} or path.exists()
    if not name or not is_named:
        raise UnknownNameError("hardware profile", name, profile_names())
    return parse_profile(read_text(path), name)


def parse_profile(text: str, source: str) -> HardwareProfile:
    """Read a profile from YAML text; ``source`` names it in messages."""
    return profile_from_document(parse_yaml(text, source))


def dump_profile(profile: HardwareProfile) -> str:
    """Write a profile as YAML that `load_profile` reads back to the same numbers."""
    return profile_text(profile)


@lru_cache(maxsize=8)
def _packaged(name: str) -> HardwareProfile:
    resource = files("planner").joinpath("profiles", f"{name}.yaml")
    return parse_profile(resource.read_text(encoding="utf-8"), f"profiles/{name}.yaml")
