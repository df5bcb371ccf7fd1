"""Whether TorchRec, and what it needs, is there; asked without importing it."""

from importlib.util import find_spec

from costmodel.base.errors import MissingDependencyError

_NEEDED = ("torch", "fbgemm_gpu", "torchrec")


def require_torchrec(needed_for: str) -> None:
    """Raise MissingDependencyError unless torch, FBGEMM and torchrec are installed."""
    for package in _NEEDED:
        if find_spec(package) is None:
            raise MissingDependencyError(package, needed_for, "torchrec")


def torchrec_installed() -> bool:
    """Return whether torch, FBGEMM and torchrec can be imported."""
    return all(find_spec(package) is not None for package in _NEEDED)
