"""Reading TorchRec's sharding options, where no model is seen: their tables and workload."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchrec.distributed.planner.types import ParameterConstraints, Perf, ShardingOption
from torchrec.distributed.planner.types import Topology as TorchRecTopology

from costmodel.base.units import MS
from costmodel.domain.hardware import HardwareProfile, Topology
from costmodel.domain.plan import ComputeKernel, ShardingType, TableSharding
from costmodel.domain.workload import DenseModel, Pipeline, Workload
from costmodel.step.shard_times import ShardTime, ShardTimer
from planner.torchrec.arguments import to_pipeline
from planner.torchrec.model_reading import option_table, read_options
from planner.torchrec.modules import ModelReading, full_name
from planner.torchrec.observed_inputs import SampleBatch, to_batches
from planner.torchrec.sharding_options import planned_shards
from planner.torchrec.topology import resolve_profile, to_topology


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The tables of some options as a workload."""

    workload: Workload
    names: Mapping[str, str]
    """The tables' names in the workload by those of options (``ShardingOption.fqn``)."""

    def sharding(self, option: ShardingOption) -> TableSharding:
        """Return an option as a table's sharding."""
        return TableSharding(
            table=self.names[option.fqn],
            sharding_type=ShardingType(option.sharding_type),
            compute_kernel=ComputeKernel(option.compute_kernel),
            shards=planned_shards(option),
            cache_load_factor=option.cache_load_factor,
        )

    def perfs(self, options: Sequence[ShardingOption], topology: Topology) -> list[list[Perf]]:
        """Return the milliseconds that each option's shards add to their ranks, placed or not."""
        timer = ShardTimer(self.workload, topology)
        return [list(map(_perf, times)) for times in timer.of(list(map(self.sharding, options)))]


def _perf(time: ShardTime) -> Perf:
    """Return seconds as TorchRec's milliseconds.

    Its planner adds up all but the exchange of ids, for which other ranks wait, too: it counts as
    forward communication, besides having its own field.
    """
    return Perf(
        fwd_compute=time.forward / MS,
        fwd_comms=(time.forward_exchange + time.input_exchange) / MS,
        bwd_compute=time.backward / MS,
        bwd_comms=time.backward_exchange / MS,
        prefetch_compute=time.prefetch / MS,
        input_dist_comms=time.input_exchange / MS,
    )


class OptionReader:
    """Reads options of one model, and keeps what it read.

    Parameters
    ----------
    topology, constraints
        TorchRec's, for ranks, nodes and memory, and for pooling factors.
    hardware, sample_batches, dense, pipeline
        As for ``IterationTimePlanner``; without ``dense`` one layer, updated by Adagrad, stands for
        the model's dense part.

    """

    def __init__(
        self,
        topology: TorchRecTopology,
        *,
        constraints: Mapping[str, ParameterConstraints] | None,
        hardware: HardwareProfile | str | Path | None,
        sample_batches: Sequence[SampleBatch],
        dense: DenseModel | None,
        pipeline: Pipeline | str | type,
    ) -> None:
        self._device = topology.compute_device
        profile, _ = resolve_profile(hardware, topology.compute_device)
        self.topology = to_topology(topology, profile)
        self._constraints = dict(constraints or {})
        self._batches = to_batches(sample_batches)
        self._dense = dense
        self._pipeline = to_pipeline(pipeline)
        self._modelled: dict[tuple[str, str], bool] = {}
        self._known: tuple[frozenset[str], ReadOptions] | None = None

    def modelled(
        self, options: Sequence[ShardingOption]
    ) -> tuple[list[ShardingOption], list[ShardingOption]]:
        """Return the options whose kernel and table have a time in our model, and the others."""
        both: dict[bool, list[ShardingOption]] = {True: [], False: []}
        for option in options:
            both[self._is_modelled(option)].append(option)
        return both[True], both[False]

    def read(self, options: Sequence[ShardingOption]) -> ReadOptions:
        """Return the tables of modelled options; the same object as long as they are the same."""
        by_table = {option.fqn: option for option in options}
        tables = frozenset(by_table)
        if self._known is None or self._known[0] != tables:
            self._known = tables, self._read(list(by_table.values()))
        return self._known[1]

    def _is_modelled(self, option: ShardingOption) -> bool:
        key = option.fqn, option.compute_kernel
        if key not in self._modelled:
            self._modelled[key] = (
                option.compute_kernel in set(ComputeKernel)
                and not option_table(option, self._reading(option)).unmodelled
            )
        return self._modelled[key]

    def _reading(self, option: ShardingOption) -> ModelReading:
        return ModelReading(
            compute_device=self._device,
            local_batch_size=option.batch_size,
            world_size=self.topology.world_size,
            constraints=self._constraints,
            batches=self._batches,
        )

    def _read(self, options: Sequence[ShardingOption]) -> ReadOptions:
        model = read_options(options, self._reading(options[0]))
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
        return ReadOptions(workload=workload, names=names)
