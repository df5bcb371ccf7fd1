"""Settings from flags, environment, project file and user file, in this order.

A setting is looked for in the command's flag, then ``PLANNER_HARDWARE`` and so on, then
``planner.toml`` in the working directory, then ``planner/config.toml`` in the user's configuration
directory; if it is nowhere, there is a default.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from costmodel.base.errors import InputError, Problem, suggestion
from costmodel.base.limits import MOST_ROWS, shown

if TYPE_CHECKING:
    from costmodel.base.units import Seconds

PROJECT_FILE = Path("planner.toml")
USER_FILE = Path("planner", "config.toml")
"""Path of the user's file under ``$XDG_CONFIG_HOME``, or ``~/.config``."""
DEFAULT_HARDWARE = "h100-sxm"
"""The profile to predict for if none is named."""
MOST_TIME = 1e7
"""Longest time limit, in seconds, some months: a longer one is a mistake."""
DEFAULT = "default"
"""Origin of a setting that was not made anywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Choices that all commands share."""

    hardware: str = DEFAULT_HARDWARE
    sharder: str = "auto"
    baseline: str | None = None
    """None: the port of TorchRec's planner."""
    seed: int = 0
    time_limit: "Seconds" = 10.0
    headroom: float = 0.1
    origins: Mapping[str, str]
    """Origin of each setting: ``flag``, an environment variable, a file, or ``default``."""


def parse_time(text: str) -> "Seconds":
    """Return seconds from ``10``, ``10s``, ``500ms`` or ``2m``."""
    units = {"ms": 1e-3, "s": 1.0, "m": 60.0, "": 1.0}
    number = text.strip().rstrip("ms")
    unit = text.strip()[len(number) :]
    try:
        seconds = float(number) * units[unit]
    except (ValueError, KeyError):
        raise ValueError(f"`{text}` is not a time; write `10s` or `2m`") from None
    if not 0 < seconds <= MOST_TIME:
        raise ValueError(f"a time must be above 0, and at most {MOST_TIME:g} s, got `{text}`")
    return seconds


_MOST_EXPONENT = 64.0
"""A power of a whole number but 1 is too large from there on."""


def parse_count(text: str) -> int:
    """Return a whole number of at least 1 from ``1e6``, ``1_000_000``, ``1000000`` or ``2**20``."""
    base, power, exponent = text.replace("^", "**").partition("**")
    try:
        number = float(base) ** min(float(exponent), _MOST_EXPONENT) if power else float(text)
    except (ValueError, OverflowError, ZeroDivisionError):
        raise ValueError(f"`{text}` is not a number") from None
    if isinstance(number, complex) or not 1 <= number <= MOST_ROWS or not number.is_integer():
        raise ValueError(f"a whole number from 1 to {MOST_ROWS:,} is needed, got `{text}`")
    return int(number)


def parse_multiple(text: str) -> int:
    """Return a whole number from ``4096``, ``4k`` (1,024 each) or ``1M`` (1,048,576)."""
    compact = text.strip().lower()
    factor = {"k": 1024, "m": 1024**2}.get(compact[-1:], 1)
    return parse_count(compact[:-1] if factor > 1 else compact) * factor


def parse_share(text: str) -> float:
    """Return a share of 1 from ``1%`` or ``0.01``."""
    number = text.strip()
    try:
        share = float(number.rstrip("%")) * (0.01 if number.endswith("%") else 1.0)
    except ValueError:
        raise ValueError(f"`{text}` is not a share; write `1%` or `0.01`") from None
    if not 0 <= share <= 1:
        raise ValueError(f"a share must be 0% to 100%, got `{text}`")
    return share


def parse_headroom(text: str) -> float:
    """Return the share of its memory that a rank is to keep free, below 1."""
    share = parse_share(text)
    if share == 1:
        raise ValueError(f"headroom must be below 100%, got `{text}`")
    return share


def _parse_seed(text: str) -> int:
    try:
        seed = int(text)
    except ValueError:
        raise ValueError(f"`{text[:40]}` is not a whole number") from None
    if not -(2**63) <= seed < 2**63:
        raise ValueError("a seed has at most 18 digits")
    return seed


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "hardware": str,
    "sharder": str,
    "baseline": str,
    "seed": _parse_seed,
    "time_limit": parse_time,
    "headroom": parse_headroom,
}


def resolve(
    flags: Mapping[str, object],
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Settings:
    """Return the settings that hold, given the flags (None: not given).

    Raises
    ------
    InputError
        A settings file is no TOML, or has an unknown key; a value cannot be read.

    """
    environment = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    origins = dict.fromkeys(_PARSERS, DEFAULT)
    for path in (*_user_file(environment), (directory or Path()) / PROJECT_FILE):
        for name, text in _read(path).items():
            values[name], origins[name] = _parsed(name, text, str(path)), str(path)
    for name in _PARSERS:
        variable = f"PLANNER_{name.upper()}"
        if environment.get(variable):
            values[name] = _parsed(name, environment[variable], variable)
            origins[name] = variable
        if flags.get(name) is not None:
            values[name], origins[name] = flags[name], "flag"
    return Settings(**values, origins=origins)


def _user_file(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the path of the user's file; nothing where there is no home."""
    from planner.files.disk import user_path

    folder = user_path(environment, "XDG_CONFIG_HOME", ".config")
    return () if folder is None else (folder / USER_FILE,)


def _read(path: Path) -> Mapping[str, str]:
    """Return the settings of a TOML file as text; none if there is no file."""
    if not os.path.isfile(path):  # noqa: PTH113 - where it cannot be known, it is no file
        return {}
    import tomllib

    from planner.files.disk import read_text

    try:
        data = tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise InputError(str(path), (Problem(message=f"not TOML: {error}".lower()),)) from None
    except (RecursionError, ValueError):
        message = "not usable: nested too deeply, or a number too long"
        raise InputError(str(path), (Problem(message=message),)) from None
    problems = [
        Problem(message=f"unknown setting `{name}`", hint=suggestion(name, tuple(_PARSERS)))
        for name in data
        if name not in _PARSERS
    ]
    if problems:
        raise InputError(str(path), problems)
    return {name: _text(name, value, path) for name, value in data.items()}


def _text(name: str, value: object, path: Path) -> str:
    """Return a setting of a file as the text that a flag would have.

    Only texts and numbers are allowed.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return shown(value) if abs(value) >= 10**20 else str(value)
    given = {bool: "true or false", list: "a list", dict: "a table"}.get(type(value), "a time")
    message = f"{name} must be a text or a number, got {given}"
    raise InputError(str(path), (Problem(message=message),))


def _parsed(name: str, text: str, source: str) -> object:
    try:
        return _PARSERS[name](text)
    except ValueError as error:
        raise InputError(source, (Problem(message=f"{name}: {error}"),)) from None
