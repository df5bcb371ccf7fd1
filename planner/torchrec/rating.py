"""TorchRec's proposals rated by the predicted step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchrec.distributed.planner.types import ParameterConstraints, PerfModel, ShardingOption
from torchrec.distributed.planner.types import Topology as TorchRecTopology

from costmodel.base.units import MS
from costmodel.domain.hardware import HardwareProfile, Topology
from costmodel.domain.plan import ComputeKernel, ShardingPlan, ShardingType, TableSharding
from costmodel.domain.workload import DenseModel, Pipeline, Workload
from costmodel.engine.objective import Objective
from planner.torchrec.arguments import check_arguments, to_pipeline
from planner.torchrec.model_reading import option_table, read_options
from planner.torchrec.modules import ModelReading, full_name
from planner.torchrec.observed_inputs import SampleBatch, to_batches
from planner.torchrec.sharding_options import planned_shards
from planner.torchrec.topology import resolve_profile, to_topology


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rater:
    """Data of a model that is kept after its first rating."""

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
        self._device = topology.compute_device
        profile, _ = resolve_profile(hardware, topology.compute_device)
        self._topology = to_topology(topology, profile)
        self._constraints = dict(constraints or {})
        self._batches = to_batches(sample_batches)
        self._dense = dense
        self._pipeline = to_pipeline(pipeline)
        self._modelled: dict[tuple[str, str], bool] = {}
        self._known: tuple[frozenset[str], dict[str, str], _Rater] | None = None

    def rate(self, plan: list[ShardingOption]) -> float:
        """Return the simulated step in milliseconds, TorchRec's unit; less is better."""
        reading = ModelReading(
            compute_device=self._device,
            local_batch_size=plan[0].batch_size,
            world_size=self._topology.world_size,
            constraints=self._constraints,
            batches=self._batches,
        )
        ours = [option for option in plan if self._is_modelled(option, reading)]
        others = _rated_by_torchrec([
            option for option in plan if not self._is_modelled(option, reading)
        ])
        if not ours:
            return others
        tables = frozenset(option.fqn for option in ours)
        if self._known is None or self._known[0] != tables:
            names, rater = self._prepare(ours, reading)
            self._known = (tables, names, rater)
        _, names, rater = self._known
        return rater.objective.step_time(rater.plan(ours, names)) / MS + others

    def _is_modelled(self, option: ShardingOption, reading: ModelReading) -> bool:
        """Return whether an option's kernel and table have a time in our model; remembered."""
        key = option.fqn, option.compute_kernel
        if key not in self._modelled:
            kernel = option.compute_kernel in set(ComputeKernel)
            self._modelled[key] = kernel and not option_table(option, reading).unmodelled
        return self._modelled[key]

    def _prepare(
        self, options: Sequence[ShardingOption], reading: ModelReading
    ) -> tuple[dict[str, str], _Rater]:
        """Return the tables' names by those of TorchRec's paths, and what rates their options."""
        model = read_options(options, reading)
        workload = Workload(
            name="model",
            tables=model.tables,
            dense=self._dense or model.dense,
            local_batch_size=options[0].batch_size,
            pipeline=self._pipeline,
            optimizer=model.optimizer,
            output_type=model.output_type,
        )
        names = {
            full_name(location.module, location.table): name
            for name, location in model.locations.items()
        }
        objective = Objective(workload, self._topology)
        return names, _Rater(topology=self._topology, objective=objective)


def _rated_by_torchrec(options: Sequence[ShardingOption]) -> float:
    """Return TorchRec's estimate in milliseconds: the largest sum of shards' times on a rank."""
    times: dict[int, float] = {}
    for shard in (shard for option in options for shard in option.shards):
        times[shard.rank] = times.get(shard.rank, 0.0) + shard.perf.total
    return max(times.values(), default=0.0)


def _sharding(name: str, option: ShardingOption) -> TableSharding:
    return TableSharding(
        table=name,
        sharding_type=ShardingType(option.sharding_type),
        compute_kernel=ComputeKernel(option.compute_kernel),
        shards=planned_shards(option),
        cache_load_factor=option.cache_load_factor,
    )
