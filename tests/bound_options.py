"""Options that a plan has, as bounds describe them."""

import numpy as np

from costmodel.bounds.feature_index import FeatureIndex, Vector
from costmodel.bounds.option_features import BoundOptions, OptionFeatures
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingPlan
from costmodel.domain.workload import Workload
from costmodel.step.cuts import OptionCodes


def described(
    workload: Workload, ranks: Topology, plan: ShardingPlan
) -> tuple[BoundOptions, FeatureIndex, Vector]:
    """Return a plan's options, where their features are, and the plan's features."""
    codes = [
        (
            place,
            own.sharding_type,
            own.compute_kernel,
            len({shard.column_offset for shard in own.shards}),
        )
        for place, own in enumerate(plan.table(table.name) for table in workload.tables)
    ]
    options = OptionFeatures(workload, ranks).some(OptionCodes.of(codes))
    index = FeatureIndex(options.signature())
    places = index.places(options.kernels)[options.kernel]
    z = np.bincount(places.ravel(), options.values.ravel(), index.size).astype(np.float64)
    return options, index, z
