"""Checks that packages of extras are installed, without importing them."""

from importlib.util import find_spec

from costmodel.base.errors import MissingDependencyError

_TORCHREC = ("torch", "fbgemm_gpu", "torchrec")


def require(needed_for: str, extra: str, *packages: str) -> None:
    """Raise MissingDependencyError unless the packages, which an extra installs, are there."""
    for package in packages:
        if find_spec(package) is None:
            raise MissingDependencyError(package, needed_for, extra)


def require_torchrec(needed_for: str) -> None:
    """Raise MissingDependencyError unless torch, FBGEMM and torchrec are installed."""
    require(needed_for, "torchrec", *_TORCHREC)


def torchrec_installed() -> bool:
    """Return whether torch, FBGEMM and torchrec can be imported."""
    return all(find_spec(package) is not None for package in _TORCHREC)
