"""What stands behind the kernel families that are not fitted curves: lookups, networks."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bench.fitting.checks import node_errors
from bench.fitting.dense_kernels import KernelRow, held_out_errors, kernel_rows
from bench.fitting.launches import BACKWARD, FORWARD, LookupLaunch, launches
from bench.fitting.lookup_rates import LIKE_THE_STUDY, MEASURED, fitted, studied
from costmodel.domain.hardware import HardwareProfile, KernelFamily, Source
from planner.calibration.curves import accuracy

PHASES = {"embedding_forward": FORWARD, "embedding_backward": BACKWARD}


def families(profiles: Mapping[str, HardwareProfile]) -> dict[str, dict[str, KernelFamily]]:
    """Return, by profile, the families that say themselves what they rest on."""
    found: dict[str, dict[str, KernelFamily]] = {
        name: {family: lookups(name, phase) for family, phase in PHASES.items()}
        for name in profiles
    }
    dense = kernel_rows(profiles["v100-nvlink"].gpu)
    found["v100-nvlink"]["memory_bound"] = _memory_bound(dense)
    nodes = accuracy(node_errors(profiles["h100-sxm"]))
    for name in profiles:
        found[name]["inter_node"] = _inter_node(profiles[name], nodes.median, nodes.p90)
    return found


def lookups(profile: str, phase: str) -> KernelFamily:
    """Return what one phase of a GPU's lookups rests on, by ``bench.lookup_fit``.

    The error is that of launches whose shape was left out, all GPUs together, which have few each;
    of a GPU without launches, that of GPUs all of whose launches were left out. Lookups of GPUs
    like the one that was studied rest on its measurements; the error is that on sets of tables held
    out.
    """
    if profile in LIKE_THE_STUDY:
        return _studied(profile, f"embedding_{phase}")
    names = {
        row["name"]
        for row in fitted()["launches"]
        if row["gpu"] == profile and phase in row and row[phase]["in_fit"]
    }
    own = [launch for launch in launches() if launch.name in names]
    errors = fitted()["left_out" if own else "gpu_left_out"][phase]
    left_out = "shape was" if own else "GPU's launches were all"
    origin = (
        f"bench.lookup_fit: {errors['launches']} launches of all GPUs, {len(own)} of this one; the "
        f"error is that of launches whose {left_out} left out"
    )
    return KernelFamily(
        source=Source.ROOFLINE,
        origin=origin,
        num_points=len(own),
        error=errors["median"],
        error_p90=errors["p90"],
        ranges=_ranges(own) if own else {},
    )


def _studied(profile: str, family: str) -> KernelFamily:
    measured = studied().families[family]
    origin = f"bench.gpu_study: {measured.num_points} lookups on an H200, 2026-11-26; the error is "
    origin += "that of sets of tables held out"
    if profile != MEASURED:
        return replace(measured, source=Source.ROOFLINE, origin=origin, num_points=0, ranges={})
    return replace(measured, origin=origin)


def _ranges(own: Sequence[LookupLaunch]) -> dict[str, tuple[float, float]]:
    ids = [
        launch.num_samples * sum(table.pooling_factor for table in launch.tables) for launch in own
    ]
    columns = [float(table.embedding_dim) for launch in own for table in launch.tables]
    return {"lookups": (min(ids), max(ids)), "embedding_dim": (min(columns), max(columns))}


def _memory_bound(rows: Sequence[KernelRow]) -> KernelFamily:
    """Return elementwise kernels, concatenation, interaction and optimizer as one family."""
    errors = accuracy(held_out_errors(rows))
    return KernelFamily(
        source=Source.ROOFLINE,
        origin="v100_dlrm_kernels.csv: elementwise, concatenation, interaction, optimizer",
        num_points=len(rows),
        error=errors.median,
        error_p90=errors.p90,
    )


def _inter_node(profile: HardwareProfile, median: float, p90: float) -> KernelFamily:
    source = profile.sources["inter_node.bandwidth"]
    if profile.kind("inter_node.bandwidth") is not Source.MEASURED:
        return KernelFamily(source=Source.DATASHEET, origin=source)
    return KernelFamily(
        source=Source.MEASURED,
        origin=f"{source}; the error is that of 2 and 10 nodes, from 32 MiB up",
        num_points=1,
        error=median,
        error_p90=p90,
    )
