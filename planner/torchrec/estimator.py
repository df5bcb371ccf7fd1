"""TorchRec's own planner with our seconds: an estimator of shards for its enumerator.

    >>> times = IterationTimeEstimator(topology, constraints)    # doctest: +SKIP
    >>> memory = EmbeddingStorageEstimator(topology, constraints)    # doctest: +SKIP
    >>> EmbeddingEnumerator(topology, 512, constraints, [times, memory])    # doctest: +SKIP

Formulas of a hardware configuration (``@forward_compute`` and the like) see a shard's context:
sizes and mean lengths, but neither its table's optimizer nor how ids are spread, and no other
table. So this estimator sets the times itself, of all options at once. It leaves to the
configuration which sharding types there are, how shards' times are adjusted, and tables that no
cost model knows.
"""

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

try:
    from torchrec.distributed.planner.estimator import (
        EmbeddingPerfEstimatorConfig,
        HardwarePerfConfig,
    )
    from torchrec.distributed.planner.estimator.estimator import EmbeddingPerfEstimator
except ImportError as error:
    raise ImportError(
        "planner.torchrec.estimator needs torchrec.distributed.planner.estimator, a package that "
        f"torchrec 1.9.2 has and this torchrec {version('torchrec')} has not; "
        "IterationTimePerfModel rates the plans of this one's planner, too"
    ) from error

from torchrec.distributed.planner.types import ParameterConstraints, ShardingOption
from torchrec.distributed.planner.types import Topology as TorchRecTopology

from costmodel.domain.hardware import HardwareProfile
from costmodel.domain.workload import DenseModel, Pipeline
from planner.torchrec.arguments import check_arguments
from planner.torchrec.observed_inputs import SampleBatch
from planner.torchrec.option_reading import OptionReader, ReadOptions


class IterationTimeEstimator(EmbeddingPerfEstimator):  # type: ignore[misc]  # torchrec has no types
    """Estimates the milliseconds of options' shards by our cost model; TorchRec's planner plans.

    A shard's time is what it adds to its rank, whatever else is there: lookups at the margin,
    exchanges at the slope of the collective, that of ids among the forward ones. Latencies that
    tables share, and what overlaps, are not in it: ``IterationTimePerfModel`` as
    ``performance_model`` counts them, of whole proposals.

    Parameters
    ----------
    topology, constraints
        As for ``EmbeddingEnumerator``.
    config
        A configuration of TorchRec's, for its sharding types, its adjustment of times, and its
        formulas for tables that no cost model knows.
    hardware, sample_batches, dense, pipeline
        As for ``IterationTimePerfModel``.

    """

    def __init__(
        self,
        topology: TorchRecTopology,
        constraints: Mapping[str, ParameterConstraints] | None = None,
        *,
        config: HardwarePerfConfig | None = None,
        hardware: HardwareProfile | str | Path | None = None,
        sample_batches: Sequence[SampleBatch] = (),
        dense: DenseModel | None = None,
        pipeline: Pipeline | str | type = Pipeline.SPARSE_DIST,
    ) -> None:
        check_arguments(locals())
        super().__init__(
            topology=topology,
            constraints=None if constraints is None else dict(constraints),
            config=EmbeddingPerfEstimatorConfig() if config is None else config,
        )
        self._reader = OptionReader(
            topology,
            constraints=constraints,
            hardware=hardware,
            sample_batches=sample_batches,
            dense=dense,
            pipeline=pipeline,
        )

    def estimate(
        self, sharding_options: list[ShardingOption], sharder_data_map: Mapping[str, object]
    ) -> None:
        """Set the times of all shards of the options."""
        ours, others = self._reader.modelled(sharding_options)
        if others:
            super().estimate(others, sharder_data_map)
        if ours:
            self._set_times(ours, self._reader.read(ours))

    def _set_times(self, options: Sequence[ShardingOption], read: ReadOptions) -> None:
        found = read.perfs(options, self._reader.topology)
        for option, perfs in zip(options, found, strict=True):
            self.config.validate_sharding_type(option.sharding_type)
            option.is_weighted = read.workload.table(read.names[option.fqn]).weighted
            adjusted = self.config.post_process_perfs(
                shard_perfs=perfs,
                shard_sizes=[shard.size for shard in option.shards],
                sharding_type=option.sharding_type,
                uneven_sharding_perf_multiplier=self._topology.uneven_sharding_perf_multiplier,
            )
            for shard, perf in zip(option.shards, adjusted, strict=True):
                shard.perf = perf
