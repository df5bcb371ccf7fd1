"""The machine: GPU, host, links, and the collective curves measured on it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.base.field_values import make_plain
from costmodel.base.limits import MOST_RANKS, check_at_most
from costmodel.base.units import Bytes, BytesPerSecond, FlopPerSecond, Seconds
from costmodel.domain.replica_groups import ReplicaGroups, local_group_size
from costmodel.domain.time_correction import NO_CORRECTION, TimeCorrection
from costmodel.domain.traced import TracedTimes


class Source(StrEnum):
    """Where a number comes from, best first."""

    MEASURED = "measured"
    FITTED = "fitted"
    ROOFLINE = "roofline"
    DATASHEET = "datasheet"
    ASSUMED = "assumed"


class Bound(StrEnum):
    """What decides how long an operation takes; the values are words for the screen."""

    HBM_BANDWIDTH = "HBM bandwidth"
    L2_BANDWIDTH = "L2 bandwidth"
    MEMORY_BANDWIDTH = "memory bandwidth"
    HOST_MEMORY = "host memory"
    PCIE_BANDWIDTH = "PCIe bandwidth"
    KERNEL_LATENCY = "kernel latency"
    LONGEST_BAG = "longest bag"
    IDS = "ids"
    BAGS = "bags"
    WIDEST_TABLE = "widest table"
    ROW_LATENCY = "row latency"
    KEY_SORT = "key sort"
    ARITHMETIC = "arithmetic"
    BATCHED_PRODUCT = "batched product"
    SCATTER_RATE = "scatter rate"
    NOTHING_TO_SEND = "nothing to send"
    LINK_LATENCY = "link latency"
    LINK_BANDWIDTH = "link bandwidth"
    INTRA_NODE_BANDWIDTH = "intra-node bandwidth"
    INTER_NODE_BANDWIDTH = "inter-node bandwidth"
    LINK = "link"
    """Latency or bandwidth between the cores of a CPU."""
    MEASURED_CURVE = "measured curve"
    """Whatever bounded the measurements that are interpolated."""
    BYTES_OF_TENSORS = "bytes of its tensors"
    """Assumed of an operator that no model knows."""

    def on(self, device: "Device") -> "Bound":
        """Return it in the words of a device: CPU ranks have memory, which is no HBM."""
        return Bound(f"{device.memory} bandwidth") if self is Bound.HBM_BANDWIDTH else self


class Basis(NamedTuple):
    """What a duration rests on."""

    bound_by: Bound | None = None
    source: Source | None = None
    extrapolated: bool = False
    """Whether it was asked for beyond the range that was measured."""

    def on(self, device: "Device") -> "Basis":
        """Return it in the words of a device."""
        return self if self.bound_by is None else self._replace(bound_by=self.bound_by.on(device))

    @property
    def origin(self) -> str:
        """The source in words, for the screen."""
        text = "" if self.source is None else self.source.value
        return f"{text}, extrapolated" if self.extrapolated else text


NO_BASIS = Basis()
"""Nothing is known, or needs to be: host time, for example, has no bound."""


class Device(StrEnum):
    """What runs the kernels, by TorchRec's ``compute_device``."""

    CUDA = "cuda"
    CPU = "cpu"
    """One core per rank: kernels run on the thread that calls them, collectives beside it."""

    @property
    def unit(self) -> str:
        """What a rank has of a machine, as a word for the screen."""
        return "rank" if self is Device.CPU else "GPU"

    @property
    def memory(self) -> str:
        """What tables are in, as a word for the screen."""
        return "memory" if self is Device.CPU else "HBM"


class CollectiveOp(StrEnum):
    """The collectives a training step uses."""

    ALL_TO_ALL = "all_to_all"
    ALL_REDUCE = "all_reduce"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_GATHER = "all_gather"


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A predicted duration, what bounds it, and where the prediction comes from."""

    seconds: Seconds
    bound_by: Bound
    source: Source
    extrapolated: bool = False
    """Whether the question lies outside the range that was measured."""

    @property
    def basis(self) -> Basis:
        """What the duration rests on."""
        return Basis(self.bound_by, self.source, self.extrapolated)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFamily:
    """What the model of one family of kernels rests on, and how far off it has been."""

    source: Source
    origin: str
    """Repository, machine, how the error was taken."""
    num_points: int = 0
    """Measurements it was fitted to or checked on; 0 where nothing of the kind was measured."""
    error: float | None = None
    """Median absolute relative error on held-out measurements; None where there are none."""
    error_p90: float | None = None
    """90th percentile of the same."""
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Lowest and highest value measured, by quantity, such as ``num_bytes`` or ``lookups``."""

    def covers(self, **quantities: float) -> bool:
        """Tell whether all of these lie within what was measured; never where nothing was."""
        if not self.num_points:
            return False
        known = ((self.ranges[name], value) for name, value in quantities.items())
        return all(low <= value <= high for (low, high), value in known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A path between GPUs, by latency and bandwidth."""

    latency: Seconds
    bandwidth: BytesPerSecond
    """One direction, per GPU."""

    def __post_init__(self) -> None:
        if not (self.latency >= 0 and self.bandwidth > 0):
            raise ValueError(f"a link needs latency >= 0 and bandwidth > 0, got {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spine:
    """The network beyond a block of nodes, where less is there for them together than within."""

    nodes: int
    """Nodes of a block, all of which reach one another at the bandwidth of ``inter_node``."""
    oversubscription: float
    """Bandwidth of a block's nodes together over that of the links that leave it."""

    def __post_init__(self) -> None:
        if not (self.nodes >= 1 and self.oversubscription >= 1):
            raise ValueError(f"a spine needs nodes and oversubscription of at least 1, got {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnalignedRows:
    """What products of operands lose whose rows begin at multiples of fewer than 16 bytes.

    Libraries have kernels of their own for them: Hopper's tensor memory accelerator takes strides
    of 16 bytes only (CUDA Driver API, ``cuTensorMapEncodeTiled``), and asynchronous copies into
    shared memory take 4, 8 or 16 bytes (PTX ISA, ``cp.async``), so none takes 2.
    """

    alignment_bytes: Bytes
    """Rows begin at multiples of so many bytes, some at none of 16."""
    efficiency: float
    """Share of ``GemmEfficiency.max_efficiency`` that is left."""
    bandwidth_efficiency: float
    """Share of ``GemmEfficiency.l2_efficiency`` and ``memory_efficiency`` that is left."""
    latency: Seconds = 0.0
    """Time beyond ``GemmEfficiency.latency``."""


class UpdateCost(NamedTuple):
    """What a core's backward of lookups takes where its other constants were not fitted to it.

    Its seconds are those of sorting the ids (``Gpu.sort_rate``), and these.
    """

    id_time: Seconds = 0.0
    row_time: Seconds = 0.0
    """Time of a distinct row."""
    id_column_time: Seconds = 0.0
    """Time of an element of an id's gradient."""
    row_column_time: Seconds = 0.0
    """Time of an element of a distinct row."""
    row_pair_time: Seconds = 0.0
    """Time of a distinct row for each other one of its table: FBGEMM 1.8 takes 0.6 us for one of
    2,000 rows without pooling, and 2 us for one of 26,000."""
    bag_time: Seconds = 0.0
    bag_column_time: Seconds = 0.0
    """Time of an element of a bag's gradient."""
    miss_time: Seconds = 0.0
    """Time of a row that is fetched from memory, again where the cache lost it."""
    miss_column_time: Seconds = 0.0
    element_time: Seconds = 0.0
    """Time of an element of the whole table, whose gradient is filled with zeros."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmEfficiency:
    """Fitted constants of the matrix-product model (``costmodel.kernels.gemm``), per data type."""

    peak: FlopPerSecond
    """The datasheet's dense rate, or one above the best that was measured."""
    max_efficiency: float
    """Share of the peak that a deep product of the largest tiles reaches."""
    tile_efficiency: tuple[float, float, float, float]
    """What tiles of 128 x 256, 128 x 128, 64 x 64 and 16 x 64 reach of that."""
    prologue_depth: float
    """Steps of k that a tile's start and end cost: short inner loops do not amortise them."""
    split_time: Seconds
    """Cost of adding up the slices of a split k, per doubling of their number."""
    l2_efficiency: float
    """Share of ``Gpu.l2_bandwidth`` that a product bound by it reaches."""
    memory_efficiency: float
    """Share of ``Gpu.memory_bandwidth`` that a product bound by it reaches."""
    latency: Seconds
    """Time of a product too small to matter."""
    vector_time: Seconds = 0.0
    """Time a core takes for 64 bytes of results in one of many small products, beyond arithmetic
    and memory; 0 on a GPU."""
    unaligned: tuple[UnalignedRows, ...] = ()
    """By alignment, most bytes first; none: rows may begin anywhere, or nothing is known of it."""
    correction: TimeCorrection = NO_CORRECTION
    error: float | None = None
    """Median absolute relative error on held-out shapes; None where the constants are those of
    the nearest GPU or type that was measured."""
    error_p90: float | None = None
    """90th percentile of the same."""
    num_points: int = 0
    """Products measured."""
    shapes: tuple[tuple[float, float], ...] = ()
    """Lowest and highest m, n and k measured; empty where nothing was."""
    kind: Source = Source.FITTED
    """``DATASHEET``: the peak is, and the rest was carried over from another GPU or type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU: capacities and achievable rates."""

    name: str
    memory_bytes: Bytes
    memory_bandwidth: BytesPerSecond
    """Achievable by a streaming kernel, bytes read plus bytes written."""
    l2_bytes: Bytes
    l2_bandwidth: BytesPerSecond
    num_sms: int
    kernel_latency: Seconds
    """Duration of a kernel that does nothing."""
    lookup_efficiency: float
    """Share of ``memory_bandwidth`` that gathers of whole embedding rows reach."""
    update_efficiency: float
    """Share of ``memory_bandwidth`` that the fused backward's read-modify-write reaches."""
    sort_rate: float
    """Keys per second that the fused backward's radix sort and its run-length passes handle."""
    gemm: Mapping[str, GemmEfficiency]
    """By ``DataType`` value."""
    overlap: float = 1.0
    """Share of a lookup's shorter memory time, L2 or beyond, that is hidden behind the longer."""
    lookup_time: Seconds = 0.0
    """Time of an id in a forward lookup beyond its bytes; 0 where threads hide it."""
    row_read_time: Seconds = 0.0
    """Time of a distinct row in a forward lookup beyond its bytes: latency that is not hidden."""
    row_update_time: Seconds = 0.0
    """As ``row_read_time``, in the fused backward, by row-wise Adagrad."""
    gather_bandwidth: BytesPerSecond = 0.0
    """Rate at which lookups gather rows on chip, from L2 and L1; 0: ``l2_bandwidth``."""
    gradient_time: Seconds = 0.0
    """Time of an id in the kernels of the fused backward that add gradients up; 0: hidden."""
    backward_latency: Seconds = 0.0
    """Duration of a fused backward of few ids; 0: that of its kernels, each doing nothing."""
    forward_latency: Seconds = 0.0
    """Duration of a lookup of few ids, with the kernels before it; 0: ``kernel_latency``."""
    bag_row_time: Seconds = 0.0
    """Time of a row of a bag that one warp gathers row by row; 0: ``ROW_GATHER_TIME``."""
    bag_time: Seconds = 0.0
    """Time of a bag where ids are checked before a lookup (FBGEMM's ``bounds_check_indices``, a
    warp for each bag); 0: hidden."""
    forward_turn_time: Seconds = 0.0
    """Time of an id in a forward lookup for every 128 columns that the widest table of the launch
    has more than its own; 0: none."""
    backward_turn_time: Seconds = 0.0
    """The same in the fused backward."""
    sort_latency: Seconds = 0.0
    """What sorting more ids than one block can takes beyond their number; 0: nothing."""
    forward_correction: TimeCorrection = NO_CORRECTION
    """What lookups take beside the roofline, without what comes from host memory."""
    backward_correction: TimeCorrection = NO_CORRECTION
    """The same of their backward, fused with the optimizer."""
    stream_correction: TimeCorrection = NO_CORRECTION
    """What kernels bound by ``memory_bandwidth`` take beside ``kernel_latency`` and their bytes:
    elementwise ones, copies, concatenations, sums; not the dense optimizer, which updates many
    tensors of all sizes as one formula."""
    l1_bytes: Bytes = 0.0
    """L1 cache of one SM; 0: lookups reuse no rows there."""
    concat_efficiency: float = 1.0
    """Share of ``memory_bandwidth`` that a core reaches where it puts whole tensors side by side;
    this and the next two are a core's only, and 1 on a GPU."""
    view_efficiency: float = 1.0
    """The same of columns of one tensor put in another order: strided copies of short rows."""
    in_place_efficiency: float = 1.0
    """The same of a tensor changed in place: above 1, as nothing is fetched to be overwritten."""
    update_costs: Mapping[str, UpdateCost] = field(default_factory=dict)
    """A core's backward by optimizer, with ``fp16`` after its name where weights are, and
    ``unpooled`` where each id has a row of its own, and ``dense`` where a replicated table's
    gradient is made: kernels of their own, that take up to 40 times as long (fbgemm-gpu-cpu 1.8).
    Those that are not there take what row-wise Adagrad of pooled FP32 rows does."""
    element_times: Mapping[str, Seconds] = field(default_factory=dict)
    """Seconds of an element of an operator beyond those of its bytes, by the operator's name in
    aten; of others memory alone decides."""

    def __hash__(self) -> int:
        """Hash what is not a mapping: results are kept by GPU."""
        return hash((self.name, self.memory_bandwidth, self.num_sms))

    @property
    def is_core(self) -> bool:
        """Whether it is a CPU's core: the only one of its kind."""
        return self.num_sms == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The CPU side of one rank."""

    memory_bytes: Bytes
    """Host memory per node."""
    pcie_bandwidth: BytesPerSecond
    """Host to device copies, per GPU."""
    uvm_bandwidth: BytesPerSecond
    """Gathers of rows from host memory by a kernel, per GPU."""
    launch_time: Seconds
    """CPU time of one kernel launch (the paper's T4)."""
    launch_latency: Seconds
    """From the end of the launch call to the kernel's start on an idle stream."""
    op_time: Seconds
    """CPU time of one forward operator besides its launches (T1 + T2 + T3)."""
    backward_op_time: Seconds
    """As ``op_time``, in the autograd thread."""
    sync_time: Seconds
    """CPU time to return from a device synchronization."""
    listed_op_time: Seconds | None = None
    """As ``op_time``, of an operator of a list, with modules and views before it; None: as that."""
    listed_backward_op_time: Seconds | None = None
    """The same of an operator of the backward."""

    def listed_time(self, *, backward: bool) -> Seconds:
        """Return the CPU time of an operator of a list besides its launch."""
        own = self.listed_backward_op_time if backward else self.listed_op_time
        return (self.backward_op_time if backward else self.op_time) if own is None else own


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveCurve:
    """Time of one collective against message size, on a fixed number of ranks.

    ``knots`` are (message bytes, seconds), increasing in both. Between them the time is
    interpolated in log-log space; below it is the first knot's, above it grows in proportion
    to the bytes, at the last knot's bandwidth.
    """

    op: CollectiveOp
    num_ranks: int
    num_nodes: int = 1
    knots: tuple[tuple[Bytes, Seconds], ...]
    source: Source
    origin: str
    """Repository, machine, number of points."""
    error: float | None = None
    """Median absolute relative error on held-out points."""
    error_p90: float | None = None
    """90th percentile of the same."""
    num_points: int = 0
    """Measurements it was fitted to; 0 where it was derived from other curves."""
    last_measured: Bytes | None = None
    """Largest size measured, where knots beyond it continue the curve; None: the last knot's."""
    log_bytes: NDArray[np.float64] = field(init=False, repr=False, compare=False)
    """Natural logarithms of the knots, computed once: search asks millions of times."""
    log_seconds: NDArray[np.float64] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.knots:
            raise ValueError(f"the {self.op} curve of {self.num_ranks} ranks has no knots")
        size, time = np.array(self.knots, dtype=np.float64).T
        if min(size[0], time[0]) <= 0 or (np.diff(size) <= 0).any() or (np.diff(time) < 0).any():
            raise ValueError(f"knots of the {self.op} curve of {self.num_ranks} ranks must grow")
        object.__setattr__(self, "log_bytes", np.log(size))
        object.__setattr__(self, "log_seconds", np.log(time))

    def covers(self, num_bytes: Bytes) -> bool:
        """Tell whether a size lies within what was measured."""
        last = self.knots[-1][0] if self.last_measured is None else self.last_measured
        return self.knots[0][0] <= num_bytes <= last


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareProfile:
    """Everything the cost models know about one kind of machine."""

    name: str
    gpu: Gpu
    host: Host
    gpus_per_node: int
    curves: tuple[CollectiveCurve, ...]
    intra_node: Link
    """For collectives of which `collectives` has no curve within a node; where it has any, curves
    alone count, and this changes nothing. Datasheet or fitted."""
    inter_node: Link
    """For collectives over nodes, unless there is a curve of as many ranks and nodes."""
    spine: Spine | None = None
    """What of the same collectives leaves a block of nodes; None: that is as fast."""
    sources: Mapping[str, str]
    """Where every other number comes from, by dotted field name (``gpu.l2_bytes``)."""
    device: Device = Device.CUDA
    """On ``cpu``, ``gpu`` describes one core and the memory it reaches."""
    families: Mapping[str, KernelFamily] = field(default_factory=dict)
    """Kernels that are neither collectives nor matrix products, which say it themselves;
    ``costmodel.domain.families`` has them all."""
    traced: TracedTimes = field(default_factory=TracedTimes)
    """Operators and kernels of a profiled job, where the profile was learned from one."""
    kinds: Mapping[str, Source] = field(default_factory=dict)
    """What kind of source a number has, by dotted field name, where the profile says so."""

    def kind(self, name: str) -> Source:
        """Return what kind of source a number has: measured unless the profile says otherwise."""
        return self.kinds.get(name, Source.MEASURED if name in self.sources else Source.ASSUMED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """How many of which GPUs, and how they are grouped into nodes.

    With ``replicas`` it is that of one of several groups of ranks, which all do the same: the ranks
    that tables are sharded among, and that collectives of their lookups join.
    """

    hardware: HardwareProfile
    world_size: int
    local_world_size: int
    """Ranks per node."""
    withheld_bytes: tuple[Bytes, ...] = ()
    """HBM of every rank that is not for tables, beyond what all ranks lack; empty: none."""
    replicas: ReplicaGroups | None = None
    """The groups of the job, of which this is one; None: all ranks are one group."""

    def __post_init__(self) -> None:
        make_plain(self)
        if self.world_size < 1 or self.local_world_size < 1:
            raise ValueError("world_size and local_world_size must be at least 1")
        if len(self.withheld_bytes) not in {0, self.world_size}:
            raise ValueError(
                f"withheld_bytes needs {self.world_size} numbers, one for each rank, "
                f"got {len(self.withheld_bytes)}"
            )
        if min(self.withheld_bytes, default=0.0) < 0:
            raise ValueError("withheld_bytes must not be negative")
        check_at_most("world_size", self.num_ranks, MOST_RANKS)
        if self.world_size % self.local_world_size:
            raise ValueError(
                f"world_size {self.world_size} is not a multiple of "
                f"local_world_size {self.local_world_size}"
            )
        self._check_replicas()

    def _check_replicas(self) -> None:
        if self.replicas is None:
            return
        local = local_group_size(
            self.world_size,
            self.replicas.num_groups,
            self.replicas.ranks_per_node,
            consecutive=self.replicas.use_inter_host_allreduce,
        )
        if self.world_size < 2 or self.local_world_size != local:
            raise ValueError(
                f"a group of {self.world_size} ranks needs at least 2, and has {local} on each of "
                f"its nodes, not {self.local_world_size}"
            )

    @property
    def num_ranks(self) -> int:
        """Number of ranks of the job, of all groups."""
        return self.world_size * (1 if self.replicas is None else self.replicas.num_groups)

    @property
    def node_ranks(self) -> int:
        """Number of the job's ranks on a node, of all groups."""
        return self.local_world_size if self.replicas is None else self.replicas.ranks_per_node

    @property
    def node_strides(self) -> tuple[int, int]:
        """Nodes from one of the group's to its next, and from one of a replica's to its next."""
        if self.replicas is None:
            return 1, 1
        if self.replicas.use_inter_host_allreduce:
            return 1, self.num_nodes
        return max(1, self.replicas.num_groups // self.replicas.ranks_per_node), 1

    @property
    def host_memory_bytes(self) -> Bytes:
        """Host memory for the ranks of a node, of which each group there has a part."""
        share = self.local_world_size / self.node_ranks
        return self.hardware.host.memory_bytes * share

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.world_size // self.local_world_size

    @property
    def is_uniform(self) -> bool:
        """Whether all ranks have the same memory for tables."""
        return len(set(self.withheld_bytes)) <= 1
