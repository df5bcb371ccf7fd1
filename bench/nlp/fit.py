"""From micro-benchmarks and steps of tiny models to a CPU profile."""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from bench.nlp.cpu_graph import CORE, cpu_machine
from bench.nlp.cpu_model import (
    CpuCollective,
    CpuHost,
    CpuModel,
    CpuProfile,
    InStep,
    MatrixTimes,
    OperatorTimes,
)
from costmodel.step.simulator import simulate
from planner.traces.predict.calls import OpFamily
from planner.traces.predict.timed_graph import timed_graph
from planner.traces.predict.walk import RankWork, TracedWorkKind

Row = Mapping[str, Any]
_HOST = ("python_calls", "dispatches", "functions", "accumulations")
_DRAW = 0.1
"""Weight of a factor's distance from 1 beside the relative errors of steps."""
NO_HOST = CpuHost(
    python_call_time=0.0,
    dispatch_time=0.0,
    function_time=0.0,
    accumulation_time=0.0,
    step_time=0.0,
)


def relative_fit(
    rows: Sequence[Sequence[float]],
    times: Sequence[float],
    near_one: Sequence[int] = (),
) -> NDArray[np.float64]:
    """Return factors of at least 0 that minimise squared relative errors.

    Those of some columns are drawn towards 1: where the samples do not tell, they stay there.
    """
    measured = np.array(times)
    drawn = _DRAW * np.eye(len(rows[0]))[list(near_one)]
    samples = np.vstack([np.array(rows) / measured[:, None], drawn])
    targets = np.append(np.ones(len(measured)), np.full(len(near_one), _DRAW))
    factors: NDArray[np.float64] = nnls(samples, targets)[0]
    return factors


def median_error(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Return the median of |predicted / measured - 1|."""
    return statistics.median(abs(a / b - 1) for a, b in pairs) if pairs else None


def products(rows: Sequence[Row]) -> dict[str, MatrixTimes]:
    """Fit every matrix product; each fourth shape is held out for the error."""
    by_name = defaultdict(list)
    for row in rows:
        by_name[row["operator"]].append(row)
    fitted = {}
    for name, mine in by_name.items():
        kept = _samples([row for index, row in enumerate(mine) if index % 4])
        trial = relative_fit(*kept)
        pairs = [(float(np.dot(trial, s)), t) for s, t in zip(*_samples(mine[::4]), strict=True)]
        factors = [float(each) for each in relative_fit(*_samples(mine))]
        fitted[name] = MatrixTimes(
            call_time=factors[0],
            product_time=factors[1],
            flop_time=factors[2],
            byte_time=factors[3],
            far_byte_time=factors[4],
            error=median_error(pairs),
        )
    return fitted


def _samples(rows: Sequence[Row]) -> tuple[list[tuple[float, ...]], list[float]]:
    """Return sizes and times of operands near and far."""
    sizes = [_sizes(row, far) for far in (0.0, 1.0) for row in rows]
    return sizes, [row[key] for key in ("seconds", "far_seconds") for row in rows]


def _sizes(row: Row, far: float) -> tuple[float, ...]:
    count, m, n, k = row["shape"]
    moved = 4.0 * count * (m * k + k * n + m * n)
    return 1.0, count, 2.0 * count * m * n * k, moved, far * moved


def operators(rows: Sequence[Row], long: int) -> dict[str, OperatorTimes]:
    """Make a curve of every operator from its long rows, and the cost of a row from short ones."""
    by_name = defaultdict(list)
    for row in rows:
        by_name[row["operator"]].append(row)
    fitted = {}
    for name, mine in by_name.items():
        kept = [row for row in mine if not row["held_out"]]
        trial = _curve(kept, long)
        pairs = [
            (trial.time(row["elements"], row["runs"], far), row[key])
            for row in mine
            if row["held_out"]
            for far, key in ((0.0, "seconds"), (1.0, "far_seconds"))
        ]
        made = _curve(mine, long)
        fitted[name] = OperatorTimes(
            elements=made.elements,
            seconds=made.seconds,
            far_seconds=made.far_seconds,
            run_time=made.run_time,
            error=median_error(pairs),
        )
    return fitted


def _curve(rows: Sequence[Row], long: int) -> OperatorTimes:
    """Take the rows' share off the curves of long rows: what is left is that of elements."""
    knots = sorted((row for row in rows if row["width"] == long), key=lambda r: r["elements"])
    short = [row for row in rows if row["width"] != long]
    sizes = tuple(float(row["elements"]) for row in knots)
    raw = OperatorTimes(elements=sizes, seconds=tuple(row["seconds"] for row in knots))
    extra = [
        (row["seconds"] - raw.time(row["elements"])) / (row["runs"] - row["elements"] / long)
        for row in short
    ]
    run = max(0.0, statistics.median(extra)) if extra else 0.0

    def alone(key: str) -> tuple[float, ...]:
        return tuple(max(r[key] - run * r["runs"] * (r["runs"] > 1), r[key] / 2) for r in knots)

    return OperatorTimes(
        elements=sizes, seconds=alone("seconds"), far_seconds=alone("far_seconds"), run_time=run
    )


def all_reduce(rows: Sequence[Row], num_ranks: int) -> CpuCollective:
    """Make the curves of all-reduces; each second size is held out for the error."""
    sizes = tuple(row["bytes"] for row in rows)
    wall, work = (_growing([row[key] for row in rows]) for key in ("wall_s", "work_s"))
    half = OperatorTimes(elements=sizes[::2], seconds=wall[::2])
    pairs = [(half.time(s), t) for s, t in zip(sizes[1:-1:2], wall[1:-1:2], strict=True)]
    return CpuCollective(
        num_ranks=num_ranks,
        sizes=sizes,
        seconds=wall,
        work=tuple(map(min, work, wall)),
        error=median_error(pairs),
    )


def _growing(times: Sequence[float]) -> tuple[float, ...]:
    """Return times that no larger message undercuts."""
    return tuple(min(times[index:]) for index in range(len(times)))


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """A step that was traced and timed, in seconds."""

    work: RankWork
    wall: float
    """Wall time of the slower rank."""
    cpu: float
    """Processor time of one rank's threads, the mean of the ranks."""


def steps(profile: CpuProfile, measured: Sequence[MeasuredStep]) -> tuple[CpuHost, InStep]:
    """Fit what the host takes, and how much longer kernels take, to steps' CPU times."""
    model = CpuModel(profile)
    rows, left = [], []
    for step in measured:
        counts = (float(sum(each)) for each in _counts(step.work))
        rows.append([*counts, 1.0, *kernel_times(step.work, model)])
        left.append(step.cpu - _collectives(step.work, profile))
    kernels = (len(rows[0]) - 2, len(rows[0]) - 1)
    factors = [float(factor) for factor in relative_fit(rows, left, near_one=kernels)]
    pairs = [(float(np.dot(factors, r)), t) for r, t in zip(rows, left, strict=True)]
    host = CpuHost(
        python_call_time=factors[0],
        dispatch_time=factors[1],
        function_time=factors[2],
        accumulation_time=factors[3],
        step_time=factors[4],
        error=median_error(pairs),
    )
    return host, InStep(products=factors[5], operators=factors[6])


def waiting(profile: CpuProfile, measured: Sequence[MeasuredStep]) -> float:
    """Return how much longer collectives wait within steps than by themselves.

    That is the median over steps of what passes while no core works, measured over simulated.
    """
    num_ranks = profile.all_reduce.num_ranks if profile.all_reduce is not None else 1
    machine, ratios = cpu_machine(profile), []
    for step in measured:
        timeline = simulate(timed_graph([step.work] * num_ranks, machine).graph)
        idle = timeline.step_time - sum(timeline.busy(0)[CORE].values())
        if idle > 0 and step.wall > step.cpu:
            ratios.append((step.wall - step.cpu) / idle)
    return statistics.median(ratios) if ratios else 1.0


def _counts(work: RankWork) -> list[list[int]]:
    found = [*(item.before for item in work.items), work.after]
    return [[getattr(counts, name) for counts in found] for name in _HOST]


def kernel_times(work: RankWork, model: CpuModel) -> tuple[float, float]:
    """Return the times of matrix products and of all other kernels."""
    times = [0.0, 0.0]
    for item in work.items:
        if item.call is not None and (estimate := model.kernel(item.call)) is not None:
            times[item.call.family is not OpFamily.GEMM] += estimate.seconds
    return times[0], times[1]


def _collectives(work: RankWork, profile: CpuProfile) -> float:
    """Return the CPU time of collectives."""
    if profile.all_reduce is None:
        return 0.0
    sizes = (item.num_bytes for item in work.items if item.kind is TracedWorkKind.COLLECTIVE)
    return sum(map(profile.all_reduce.work_time, sizes))
