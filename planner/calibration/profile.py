"""From measurements to a hardware profile: every family fitted, every number with its source."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from costmodel.base.arrays import Array
from costmodel.base.units import GB, US, Bytes, Seconds
from costmodel.domain.hardware import (
    CollectiveCurve,
    CollectiveOp,
    Device,
    Gpu,
    HardwareProfile,
    Host,
    KernelFamily,
    Link,
    Source,
)
from costmodel.kernels.collectives import bus_factor
from costmodel.kernels.shard_traffic import Caches, warp_caches
from costmodel.step.issue import LOOKUP, LOOKUP_BACKWARD
from planner.calibration.curves import Accuracy, Samples, accuracy, fitted_family, rounded
from planner.calibration.enough import check_enough
from planner.calibration.fit_collectives import fit_samples, uneven_errors
from planner.calibration.fit_embedding import (
    EmbeddingFit,
    UvmFit,
    fit_lookups,
    fit_uvm,
)
from planner.calibration.fit_gemm import fit_gemm
from planner.calibration.fit_host import HostFit, fit_host
from planner.calibration.fit_stream import CALL_TIME, StreamFit, StreamSetting, fit_stream
from planner.calibration.fit_updates import by_backward
from planner.calibration.lookup_data import LookupSetting
from planner.calibration.own_times import fit_own_times
from planner.calibration.points import (
    CollectivePoint,
    EmbeddingPoint,
    Family,
    GemmPoint,
    HostPart,
    HostPoint,
    StreamOp,
    StreamPoint,
)
from planner.calibration.records import Measured, Record, origin_text

_ASSUMED_LINK = Link(latency=10 * US, bandwidth=10 * GB)
"""Link between ranks of a node if neither measured nor in a base profile."""
_ASSUMED_NETWORK = Link(latency=30 * US, bandwidth=12.5 * GB)
"""Between nodes: 100 Gb/s Ethernet or InfiniBand per rank."""
_SHARES = {
    "concat_efficiency": StreamOp.CONCAT,
    "view_efficiency": StreamOp.VIEWS,
    "in_place_efficiency": StreamOp.IN_PLACE,
}
"""Fields of ``Gpu``, and the operator that each is fitted to."""
_UVM_SHARE = 0.8
"""Share of the copy bandwidth that gathers of rows reach: assumed, as in the V100's profile."""
_GPU_LOOKUPS = (
    "gradient_time", "backward_latency", "sort_latency", "forward_latency", "bag_row_time",
    "bag_time", "forward_turn_time", "backward_turn_time",
)  # fmt: skip
"""Constants that are fitted to lookups of a GPU and not to a core's."""
_MOST_SHARE = 10.0
"""Largest share of the bandwidth of lookups, as in files: a fit is free if nothing measured is
bound by it."""
_ASSUMED = "assumed, not measured; give a profile that has it with --hardware"
_FEWEST_SIZES = 10
"""Number of message sizes that a curve needs: half of the inner ones are held out, and forms of
three lines compete, each through at least two points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """Facts about the machine that measuring does not give."""

    name: str
    memory_bytes: Bytes
    host_memory_bytes: Bytes
    l2_bytes: Bytes
    """Last-level cache of one rank."""
    num_sms: int
    """Number of SMs; 1 on a CPU, one core per rank."""
    ranks_per_node: int
    """GPUs that the node has, one rank each, or CPU ranks that were measured together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """A profile, with errors that its families do not have."""

    profile: HardwareProfile
    errors: Mapping[str, Accuracy]
    """By optimizer, of replicated tables, in host memory, and of uneven messages."""
    setting: LookupSetting
    """Facts known before lookups were fitted."""
    memory: StreamSetting
    """Facts known before memory-bound operators were fitted."""


@dataclass(frozen=True, slots=True)
class _Fits:
    stream: StreamFit
    host: HostFit
    setting: LookupSetting
    memory: StreamSetting
    lookups: EmbeddingFit
    uvm: UvmFit | None
    synchronous: bool
    origin: str


def fit_profile(
    measured: Measured, machine: MachineFacts, base: HardwareProfile | None = None
) -> Calibrated:
    """Return the profile fitted to all families; ``base`` has links and curves not measured."""
    facts, records = measured.machine, measured.records
    synchronous = facts["device"] == "cpu"
    memory = stream_setting(measured, machine)
    stream = fit_stream(_of_kind(records, StreamPoint), memory)
    host = fit_host(_of_kind(records, HostPoint), synchronous=synchronous)
    setting = _setting(machine, stream, host, synchronous=synchronous)
    plain, backwards = by_backward(_of_kind(records, EmbeddingPoint), on_core=synchronous)
    lookups = fit_lookups(plain, setting)
    uvm = fit_uvm(_of_kind(records, EmbeddingPoint), lookups, setting)
    fits = _Fits(stream, host, setting, memory, lookups, uvm, synchronous, origin_text(facts))
    gpu, sources = _gpu(machine, setting.latency, fits)
    own = fit_own_times(records, backwards, lookups, setting, gpu=gpu, origin=fits.origin)
    gemm, gemm_sources, batched = fit_gemm(_of_kind(records, GemmPoint), gpu, fits.origin)
    curves = _curves(_of_kind(records, CollectivePoint), fits.origin)
    others = base.curves if base else ()
    measured_keys = {(curve.op, curve.num_ranks, curve.num_nodes) for curve in curves}
    kept = tuple(c for c in others if (c.op, c.num_ranks, c.num_nodes) not in measured_keys)
    host_side, host_sources = _host(_of_kind(records, HostPoint), machine, gpu, fits)
    links, link_sources, link_kinds = _links(curves, base, fits.origin)
    profile = HardwareProfile(
        name=machine.name,
        gpu=replace(gpu, gemm=gemm, **own.fields),
        host=host_side,
        gpus_per_node=machine.ranks_per_node,
        curves=(*curves, *kept),
        intra_node=links[0],
        inter_node=links[1],
        sources={
            "gpus_per_node": "GPUs that torch sees, or CPU ranks of the calibration",
            **sources, **own.sources, **gemm_sources, **host_sources, **link_sources,
        },
        kinds={**link_kinds, **_uvm_kind(fits)},
        device=Device.CPU if synchronous else Device.CUDA,
        families={**_families(fits), **own.families},
    )  # fmt: skip
    uneven = uneven_errors(_of_kind(records, CollectivePoint), profile)
    return _calibrated(profile, fits, uneven, {**batched, **own.errors})


def stream_setting(measured: Measured, machine: MachineFacts) -> StreamSetting:
    """Return the facts known before memory-bound operators are fitted."""
    on_core = measured.machine["device"] == "cpu"
    return StreamSetting(
        maps_anew=on_core and not measured.machine.get("keeps_memory", False),
        on_core=on_core,
        cache_bytes=machine.l2_bytes if on_core else 0.0,
    )


def _of_kind(records: Sequence[Record], kind: type) -> list[Record]:
    return [record for record in records if isinstance(record.point, kind)]


def _setting(
    machine: MachineFacts, stream: StreamFit, host: HostFit, *, synchronous: bool
) -> LookupSetting:
    """Return the facts known before lookups are fitted.

    On CPU the measured times have the host's operators in them, which the step model charges by
    themselves; and a kernel starts when it is called, so an idle one takes next to nothing.
    """
    if not synchronous:
        caches = warp_caches(machine.l2_bytes, num_sms=machine.num_sms)
        return LookupSetting(caches=caches, latency=rounded(stream.latency))
    return LookupSetting(
        caches=Caches(l2_bytes=machine.l2_bytes),
        latency=CALL_TIME,
        forward_host=LOOKUP.num_ops * host.times["op_time"],
        backward_host=LOOKUP_BACKWARD.num_ops * host.times["backward_op_time"],
    )


def _gpu(machine: MachineFacts, latency: Seconds, fits: _Fits) -> tuple[Gpu, dict[str, str]]:
    """Return the device without its products, and the sources of its numbers."""
    fitted, bandwidth = fits.lookups.constants, rounded(fits.stream.bandwidth)
    shares: dict[str, Any] = {name: rounded(share) for name, share in _shares(fits).items()}
    as_fitted: dict[str, Any] = {
        name: rounded(number)
        for name, number in fitted._asdict().items()
        if not name.endswith("_bandwidth")  # shares of the memory's, in a profile
    }
    gpu = Gpu(
        name=machine.name,
        memory_bytes=machine.memory_bytes,
        memory_bandwidth=bandwidth,
        l2_bytes=fits.lookups.caches.l2_bytes,
        l2_bandwidth=rounded(fitted.gather_bandwidth),
        num_sms=machine.num_sms,
        kernel_latency=latency,
        lookup_efficiency=rounded(min(_MOST_SHARE, fitted.lookup_bandwidth / bandwidth)),
        update_efficiency=rounded(min(_MOST_SHARE, fitted.update_bandwidth / bandwidth)),
        gemm={},
        bag_row_time=0.0 if fits.synchronous else fits.lookups.caches.row_time,
        forward_correction=fits.lookups.corrections.forward,
        backward_correction=fits.lookups.corrections.backward,
        stream_correction=fits.stream.correction,
        **shares,
        **as_fitted,
    )
    lookups = f"fitted to {fits.lookups.num_points} lookups: {fits.origin}"
    names = (
        "l2_bandwidth", "lookup_efficiency", "update_efficiency", "sort_rate",
        "overlap", "lookup_time", "row_read_time", "row_update_time",
        *(() if fits.synchronous else _GPU_LOOKUPS),
    )  # fmt: skip
    share = fits.lookups.caches.l2_bytes / machine.l2_bytes
    streams = f"memory-bound operators: {fits.origin}"
    return gpu, {
        **{f"gpu.{name}": lookups for name in names},
        **{
            f"gpu.{name}": f"learned, smaller errors on sets of tables held out: {lookups}"
            for name in ("forward_correction", "backward_correction")
            if getattr(gpu, name).knots
        },
        **(
            {"gpu.stream_correction": f"learned, smaller errors on sizes held out: {streams}"}
            if gpu.stream_correction.knots
            else {}
        ),
        "gpu.memory_bytes": "a rank's share of what the system reports",
        "gpu.memory_bandwidth": _stream_text(fits),
        "gpu.l2_bytes": f"{share:g} of a rank's last-level cache, the share that explains lookups",
        **dict.fromkeys((f"gpu.{name}" for name in _shares(fits)), _share_text(fits)),
        "gpu.num_sms": "one core per rank" if fits.synchronous else "reported by the driver",
        "gpu.kernel_latency": "a function call; issuing it is host time"
        if fits.synchronous
        else f"intercept of {fits.stream.num_points} copies and sums: {fits.origin}",
    }


def _uvm_kind(fits: _Fits) -> dict[str, Source]:
    measured = fits.synchronous or fits.uvm
    return {} if measured else {"host.uvm_bandwidth": Source.ASSUMED}


def _shares(fits: _Fits) -> dict[str, float]:
    """Return a core's shares of the bandwidth by field; empty for a GPU."""
    known = fits.stream.shares
    return {name: known[op] for name, op in _SHARES.items() if op in known}


def _share_text(fits: _Fits) -> str:
    return f"fitted to such operators of the sizes of memory_bandwidth: {fits.origin}"


def _stream_text(fits: _Fits) -> str:
    stream = fits.stream
    text = f"fitted to {stream.num_points} copies and sums into new memory: {fits.origin}"
    if stream.fresh_bandwidth is None:
        return text
    return (
        f"{text}; tensors of 32 MiB and more, which the system maps anew each time, only "
        f"{stream.fresh_bandwidth / GB:.1f} GB/s, which is not modelled"
    )


def _curves(records: Sequence[Record], origin: str) -> tuple[CollectiveCurve, ...]:
    """Return a curve for every collective's even messages, fitted to quartiles of repeats."""
    groups: dict[tuple[CollectiveOp, int, int], list[tuple[float, Seconds]]] = {}
    for record in records:
        point = record.point
        if isinstance(point, CollectivePoint) and not point.focus:
            key = (point.op, point.num_ranks, point.num_nodes)
            row = (float(point.num_bytes), record.seconds["collective"])
            groups.setdefault(key, []).append(row)
    curves = []
    for (op, num_ranks, num_nodes), rows in groups.items():
        if len(rows) < _FEWEST_SIZES:
            continue
        sizes, times = np.array(sorted(rows)).T
        samples = Samples(sizes=sizes, times=times)
        curves.append(fit_samples(samples, origin, op, num_ranks, num_nodes).curve)
    return tuple(curves)


def _host(
    records: Sequence[Record], machine: MachineFacts, gpu: Gpu, fits: _Fits
) -> tuple[Host, dict[str, str]]:
    """Return the host's constants, and where each comes from as text."""
    times = {"launch_time": 0.0, "launch_latency": 0.0, "sync_time": 0.0, **fits.host.times}
    none = "kernels run on the calling thread"
    sources = dict.fromkeys(("launch_time", "launch_latency", "sync_time"), none)
    sources |= {name: f"{text}: {fits.origin}" for name, text in fits.host.origins.items()}
    if fits.synchronous:
        copies = {
            "pcie_bandwidth": gpu.memory_bandwidth,
            "uvm_bandwidth": gpu.memory_bandwidth * gpu.lookup_efficiency,
        }
        sources |= dict.fromkeys(copies, "as memory: there is no device to copy to")
    else:
        rates = [
            record.point.size / record.seconds["copy"]
            for record in records
            if isinstance(record.point, HostPoint) and record.point.part is HostPart.UPLOAD
        ]
        check_enough(Family.HOST, len(rates), 1, "uploads")
        rate = rates[0]
        uvm = fits.uvm
        copies = {
            "pcie_bandwidth": rounded(rate),
            "uvm_bandwidth": rounded(uvm.bandwidth if uvm else _UVM_SHARE * rate),
        }
        sources["pcie_bandwidth"] = f"measured, pinned memory: {fits.origin}"
        sources["uvm_bandwidth"] = (
            f"fitted to {uvm.num_points} lookups in host memory: {fits.origin}"
            if uvm
            else "assumed 0.8 of pcie_bandwidth: gathers do not fill packets"
        )
    host = Host(memory_bytes=machine.host_memory_bytes, **times, **copies)
    sources["memory_bytes"] = "reported by the system"
    return host, {f"host.{name}": text for name, text in sources.items()}


def _links(
    curves: Sequence[CollectiveCurve], base: HardwareProfile | None, origin: str
) -> tuple[tuple[Link, Link], dict[str, str], dict[str, Source]]:
    """Return the links inside and between nodes, from the measured all_to_all or the base.

    With them, by field, the source as a sentence, and its kind.
    """
    links = [_ASSUMED_LINK, _ASSUMED_NETWORK]
    names = ("intra_node", "inter_node")
    fields = ("latency", "bandwidth")
    sources = {f"{name}.{field}": _ASSUMED for name in names for field in fields}
    kinds = dict.fromkeys(sources, Source.ASSUMED)
    if base is not None:
        links = [base.intra_node, base.inter_node]
        sources |= {key: base.sources.get(key, base.name) for key in sources}
        kinds = {key: base.kinds[key] for key in sources if key in base.kinds}
    for curve in curves:
        if curve.op is CollectiveOp.ALL_TO_ALL:
            which = int(curve.num_nodes > 1)
            size, time = next(k for k in reversed(curve.knots) if curve.covers(k[0]))
            rate = bus_factor(curve.op, curve.num_ranks) * size / time
            links[which] = Link(latency=curve.knots[0][1], bandwidth=rounded(rate))
            text = f"all_to_all on {curve.num_ranks} ranks: {origin}"
            measured = [f"{names[which]}.{field}" for field in fields]
            sources |= dict.fromkeys(measured, text)
            kinds = {key: kind for key, kind in kinds.items() if key not in measured}
    return (links[0], links[1]), sources, kinds


def _families(fits: _Fits) -> dict[str, KernelFamily]:
    """Return what the numbers of lookups, memory-bound kernels and host times rest on."""
    lookups = fits.lookups
    ranges = {"lookups": lookups.lookups, "embedding_dim": lookups.embedding_dim}
    kinds = ", ".join(
        f"{name} {100 * errors.median:.0f}%" for name, errors in lookups.by_kind.items()
    )
    found = {
        name: fitted_family(errors, lookups.num_points, f"{fits.origin}; {kinds}", ranges)
        for name, errors in (
            ("embedding_forward", lookups.forward),
            ("embedding_backward", lookups.backward),
        )
    }
    stream, host = fits.stream, fits.host
    sizes = {"num_bytes": stream.num_bytes}
    found["memory_bound"] = fitted_family(
        stream.errors, stream.num_points + stream.num_others, fits.origin, sizes
    )
    found["host"] = fitted_family(host.errors, host.num_points, fits.origin, {})
    return found


def _calibrated(
    profile: HardwareProfile, fits: _Fits, uneven: Array, batched: Mapping[str, Accuracy]
) -> Calibrated:
    """Return the profile with the errors that its families do not have."""
    errors = {f"embedding_{kind}": each for kind, each in fits.lookups.by_kind.items()}
    errors.update(batched)
    if fits.uvm:
        errors["embedding in host memory"] = fits.uvm.errors
    if len(uneven):
        errors["uneven all_to_all"] = accuracy(uneven)
    return Calibrated(profile=profile, errors=errors, setting=fits.setting, memory=fits.memory)
