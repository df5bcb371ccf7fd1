"""Checks that everything the planner needs is there."""

import platform
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, entry_points, version
from importlib.util import find_spec

from costmodel.base.errors import PlannerError

_NEEDED = {
    "numpy": "numpy",
    "click": "click",
    "rich": "rich",
    "PyYAML": "yaml",
    "pydantic": "pydantic",
    "highspy": "highspy",
    "joblib": "joblib",
}
"""Module to import, by package."""
_OPTIONAL = {
    "torch": ("torch", "torchrec", "calibrating and validating"),
    "torchrec": ("torchrec", "torchrec", "handing plans to TorchRec"),
    "vl-convert-python": ("vl_convert", "page", "pages (`--html`)"),
    "altair": ("altair", "page", "charts in notebooks"),
    "pandas": ("pandas", "notebook", "data frames"),
    "pulp": ("pulp", "search", "the sharders `ilp` and `lns`"),
    "optuna": ("optuna", "search", "the sharder `optuna`"),
    "cmaes": ("cmaes", "search", "the sharder `optuna`"),
    "scipy": ("scipy", "inspect", "`inspect`, calibrating and validating"),
    "pyarrow": ("pyarrow", "inspect", "`inspect`"),
    "distributed": ("distributed", "dask", "`sweep --backend dask`"),
    "ray": ("ray", "ray", "`sweep --backend ray`"),
}
"""Module, extra that installs it, and use, by package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was checked."""

    name: str
    good: bool
    needed: bool = True
    detail: str
    remedy: str = ""
    """How to mend what is not good."""


def checks() -> tuple[Check, ...]:
    """Return the checks of packages, profiles, sharders and settings."""
    return (
        Check(name="python", good=True, detail=platform.python_version()),
        *(_needed(name, module) for name, module in _NEEDED.items()),
        *(_optional(name, *about) for name, about in _OPTIONAL.items()),
        *_profiles(),
        *_sharders(),
        _compiled(),
        _settings(),
    )


def _needed(name: str, module: str) -> Check:
    """Return the check of a package, which is imported: an installed one may be broken."""
    try:
        import_module(module)
        return Check(name=name, good=True, detail=version(name))
    except PackageNotFoundError:
        return Check(name=name, good=False, detail="not installed", remedy=f"pip install {name}")
    except ImportError as error:
        reinstall = f"pip install --force-reinstall {name}"
        return Check(name=name, good=False, detail=f"not imported: {error}", remedy=reinstall)


def _optional(name: str, module: str, extra: str, use: str) -> Check:
    """Return the check of a package, which is not imported: torch takes seconds."""
    if find_spec(module) is not None:
        with suppress(PackageNotFoundError):
            return Check(name=name, good=True, needed=False, detail=version(name))
    detail = f"not installed; only for {use}"
    remedy = f"pip install '.[{extra}]'"
    return Check(name=name, good=False, needed=False, detail=detail, remedy=remedy)


def _profiles() -> Iterator[Check]:
    from planner.files.profiles import load_profile, profile_names

    for name in profile_names():
        try:
            load_profile(name)
        except PlannerError as error:
            remedy = "reinstall shardwise: profiles that ship are not to be changed"
            yield Check(name=f"profile {name}", good=False, detail=str(error), remedy=remedy)
    yield Check(name="profiles", good=bool(profile_names()), detail=", ".join(profile_names()))


def _sharders() -> Iterator[Check]:
    from planner.search.plugins import GROUP, load_sharder, sharder_names

    for point in entry_points(group=GROUP):
        try:
            load_sharder(point.name)
        except PlannerError as error:
            package = point.dist.name if point.dist else point.value
            remedy = error.hint or f"update or uninstall `{package}`, which offers it"
            yield Check(name=f"plug-in {point.name}", good=False, detail=str(error), remedy=remedy)
    yield Check(name="sharders", good=True, detail=", ".join(sharder_names()))


def _compiled() -> Check:
    from planner.environment.compiled import INTERPRETED, MODULES, REMEDY, interpreted_modules

    name, missing = "compiled search", interpreted_modules()
    if missing:
        return Check(name=name, good=False, needed=False, detail=INTERPRETED, remedy=REMEDY)
    return Check(name=name, good=True, detail=f"all {len(MODULES)} modules")


def _settings() -> Check:
    from planner.environment.settings import DEFAULT, resolve
    from planner.files.profiles import load_profile
    from planner.search.baseline import NONE
    from planner.search.plugins import load_sharder
    from planner.search.search import sharders_for

    try:
        settings = resolve({})
        origins = settings.origins
        load_profile(settings.hardware)
        for sharder in sharders_for(settings.sharder):
            load_sharder(sharder)
        if settings.baseline not in {None, NONE}:
            load_sharder(settings.baseline)
    except PlannerError as error:
        remedy = error.hint or "mend what is named; `planner plan --help` has the values"
        return Check(name="settings", good=False, detail=str(error), remedy=remedy)
    made = [f"{name} from {origin}" for name, origin in origins.items() if origin != DEFAULT]
    return Check(name="settings", good=True, detail=", ".join(made) or "defaults")
