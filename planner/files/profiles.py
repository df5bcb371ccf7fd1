"""Hardware profiles: YAML to ``HardwareProfile`` and back.

A number is written ``{value: 80 GiB, source: "..."}``, under its field's name. The source is a
sentence for people; ``kind`` beside it is a ``Source`` (``measured``, ``datasheet``, ``assumed``),
``measured`` if it is left out. The fitted sections, ``gemm`` and ``collectives``, name their source
once per entry.
"""

from dataclasses import replace
from functools import lru_cache
from importlib.resources import files
from operator import attrgetter
from pathlib import Path

from costmodel.base.errors import UnknownNameError
from costmodel.domain.hardware import HardwareProfile, Source
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
    return _without_false_sources(parse_profile(read_text(path), name))


def _without_false_sources(profile: HardwareProfile) -> HardwareProfile:
    """Return a profile without the shipped one's sources of numbers that are not its own.

    A copy of a shipped profile in which a number was changed still says where the old number comes
    from: the new one is assumed.
    """
    if profile.name not in profile_names():
        return profile
    shipped = _packaged(profile.name)
    changed = {
        name: f"assumed: written over {old:g} of the shipped {profile.name}"
        for name, said in profile.sources.items()
        if said == shipped.sources.get(name) and not name.startswith("gpu.gemm.")
        if isinstance(old := attrgetter(name)(shipped), int | float)
        if attrgetter(name)(profile) != old
    }
    kinds = {**profile.kinds, **dict.fromkeys(changed, Source.ASSUMED)}
    return replace(profile, sources={**profile.sources, **changed}, kinds=kinds)


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
