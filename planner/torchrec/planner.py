"""A TorchRec sharding planner that minimises the predicted iteration time."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import nn
from torchrec.distributed.planner.constants import BATCH_SIZE
from torchrec.distributed.planner.types import (
    ParameterConstraints,
    PlannerErrorType,
    StorageReservation,
)
from torchrec.distributed.planner.types import PlannerError as TorchRecError
from torchrec.distributed.planner.types import Topology as TorchRecTopology
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import ShardingPlan as TorchRecPlan
from torchrec.distributed.types import ShardingPlanner

from costmodel.base.errors import InfeasibleError, PlannerError
from costmodel.base.units import GIB, MS, Seconds
from costmodel.domain.hardware import HardwareProfile, Topology
from costmodel.domain.plan import ComputeKernel, ShardingPlan
from costmodel.domain.workload import DenseModel, Pipeline, Workload
from costmodel.engine.objective import Objective
from costmodel.memory.rank_memory import host_bytes_usable
from planner.planning.plugins import AUTO
from planner.planning.search import Attempt, Search, run_sharders, sharders_for
from planner.torchrec.collective import Question, plan_together
from planner.torchrec.model_reading import ModelReading, ModelTables, read_model
from planner.torchrec.observed_inputs import SampleBatch
from planner.torchrec.plans import TableLocation, let_prefetch, to_torchrec
from planner.torchrec.topology import (
    current_topology,
    resolve_profile,
    to_topology,
    usable_after,
    with_usable,
)
from sharders.problem.sharding_problem import ShardingProblem

_LOGGER = logging.getLogger(__name__)
_IN_HBM = (ComputeKernel.FUSED, ComputeKernel.DENSE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """What the planner made of a model: the workload it saw, and the plan it chose."""

    workload: Workload
    topology: Topology
    locations: Mapping[str, TableLocation]
    plan: ShardingPlan
    step_time: Seconds
    """Predicted."""
    sharder: str
    """Which sharder found it."""
    torchrec_plan: TorchRecPlan
    """The plan, as the planner returned it."""
    hardware: str
    """Name or path of the hardware profile."""


class IterationTimePlanner(ShardingPlanner):  # type: ignore[misc]  # torchrec has no types here
    """Plans for the shortest predicted training step; takes EmbeddingShardingPlanner's place.

    Parameters
    ----------
    topology
        Ranks, ranks per node, memory and device; without one, the process group's.
    batch_size
        Samples per rank; TorchRec's default (512) if None.
    constraints
        By table: sharding types, kernels, ``min_partition`` and pooling factors are honoured, the
        rest is passed on to the sharded modules.
    storage_reservation
        Decides how much memory tables may take. Without one, the predicted dense model, inputs
        and activations and a tenth of the memory are left free.
    timeout_seconds
        Longest search; without it, ten seconds.
    debug
        Whether to log the plan's predicted step time.
    hardware
        A profile, its name or path: the machine to predict for. By default the profile of the GPU
        that torch sees; with a warning ``h100-sxm`` where there is none for it, and the rough
        ``cpu-gloo`` on CPU.
    sample_batches
        A few batches (``KeyedJaggedTensor``, or objects that have one as ``sparse_features``), for
        pooling factors and input distributions where the constraints do not tell.
    sharder, seed
        The search: a sharder's name, or ``auto``.
    dense
        The MLPs; without it the model's linear layers are read.
    pipeline
        How the training loop overlaps batches. Constraints with a ``prefetch_pipeline`` in their
        ``cache_params`` make TrainPipelineSparseDist the prefetching one.

    """

    def __init__(  # noqa: PLR0913 - EmbeddingShardingPlanner's parameters, and ours
        self,
        topology: TorchRecTopology | None = None,
        batch_size: int | None = None,
        *,
        constraints: Mapping[str, ParameterConstraints] | None = None,
        storage_reservation: StorageReservation | None = None,
        timeout_seconds: float | None = None,
        debug: bool = True,
        hardware: HardwareProfile | str | Path | None = None,
        sample_batches: Sequence[SampleBatch] = (),
        sharder: str = AUTO,
        seed: int = 0,
        dense: DenseModel | None = None,
        pipeline: Pipeline = Pipeline.SPARSE_DIST,
    ) -> None:
        self._topology = topology or current_topology()
        self._batch_size = batch_size or BATCH_SIZE
        self._constraints = dict(constraints or {})
        self._storage_reservation = storage_reservation
        self._search = Search(seed=seed, time_limit=timeout_seconds or Search().time_limit)
        self._debug = debug
        self._profile, self._hardware = resolve_profile(hardware, self._topology.compute_device)
        self._batches = tuple(sample_batches or ())
        self._sharder = sharder
        self._dense = dense
        prefetches = pipeline is Pipeline.SPARSE_DIST and any(
            each.cache_params is not None and each.cache_params.prefetch_pipeline
            for each in self._constraints.values()
        )
        self._pipeline = Pipeline.PREFETCH if prefetches else pipeline
        self.solution: Solution | None = None
        """What the last ``plan`` or ``collective_plan`` found, on every rank."""

    def plan(self, module: nn.Module, sharders: Sequence[Any]) -> TorchRecPlan:
        """Return the plan with the shortest predicted step that the sharders can carry out.

        The search ends by the clock: ranks of one job that each call this may get plans that do not
        belong together. ``collective_plan`` gives them one.

        Raises
        ------
        torchrec.distributed.planner.types.PlannerError
            No plan fits, the constraints leave nothing, or the model cannot be read.

        """
        if dist.is_initialized() and dist.get_world_size() > 1:
            _LOGGER.warning(
                "plan() on rank %d of %d: ranks may find different plans; call collective_plan()",
                dist.get_rank(),
                dist.get_world_size(),
            )
        self.solution = self._solve(module, sharders)
        return self.solution.torchrec_plan

    def _solve(self, module: nn.Module, sharders: Sequence[Any]) -> Solution:
        model = self._read(module, sharders, self._batches)
        workload = self._workload(model)
        topology = self._our_topology(workload, module, sharders)
        try:
            attempt, plan = self._find(workload, topology)
        except InfeasibleError as error:
            raise TorchRecError(
                _with_remedies(error), PlannerErrorType.INSUFFICIENT_STORAGE
            ) from error
        except PlannerError as error:
            raise TorchRecError(str(error), PlannerErrorType.STRICT_CONSTRAINTS) from error
        made = to_torchrec(
            plan,
            model.locations,
            compute_device=self._topology.compute_device,
            constraints=self._constraints,
        )
        let_prefetch(made, self._pipeline)
        if self._debug:
            _LOGGER.info(
                "%d tables on %d ranks: predicted step %.3f ms (%s)",
                len(workload.tables),
                topology.world_size,
                attempt.step_time / MS,
                attempt.sharder,
            )
        return Solution(
            workload=workload,
            topology=topology,
            locations=model.locations,
            plan=plan,
            step_time=attempt.step_time,
            sharder=attempt.sharder,
            torchrec_plan=made,
            hardware=self._hardware,
        )

    def collective_plan(
        self,
        module: nn.Module,
        sharders: Sequence[Any] | None = None,
        pg: dist.ProcessGroup | None = None,
    ) -> TorchRecPlan:
        """Plan on rank 0 and return its plan on every rank; an error is raised on every rank.

        All ranks must have the same tables, topology and batch size.
        """
        if pg is None:
            if not dist.is_initialized():
                raise TorchRecError(
                    "collective_plan needs a process group: call "
                    "torch.distributed.init_process_group() first, or plan() on one rank",
                    PlannerErrorType.INPUT_VALIDATION,
                )
            pg = dist.group.WORLD
        chosen = get_default_sharders() if sharders is None else sharders
        question = self._question(module, chosen)
        self.solution = plan_together(pg, question, lambda: self._solve(module, chosen))
        return self.solution.torchrec_plan

    def _read(
        self, module: nn.Module, sharders: Sequence[Any], batches: Sequence[SampleBatch]
    ) -> ModelTables:
        reading = ModelReading(
            compute_device=self._topology.compute_device,
            local_batch_size=self._batch_size,
            constraints=self._constraints,
            batches=batches,
        )
        return read_model(module, sharders, reading)

    def _workload(self, model: ModelTables) -> Workload:
        return Workload(
            name="model",
            tables=model.tables,
            dense=self._dense or model.dense,
            local_batch_size=self._batch_size,
            pipeline=self._pipeline,
            optimizer=model.optimizer,
        )

    def _our_topology(
        self, workload: Workload, module: nn.Module, sharders: Sequence[Any]
    ) -> Topology:
        topology = to_topology(self._topology, self._profile)
        if self._storage_reservation is None:
            return topology
        reserved = self._storage_reservation.reserve(
            topology=self._topology,
            batch_size=self._batch_size,
            module=module,
            sharders=list(sharders),
            constraints=self._constraints,
        )
        return with_usable(topology, workload, usable_after(reserved))

    def _find(self, workload: Workload, topology: Topology) -> tuple[Attempt, ShardingPlan]:
        """Search without host memory first: where that fits, it is faster and soon found."""
        resident = _in_hbm_if_allowed(workload)
        try:
            return self._searched(resident, topology)
        except InfeasibleError as error:
            if resident == workload:
                raise
            without_host_memory = error
        try:
            return self._searched(workload, topology)
        except InfeasibleError as error:
            raise _too_large_for_host(without_host_memory, workload, topology) from error

    def _searched(self, workload: Workload, topology: Topology) -> tuple[Attempt, ShardingPlan]:
        problem = ShardingProblem(
            workload=workload, topology=topology, objective=Objective(workload, topology)
        )
        attempts = run_sharders(sharders_for(self._sharder), problem, self._search)
        found = [(each, each.plan) for each in attempts if each.plan is not None]
        return min(found, key=lambda pair: pair[0].step_time)

    def _question(self, module: nn.Module, sharders: Sequence[Any]) -> Question:
        """Return what all ranks must agree on; rank 0 refuses a model that cannot be read."""
        topology = self._topology
        try:
            # the ranks' sample batches may differ: rank 0's count
            tables: object = self._read(module, sharders, ()).tables
        except TorchRecError as error:
            tables = str(error)
        shapes = tables
        if isinstance(tables, tuple):
            shapes = tuple(
                (table.name, table.num_embeddings, table.embedding_dim) for table in tables
            )
        return (
            ("the world size", topology.world_size),
            ("the local world size", topology.local_world_size),
            ("the batch size", self._batch_size),
            ("the list of tables", shapes),
        )


def _in_hbm_if_allowed(workload: Workload) -> Workload:
    """Return the workload without UVM kernels, but for tables that may have no others."""
    tables = []
    for table in workload.tables:
        kernels = tuple(kernel for kernel in table.compute_kernels if kernel in _IN_HBM)
        tables.append(replace(table, compute_kernels=kernels or table.compute_kernels))
    return replace(workload, tables=tuple(tables))


def _too_large_for_host(
    error: InfeasibleError, workload: Workload, topology: Topology
) -> InfeasibleError:
    """Return why no plan fits in HBM, and that host memory is no way out."""
    host = topology.num_nodes * host_bytes_usable(topology)
    line = (
        f"{workload.weight_bytes / GIB:.1f} GiB of weights, and {host / GIB:.1f} GiB of host "
        "memory for UVM kernels: no plan with them fits either"
    )
    return InfeasibleError(
        error.message, details=(*error.details, ("host", line)), remedies=error.remedies
    )


def _with_remedies(error: InfeasibleError) -> str:
    """Return the whole error as text, in the words of a training script, not of a command."""
    remedies = [
        (label.replace("--gpus", "world size").replace(" --nodes", ", nodes"), text)
        for label, text in error.remedies
    ]
    return "\n".join([
        str(error),
        *(f"{label}: {text}" for label, text in (*error.details, *remedies)),
    ])
