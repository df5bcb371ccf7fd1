"""Fit the constants of lookup kernels on GPUs to all public launches.

Run as ``python -m bench.lookup_fit [--write]``. One set of constants serves all GPUs, relative to
their memory bandwidth, and each GPU has deviations that its own launches must earn: least squares
over logarithms of time, soft beyond ``OUTLIER``, with a normal prior of ``DEVIATION`` on every
deviation. It prints what each launch misses, fitted and left out with its whole shape (whatever the
optimizer), and what a GPU's launches miss when all of them are left out. ``--write`` keeps all of
it; ``bench.fit_profiles`` puts the errors into the profiles.

Not fitted, but in the table: two small weighted launches that are bound by their longest bag, which
the source does not record; and three launches of 5 to 8 us of another lookup kernel (sparse-ads),
which starts its bags faster.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import least_squares

from bench.fitting.launches import (
    BACKWARD,
    FORWARD,
    MAIN,
    SORT,
    WEIGHT_GRADIENT,
    LookupLaunch,
    launches,
)
from bench.kept import print_and_keep
from costmodel.base.arrays import Array
from costmodel.base.units import MS, US, Seconds
from costmodel.domain.hardware import Gpu
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import DataType
from costmodel.kernels.embedding import combine, kernel_times
from costmodel.kernels.lookup_shards import LookupShard, LookupShards
from costmodel.kernels.shard_traffic import gpu_caches, shard_traffics
from costmodel.kernels.times import LookupRates
from costmodel.kernels.traffic import SORT_BLOCK_KEYS, Traffic
from planner.calibration.curves import accuracy
from planner.files.profiles import load_profile

RESULTS = Path(__file__).parent / "results" / "lookup_fit.json"
OUTLIER = 0.15
"""Log error from which on the loss grows linearly."""
DEVIATION = 0.2
"""Standard deviation, in log, of a GPU's own constants about the common ones."""
FREE = 1.5
"""The same of the common constants about where the search starts: next to free."""
SMALL: Seconds = 1 * MS
"""A backward below this is mostly latency; its parts are not fitted apart."""
SHORT: Seconds = 10 * US
"""Below this, another kernel's latency is not TBE's."""
OTHER_KERNEL = "embedding.csv: v100"
"""How names of launches of sparse-ads' kernel begin."""


class LookupConstants(NamedTuple):
    """What is fitted; rates as shares of, or bytes of, a GPU's memory bandwidth."""

    lookup_efficiency: float = 0.85
    update_efficiency: float = 0.75
    gather_ratio: float = 1.6
    """On-chip gather bandwidth over memory bandwidth."""
    gradient_bytes: float = 650.0
    """Bytes that HBM could move while an id's gradient is added up."""
    sort_bytes: float = 195.0
    """The same, for one key sorted."""
    backward_latencies: float = 50.0
    """Duration of a backward of few ids, in kernel latencies."""
    sort_latencies: float = 17.0
    """What sorting more than ``SORT_BLOCK_KEYS`` of them takes besides, likewise."""
    warp_bytes: float = 250.0
    row_time_us: float = 0.6
    start_rows: float = 5.0
    weight_gradient_ratio: float = 1.6


NUM_OWN = 5
"""The first constants deviate by GPU."""
START = LookupConstants()


@dataclass(frozen=True, slots=True)
class LookupFit:
    """Fitted logarithms: common, and what every GPU deviates by."""

    common: Array
    own: Mapping[str, Array]

    def constants(self, gpu: str) -> LookupConstants:
        """Return a GPU's constants; the common ones for a GPU that was not fitted to."""
        logs = self.common.copy()
        if gpu in self.own:
            logs[:NUM_OWN] += self.own[gpu]
        return LookupConstants(*np.exp(logs).tolist())


@lru_cache(maxsize=1)
def fitted_launches() -> tuple[LookupLaunch, ...]:
    """Return the launches with weights in HBM."""
    return tuple(each for each in launches() if each.place is ComputeKernel.FUSED)


@lru_cache(maxsize=16)
def _gpu(name: str) -> Gpu:
    return load_profile(name).gpu


def rates(constants: LookupConstants, gpu: Gpu) -> LookupRates:
    """Return a GPU's rates by these constants."""
    bandwidth = gpu.memory_bandwidth
    return LookupRates(
        latency=gpu.kernel_latency,
        forward_latency=gpu.kernel_latency,  # launches are of the lookup alone
        lookup_bandwidth=bandwidth * constants.lookup_efficiency,
        update_bandwidth=bandwidth * constants.update_efficiency,
        gather_bandwidth=bandwidth * constants.gather_ratio,
        backward_latency=gpu.kernel_latency * constants.backward_latencies,
        gradient_time=constants.gradient_bytes / bandwidth,
        sort_rate=bandwidth / constants.sort_bytes,
        sort_latency=gpu.kernel_latency * constants.sort_latencies,
        uvm_bandwidth=1.0,
        overlap=1.0,
        lookup_time=0.0,
        row_read_time=0.0,
        row_update_time=0.0,
        bag_time=0.0,
        forward_turn_time=0.0,
        backward_turn_time=0.0,
    )


def launch_traffic(launch: LookupLaunch, constants: LookupConstants) -> Array:
    """Return the summed traffic of a launch."""
    caches = gpu_caches(_gpu(launch.gpu))._replace(
        warp_bytes=constants.warp_bytes,
        row_time=constants.row_time_us * 1e-6,
        start_rows=constants.start_rows,
    )
    alike = Counter(replace(table, name="t") for table in launch.tables)
    shards = LookupShards.of([
        LookupShard.whole(table, float(launch.num_samples), launch.place) for table in alike
    ])
    rows = shard_traffics(
        shards, optimizer=launch.optimizer, output_type=DataType.FP32, caches=caches
    )
    repeated = np.repeat(rows, list(alike.values()), axis=0)
    total: Array = combine(repeated, np.zeros(len(repeated), dtype=np.intp), 1)
    return total


def predicted(launch: LookupLaunch, constants: LookupConstants) -> dict[str, Seconds]:
    """Return the seconds of every phase of a launch."""
    gpu = _gpu(launch.gpu)
    traffic, known = launch_traffic(launch, constants), rates(constants, gpu)
    forward = float(kernel_times(traffic, known, backward=False)[0])
    backward = float(kernel_times(traffic, known, backward=True)[0])
    keys = float(traffic[0, Traffic.KEYS])
    sort = keys / known.sort_rate + known.sort_latency * (keys > SORT_BLOCK_KEYS)
    gathered = forward - known.latency
    return {
        FORWARD: forward,
        BACKWARD: backward,
        MAIN: backward - known.backward_latency - sort,
        SORT: sort,
        WEIGHT_GRADIENT: known.latency + constants.weight_gradient_ratio * gathered,
    }


def phases_fitted(launch: LookupLaunch) -> list[str]:
    """Return the phases of a launch that are fitted to."""
    known = launch.seconds
    if launch.name.startswith(OTHER_KERNEL) and known[FORWARD] < SHORT:
        return []
    if known.get(BACKWARD, 0.0) < SMALL:
        longest_bag_unknown = launch.tables[0].weighted
        return [BACKWARD] if longest_bag_unknown else [p for p in (FORWARD, BACKWARD) if p in known]
    parts = [MAIN, SORT] if MAIN in known else []
    return [FORWARD, BACKWARD, *parts, *([WEIGHT_GRADIENT] if WEIGHT_GRADIENT in known else [])]


def fit(chosen: Sequence[LookupLaunch]) -> LookupFit:
    """Fit the constants to some launches."""
    gpus = sorted({launch.gpu for launch in chosen})
    start = np.log(np.array(START))

    def unpacked(x: Array) -> LookupFit:
        own = x[len(start) :].reshape(len(gpus), NUM_OWN)
        return LookupFit(x[: len(start)], dict(zip(gpus, own, strict=True)))

    def misses(x: Array) -> Array:
        current = unpacked(x)
        errors = np.array([
            np.log(times[phase] / launch.seconds[phase])
            for launch in chosen
            for times in (predicted(launch, current.constants(launch.gpu)),)
            for phase in phases_fitted(launch)
        ])
        soft = np.sqrt(2 * (np.sqrt(1 + (errors / OUTLIER) ** 2) - 1))
        prior = (x - np.concatenate((start, np.zeros(len(gpus) * NUM_OWN)))) / np.concatenate((
            np.full(len(start), FREE),
            np.full(len(gpus) * NUM_OWN, DEVIATION),
        ))
        return np.concatenate((np.sign(errors) * soft, prior))

    first = np.concatenate((start, np.zeros(len(gpus) * NUM_OWN)))
    return unpacked(least_squares(misses, first, max_nfev=30).x)


def shape(launch: LookupLaunch) -> object:
    """Return what two launches share if they differ in the optimizer only."""
    return launch.gpu, launch.num_samples, launch.tables


def results() -> dict[str, Any]:
    """Return constants, every launch's errors, and what intervals are worth, as JSON."""
    known = fitted_launches()
    everything = fit(known)
    rows = [_row(launch, everything, _without_shape(launch, known)) for launch in known]
    gpus = sorted({launch.gpu for launch in known})
    return {
        "constants": {
            "common": _rounded(everything.constants("")),
            **{gpu: _rounded(everything.constants(gpu)) for gpu in gpus},
        },
        "launches": rows,
        "left_out": {
            phase: _summary(row[phase]["left_out"] for row in rows if _is_fitted(row, phase))
            for phase in (FORWARD, BACKWARD, MAIN, SORT, WEIGHT_GRADIENT)
        },
        "gpu_left_out": _gpus_left_out(known, gpus),
    }


def _without_shape(launch: LookupLaunch, known: Sequence[LookupLaunch]) -> LookupFit:
    return fit([each for each in known if shape(each) != shape(launch)])


def _row(launch: LookupLaunch, everything: LookupFit, without: LookupFit) -> dict[str, Any]:
    inside = predicted(launch, everything.constants(launch.gpu))
    outside = predicted(launch, without.constants(launch.gpu))
    return {
        "name": launch.name,
        "gpu": launch.gpu,
        "assumed": launch.assumed,
        **{
            phase: {
                "measured_s": seconds,
                "fitted": round(inside[phase] / seconds - 1, 4),
                "left_out": round(outside[phase] / seconds - 1, 4),
                "in_fit": phase in phases_fitted(launch),
            }
            for phase, seconds in launch.seconds.items()
        },
    }


def _gpus_left_out(known: Sequence[LookupLaunch], gpus: Sequence[str]) -> dict[str, Any]:
    """Return errors of every GPU's launches by constants that were fitted to the others'."""
    errors: dict[str, list[float]] = {FORWARD: [], BACKWARD: []}
    for gpu in gpus:
        others = fit([launch for launch in known if launch.gpu != gpu])
        for launch in known:
            if launch.gpu == gpu:
                times = predicted(launch, others.constants(gpu))
                for phase in set(errors) & set(phases_fitted(launch)):
                    errors[phase].append(times[phase] / launch.seconds[phase] - 1)
    return {phase: _summary(values) for phase, values in errors.items()}


def _is_fitted(row: Mapping[str, Any], phase: str) -> bool:
    return phase in row and bool(row[phase]["in_fit"])


def _summary(errors: Iterable[float]) -> dict[str, float]:
    values = np.array(list(errors))
    found = accuracy(values)
    return {
        "launches": len(values),
        "mape": round(float(np.mean(np.abs(values))), 4),
        "median": round(found.median, 4),
        "p90": round(found.p90, 4),
        "worst": round(float(np.max(np.abs(values))), 4),
        "mean": round(float(np.mean(values)), 4),
    }


def _rounded(constants: LookupConstants) -> dict[str, float]:
    return {name: float(f"{value:.3g}") for name, value in constants._asdict().items()}


def show(found: Mapping[str, Any]) -> None:
    """Print tables."""
    names = list(found["constants"])
    print(f"{'':24}" + "".join(f"{name:>16}" for name in names))
    for constant in LookupConstants._fields:
        values = "".join(f"{found['constants'][name][constant]:16.3g}" for name in names)
        print(f"{constant:24}{values}")
    print("\nError fitted, and with the shape left out")
    for row in found["launches"]:
        cells = [
            f"{phase} {row[phase]['fitted']:+.0%} {row[phase]['left_out']:+.0%}"
            + ("" if row[phase]["in_fit"] else " (not fitted)")
            for phase in (FORWARD, BACKWARD, MAIN, SORT, WEIGHT_GRADIENT)
            if phase in row
        ]
        print(f"{row['name']:88.87} {'; '.join(cells)}")
    for title in ("left_out", "gpu_left_out"):
        for phase, values in found[title].items():
            print(title, phase, values)


if __name__ == "__main__":
    print_and_keep(__doc__, RESULTS, results, show)
