"""A TorchRec sharding planner that minimises the predicted iteration time."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import torch.distributed as dist
from torch import nn
from torchrec.distributed.planner.constants import BATCH_SIZE
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.planners import EmbeddingPlannerBase
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import (
    Enumerator,
    ParameterConstraints,
    Partitioner,
    PerfModel,
    Proposer,
    ShardingOption,
    Stats,
    StorageReservation,
)
from torchrec.distributed.planner.types import PlannerError as TorchRecError
from torchrec.distributed.planner.types import Topology as TorchRecTopology
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import ShardingPlan as TorchRecPlan

from costmodel.base.units import Seconds
from costmodel.domain.hardware import HardwareProfile
from costmodel.domain.workload import DenseModel, Pipeline
from costmodel.memory.storage import RESERVE_SHARE
from planner.planned.notes import untrained
from planner.search.plugins import AUTO
from planner.search.search import Search
from planner.torchrec.arguments import check_arguments, check_model, to_pipeline
from planner.torchrec.collective import Question, plan_together, shared_question
from planner.torchrec.dense_reading import dense_messages
from planner.torchrec.dense_training import DenseTraining, OptimizerGiven, PrecisionGiven
from planner.torchrec.enumerated import limited
from planner.torchrec.error_types import INPUT_VALIDATION
from planner.torchrec.ignored import Said, on_replicas, settings_warning
from planner.torchrec.model_reading import ModelTables
from planner.torchrec.modules import FoundTable, constraints_by_name, every_table
from planner.torchrec.observed_inputs import SampleBatch, to_batches
from planner.torchrec.other_tables import merged
from planner.torchrec.plan_request import PlanRequest, prefetching_pipeline
from planner.torchrec.sharding_group import of_one_group, to_strategy
from planner.torchrec.sharding_options import chosen_options, loaded_options, plan_after_callbacks
from planner.torchrec.solving import PlanOutcome, Solution, planned_around, retimed
from planner.torchrec.topology import (
    Reservation,
    current_topology,
    over_hosts,
    resolve_profile,
)

_LOGGER = logging.getLogger(__name__)


class IterationTimePlanner(EmbeddingPlannerBase):  # type: ignore[misc]  # torchrec has no types here
    """Plans for the shortest predicted training step; takes EmbeddingShardingPlanner's place.

    What is set and does not change the plan is named in one warning (docs/reference has the table);
    tables that the cost model does not know get TorchRec's own option, and the rest is planned
    around them.

    Parameters
    ----------
    topology
        Ranks, ranks per node, memory and device; without one, the process group's.
    batch_size
        Samples per rank; TorchRec's default (512) if None.
    enumerator
        What it lists of each table may be chosen, and no more. Gives TorchRec's estimates for
        ``stats``, ``callbacks`` and ``plan_loader``.
    storage_reservation
        Decides how much memory tables may take. Without one, the predicted dense model, inputs
        and activations and a tenth of the memory are left free.
    proposer, partitioner, performance_model
        Taken for EmbeddingShardingPlanner's sake: a search by simulated steps has their place.
    stats
        Told of the plan, as by EmbeddingShardingPlanner; none by default.
    constraints
        By table, or by module path and table (``sparse_arch.ebc.item``), which comes first.
    debug
        Whether to log the plan's predicted step time.
    callbacks
        Each is called with the chosen options, and returns those that are to be the plan.
    timeout_seconds
        Longest search; without it, ten seconds.
    plan_loader
        Tables that it has a plan for, made for this model, topology and constraints, keep it; the
        rest is planned around them.
    fixed_plan
        Tables that it has stay as they are there; the rest is planned around them.
    hardware
        A profile, its name or path: the machine to predict for. By default the profile of the GPU
        that torch sees; with a warning ``h100-sxm`` where there is none for it, and the rough
        ``cpu-gloo`` on CPU.
    sample_batches
        A few batches (``KeyedJaggedTensor``, or what has some: a dict, a tuple, a dataclass), for
        pooling factors and input distributions where the constraints do not tell. If forward takes
        them as they are (a tuple is its arguments), the model is run with some of their samples.
    sharder, seed
        The search: a sharder's name, or ``auto``.
    dense
        The dense part; without it the model is run a few times on the CPU, on a copy and with small
        batches, and all that it runs is read (``planner.operators``). Where that cannot be, its
        linear layers are, and the warning says how much that is.
    dense_optimizer
        What updates dense parameters and replicated tables: a workload file's name (``adam``), or
        torch's optimizer or class; before that of ``dense``. Untold it is taken to be Adagrad: the
        plan then takes up to 1.18 times as long as that for the true one, assuming SGD 1.63, Adam
        1.68 (``dense_training.ASSUMED_OPTIMIZER``).
    precision
        Of the dense layers (``bf16``: such an autocast); untold, weights' own or torch's setting.
    pipeline
        How the training loop overlaps batches: a ``planner.Pipeline``, its name, or TorchRec's
        class or its name. Constraints
        with a ``prefetch_pipeline`` in their ``cache_params`` make TrainPipelineSparseDist the
        prefetching one.
    gradient_accumulation_steps
        ``num_steps`` of the loop's ``GradientAccumulationWrapper``: batches of a predicted step.
    replicate
        Whether to replicate (``data_parallel``) tables that may be sharded, which leaves them to
        the loop's dense optimizer. True: where predicted to be faster; None: where surely so, by
        the models' errors (a warning names them); False: never, as always if they are frozen.
    restore_site
        Layer of the top MLP that ``site_fqn`` of the loop's ``TrainPipelineSparseDistEmbStash``
        names, counted from 0, if the configuration of a table says ``stash_weights``; None:
        weights come back when the embeddings' gradients are sent.
    headroom
        Share of what the storage reservation leaves that every rank keeps free, too, unless no such
        plan fits, or a fuller one is surely faster.
    sharding_group_size, use_inter_host_allreduce, sharding_strategy
        Those of the script's ``DMPCollection``: the plan is for one group of so many ranks, of
        which the job has several; None: one group, as ``DistributedModelParallel`` has it.
        ``topology`` is the job's. Give ``DMPCollection`` ``node_group_size``, too: ranks of a group
        on a node (``solution.topology.local_world_size``).
    sync_interval
        Steps from one ``sync()`` to the next.

    """

    def __init__(  # noqa: PLR0913, PLR0917 - EmbeddingShardingPlanner's parameters, and ours
        self,
        topology: TorchRecTopology | None = None,
        batch_size: int | None = None,
        enumerator: Enumerator | None = None,
        storage_reservation: StorageReservation | None = None,
        proposer: Proposer | list[Proposer] | None = None,
        partitioner: Partitioner | None = None,
        performance_model: PerfModel | None = None,
        stats: Stats | list[Stats] | None = None,
        constraints: Mapping[str, ParameterConstraints] | None = None,
        debug: bool = True,  # noqa: FBT001, FBT002 - EmbeddingShardingPlanner's
        callbacks: list[Callable[[list[ShardingOption]], list[ShardingOption]]] | None = None,
        timeout_seconds: float | None = None,
        plan_loader: Any = None,  # noqa: ANN401 - a PlanLoader, which not all versions have
        *,
        fixed_plan: TorchRecPlan | None = None,
        hardware: HardwareProfile | str | Path | None = None,
        sample_batches: Sequence[SampleBatch] = (),
        sharder: str = AUTO,
        seed: int = 0,
        dense: DenseModel | None = None,
        dense_optimizer: OptimizerGiven | None = None,
        precision: PrecisionGiven | None = None,
        pipeline: Pipeline | str | type = Pipeline.SPARSE_DIST,
        gradient_accumulation_steps: int = 1,
        restore_site: int | None = None,
        replicate: bool | None = None,
        headroom: float = Search().headroom,
        sharding_group_size: int | None = None,
        use_inter_host_allreduce: bool = False,
        sync_interval: int = 1,
        sharding_strategy: object = "default",
    ) -> None:
        check_arguments(locals())
        topology, replicas = of_one_group(
            topology or current_topology(),
            sharding_group_size,
            use_inter_host_allreduce=use_inter_host_allreduce,
            sync_interval=sync_interval,
            sharding_strategy=to_strategy(sharding_strategy),
        )
        super().__init__(
            topology=topology,
            batch_size=batch_size or BATCH_SIZE,
            enumerator=enumerator,
            # what is left free without one is decided per workload (``usable_bytes``)
            storage_reservation=storage_reservation
            or FixedPercentageStorageReservation(RESERVE_SHARE),
            stats=stats or [],
            constraints={name: each for name, each in (constraints or {}).items() if each},
            debug=debug,
            callbacks=callbacks,
        )
        self._enumerates = enumerator is None
        self._by_name = self._constraints
        self._reserves = storage_reservation is not None
        self._unheeded = {
            "proposer": proposer,
            "partitioner": partitioner,
            "performance_model": performance_model,
        }
        self._beside: tuple[Said, ...] = ()
        self.plan_loader = plan_loader
        limit = timeout_seconds or Search().time_limit
        self._search = Search(seed=seed, time_limit=limit, headroom=headroom)
        if isinstance(sample_batches, Iterator):
            sample_batches = list(sample_batches)
        profile, name = resolve_profile(hardware, topology.compute_device)
        self._batches = to_batches(sample_batches)
        self._sharder = sharder
        self._request = PlanRequest(
            topology=topology,
            profile=profile,
            hardware=name,
            local_batch_size=self._batch_size,
            pipeline=prefetching_pipeline(to_pipeline(pipeline), self._constraints),
            gradient_accumulation_steps=gradient_accumulation_steps,
            restore_site=restore_site,
            dense=dense,
            training=DenseTraining.told(dense_optimizer, precision),
            constraints=self._constraints,
            fixed=fixed_plan or TorchRecPlan(plan={}),
            forward_batches=tuple(sample_batches or ()),
            replicate=replicate,
            replicas=replicas,
        )
        self._chosen: Callable[[], list[ShardingOption]] = list
        self._last: tuple[nn.Module, list[Any]] | None = None
        self.solution: Solution | None = None
        """The result of the last ``plan`` or ``collective_plan``, on every rank; None: the cost
        model knows no table of the model."""

    def plan(self, module: nn.Module, sharders: Sequence[Any]) -> TorchRecPlan:
        """Return the plan with the shortest predicted step that the sharders can carry out.

        A model without tables that the sharders can shard has an empty one. The search ends by the
        clock: ranks of one job that each call this may get plans that do not belong together.
        ``collective_plan`` gives them one.

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
        outcome = self._solve(module, list(sharders))
        self.solution = outcome.solution
        return outcome.plan

    def hash_planner_context_inputs(self) -> int:
        """Return TorchRec's hash of the last plan's inputs, as stored plans have it."""
        self._recall()
        made: int = super().hash_planner_context_inputs()
        return made

    def hash_planner_context_inputs_str(self) -> str:
        """Return the hash of what is planned for as text, as TorchRec's planner makes it."""
        self._recall()
        made: str = super().hash_planner_context_inputs_str()
        return made

    def _recall(self) -> None:
        """Run enumerator and reservation on the last model again, of which the hash is made."""
        if self._last is not None:
            module, sharders = self._last
            self._enumerator.enumerate(module=module, sharders=sharders)
            self._reserve(module, sharders)

    def get_selected_options(self) -> list[ShardingOption]:
        """Return the last plan as TorchRec's options, with its own estimates of each shard."""
        return self._chosen()

    def _solve(self, module: nn.Module, sharders: list[Any]) -> PlanOutcome:
        """Plan the model's tables around those that are given, and report the whole plan."""
        started = perf_counter()
        check_model(module, sharders)
        self._last = module, sharders
        asked, unheeded = self._request, list[Said]()
        if not self._enumerates:
            asked, unheeded = limited(asked, self._enumerator, module, sharders)
        tables = list(every_table(module, sharders, asked.reading(self._batches)))
        self._tell_constraints(tables)
        reserved = self._reserved(module, sharders)
        request = self._with_loaded(asked, module, sharders)
        model = self._read(request, tables, unheeded)
        if model is None:
            _LOGGER.warning("the model has no embedding tables that the sharders can shard")
            self._chosen = list
            return PlanOutcome(plan=TorchRecPlan(plan={}), solution=None)
        others = request.others(
            model,
            module,
            sharders,
            reservation=self._storage_reservation,
            time_limit=self._search.time_limit,
        )
        outcome = planned_around(request, model, others, reserved, self._sharder, self._search)
        reported = self._reported(outcome, module, sharders, started, model.found)
        device = self._topology.compute_device
        replicas = on_replicas(reported.plan, request.fixed, model.found, device)
        for said in (*replicas, *over_hosts(reported.plan, self._topology)):
            _LOGGER.warning("%s", said)
        return reported

    def _reported(
        self,
        outcome: PlanOutcome,
        module: nn.Module,
        sharders: Sequence[Any],
        started: Seconds,
        tables: Sequence[FoundTable],
    ) -> PlanOutcome:
        """Return a plan after the callbacks, once statistics and log have it."""
        plan, solution = outcome.plan, outcome.solution
        if solution is not None:
            for note in untrained(solution.workload, solution.topology.hardware.device):
                _LOGGER.warning("%s", note)

        def chosen() -> list[ShardingOption]:
            return chosen_options(
                plan, module, sharders, self._enumerator, tables, self._batch_size
            )

        if self._callbacks:
            plan = plan_after_callbacks(chosen(), self._callbacks, self._topology)
        if solution is not None and self._callbacks:
            solution = retimed(solution, plan)
        self._chosen = chosen
        for stats in self._stats:
            stats.log(
                sharding_plan=plan,
                topology=self._topology,
                batch_size=self._batch_size,
                storage_reservation=self._storage_reservation,
                num_proposals=1,
                num_plans=1,
                run_time=perf_counter() - started,
                best_plan=self._estimated(chosen(), solution),
                constraints=self._by_name,
                enumerator=self._enumerator,
                sharders=list(sharders),
                debug=self._debug,
            )
        if self._debug and solution is not None:
            _LOGGER.info("%s", solution.summary)
        return PlanOutcome(plan=plan, solution=solution)

    def _estimated(
        self, options: list[ShardingOption], solution: Solution | None
    ) -> list[ShardingOption]:
        """Return a plan's options with the estimates that statistics print: TorchRec's."""
        del solution
        return options

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
                    INPUT_VALIDATION,
                )
            pg = dist.group.WORLD
        chosen = get_default_sharders() if sharders is None else list(sharders)
        question = self._question(module, chosen)
        outcome = plan_together(pg, question, lambda: self._solve(module, chosen))
        self.solution = outcome.solution
        return outcome.plan

    def _read(
        self, request: PlanRequest, tables: Sequence[FoundTable], unheeded: Sequence[Said]
    ) -> ModelTables | None:
        """Return the tables of the last model, after the warning, also if reading it fails."""
        model = None
        try:
            model = request.read(*self._last, self._batches) if self._last else None
        finally:
            self._look_over(tables, model, request, unheeded)
        return model

    def _look_over(
        self,
        tables: Sequence[FoundTable],
        model: ModelTables | None,
        request: PlanRequest,
        unheeded: Sequence[Said],
    ) -> None:
        """Warn once of what changes nothing, is planned roughly, not read, or assumed."""
        reading = request.reading(self._batches)
        read = None if model is None else model.dense_reading
        dense, known = dense_messages(read, request.training, request.dense)
        ignored = settings_warning(
            self._topology, self._unheeded, tables, reading, unheeded, self._beside
        )
        said = [ignored, dense]
        if any(said):
            _LOGGER.warning("%s", "\n".join(filter(None, said)))
        if known:
            _LOGGER.info("%s", known)

    def _tell_constraints(self, tables: Sequence[FoundTable]) -> None:
        """Give TorchRec's parts the constraints that are given by module path and table, too."""
        self._by_name = constraints_by_name(tables)
        if self._enumerates:
            self._enumerator = EmbeddingEnumerator(
                self._topology, self._batch_size, constraints=self._by_name
            )

    def _reserved(self, module: nn.Module, sharders: Sequence[Any]) -> Reservation | None:
        """Return the memory that the storage reservation leaves; None: there is no reservation."""
        left = self._reserve(module, sharders) if self._reserves or self._stats else None
        name = type(self._storage_reservation).__name__
        return Reservation(left=left, name=name) if left and self._reserves else None

    def _reserve(self, module: nn.Module, sharders: Sequence[Any]) -> TorchRecTopology:
        return self._storage_reservation.reserve(
            topology=self._topology,
            batch_size=self._batch_size,
            module=module,
            sharders=list(sharders),
            constraints=self._by_name,
        )

    def _with_loaded(
        self, request: PlanRequest, module: nn.Module, sharders: Sequence[Any]
    ) -> PlanRequest:
        """Return the request with the plan loader's plan as fixed."""
        if self.plan_loader is None:
            return request
        try:
            made_for = self.hash_planner_context_inputs_str()
        except (RuntimeError, ValueError) as error:  # of the fingerprint, or of the enumerator
            _LOGGER.warning("planning anew, as the stored plan cannot be checked: %s", error)
            return request
        space = self._enumerator.enumerate(module=module, sharders=list(sharders))
        options = loaded_options(self.plan_loader, space, made_for)
        loaded = plan_after_callbacks(options, (), self._topology)
        return replace(request, fixed=merged(loaded, request.fixed))

    def _question(self, module: nn.Module, sharders: Sequence[Any]) -> Question:
        """Return what all ranks must agree on; sample batches may differ, rank 0's count."""
        question = replace(self._request, dense=self._request.dense or DenseModel())
        return shared_question(
            self._topology, self._batch_size, lambda: question.read(module, sharders, ())
        )
