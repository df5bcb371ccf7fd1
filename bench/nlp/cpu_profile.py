"""CPU profiles as YAML: measured times of operators, in microseconds.

A file of this kind says ``kind: cpu-operators``; other hardware profiles are those of
`planner.files.profiles`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from bench.nlp.cpu_model import (
    CpuCollective,
    CpuHost,
    CpuProfile,
    InStep,
    MatrixTimes,
    OperatorTimes,
)
from costmodel.base.errors import InputError, Problem
from costmodel.base.units import US
from planner.files.disk import read_text
from planner.files.source import Document, KeyPath, parse_yaml

KIND = "cpu-operators"
_PRODUCT = ("call_time", "product_time", "flop_time", "byte_time", "far_byte_time")
_HOST = ("python_call_time", "dispatch_time", "function_time", "accumulation_time", "step_time")
_IN_STEP = ("products", "operators", "waiting")
_DIGITS = 5


def read_cpu_profile(path: str | Path) -> CpuProfile:
    """Read a CPU profile.

    Raises
    ------
    InputError
        It cannot be read, or misses something; with the place of it.

    """
    text = read_text(path)
    document = parse_yaml(text, str(path))
    return _ProfileReader(document, str(path)).profile()


class _ProfileReader:
    """Turns a document into a profile; the first problem of each entry is kept."""

    def __init__(self, document: Document, source: str) -> None:
        self.document = document
        self.source = source
        self.problems: list[Problem] = []

    def profile(self) -> CpuProfile:
        data = self.document.data
        products = {n: self._product(n) for n in self._names("products")}
        operators = {n: self._operator(n) for n in self._names("operators")}
        host = self._numbers(("host",), _HOST)
        rotated = [self._get((key,)) for key in ("near_bytes", "far_bytes")]
        if not all(map(_is_number, rotated)) or not 0 < rotated[0] < rotated[1]:
            self._problem((), "`near_bytes` and `far_bytes` must be numbers, the second larger")
        reduced = self._all_reduce() if "all_reduce" in data else None
        in_step = self._in_step() if "in_step" in data else InStep()
        if self.problems or host is None:
            raise InputError(self.source, self.problems, self.document.text)
        return CpuProfile(
            name=str(data.get("name", self.source)),
            source=str(data.get("source", "")),
            near_bytes=float(rotated[0]),
            far_bytes=float(rotated[1]),
            products={name: times for name, times in products.items() if times is not None},
            operators={name: times for name, times in operators.items() if times is not None},
            host=CpuHost(**host, error=self._error(("host",))),
            all_reduce=reduced,
            in_step=in_step,
        )

    def _in_step(self) -> InStep:
        factors = [self._get(("in_step", name)) for name in _IN_STEP]
        if all(_is_number(factor) and factor > 0 for factor in factors):
            return InStep(**dict(zip(_IN_STEP, map(float, factors), strict=True)))
        listed = ", ".join(f"`{name}`" for name in _IN_STEP)
        self._problem(("in_step",), f"`in_step` needs numbers above 0 for {listed}")
        return InStep()

    def _names(self, section: str) -> list[str]:
        found = self.document.data.get(section)
        if not isinstance(found, Mapping):
            self._problem((section,), f"`{section}` must map operators to their times")
            return []
        return [str(name) for name in found]

    def _product(self, name: str) -> MatrixTimes | None:
        path = ("products", name)
        values = self._numbers(path, _PRODUCT)
        try:
            return None if values is None else MatrixTimes(**values, error=self._error(path))
        except ValueError as error:
            self._problem(path, f"`{name}`: {error}")
            return None

    def _operator(self, name: str) -> OperatorTimes | None:
        path = ("operators", name)
        sizes, times = self._list((*path, "elements")), self._list((*path, "us"))
        far = self._list((*path, "far_us")) if self._get((*path, "far_us")) else ()
        run = self._numbers(path, ("run_time",))
        if sizes is None or times is None or far is None or run is None:
            return None
        try:
            return OperatorTimes(
                elements=sizes,
                seconds=tuple(time * US for time in times),
                far_seconds=tuple(time * US for time in far),
                run_time=run["run_time"],
                error=self._error(path),
            )
        except ValueError as error:
            self._problem(path, f"`{name}` {error}")
            return None

    def _all_reduce(self) -> CpuCollective | None:
        path = ("all_reduce",)
        columns = [self._list((*path, key)) for key in ("bytes", "us", "work_us")]
        ranks = self._get((*path, "num_ranks"))
        if None in columns or not isinstance(ranks, int):
            self._problem(path, "`all_reduce` needs `num_ranks`, `bytes`, `us` and `work_us`")
            return None
        sizes, wall, work = (column or () for column in columns)
        try:
            return CpuCollective(
                num_ranks=ranks,
                sizes=sizes,
                seconds=tuple(time * US for time in wall),
                work=tuple(time * US for time in work),
                error=self._error(path),
            )
        except ValueError as error:
            self._problem(path, f"`all_reduce` {error}")
            return None

    def _numbers(self, path: KeyPath, names: tuple[str, ...]) -> dict[str, float] | None:
        """Return times that the file has in microseconds under ``NAME_us`` for ``NAME_time``."""
        keys = {name: f"{name.removesuffix('_time')}_us" for name in names}
        found = {name: self._get((*path, key)) for name, key in keys.items()}
        wrong = [keys[name] for name, value in found.items() if not _is_number(value)]
        if wrong:
            listed = ", ".join(f"`{key}`" for key in wrong)
            self._problem(path, f"`{'.'.join(map(str, path))}` needs a number for {listed}")
            return None
        return {name: float(value) * US for name, value in found.items()}

    def _list(self, path: KeyPath) -> tuple[float, ...] | None:
        found = self._get(path)
        if not isinstance(found, list) or not found or not all(map(_is_number, found)):
            self._problem(path, f"`{path[-1]}` of `{path[-2]}` must be a list of numbers")
            return None
        return tuple(map(float, found))

    def _error(self, path: KeyPath) -> float | None:
        found = self._get((*path, "error"))
        return float(found) if _is_number(found) else None

    def _get(self, path: KeyPath) -> Any:  # noqa: ANN401 - from a file
        here = self.document.data
        for part in path:
            here = here.get(part) if isinstance(here, Mapping) else None
        return here

    def _problem(self, path: KeyPath, message: str) -> None:
        self.problems.append(self.document.problem(message, path))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def dump_cpu_profile(profile: CpuProfile) -> str:
    """Write a profile as YAML that `read_cpu_profile` reads back."""
    host = {f"{n.removesuffix('_time')}_us": _us(getattr(profile.host, n)) for n in _HOST}
    data: dict[str, Any] = {
        "kind": KIND,
        "name": profile.name,
        "source": profile.source,
        "near_bytes": profile.near_bytes,
        "far_bytes": profile.far_bytes,
        "host": _with_error(host, profile.host.error),
        "in_step": {n: float(f"{getattr(profile.in_step, n):.{_DIGITS}g}") for n in _IN_STEP},
        "products": {
            name: _with_error(
                {f"{n.removesuffix('_time')}_us": _us(getattr(times, n)) for n in _PRODUCT},
                times.error,
            )
            for name, times in profile.products.items()
        },
        "operators": {name: _operator(times) for name, times in profile.operators.items()},
    }
    if profile.all_reduce is not None:
        reduced = profile.all_reduce
        curves = {
            "num_ranks": reduced.num_ranks,
            "bytes": list(reduced.sizes),
            "us": [_us(time) for time in reduced.seconds],
            "work_us": [_us(time) for time in reduced.work],
        }
        data["all_reduce"] = _with_error(curves, reduced.error)
    return yaml.safe_dump(data, sort_keys=False, default_flow_style=None, width=99)


def _operator(times: OperatorTimes) -> dict[str, Any]:
    return _with_error(
        {
            "elements": [int(size) for size in times.elements],
            "us": [_us(time) for time in times.seconds],
            "far_us": [_us(time) for time in times.far_seconds],
            "run_us": _us(times.run_time),
        },
        times.error,
    )


def _with_error(values: dict[str, Any], error: float | None) -> dict[str, Any]:
    return values if error is None else {**values, "error": float(f"{error:.3g}")}


def _us(seconds: float) -> float:
    return float(f"{seconds / US:.{_DIGITS}g}")
