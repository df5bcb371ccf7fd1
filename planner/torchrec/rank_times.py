"""A predicted step's times of the embeddings, of each rank, by the names of TorchRec's ``Perf``."""

from collections.abc import Mapping

import numpy as np

from costmodel.base.arrays import Array
from costmodel.base.units import MS
from costmodel.step.graph import Stage
from costmodel.step.timeline import Timeline

_EXCHANGES = (Stage.ALL_TO_ALL, Stage.REDUCE_SCATTER, Stage.ALL_GATHER)
_BACKWARD = "gradients"
"""Last word of the name of exchanges of the backward pass."""


def rank_times(timeline: Timeline) -> Mapping[str, Array]:
    """Return milliseconds of each rank by field of ``Perf``; shape (ranks,) each."""
    busy = timeline.busy_times
    none = np.zeros(timeline.graph.world_size)

    def of_stage(wanted: Stage) -> Array:
        found: Array = sum((t for (_, stage), t in busy.items() if stage is wanted), none)
        return found / MS

    groups = [group for group in timeline.graph.groups() if group.first.stage in _EXCHANGES]
    back = [group for group in groups if group.first.name.endswith(_BACKWARD)]
    forth = [group for group in groups if not group.first.name.endswith(_BACKWARD)]
    return {
        "fwd_compute": of_stage(Stage.LOOKUP_FORWARD),
        "fwd_comms": timeline.work_times(forth) / MS,
        "bwd_compute": of_stage(Stage.LOOKUP_BACKWARD),
        "bwd_comms": timeline.work_times(back) / MS,
        "input_dist_comms": of_stage(Stage.INPUT_DIST),
    }
