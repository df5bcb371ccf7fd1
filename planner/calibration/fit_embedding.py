"""Fitting the constants of the embedding roofline to measured lookups, and a correction.

A correction (``planner.calibration.correction``) is learned on the same lookups, and kept for
forward or backward where it makes the mean error on sets of tables held out smaller.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

from costmodel.base.arrays import Array
from costmodel.base.units import BytesPerSecond, Seconds
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.time_correction import NO_CORRECTION
from costmodel.kernels.shard_traffic import Caches
from costmodel.kernels.traffic import Traffic
from planner.calibration.correction import learned_correction
from planner.calibration.curves import Accuracy, accuracy
from planner.calibration.enough import check_enough
from planner.calibration.lookup_data import (
    Constants,
    LookupCorrections,
    LookupData,
    LookupSetting,
    lookup_data,
    lookup_errors,
    lookup_times,
    point_traffic,
    tables_of,
    weighted_points,
)
from planner.calibration.points import EmbeddingPoint, Family
from planner.calibration.records import Record

_IN_HOST_MEMORY = (ComputeKernel.FUSED_UVM, ComputeKernel.FUSED_UVM_CACHING)
_FEWEST_SETS = 2
"""Smallest number of sets of tables: one is held out, one is fitted to."""
_OUTLIER = 0.15
"""Residual, in log time, from which on the robust loss grows linearly."""
_CACHED_SHARES = (0.25, 0.5, 1.0)
"""Shares of a core's cache that rows may have; others or the output have the rest."""
_BAG_ROW_TIMES: tuple[Seconds, ...] = (600e-9, 300e-9)
"""Seconds that a warp of a GPU may take for a row of its own bag: at most ``ROW_GATHER_TIME``."""


_START = Constants(
    lookup_bandwidth=1e10,
    update_bandwidth=1e10,
    gather_bandwidth=1e11,
    sort_rate=1e8,
    overlap=0.5,
    lookup_time=1e-9,
    row_read_time=1e-9,
    row_update_time=1e-9,
)
_LARGER_START = Constants(
    lookup_bandwidth=1e12,
    update_bandwidth=1e12,
    gather_bandwidth=3e12,
    sort_rate=1e10,
    overlap=1.0,
    lookup_time=0.0,
    row_read_time=0.0,
    row_update_time=0.0,
)
_WARPS_START = _LARGER_START._replace(
    overlap=0.0,
    row_update_time=2e-10,
    gradient_time=1e-10,
    backward_latency=1e-4,
    sort_latency=4e-5,
    forward_latency=1e-5,
    bag_time=3e-10,
    forward_turn_time=2e-11,
    backward_turn_time=6e-11,
)
"""Where the descent of a GPU's constants begins; those at 0 stay 0. HBM and on-chip time add up."""
_LEAST, _MOST = 1e-3, 1e3
"""Smallest and largest factor by which a constant may change from its start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingFit:
    """Fitted constants, and their errors on sets of tables held out."""

    constants: Constants
    caches: Caches
    num_points: int
    forward: Accuracy
    backward: Accuracy
    by_kind: Mapping[str, Accuracy]
    """Errors by kind: backward by optimizer, ``forward dense`` and ``backward dense`` of replicated
    tables, which nothing is fitted to."""
    lookups: tuple[float, float]
    """Fewest and most ids of a measured batch."""
    embedding_dim: tuple[float, float]
    learned: LookupCorrections
    """Learned corrections, whether or not they are better."""
    corrections: LookupCorrections
    """The corrections that err less on sets of tables held out than none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UvmFit:
    """Bandwidth of rows from host memory, and its errors."""

    bandwidth: BytesPerSecond
    num_points: int
    errors: Accuracy
    """Errors of forward and backward, each predicted with the other folds' bandwidth."""


def fit_lookups(records: Sequence[Record], setting: LookupSetting) -> EmbeddingFit:
    """Return constants fitted to forward and backward together, in relative error.

    They are judged on folds of whole sets of tables. On a GPU, whose warps gather rows, times of
    bags, of ids and of rows are fitted, too, and times of a row of a bag compete; on a core the
    larger of HBM and on-chip time alone and the general form compete, and shares of the cache: the
    smallest mean error on held-out points wins.

    Raises
    ------
    TooFewPointsError
        Fewer than two sets of tables were measured.

    """
    fused = [r for r in records if tables_of(r).compute_kernel is ComputeKernel.FUSED]
    sets = {tables_of(record) for record in fused}
    check_enough(Family.EMBEDDING, len(sets), _FEWEST_SETS, "sets of tables with fused lookups")
    on_gpu = setting.caches.warp_bytes > 0
    starts = (_WARPS_START,) if on_gpu else (_START, _LARGER_START)
    every = list(_gpu_caches(setting.caches) if on_gpu else _core_caches(setting.caches))
    data_of = {caches: lookup_data(fused, caches) for caches in every}
    rivals = list(product(starts, every))
    judged = [_held_out(data_of[caches], start, setting) for start, caches in rivals]
    best = min(range(len(rivals)), key=lambda i: _mean(np.concatenate(judged[i].plain)))
    start, caches = rivals[best]
    constants = _fitted(data_of[caches], start, setting)
    learned = _learned(constants, data_of[caches], setting)
    corrections, (forward, backward) = _better(learned, judged[best]), judged[best].plain
    kinds = np.array([tables_of(record).optimizer.value for record in fused])
    by_kind = {f"backward {kind}": accuracy(backward[kinds == kind]) for kind in sorted(set(kinds))}
    dense = [r for r in records if tables_of(r).compute_kernel is ComputeKernel.DENSE]
    if dense:
        missed = lookup_errors(
            constants, lookup_data(dense, caches), setting, corrections=corrections
        )
        by_kind |= {"forward dense": accuracy(missed[0]), "backward dense": accuracy(missed[1])}
    lookups = data_of[caches].traffic[:, Traffic.LOOKUPS]
    dims = [dim for record in fused for dim in tables_of(record).embedding_dims]
    return EmbeddingFit(
        constants=constants,
        caches=caches,
        num_points=len(fused),
        forward=accuracy(forward),
        backward=accuracy(backward),
        by_kind=by_kind,
        lookups=(float(lookups.min()), float(lookups.max())),
        embedding_dim=(float(min(dims)), float(max(dims))),
        learned=learned,
        corrections=corrections,
    )


def _gpu_caches(caches: Caches) -> Iterator[Caches]:
    """Yield the cache models of a GPU that compete."""
    for row_time in _BAG_ROW_TIMES:
        yield caches._replace(row_time=row_time)


def _core_caches(caches: Caches) -> Iterator[Caches]:
    """Yield the cache models of a core that compete."""
    for share in _CACHED_SHARES:
        yield caches._replace(l2_bytes=share * caches.l2_bytes)


def _mean(errors: Array) -> float:
    return float(np.mean(np.abs(errors)))


def _better(learned: LookupCorrections, judged: "_HeldOutErrors") -> LookupCorrections:
    """Return those of the learned corrections that err less than none.

    The errors reported stay those of the roofline alone: errors of what was chosen by its errors
    are smaller than others would see.
    """
    kept = []
    phases = zip((learned.forward, learned.backward), judged.plain, judged.corrected, strict=True)
    for correction, plain, corrected in phases:
        kept.append(correction if _mean(corrected) < _mean(plain) else NO_CORRECTION)
    return LookupCorrections(*kept)


def fit_uvm(
    records: Sequence[Record], lookups: EmbeddingFit, setting: LookupSetting
) -> UvmFit | None:
    """Return the bandwidth of host memory, given the other constants; None: nothing shows it.

    A lookup's bandwidth is its bytes from host memory over the time that the other constants do not
    explain; the median counts.
    """
    some = [r for r in records if tables_of(r).compute_kernel in _IN_HOST_MEMORY]
    if not some:
        return None
    data = lookup_data(some, lookups.caches)
    rates = _implied_bandwidths(lookups, data, setting)
    known = np.isfinite(rates)
    if not known.any():
        return None
    errors: list[Array] = []
    for fold in np.unique(data.fold):
        out = data.fold == fold
        taught = rates[~out & known] if (~out & known).any() else rates[known]
        bandwidth = float(np.median(taught))
        errors += lookup_errors(
            lookups.constants, data.part(out), setting, bandwidth, lookups.corrections
        )
    return UvmFit(
        bandwidth=float(np.median(rates[known])),
        num_points=len(some),
        errors=accuracy(np.concatenate(errors)),
    )


def predicted_lookups(
    points: Sequence[EmbeddingPoint],
    fit: EmbeddingFit,
    setting: LookupSetting,
    uvm_bandwidth: BytesPerSecond = 1.0,
) -> tuple[Array, Array]:
    """Return seconds of forward and backward of lookups, including the host's part."""
    traffic = np.array([point_traffic(point, fit.caches) for point in points])
    weighted = weighted_points(points, fit.caches)
    return lookup_times(fit.constants, traffic, weighted, setting, uvm_bandwidth, fit.corrections)


class _HeldOutErrors(NamedTuple):
    """Relative errors of forward and backward, each point predicted without its fold."""

    plain: tuple[Array, Array]
    corrected: tuple[Array, Array]


def _held_out(data: LookupData, start: Constants, setting: LookupSetting) -> _HeldOutErrors:
    """Return the errors of every point by constants fitted without its group of tables."""
    plain, corrected = (
        (np.zeros(len(data.forward)), np.zeros(len(data.forward))) for _ in range(2)
    )
    for fold in np.unique(data.fold):
        out = data.fold == fold
        known, asked = data.part(~out), data.part(out)
        constants = _fitted(known, start, setting)
        learned = _learned(constants, known, setting)
        plain[0][out], plain[1][out] = lookup_errors(constants, asked, setting)
        corrected[0][out], corrected[1][out] = lookup_errors(
            constants, asked, setting, corrections=learned
        )
    return _HeldOutErrors(plain, corrected)


def _learned(constants: Constants, data: LookupData, setting: LookupSetting) -> LookupCorrections:
    """Return the corrections learned; weighted lookups count for the forward only."""
    forward, backward = lookup_times(constants, data.traffic, data.weighted, setting, 1.0)
    alone = data.weighted == 0
    return LookupCorrections(
        learned_correction(forward - setting.forward_host, data.forward - setting.forward_host),
        learned_correction(
            backward[alone] - setting.backward_host, data.backward[alone] - setting.backward_host
        ),
    )


def _fitted(data: LookupData, start: Constants, setting: LookupSetting) -> Constants:
    """Return constants of least robust log error; the logarithms of those not fixed are varied."""
    first = np.array(start)
    free = (first > 0) & ~((first == 1.0) & (np.array(Constants._fields) == "overlap"))

    def constants(logs: Array) -> Constants:
        values = first.copy()
        values[free] = first[free] * np.exp(logs)
        made = Constants(*values.tolist())
        return made._replace(overlap=min(1.0, made.overlap))

    def miss(logs: Array) -> Array:
        forward, backward = lookup_errors(constants(logs), data, setting)
        return np.log1p(np.concatenate((forward, backward)))

    limits = np.full(int(free.sum()), np.log(_MOST))
    guess = np.zeros(int(free.sum()))
    found = least_squares(miss, guess, bounds=(-limits, limits), loss="soft_l1", f_scale=_OUTLIER)
    return constants(found.x)


def _implied_bandwidths(lookups: EmbeddingFit, data: LookupData, setting: LookupSetting) -> Array:
    """Return the bandwidth that explains each lookup's time, forward and backward together.

    NaN where nothing comes from host memory, or the rest explains all of the time.
    """
    rest = sum(
        lookup_times(
            lookups.constants, data.traffic, data.weighted, setting, np.inf, lookups.corrections
        )
    )
    left = data.forward + data.backward - rest
    moved = data.traffic[:, [Traffic.FORWARD_UVM, Traffic.BACKWARD_UVM]].sum(axis=1)
    return np.where((left > 0) & (moved > 0), moved / np.where(left > 0, left, 1.0), np.nan)
