"""TorchRec's own proposals, rated by the predicted step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchrec.distributed.planner.types import ParameterConstraints, PerfModel, ShardingOption
from torchrec.distributed.planner.types import Topology as TorchRecTopology

from costmodel.base.units import MS
from costmodel.domain.hardware import HardwareProfile, Topology
from costmodel.domain.plan import ComputeKernel, Shard, ShardingPlan, ShardingType, TableSharding
from costmodel.domain.workload import DenseModel, Pipeline, Workload
from costmodel.engine.objective import Objective
from planner.torchrec.model_reading import read_options
from planner.torchrec.modules import ModelReading
from planner.torchrec.observed_inputs import SampleBatch
from planner.torchrec.topology import resolve_profile, to_topology


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rater:
    """What is known of a model after its first rating."""

    topology: Topology
    objective: Objective

    def plan(self, options: Sequence[ShardingOption], names: Mapping[str, str]) -> ShardingPlan:
        """Return placed options as a plan."""
        return ShardingPlan(
            tables=tuple(_sharding(names[option.fqn], option) for option in options),
            world_size=self.topology.world_size,
            local_world_size=self.topology.local_world_size,
        )


class IterationTimePerfModel(PerfModel):  # type: ignore[misc]  # torchrec has no types here
    """Rates a placed TorchRec plan by its simulated step; give it as ``performance_model``.

    Parameters
    ----------
    topology
        TorchRec's: ranks, nodes, memory.
    constraints
        The ``ParameterConstraints`` the planner has, for pooling factors.
    hardware, sample_batches, dense, pipeline
        As for ``IterationTimePlanner``.

    """

    def __init__(
        self,
        topology: TorchRecTopology,
        *,
        constraints: Mapping[str, ParameterConstraints] | None = None,
        hardware: HardwareProfile | str | Path | None = None,
        sample_batches: Sequence[SampleBatch] = (),
        dense: DenseModel | None = None,
        pipeline: Pipeline = Pipeline.SPARSE_DIST,
    ) -> None:
        self._device = topology.compute_device
        profile, _ = resolve_profile(hardware, topology.compute_device)
        self._topology = to_topology(topology, profile)
        self._constraints = dict(constraints or {})
        self._batches = tuple(sample_batches)
        self._dense = dense
        self._pipeline = pipeline
        self._known: tuple[frozenset[str], dict[str, str], _Rater] | None = None

    def rate(self, plan: list[ShardingOption]) -> float:
        """Return the simulated step in milliseconds, TorchRec's unit; less is better."""
        tables = frozenset(option.fqn for option in plan)
        if self._known is None or self._known[0] != tables:
            names, rater = self._prepare(plan)
            self._known = (tables, names, rater)
        _, names, rater = self._known
        return rater.objective.step_time(rater.plan(plan, names)) / MS

    def _prepare(self, options: Sequence[ShardingOption]) -> tuple[dict[str, str], _Rater]:
        reading = ModelReading(
            compute_device=self._device,
            local_batch_size=options[0].batch_size,
            constraints=self._constraints,
            batches=self._batches,
        )
        model = read_options(options, reading)
        workload = Workload(
            name="model",
            tables=model.tables,
            dense=self._dense or model.dense,
            local_batch_size=options[0].batch_size,
            pipeline=self._pipeline,
            optimizer=model.optimizer,
        )
        names = {
            f"{location.module}.{location.table}": name
            for name, location in model.locations.items()
        }
        objective = Objective(workload, self._topology)
        return names, _Rater(topology=self._topology, objective=objective)


def _sharding(name: str, option: ShardingOption) -> TableSharding:
    return TableSharding(
        table=name,
        sharding_type=ShardingType(option.sharding_type),
        compute_kernel=ComputeKernel(option.compute_kernel),
        shards=tuple(
            Shard(
                rank=shard.rank,
                row_offset=shard.offset[0],
                num_rows=shard.size[0],
                column_offset=shard.offset[1],
                num_columns=shard.size[1],
            )
            for shard in option.shards
        ),
        cache_load_factor=option.cache_load_factor,
    )
