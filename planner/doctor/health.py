"""Is everything there that the planner needs."""

import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, entry_points, version

from costmodel.base.errors import PlannerError

_NEEDED = ("numpy", "click", "rich", "PyYAML", "pydantic", "scipy")
_OPTIONAL = {
    "torch": "calibrating and validating",
    "torchrec": "handing plans to TorchRec",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing looked at."""

    name: str
    good: bool
    needed: bool = True
    detail: str


def checks() -> tuple[Check, ...]:
    """Look at packages, profiles, sharders and settings."""
    return (
        Check(name="python", good=True, detail=platform.python_version()),
        *(_package(name, needed=True, use="") for name in _NEEDED),
        *(_package(name, needed=False, use=use) for name, use in _OPTIONAL.items()),
        *_profiles(),
        *_sharders(),
        _compiled(),
        _settings(),
    )


def _package(name: str, *, needed: bool, use: str) -> Check:
    try:
        return Check(name=name, good=True, needed=needed, detail=version(name))
    except PackageNotFoundError:
        detail = f"not installed; only for {use}" if use else "not installed"
        return Check(name=name, good=False, needed=needed, detail=detail)


def _profiles() -> Iterator[Check]:
    from planner.files.profiles import load_profile, profile_names

    for name in profile_names():
        try:
            load_profile(name)
        except PlannerError as error:
            yield Check(name=f"profile {name}", good=False, detail=str(error))
    yield Check(name="profiles", good=bool(profile_names()), detail=", ".join(profile_names()))


def _sharders() -> Iterator[Check]:
    from planner.planning.plugins import GROUP, load_sharder, sharder_names

    for point in entry_points(group=GROUP):
        try:
            load_sharder(point.name)
        except PlannerError as error:
            yield Check(name=f"plug-in {point.name}", good=False, detail=str(error))
    yield Check(name="sharders", good=True, detail=", ".join(sharder_names()))


def _compiled() -> Check:
    from planner.environment.compiled import INTERPRETED, MODULES, REMEDY, interpreted_modules

    name, missing = "compiled search", interpreted_modules()
    if missing:
        return Check(name=name, good=False, needed=False, detail=f"{INTERPRETED}; {REMEDY}")
    return Check(name=name, good=True, detail=f"all {len(MODULES)} modules")


def _settings() -> Check:
    from planner.environment.settings import DEFAULT, resolve

    try:
        origins = resolve({}).origins
    except PlannerError as error:
        return Check(name="settings", good=False, detail=str(error))
    made = [f"{name} from {origin}" for name, origin in origins.items() if origin != DEFAULT]
    return Check(name="settings", good=True, detail=", ".join(made) or "defaults")
