"""Loads made by hand, for tests of single operations: what is on every rank, as a formula."""

import numpy as np
from numpy.typing import NDArray

from costmodel.domain.plan import ShardingType
from costmodel.step.builder import StepBuilder
from costmodel.step.evaluation import evaluated
from costmodel.step.groups import GroupKey
from costmodel.step.loads import GroupLoad
from costmodel.step.step_operations import StepOperations
from costmodel.step.template import Feature, Linear

_KEY = GroupKey(pooled=True, weighted=False, sharding_type=ShardingType.TABLE_WISE)
IDS, FEATURES = (Linear({Feature(_KEY, name): 1.0}) for name in ("ids", "features"))
"""What ``built`` gives them on every rank."""


def built(builder: StepBuilder, *, ids: object = 0.0, features: object = 0.0) -> StepOperations:
    """Evaluate what was written, for loads that have these numbers on every rank."""
    load = GroupLoad(
        key=_KEY,
        traffic={},
        ids=_per_rank(builder, ids),
        features=_per_rank(builder, features),
        columns=np.zeros(builder.world_size),
        fetch_time=np.zeros(builder.world_size),
        stashed_bytes=np.zeros(builder.world_size),
        replica_bytes=np.zeros(builder.world_size),
        table_columns=0.0,
        sent_ids=0.0,
        sent_features=0.0,
        parameter_bytes={},
        tables=0.0,
    )
    return evaluated(builder.template(), [load])


def _per_rank(builder: StepBuilder, numbers: object) -> NDArray[np.float64]:
    return np.broadcast_to(np.asarray(numbers, dtype=np.float64), (builder.world_size,))
