"""The kernel families of a machine: points, hold-out errors, measured ranges."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from statistics import median

from costmodel.domain.hardware import (
    CollectiveCurve,
    CollectiveOp,
    GemmEfficiency,
    HardwareProfile,
    KernelFamily,
    Source,
)

BY_BYTES = KernelFamily(source=Source.ROOFLINE, origin="not measured: by the bytes of tensors")
NOT_MEASURED = KernelFamily(source=Source.ROOFLINE, origin="not measured")


class OtherFamily(StrEnum):
    """Families other than collectives and matrix products, which a profile may have."""

    EMBEDDING_FORWARD = "embedding_forward"
    EMBEDDING_BACKWARD = "embedding_backward"
    MEMORY_BOUND = "memory_bound"
    MEMORY_COPY = "memory_copy"
    OPERATORS = "operators"
    HOST = "host"
    INTER_NODE = "inter_node"


SINGLE_NUMBERS: Mapping[OtherFamily, str] = {
    OtherFamily.EMBEDDING_FORWARD: "gpu.lookup_efficiency",
    OtherFamily.EMBEDDING_BACKWARD: "gpu.update_efficiency",
    OtherFamily.MEMORY_BOUND: "gpu.memory_bandwidth",
    OtherFamily.MEMORY_COPY: "host.pcie_bandwidth",
    OtherFamily.OPERATORS: "gpu.element_times",
    OtherFamily.HOST: "host.op_time",
    OtherFamily.INTER_NODE: "inter_node.bandwidth",
}
"""The number of a profile that a family rests on if the profile does not have the family."""


def kernel_families(hardware: HardwareProfile) -> Mapping[str, KernelFamily]:
    """Return all families by name: collectives, matrix products by type, and the others.

    A collective's errors are the medians over its measured curves, each on one number of ranks. A
    family with a single number (``SINGLE_NUMBERS``) has its source and no error.
    """
    families = {}
    for op in CollectiveOp:
        curves = [curve for curve in hardware.curves if curve.op is op]
        link = _single(hardware, "intra_node.bandwidth")
        families[op.value] = _collective(curves) if curves else link
    for data_type, constants in hardware.gpu.gemm.items():
        origin = hardware.sources.get(f"gpu.gemm.{data_type}", "")
        families[f"gemm.{data_type}"] = _gemm(constants, origin)
    single = {name.value: _single(hardware, number) for name, number in SINGLE_NUMBERS.items()}
    streamed = replace(single["memory_bound"], source=Source.ROOFLINE, num_points=0)
    if not hardware.gpu.element_times:
        single["operators"] = BY_BYTES
    return {**families, **single, "memory_bound": streamed, **hardware.families}


GROUPS: Mapping[str, Callable[[str], bool]] = {
    "products": lambda family: family.startswith("gemm."),
    "lookups": lambda family: family == OtherFamily.EMBEDDING_FORWARD,
    "collectives": lambda family: family in set(CollectiveOp),
    "host": lambda family: family == OtherFamily.HOST,
}
"""What a step's kernels are of, and which families belong to it."""


def measured_groups(hardware: HardwareProfile) -> tuple[str, ...]:
    """Return those of ``GROUPS`` that were measured on a machine of this kind."""
    measured = {name for name, each in kernel_families(hardware).items() if each.num_points}
    return tuple(group for group, holds in GROUPS.items() if any(map(holds, measured)))


def is_lookup_covered(
    hardware: HardwareProfile, *, backward: bool, lookups: float, columns: Sequence[int] = ()
) -> bool:
    """Return whether a lookup lies in the measured range.

    ``lookups`` are all ids of the kernel; ``columns`` those of its tables, where they are known.
    """
    name = "embedding_backward" if backward else "embedding_forward"
    family = hardware.families.get(name, NOT_MEASURED)
    dims = all(family.covers(embedding_dim=float(each)) for each in columns)
    return dims and family.covers(lookups=lookups)


def _collective(curves: Sequence[CollectiveCurve]) -> KernelFamily:
    """Return what is known of a collective: errors are medians over its curves."""
    measured = [curve for curve in curves if curve.num_points] or curves
    last = [curve.last_measured or curve.knots[-1][0] for curve in measured]
    ranks = [float(curve.num_ranks) for curve in measured]
    return KernelFamily(
        source=measured[0].source,
        origin=measured[0].origin,
        num_points=sum(curve.num_points for curve in measured),
        error=_median([curve.error for curve in measured]),
        error_p90=_median([curve.error_p90 for curve in measured]),
        ranges={
            "num_ranks": (min(ranks), max(ranks)),
            "num_bytes": (min(curve.knots[0][0] for curve in measured), max(last)),
        },
    )


def _single(hardware: HardwareProfile, number: str) -> KernelFamily:
    """Return a family that rests on one number of a profile."""
    kind = hardware.kind(number)
    return KernelFamily(
        source=kind,
        origin=hardware.sources.get(number, "not said"),
        num_points=int(kind is Source.MEASURED),
    )


def _gemm(constants: GemmEfficiency, origin: str) -> KernelFamily:
    return KernelFamily(
        source=constants.kind if constants.num_points else Source.DATASHEET,
        origin=origin,
        num_points=constants.num_points,
        error=constants.error,
        error_p90=constants.error_p90,
        ranges=dict(zip("mnk", constants.shapes, strict=False)),
    )


def _median(errors: Sequence[float | None]) -> float | None:
    known = [error for error in errors if error is not None]
    return median(known) if known else None
