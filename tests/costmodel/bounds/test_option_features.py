"""Numbers of options add up to those of the plans that have them."""

import numpy as np
import pytest
from bound_options import described
from plans import MIXED, mixed

from costmodel.base.units import US
from costmodel.bounds.option_features import GROUP_FEATURES, OptionFeatures
from costmodel.kernels.embedding import lookup_time
from costmodel.memory.rank_memory import memory_per_rank
from costmodel.step.cuts import OptionCodes
from costmodel.step.loads import PlanLoads
from costmodel.step.template import Feature


@pytest.mark.parametrize("number", [0, 1])
def test_options_add_up_to_the_means_of_a_plan_s_ranks(number: int) -> None:
    work, ranks, both = mixed()
    placed = both[number]
    options, index, z = described(work, ranks, placed)
    loads = {load.key: load for load in PlanLoads(work, ranks).groups(placed)}
    assert set(index.groups) == set(loads)
    for group, load in loads.items():
        module = group.pooled, group.weighted
        alike = [load.tables for key, load in loads.items() if (key.pooled, key.weighted) == module]
        for name in GROUP_FEATURES:
            found = z[index.feature(Feature(group, name))]
            share = load.tables / sum(alike)
            expected = share if name == "present" else np.mean(getattr(load, name))
            assert found == pytest.approx(expected), (group, name)
        for kernel in index.kernels_of(group):
            replicated = z[index.feature(Feature(group, "parameter_bytes", kernel))]
            assert replicated == pytest.approx(load.parameter_bytes.get(kernel, 0.0))
    memory = sum(rank.tables for rank in memory_per_rank(work, ranks, placed))
    assert options.memory.sum() == pytest.approx(memory)


@pytest.mark.parametrize("name", MIXED)
def test_a_table_alone_takes_as_long_as_its_kernels_on_the_rank_with_the_largest_shard(
    name: str,
) -> None:
    work, ranks, both = mixed()
    (place,) = (at for at, each in enumerate(work.tables) if each.name == name)
    for placed in both:
        own = placed.table(name)
        blocks = len({shard.column_offset for shard in own.shards})
        code = (place, own.sharding_type, own.compute_kernel, blocks)
        options = OptionFeatures(work, ranks).some(OptionCodes.of([code]))
        (alone,) = options.alone
        rows = PlanLoads(work, ranks).rows(placed)[place]
        weighted = work.tables[place].weighted
        times = [
            float(lookup_time(np.array(row.traffic), ranks.hardware, weighted=weighted))
            for row in rows
        ]
        # 2 us of each kernel but backward's, which are 14, are in no option
        assert alone == pytest.approx(max(times) - (32 if weighted else 30) * US)
