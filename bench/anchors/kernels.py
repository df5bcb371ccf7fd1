"""Anchors of kernels: lookups one by one; matrix products, collectives and the rest by set."""

from collections.abc import Iterator

import numpy as np

from bench.anchors.anchor import Anchor, single
from bench.fitting.checks import ACROSS_RANKS, across_nodes
from bench.fitting.collectives import Measurements
from bench.fitting.dense_kernels import by_kind, kernel_rows
from bench.fitting.gemm import CHECKED, MEASURED, TF32_MEASURED, errors_on, products
from bench.fitting.launches import BACKWARD, FORWARD, LookupLaunch, launches
from bench.fitting.lookups_alone import lookups_alone
from costmodel.domain.hardware import CollectiveOp
from costmodel.kernels.collectives import RankGroup, collective_time
from costmodel.kernels.embedding import embedding_estimate
from planner.files.profiles import load_profile


def lookups() -> Iterator[Anchor]:
    """Yield forward and backward of every public lookup launch."""
    for launch in launches():
        predicted = predicted_phases(launch)
        for phase, seconds in predicted.items():
            if phase in launch.seconds:
                yield single(
                    f"lookup {phase}",
                    launch.name,
                    measured=launch.seconds[phase],
                    predicted=seconds,
                )


def predicted_phases(launch: LookupLaunch) -> dict[str, float]:
    """Return the seconds of forward and backward by the shipped profile."""
    forward, backward = embedding_estimate(
        launch.tables,
        num_samples=launch.num_samples,
        optimizer=launch.optimizer,
        hardware=lookups_alone(launch.gpu),
    )
    return {FORWARD: forward.seconds, BACKWARD: backward.seconds}


def matrix_products() -> Iterator[Anchor]:
    """Yield the mean error on all products of every GPU and type that was measured."""
    fits = {**MEASURED, "h100-sxm tf32": TF32_MEASURED}
    for name, (gpu, column, data_type) in fits.items():
        profile = name.split(" ", maxsplit=1)[0]
        errors = errors_on(products(gpu, column), data_type, load_profile(profile).gpu)
        yield _set(f"matrix product {data_type.value}", profile, errors)
    for profile, (gpu, column, data_type) in CHECKED.items():
        errors = errors_on(products(gpu, column), data_type, load_profile(profile).gpu)
        yield _set(f"matrix product {data_type.value}, another lab", profile, errors)


def collectives() -> Iterator[Anchor]:
    """Yield the mean error of every measured curve, and of other numbers of nodes."""
    measured = Measurements()
    groups = {**ACROSS_RANKS, "l40s-pcie": ("L40S",)}
    for name, gpus in groups.items():
        profile = load_profile(name)
        for op in CollectiveOp:
            for ranks in (2, 4, 8):
                samples, _ = measured.samples(gpus, op, ranks)
                kept = samples.sizes > 0
                if not kept.any():
                    continue
                group = RankGroup(num_ranks=ranks, ranks_per_node=ranks)
                predicted = collective_time(op, samples.sizes[kept], group, profile)
                errors = predicted / samples.times[kept] - 1
                yield _set(f"collective {op.value}", f"{name}, {ranks} ranks", errors)
    for case, error in across_nodes(load_profile("h100-sxm")).items():
        yield Anchor(family="collective between nodes", name=f"h100-sxm, {case}", error=error)


def dense_kernels() -> Iterator[Anchor]:
    """Yield elementwise kernels, interaction and optimizer of profiled V100 steps, by kind."""
    for row in by_kind(kernel_rows(load_profile("v100-nvlink").gpu)):
        yield Anchor(
            family="dense kernel",
            name=f"v100-nvlink, {row['kind']}",
            points=int(str(row["kernels"])),
            error=float(str(row["mape"])),
        )


def _set(family: str, name: str, errors: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Anchor:
    return Anchor(
        family=family, name=name, points=len(errors), error=float(np.mean(np.abs(errors)))
    )
