"""A plan and its predictions as TorchRec prints its planner statistics; needs no torch.

Columns that nothing here predicts are left out: time and memory of single tables, and bytes that a
rank sends. `planner torchrec read-stats` reads the rest back.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from costmodel.base.arrays import Array
from costmodel.base.units import GIB, MS
from costmodel.domain.plan import ComputeKernel, TableSharding
from costmodel.domain.workload import EmbeddingTable, Pooling
from costmodel.memory.rank_memory import memory_per_rank
from costmodel.memory.storage import RESERVE_SHARE, fixed_bytes
from planner.planned.planned import Planned
from planner.torchrec.printed_cells import SHARDING_NAMES
from planner.torchrec.printed_rows import TITLE
from planner.torchrec.rank_times import rank_times
from planner.verbs.loading import simulate

_PERF = {
    "fwd_compute": "Forward Compute",
    "fwd_comms": "Forward Comms",
    "bwd_compute": "Backward Compute",
    "bwd_comms": "Backward Comms",
}
_PERF_LEGEND = (
    "Perf: lookups and exchanges of the embeddings, nothing overlapped (Forward compute, Forward "
    "comms, Backward compute, Backward comms)"
)


def printed_lines(planned: Planned) -> list[str]:
    """Return the lines of a plan's statistics, in a frame of ``#``."""
    times = rank_times(simulate(planned))
    expected, modelled = planned.report.step_time / MS, planned.report.modelled.seconds / MS
    rows = [
        TITLE,
        f"--- Predicted step {expected:.3f} ms; by the models, as below, {modelled:.3f} ms ---",
        *_set_table(
            ["Rank", "HBM (GB)", "DDR (GB)", "Perf (ms)", "Shards"], _ranks(planned, times)
        ),
        "",
        _PERF_LEGEND,
        "HBM: predicted peak memory, dense part, inputs and activations included",
        "",
        "Parameter Info:",
        *_set_table(_HEAD, [_parameter(planned, each) for each in planned.plan.tables]),
        "",
        f"Batch Size: {planned.workload.local_batch_size}",
        "",
        *_kernels(planned),
        *_maxima(times),
        "",
        *_memory(planned),
    ]
    width = max(map(len, rows)) + 4
    return ["#" * width, *(f"# {row:<{width - 3}}#" for row in rows), "#" * width]


_HEAD = [
    "FQN", "Sharding", "Compute Kernel", "Cache Load Factor", "Sum Pooling Factor",
    "Sum Num Poolings", "Num Indices", "Output", "Weighted", "Features", "Emb Dim (CW Dim)",
    "Hash Size", "Ranks",
]  # fmt: skip


def _set_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield rows flush right, each column three wider than its longest cell."""
    lines = [head, ["-" * len(name) for name in head], *rows]
    widths = [max(map(len, column)) + 3 for column in zip(*lines, strict=True)]
    for line in lines:
        yield "".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True))


def _ranks(planned: Planned, times: Mapping[str, Array]) -> list[list[str]]:
    """Return the cells of every rank: memory, times and numbers of shards."""
    hardware, local = planned.topology.hardware, planned.topology.local_world_size
    most, host = hardware.gpu.memory_bytes * (1 - RESERVE_SHARE), hardware.host.memory_bytes / local
    shards: dict[int, Counter[str]] = defaultdict(Counter)
    for sharding in planned.plan.tables:
        for rank in sharding.ranks:
            shards[rank][SHARDING_NAMES[sharding.sharding_type]] += 1
    memory = memory_per_rank(planned.workload, planned.topology, planned.plan)
    return [
        [
            str(rank),
            f"{own.total / GIB:.3f} ({own.total / most:.0%})",
            f"{own.host / GIB:.3f} ({own.host / host:.0%})",
            _perf([float(times[name][rank]) for name in _PERF]),
            " ".join(f"{kind}: {number}" for kind, number in sorted(shards[rank].items())) or "-",
        ]
        for rank, own in enumerate(memory)
    ]


def _perf(parts: Sequence[float]) -> str:
    return f"{sum(parts):.3f} ({','.join(f'{part:.3g}' for part in parts)})"


def _parameter(planned: Planned, sharding: TableSharding) -> list[str]:
    """Return the cells of a table."""
    table = planned.workload.table(sharding.table)
    place = ((planned.torchrec or {}).get("tables") or {}).get(table.name)
    path = table.name if place is None else f"{place['module']}.{place['table']}"
    cached = sharding.compute_kernel is ComputeKernel.FUSED_UVM_CACHING
    share = sharding.cache_load_factor or table.cache_share
    return [
        path.removeprefix("."),
        SHARDING_NAMES[sharding.sharding_type],
        sharding.compute_kernel.value,
        f"{share:g}" if cached else "None",
        _number(table.pooling_factor / table.bags_per_sample),
        _number(table.bags_per_sample * table.num_features),
        _number(table.pooling_factor),
        "sequence" if table.pooling is Pooling.NONE else "pooled",
        "weighted" if table.weighted else "unweighted",
        str(table.num_features),
        _columns(table, sharding),
        str(table.num_embeddings),
        _rank_text(sorted(sharding.ranks)),
    ]


def _number(value: float) -> str:
    return str(round(value, 3))


def _columns(table: EmbeddingTable, sharding: TableSharding) -> str:
    if not sharding.sharding_type.splits_columns:
        return str(table.embedding_dim)
    return f"{table.embedding_dim} ({sharding.shards[0].num_columns})"


def _rank_text(ranks: Sequence[int]) -> str:
    """Return ranks, in order, as TorchRec prints them: a dash where none is left out."""
    first, last = ranks[0], ranks[-1]
    if len(ranks) > 1 and list(ranks) == list(range(first, last + 1)):
        return f"{first}-{last}"
    return ",".join(map(str, ranks))


def _kernels(planned: Planned) -> Iterator[str]:
    """Yield the number of tables of each kernel, and their weights."""
    weights: dict[str, float] = defaultdict(float)
    numbers = Counter(each.compute_kernel.value for each in planned.plan.tables)
    for sharding in planned.plan.tables:
        weights[sharding.compute_kernel.value] += planned.workload.table(
            sharding.table
        ).weight_bytes
    yield "Compute Kernels Count:"
    yield from (f"   {kernel}: {number}" for kernel, number in sorted(numbers.items()))
    yield ""
    yield "Compute Kernels Embedding Weights:"
    yield from (f"   {kernel}: {size / GIB:.3f} GB" for kernel, size in sorted(weights.items()))
    yield ""


def _maxima(times: Mapping[str, Array]) -> Iterator[str]:
    """Yield the slowest rank of each part, and their sums."""
    for name, title in _PERF.items():
        rank = int(times[name].argmax())
        yield f"Maximum of {title}: {times[name][rank]:.3f} ms on rank {rank}"
    most = {name: float(times[name].max()) for name in _PERF}
    comms = sum(value for name, value in most.items() if name.endswith("comms"))
    compute = sum(most.values()) - comms
    yield f"Critical Path (comms): {comms:.3f}"
    yield f"Critical Path (compute): {compute:.3f}"
    yield f"Critical Path (comms + compute): {comms + compute:.3f}"


def _memory(planned: Planned) -> Iterator[str]:
    """Yield a rank's memory, what is kept of it, and what the dense part takes."""
    hardware = planned.topology.hardware
    whole, kept = hardware.gpu.memory_bytes, RESERVE_SHARE
    host = hardware.host.memory_bytes / planned.topology.local_world_size
    yield "Reserved Memory:"
    yield f"   HBM: {whole * kept / GIB:.3f} GB"
    yield f"   Percent of Total HBM: {kept:.0%}"
    yield "Planning Memory:"
    yield f"   HBM: {whole * (1 - kept) / GIB:.3f} GB, DDR: {host / GIB:.3f} GB"
    yield f"   Percent of Total HBM: {1 - kept:.0%}"
    yield ""
    yield "Dense Storage (per rank):"
    dense = sum(fixed_bytes(planned.workload, planned.topology))
    yield f"   HBM: {dense / GIB:.3f} GB, DDR: 0.0 GB"
