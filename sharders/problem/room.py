"""Proofs that no plan fits, by sums of bytes, before any search."""

from math import ceil

import numpy as np
from numpy.typing import NDArray

from costmodel.base.arrays import Array, Mask
from costmodel.base.errors import InfeasibleError
from costmodel.base.units import Bytes, size_texts
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import EmbeddingTable
from costmodel.memory.rank_memory import Place, host_reserve_text, infeasible, least_table_bytes
from sharders.problem.groundwork import Groundwork
from sharders.problem.options import make_sharding

ROUNDING = 1e-9
SMALL = (0.5, 0.4, 0.3, 0.2, 0.1)
"""Shares of a rank's memory below which shards are left out of a count of ranks."""


def check_room(ground: Groundwork) -> None:
    """Raise InfeasibleError where sums of bytes prove that no plan fits, before any search.

    A table takes at least the least that any of its options do whose shards all fit on a rank.
    Of hosts' memory only the sum is looked at.

    Raises
    ------
    InfeasibleError
        All tables together, or one alone, are larger than what there is, as is what must be in
        host memory, or HBM and host memory together; or large shards need more ranks, as they do
        not go together; or those that can be nowhere but on a rank are larger than what is there.

    """
    workload, room = ground.workload, ground.total_capacity * (1 + ROUNDING)
    needed = sum(_least_fitting(ground))
    if needed > room:
        whole = (least_table_bytes(workload, ground.topology, each) for each in workload.tables)
        taken, left = size_texts(needed, ground.total_capacity)
        message = (
            "no plan fits: sharded so that every shard fits on a rank, the tables take at least "
            f"{taken}, and there is room for {left}"
        )
        told = message if sum(whole) <= room else None
        raise infeasible(workload, ground.topology, told)
    _check_hosts(ground)
    _check_large_shards(ground)
    _check_ranks(ground)


def _check_hosts(ground: Groundwork) -> None:
    """Raise InfeasibleError where tables are too large for hosts' memory, or for that and HBM.

    Those that fit nowhere else, and all of them where some may be in either.
    """
    topology, arrays = ground.topology, ground.arrays
    one, on_hosts = topology.num_nodes == 1, topology.num_nodes * ground.host_capacity
    hosts = "host" if one else f"{topology.num_nodes} hosts"
    device, reserve = topology.hardware.device, host_reserve_text(topology, topology.num_nodes)
    _check_sum(
        ground,
        arrays.host_bytes,
        on_hosts,
        Place.HOST,
        "the tables that fit nowhere but in host memory take {taken} there, "
        f"and the {hosts} {'has' if one else 'have'} {{left}} for them{reserve}",
    )
    _check_sum(
        ground,
        arrays.total_bytes + arrays.host_bytes,
        ground.total_capacity + on_hosts,
        Place.BOTH,
        f"the tables take at least {{taken}} of {device.memory} and host memory, "
        f"and {device.unit}s and {hosts} together have {{left}} for them: of host memory all "
        "but a tenth, for the system",
    )


def _check_sum(ground: Groundwork, sizes: Array, room: Bytes, place: Place, message: str) -> None:
    """Raise InfeasibleError if the smallest options take more in all than there is."""
    needed = float(_least_of_fitting(ground, sizes).sum())
    if needed > room * (1 + ROUNDING):
        taken, left = size_texts(needed, room)
        told = f"no plan fits: {message.format(taken=taken, left=left)}"
        raise infeasible(ground.workload, ground.topology, told, place)


def fits_alone(ground: Groundwork) -> Mask:
    """Return which options have no shard larger than a rank's memory."""
    fits: Mask = ground.arrays.largest_bytes <= ground.capacity * (1 + ROUNDING)
    return fits


def _least_fitting(ground: Groundwork) -> list[float]:
    """Return the least bytes of each table in all, over options whose shards all fit on a rank."""
    least: list[float] = _least_of_fitting(ground, ground.arrays.total_bytes).tolist()
    for table, size in zip(ground.workload.tables, least, strict=True):
        if size == np.inf:
            raise _no_shard_fits(ground, table)
    return least


def _no_shard_fits(ground: Groundwork, table: EmbeddingTable) -> InfeasibleError:
    """Return the error for a table of which every option has a shard that fits on no rank."""
    arrays, index = ground.arrays, ground.arrays.index_of[table.name]
    least = float(arrays.largest_bytes[slice(*arrays.begins[index : index + 2])].min())
    free = ground.capacity * max(1, len(table.ranks))
    whole = least_table_bytes(ground.workload, ground.topology, table)
    if _exceed_all(ground) or (whole > free and least >= whole):
        return no_room(ground, table, free)
    shard, left = size_texts(least, ground.capacity)
    is_cached = set(table.compute_kernels) == {ComputeKernel.FUSED_UVM_CACHING}
    cached = (
        ", its cache included, which is as wide as the widest cached table" if is_cached else ""
    )
    narrow = f" of {table.min_shard_dim} columns" if table.min_shard_dim > 4 else ""
    return infeasible(
        ground.workload,
        ground.topology,
        f"no plan fits: a shard{narrow} of table `{table.name}` needs at least {shard}{cached}, "
        f"and at most {left} is free on one {ground.topology.hardware.device.unit}",
    )


def _least_of_fitting(ground: Groundwork, sizes: Array) -> Array:
    """Return the smallest of every table's sizes, over options whose shards all fit on a rank."""
    fitting = np.where(fits_alone(ground), sizes, np.inf)
    least: Array = np.minimum.reduceat(fitting, ground.arrays.begins[:-1])
    return least


def _check_large_shards(ground: Groundwork) -> None:
    """Raise InfeasibleError if large shards need more ranks than there are.

    Beside a shard of more than 1 - a of a rank there is no room for one of a or more. So it counts
    as a whole rank, and what is smaller than a as nothing (Martello and Toth, 1990, their bound L2
    on bins).
    """
    arrays, world_size = ground.arrays, ground.topology.world_size
    share = arrays.held[0] / ground.capacity
    for small in SMALL:
        counted = np.where(share > (1 - small) * (1 + ROUNDING), 1.0, share)
        counted[share < small] = 0.0
        needed = float(_least_of_fitting(ground, arrays.over_shards(counted)).sum())
        if needed > world_size * (1 + ROUNDING):
            unit = ground.topology.hardware.device.unit
            raise infeasible(
                ground.workload,
                ground.topology,
                f"no plan fits: no two large shards go together on a {unit}, so that they take at "
                f"least {ceil(needed * (1 - ROUNDING))} {unit}s by any sharding types that tables "
                f"may have, and there are {world_size}",
            )


def _check_ranks(ground: Groundwork) -> None:
    """Raise InfeasibleError if a rank has no room for shards that must be on it.

    Those are of tables with given ranks, or of options that have one on every rank.
    """
    arrays, rooms = ground.arrays, np.array(ground.rooms)
    fits = fits_alone(ground)
    spares = (arrays.num_ranks > 0) & (arrays.num_shards < len(rooms))
    free = np.zeros(len(ground.workload.tables), dtype=bool)
    free[arrays.codes.table[fits & spares]] = True
    held = np.zeros(len(rooms))
    for index in np.flatnonzero(~free).tolist():
        own = np.flatnonzero(fits[slice(*arrays.begins[index : index + 2])]) + arrays.begins[index]
        held += np.min([_held_by(ground, index, option) for option in own.tolist()], axis=0)
    rank = int(np.argmax(held - rooms))
    if held[rank] > rooms[rank] * (1 + ROUNDING):
        taken, left = size_texts(held[rank], rooms[rank])
        raise infeasible(
            ground.workload,
            ground.topology,
            f"no plan fits: the tables that can be nowhere else take {taken} on rank {rank}, "
            f"and there is room for {left}",
        )


def _held_by(ground: Groundwork, index: int, number: int) -> NDArray[np.float64]:
    """Return the bytes of an option on each rank, if it uses all ranks or given ones.

    Where blocks or nodes could change places, it is the smallest shard.
    """
    table, option = ground.workload.tables[index], ground.arrays.flat[number]
    sizes = [size.total for size in ground.option_bytes(table, option)]
    if option.num_ranks:
        return np.full(ground.topology.world_size, min(sizes))
    held = np.zeros(ground.topology.world_size)
    np.add.at(held, list(make_sharding(table, ground.topology, option).ranks), sizes)
    return held


def no_room(
    ground: Groundwork, table: EmbeddingTable, free: float, host_free: float | None = None
) -> InfeasibleError:
    """Return the error for a table that fits nowhere, with the bytes free where it may be.

    ``host_free`` are the bytes free on one host; None: by HBM alone, it fits nowhere even without
    the others.
    """
    workload, topology = ground.workload, ground.topology
    where = f"one {topology.hardware.device.unit}"
    if table.ranks:
        where = f"rank {', '.join(map(str, table.ranks))}, where it is to be"
    if _exceed_all(ground):
        return infeasible(workload, topology)
    needed, left = size_texts(least_table_bytes(workload, topology, table), free)
    hosted = "" if host_free is None else _host_text(ground, table, host_free)
    return infeasible(
        workload,
        topology,
        f"{'no plan fits' if host_free is None else 'no plan was found that fits'}: "
        f"table `{table.name}` needs {needed}, and at most {left} is free on {where}{hosted}",
        Place.BOTH if hosted else Place.DEVICE,
    )


def _exceed_all(ground: Groundwork) -> bool:
    """Return whether all tables, each whole, are larger than the memory of all ranks."""
    workload, topology = ground.workload, ground.topology
    total = sum(least_table_bytes(workload, topology, each) for each in workload.tables)
    return total > ground.total_capacity


def _host_text(ground: Groundwork, table: EmbeddingTable, free: float) -> str:
    """Return the host memory that a table needs, as text; empty if no option of it is there."""
    arrays, index = ground.arrays, ground.arrays.index_of[table.name]
    sizes = arrays.host_bytes[slice(*arrays.begins[index : index + 2])]
    if not sizes.any():
        return ""
    needed, left = size_texts(float(sizes[sizes > 0].min()), free)
    reserve = host_reserve_text(ground.topology)
    return f"; in host memory it needs {needed}, and at most {left} is free on one host{reserve}"
