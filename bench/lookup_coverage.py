"""Intervals of embedding kernels on a CPU: a calibration of half the tables, tested on the others.

The measurements of ``bench.cpu_embedding``. Half of the sets of tables calibrate as ``planner
calibrate`` does: constants, and the 90th percentile of their own held-out errors, which is what a
profile says. The kernels of the other half are then tested, and the other way round.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.embedding_model import CACHE_BYTES, MeasuredRow, measured_rows
from costmodel.domain.plan import ComputeKernel
from costmodel.kernels.embedding import kernel_times
from costmodel.kernels.shard_traffic import Caches
from costmodel.uncertainty.error_model import NORMAL_90, log_sigma
from costmodel.uncertainty.sampling import Array
from planner.calibration.fit_embedding import (
    EmbeddingFit,
    LookupSetting,
    fit_lookups,
    point_traffic,
)
from planner.calibration.records import Record

PHASES = ("forward", "backward")


def results() -> dict[str, dict[str, Any]]:
    """Return how many kernels of unseen tables are inside, by phase, as JSON."""
    rows = [row for row in measured_rows() if _is_fused(row)]
    number = np.array([row.table_set for row in rows])
    halves = np.random.default_rng(0).permutation(number.max() + 1)[number] % 2
    held = np.zeros(2, dtype=np.int64)
    for half in (0, 1):
        known = [row for row, part in zip(rows, halves, strict=True) if part == half]
        asked = [row for row, part in zip(rows, halves, strict=True) if part != half]
        held += _held(known, asked)
    return {
        phase: {"points": len(rows), "held": int(count), "coverage": round(count / len(rows), 4)}
        for phase, count in zip(PHASES, held.tolist(), strict=True)
    }


def _held(known: Sequence[MeasuredRow], asked: Sequence[MeasuredRow]) -> NDArray[np.int64]:
    """Count forward and backward kernels inside their intervals."""
    least = np.min([row.seconds for row in known], axis=0)
    setting = LookupSetting(
        caches=Caches(l2_bytes=CACHE_BYTES),
        latency=0.0,
        forward_host=float(least[0]),
        backward_host=float(least[1]),
    )
    fit = fit_lookups([_record(row) for row in known], setting)
    errors = np.log([row.seconds for row in asked]) - np.log(_predicted(fit, setting, asked))
    spreads = (fit.forward, fit.backward)
    widest = [NORMAL_90 * (log_sigma(each.median, each.p90) or 0.0) for each in spreads]
    counted: NDArray[np.int64] = np.count_nonzero(np.abs(errors) <= widest, axis=0)
    return counted


def _predicted(fit: EmbeddingFit, setting: LookupSetting, rows: Sequence[MeasuredRow]) -> Array:
    """Return seconds, shape (kernels, 2)."""
    rates = fit.constants.rates(setting.latency)
    traffic = np.array([point_traffic(row.point, fit.caches) for row in rows])
    forward = setting.forward_host + kernel_times(traffic, rates, backward=False)
    backward = setting.backward_host + kernel_times(traffic, rates, backward=True)
    return np.stack([forward, backward], axis=1)


def _record(row: MeasuredRow) -> Record:
    return Record(point=row.point, seconds=dict(zip(PHASES, row.seconds, strict=True)))


def _is_fused(row: MeasuredRow) -> bool:
    return row.point.tables.compute_kernel is ComputeKernel.FUSED
