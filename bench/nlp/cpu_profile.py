"""The CPU profile of `bench.nlp`: measured times of operators, as YAML, in microseconds."""

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
from costmodel.base.units import US, Seconds

_SUFFIX = "_us"


def read_cpu_profile(path: Path) -> CpuProfile:
    """Read a CPU profile."""
    data: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return CpuProfile(
        name=data["name"],
        source=data["source"],
        near_bytes=float(data["near_bytes"]),
        far_bytes=float(data["far_bytes"]),
        products={name: MatrixTimes(**_times(row)) for name, row in data["products"].items()},
        operators={name: _operator(row) for name, row in data["operators"].items()},
        host=CpuHost(**_times(data["host"])),
        all_reduce=_all_reduce(data["all_reduce"]),
        in_step=InStep(**data.get("in_step", {})),
    )


def _times(row: Mapping[str, float]) -> dict[str, float]:
    """Return ``NAME_us`` as seconds under ``NAME_time``, and all else as it is."""
    return {
        f"{key.removesuffix(_SUFFIX)}_time" if key.endswith(_SUFFIX) else key: (
            value * US if key.endswith(_SUFFIX) else value
        )
        for key, value in row.items()
    }


def _operator(row: Mapping[str, Any]) -> OperatorTimes:
    return OperatorTimes(
        elements=tuple(map(float, row["elements"])),
        seconds=_curve(row["us"]),
        far_seconds=_curve(row.get("far_us", ())),
        run_time=row["run_us"] * US,
        error=row.get("error"),
    )


def _all_reduce(row: Mapping[str, Any]) -> CpuCollective:
    return CpuCollective(
        num_ranks=row["num_ranks"],
        sizes=tuple(map(float, row["bytes"])),
        seconds=_curve(row["us"]),
        work=_curve(row["work_us"]),
        error=row.get("error"),
    )


def _curve(microseconds: list[float]) -> tuple[Seconds, ...]:
    return tuple(each * US for each in microseconds)
