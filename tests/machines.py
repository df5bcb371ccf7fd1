"""Machines made up for tests: round numbers, so that expected times can be worked by hand."""

from costmodel.base.units import GB, GIB, TFLOP, US
from costmodel.domain.hardware import (
    CollectiveCurve,
    CollectiveOp,
    Device,
    GemmEfficiency,
    Gpu,
    HardwareProfile,
    Host,
    Link,
    Source,
    Topology,
)

PLAIN_GEMM = GemmEfficiency(
    peak=10 * TFLOP,
    max_efficiency=1.0,
    tile_efficiency=(1.0, 1.0, 1.0, 1.0),
    prologue_depth=0.0,
    split_time=0.0,
    l2_efficiency=1.0,
    memory_efficiency=1.0,
    latency=2 * US,
)


def gpu(*, bandwidth: float = 1000 * GB, memory: float = 80 * GIB) -> Gpu:
    return Gpu(
        name="test",
        memory_bytes=memory,
        memory_bandwidth=bandwidth,
        l2_bytes=1e6,
        l2_bandwidth=4000 * GB,
        num_sms=100,
        kernel_latency=2 * US,
        lookup_efficiency=1.0,
        update_efficiency=1.0,
        sort_rate=1e10,
        gemm={"fp32": PLAIN_GEMM, "bf16": PLAIN_GEMM},
    )


def machine(
    *,
    bandwidth: float = 1000 * GB,
    memory: float = 80 * GIB,
    link: float = 100 * GB,
    inter_node: float = 10 * GB,
    curves: tuple[CollectiveCurve, ...] = (),
    device: Device = Device.CUDA,
) -> HardwareProfile:
    return HardwareProfile(
        name="test",
        gpu=gpu(bandwidth=bandwidth, memory=memory),
        host=Host(
            memory_bytes=1000 * GIB,
            pcie_bandwidth=20 * GB,
            uvm_bandwidth=10 * GB,
            launch_time=5 * US,
            launch_latency=3 * US,
            op_time=10 * US,
            backward_op_time=12 * US,
            sync_time=8 * US,
        ),
        gpus_per_node=8,
        curves=curves,
        intra_node=Link(latency=10 * US, bandwidth=link),
        inter_node=Link(latency=20 * US, bandwidth=inter_node),
        sources={},
        device=device,
    )


def flat_curve(op: CollectiveOp, num_ranks: int) -> CollectiveCurve:
    knots = tuple((2.0**x, 10 * US + 2.0**x / (100 * GB)) for x in range(10, 31, 2))
    return CollectiveCurve(
        op=op, num_ranks=num_ranks, knots=knots, source=Source.MEASURED, origin="made up"
    )


def topology(
    world_size: int, local_world_size: int | None = None, hardware: HardwareProfile | None = None
) -> Topology:
    return Topology(
        hardware=hardware or machine(),
        world_size=world_size,
        local_world_size=local_world_size or world_size,
    )
