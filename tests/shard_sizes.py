"""What every shard of one table holds, computed one by one: to check arrays by."""

from costmodel.domain.hardware import Topology
from costmodel.domain.plan import TableSharding
from costmodel.domain.workload import Workload
from costmodel.memory.storage import ShardBytes, id_shares, shard_bytes, shard_factors


def table_shard_bytes(
    workload: Workload, topology: Topology, sharding: TableSharding
) -> tuple[ShardBytes, ...]:
    """Bytes of every shard of one table."""
    table, kind = workload.table(sharding.table), sharding.sharding_type
    kernel, cached = sharding.compute_kernel, sharding.cache_load_factor
    factors = shard_factors(workload, topology, table, kind, kernel, cached)
    shares = id_shares(table, kind, sharding.shards)
    return tuple(
        shard_bytes(factors, shard.num_rows, shard.num_columns, share)
        for shard, share in zip(sharding.shards, shares, strict=True)
    )
