"""What a script asks to be planned, and how its model is read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torchrec.distributed.planner.types import PlannerError, StorageReservation
from torchrec.distributed.planner.types import Topology as TorchRecTopology
from torchrec.distributed.types import ShardingPlan as TorchRecPlan

from costmodel.base.units import Seconds
from costmodel.domain.hardware import HardwareProfile, Topology
from costmodel.domain.replica_groups import ReplicaGroups
from costmodel.domain.workload import DenseModel, Pipeline, Workload
from planner.torchrec.dense_training import DenseTraining
from planner.torchrec.error_types import refusing
from planner.torchrec.model_reading import ModelTables, read_model
from planner.torchrec.modules import Kernels, ModelReading, find_tables
from planner.torchrec.observed_inputs import SampleBatch
from planner.torchrec.other_tables import OtherTables, only_tables, plan_other_tables
from planner.torchrec.topology import (
    Reservation,
    check_weights,
    device_bytes,
    to_topology,
)
from planner.verbs.topologies import with_usable


def prefetching_pipeline(pipeline: Pipeline, constraints: Mapping[str, Any]) -> Pipeline:
    """Return the pipeline; the prefetching one if a constraint's cache is prefetched."""
    params = [getattr(each, "cache_params", None) for each in constraints.values()]
    prefetches = any(getattr(each, "prefetch_pipeline", None) for each in params)
    return Pipeline.PREFETCH if prefetches and pipeline is Pipeline.SPARSE_DIST else pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """The machine, the training loop, and the script's settings of tables."""

    topology: TorchRecTopology
    profile: HardwareProfile
    hardware: str
    """Name or path of the profile."""
    local_batch_size: int
    pipeline: Pipeline
    gradient_accumulation_steps: int
    restore_site: int | None
    dense: DenseModel | None
    """None: it is read."""
    training: DenseTraining
    """How the dense part is trained."""
    constraints: Mapping[str, Any]
    """``ParameterConstraints`` by table, or by module path and table."""
    fixed: TorchRecPlan
    """The plan of the tables that keep theirs."""
    forward_batches: Sequence[Any] = ()
    """Sample batches as forward takes them."""
    replicate: bool | None = None
    """Whether tables that may be sharded may be replicated; None: only if that is surely faster."""
    replicas: ReplicaGroups | None = None
    """The groups that each hold all tables, of which the topology is one's; None: there is one."""
    listed: Mapping[str, Kernels] = field(default_factory=dict)
    """Kernels that an enumerator lists, by module path and table; empty: none was given."""

    def reading(self, batches: Sequence[SampleBatch] = ()) -> ModelReading:
        """Return everything besides the model that reading it depends on."""
        return ModelReading(
            compute_device=self.topology.compute_device,
            local_batch_size=self.local_batch_size,
            world_size=self.topology.world_size,
            constraints=self.constraints,
            listed=self.listed,
            batches=batches,
            fixed=self.fixed.plan,
            stashes=self.pipeline is Pipeline.SPARSE_DIST,
            dense=self.dense,
            forward_batches=self.forward_batches,
            training=self.training,
        )

    def read(
        self, module: nn.Module, sharders: Sequence[Any], batches: Sequence[SampleBatch]
    ) -> ModelTables | None:
        """Return a model's tables; None: it has none that the sharders can shard.

        Raises
        ------
        torchrec.distributed.planner.types.PlannerError
            The model cannot be read, or its weights are more than all memory.

        """
        reading = self.reading(batches)
        try:
            return read_model(module, sharders, reading)
        except PlannerError:
            check_weights(find_tables(module, sharders, reading), self.topology)
            raise

    def workload(self, model: ModelTables) -> Workload:
        """Return the workload of the model's tables and their training."""
        with refusing("the training loop"):
            return Workload(
                name="model",
                tables=model.tables,
                dense=model.dense,
                local_batch_size=self.local_batch_size,
                pipeline=self.pipeline,
                gradient_accumulation_steps=self.gradient_accumulation_steps,
                restore_site=self.restore_site,
                optimizer=model.optimizer,
                output_type=model.output_type,
                comms_forward=model.comms_forward,
                comms_backward=model.comms_backward,
            )

    def machine(self, workload: Workload, reserved: Reservation | None) -> Topology:
        """Return the topology.

        If there is a storage reservation, with the memory that it leaves.
        """
        topology = to_topology(self.topology, self.profile, self.replicas)
        if reserved is None:
            return topology
        return with_usable(topology, workload, device_bytes(reserved.left))

    def others(
        self,
        model: ModelTables,
        module: nn.Module,
        sharders: Sequence[Any],
        *,
        reservation: StorageReservation,
        time_limit: Seconds,
    ) -> OtherTables:
        """Return TorchRec's plan of the tables that the cost model does not know."""
        return plan_other_tables(
            module,
            sharders,
            model.others,
            self.topology,
            fixed=self.fixed,
            batch_size=self.local_batch_size,
            storage_reservation=reservation,
            timeout_seconds=max(1, int(time_limit)),
        )

    def fixed_of(self, model: ModelTables) -> TorchRecPlan:
        """Return the plan of the model's tables that keep theirs."""
        return only_tables(self.fixed, [(each.path, each.name) for each in model.found])

    def constraints_of(self, model: ModelTables) -> dict[str, Any]:
        """Return the constraint of every table that the cost model knows; None: it has none."""
        reading = self.reading()
        return {
            name: reading.constraint(location.module, location.table)
            for name, location in model.locations.items()
        }
