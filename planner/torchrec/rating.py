"""TorchRec's proposals rated by the predicted step."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from torchrec.distributed.planner.types import ParameterConstraints, PerfModel, ShardingOption
from torchrec.distributed.planner.types import Topology as TorchRecTopology

from costmodel.base.units import MS
from costmodel.domain.hardware import HardwareProfile
from costmodel.domain.workload import DenseModel, Pipeline
from costmodel.engine.objective import Objective
from planner.torchrec.arguments import check_arguments
from planner.torchrec.observed_inputs import SampleBatch
from planner.torchrec.option_reading import OptionReader, ReadOptions
from sharders.problem.options import make_plan


class IterationTimePerfModel(PerfModel):  # type: ignore[misc]  # torchrec has no types here
    """Rates a placed TorchRec plan by its simulated step; give it as ``performance_model``.

    For tables that no cost model knows, TorchRec's own estimate is added: the largest sum of their
    shards' times on a rank.

    Parameters
    ----------
    topology
        TorchRec's: ranks, nodes, memory.
    constraints
        The ``ParameterConstraints`` the planner has, for pooling factors.
    hardware, sample_batches, dense, pipeline
        As for ``IterationTimePlanner``; but no model is seen here: without ``dense`` one layer,
        updated by Adagrad, stands for its dense part.

    """

    def __init__(
        self,
        topology: TorchRecTopology,
        *,
        constraints: Mapping[str, ParameterConstraints] | None = None,
        hardware: HardwareProfile | str | Path | None = None,
        sample_batches: Sequence[SampleBatch] = (),
        dense: DenseModel | None = None,
        pipeline: Pipeline | str | type = Pipeline.SPARSE_DIST,
    ) -> None:
        check_arguments(locals())
        self._reader = OptionReader(
            topology,
            constraints=constraints,
            hardware=hardware,
            sample_batches=sample_batches,
            dense=dense,
            pipeline=pipeline,
        )
        self._known: tuple[ReadOptions, Objective] | None = None

    def rate(self, plan: list[ShardingOption]) -> float:
        """Return the simulated step in milliseconds, TorchRec's unit; less is better."""
        ours, others = self._reader.modelled(plan)
        estimated = _rated_by_torchrec(others)
        if not ours:
            return estimated
        read = self._reader.read(ours)
        if self._known is None or self._known[0] is not read:
            self._known = read, Objective(read.workload, self._reader.topology)
        placed = make_plan(self._reader.topology, list(map(read.sharding, ours)))
        return self._known[1].step_time(placed) / MS + estimated


def _rated_by_torchrec(options: Sequence[ShardingOption]) -> float:
    """Return TorchRec's estimate in milliseconds: the largest sum of shards' times on a rank."""
    times: dict[int, float] = {}
    for shard in (shard for option in options for shard in option.shards):
        times[shard.rank] = times.get(shard.rank, 0.0) + shard.perf.total
    return max(times.values(), default=0.0)
