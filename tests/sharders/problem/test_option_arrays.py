from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from shard_sizes import table_shard_bytes
from strategies import Case, cases
from table_options import table_options

from costmodel.domain.plan import ComputeKernel
from costmodel.kernels.lookup_shards import LookupShards
from costmodel.memory.rank_memory import dense_part_ratio
from costmodel.step.loads import lookup_shard, shard_loads
from sharders.problem.option_arrays import OptionArrays
from sharders.problem.options import make_sharding


@settings(max_examples=15)
@given(cases())
def test_arrays_have_every_shard_of_every_option(case: Case) -> None:
    workload, ranks, _ = case
    kernels = ComputeKernel.FUSED, ComputeKernel.FUSED_UVM_CACHING
    tables = (replace(t, compute_kernels=kernels) for t in workload.tables)
    workload = replace(workload, tables=tuple(tables))
    options = [table_options(workload, ranks, table) for table in workload.tables]
    arrays = OptionArrays(workload, ranks, options)
    ratio = dense_part_ratio(workload, ranks)
    cuts, shards = arrays.cuts, list(pairwise(arrays.cuts.first.tolist()))
    for number, option in enumerate(arrays.flat):
        table = workload.tables[arrays.codes.table[number]]
        sharding = make_sharding(table, ranks, option, (0,) * option.num_ranks)
        different = np.arange(*shards[cuts.of_option[number]])
        rows = np.tile(np.repeat(different, cuts.copies[different]), option.num_column_shards)
        assert arrays.num_shards[number] == len(rows) == len(sharding.shards)
        each = [lookup_shard(workload, ranks, table, sharding, one) for one in sharding.shards]
        alone = shard_loads(workload, ranks, LookupShards.of(each))
        for mine, theirs in zip(arrays.loads, alone, strict=True):
            assert np.array_equal(mine[rows], theirs)
        held = table_shard_bytes(workload, ranks, sharding)
        counted = [max(one.total, (one.total - one.stashed) * ratio) for one in held]
        assert np.allclose(arrays.held[0, rows], counted, rtol=1e-12)
        assert np.allclose(arrays.held[1, rows], [one.host for one in held], rtol=1e-12)
