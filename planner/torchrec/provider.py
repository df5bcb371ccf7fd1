"""``IterationTimePlanner`` in TorchRec's unified planner API, for jobs and for dry runs.

    >>> from torchrec.distributed.planner.executor import DefaultPlannerExecutor    # doctest: +SKIP
    >>> executor = DefaultPlannerExecutor(provider=IterationTimeProvider())    # doctest: +SKIP

TorchRec 1.9.2 has that API, 1.8 has not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from math import isfinite
from numbers import Integral, Real
from pathlib import Path
from typing import Any

try:
    from torchrec.distributed.planner.provider import DefaultPlannerProvider
    from torchrec.distributed.planner.types import (
        PlannerSessionContext,
        ShardingPlanRequest,
        StorageReservationPolicy,
    )
except ImportError as error:
    raise ImportError(
        "planner.torchrec.provider needs the unified planner API (PlannerProvider), which "
        f"torchrec 1.9.2 has and this torchrec {version('torchrec')} has not; IterationTimePlanner "
        "plans with this one, too"
    ) from error

from torch import nn
from torchrec.distributed.planner.storage_reservations import SKUAwareStorageReservation
from torchrec.distributed.planner.types import PlannerError, ShardingOption, StorageReservation
from torchrec.distributed.planner.types import Topology as TorchRecTopology
from torchrec.distributed.types import PipelineType

from costmodel.base.limits import MOST_RANKS, MOST_SAMPLES
from costmodel.base.units import GIB, Bytes
from costmodel.domain.hardware import HardwareProfile
from costmodel.domain.workload import Pipeline
from costmodel.memory.storage import RESERVE_SHARE
from planner.files.profiles import profile_names
from planner.torchrec.error_types import INPUT_VALIDATION
from planner.torchrec.planner import IterationTimePlanner
from planner.torchrec.predicted_options import predicted_options
from planner.torchrec.request_treatments import unheeded_request
from planner.torchrec.solving import Solution
from planner.torchrec.topology import make_topology, resolve_profile

Hardware = HardwareProfile | str | Path
_PIPELINES = {
    PipelineType.NONE.value: Pipeline.NONE,
    PipelineType.TRAIN_BASE.value: Pipeline.NONE,
    PipelineType.TRAIN_SPARSE_DIST.value: Pipeline.SPARSE_DIST,
    PipelineType.TRAIN_PREFETCH_SPARSE_DIST.value: Pipeline.PREFETCH,
}
_SHARE = 0.15
"""Share of memory that TorchRec's provider reserves unless told (1.9.2)."""
_DENSE_COPIES = 6.0
"""Bytes of dense memory that it counts for each of dense parameters, likewise."""
_MOST_GIB = 2**30


class ProvidedPlanner(IterationTimePlanner):
    """The planner of a request, whose options have the predicted memory and time."""

    def __init__(self, said: Sequence[tuple[str, str]], **arguments: Any) -> None:  # noqa: ANN401
        super().__init__(**arguments)
        self._beside = tuple((name, reason, "") for name, reason in said)

    def get_selected_options(self) -> list[ShardingOption]:
        """Return the last plan as TorchRec's options, with the predicted memory and time."""
        return self._estimated(super().get_selected_options(), self.solution)

    def _estimated(
        self, options: list[ShardingOption], solution: Solution | None
    ) -> list[ShardingOption]:
        """Return a plan's options with the predicted memory and time."""
        if solution is None or not options:
            return options
        return predicted_options(options, solution)

    def get_search_space(self) -> list[ShardingOption] | None:
        """Return what the enumerator lists for the last model; None: nothing was planned."""
        if self._last is None:
            return None
        module, sharders = self._last
        space: list[ShardingOption] = self._enumerator.enumerate(module=module, sharders=sharders)
        return space


class RefusedRequest(IterationTimePlanner):
    """Stands for the planner of a request that is refused: an executor classifies what it raises.

    TorchRec's executor turns a planner's errors into results, and not a provider's.
    """

    def __init__(self, topology: TorchRecTopology, error: PlannerError) -> None:
        super().__init__(topology=topology, hardware=_any_profile(topology))
        self._error = error

    def plan(self, module: nn.Module, sharders: Sequence[Any]) -> Any:  # noqa: ANN401
        """Raise the error."""
        del module, sharders
        raise self._error

    def collective_plan(self, module: nn.Module, sharders: Any = None, pg: Any = None) -> Any:  # noqa: ANN401
        """Raise the error, on every rank: all have the request."""
        del module, sharders, pg
        raise self._error


class IterationTimeProvider(DefaultPlannerProvider):  # type: ignore[misc]  # torchrec has no types
    """Builds topology, storage reservation and ``IterationTimePlanner`` for a planner session.

    Fields of the request and its ``PlannerConfig`` that change nothing are named in the planner's
    one warning. What is wrong with a request is raised by the planner, as TorchRec's
    ``PlannerError``.

    Parameters
    ----------
    profiles
        By SKU, its hardware profile, name or path. A SKU that is a profile's own name needs none.
    hardware
        The profile of all other SKUs. Without it they are refused, or, where no ``profiles`` are
        given, planned for the GPU that torch sees.
    options
        Arguments of ``IterationTimePlanner`` that no request has: ``dense``, ``dense_optimizer``,
        ``precision``, ``pipeline`` (where the request has none), ``sample_batches``, ``sharder``,
        ``seed``, ``replicate``, ``callbacks``, ``plan_loader``, ``fixed_plan``, ...

    """

    def __init__(
        self,
        profiles: Mapping[str, Hardware] | None = None,
        *,
        hardware: Hardware | None = None,
        **options: Any,  # noqa: ANN401 - the planner checks them
    ) -> None:
        self._profiles = dict(profiles or {})
        self._hardware = hardware
        self._options = options

    def build_topology(
        self, sku: str, request: ShardingPlanRequest, ctx: PlannerSessionContext
    ) -> TorchRecTopology:
        """Return the request's topology, with the memory of the SKU's profile if it has none.

        That of a refused request is of one rank.
        """
        try:
            profile, name = self._profile(sku, request)
            topology = super().build_topology(sku, _completed(sku, request, profile), ctx)
        except PlannerError:
            return make_topology(world_size=1, compute_device="cpu")
        ctx.hw_source[sku] = f"profile {name}"
        return topology

    def build_storage_reservation(
        self, sku: str, request: ShardingPlanRequest
    ) -> StorageReservation | None:
        """Return the reservation that a request has or asks for.

        None: it says nothing, and what is predicted for dense part and inputs is left free.
        """
        config = request.planner_config
        policy = config.storage_reservation_policy
        unsaid = request.storage_reservation is None and policy is StorageReservationPolicy.UNSET
        numbers = (
            config.storage_reservation_percentage,
            config.dense_tensor_estimate,
            config.parameter_multiplier,
        )
        if unsaid and numbers == (None, None, None):
            return None
        if request.storage_reservation is None and policy is StorageReservationPolicy.SKU_AWARE:
            try:
                return self._aware_of_sku(sku, request)
            except PlannerError:  # which building the planner raises
                return None
        made: StorageReservation = super().build_storage_reservation(sku, request)
        return made

    def build_planner(
        self,
        sku: str,
        *,
        topology: TorchRecTopology,
        storage_reservation: StorageReservation | None,
        ctx: PlannerSessionContext,
    ) -> IterationTimePlanner:
        """Return the planner of a request; one that raises what is wrong, if anything is."""
        request = ctx.request
        config = request.planner_config
        try:
            profile, _ = self._profile(sku, request)
            _completed(sku, request, profile)
            if config.storage_reservation_policy is StorageReservationPolicy.SKU_AWARE:
                self._home_bytes(sku, request)
            pipeline = _pipeline(config.pipeline_type)
            given = {} if pipeline is None else {"pipeline": pipeline}
            return ProvidedPlanner(
                list(unheeded_request(request, _override(sku, request))),
                **{
                    **self._options,
                    **given,
                    "topology": topology,
                    "batch_size": request.batch_size,
                    "storage_reservation": storage_reservation,
                    "constraints": request.constraints,
                    "stats": ctx.stats,
                    "debug": config.debug,
                    "timeout_seconds": config.timeout_seconds,
                    "hardware": profile,
                },
            )
        except PlannerError as error:
            return RefusedRequest(topology, error)

    def _profile(self, sku: str, request: ShardingPlanRequest) -> tuple[HardwareProfile, str]:
        """Return a SKU's profile, and its name or path."""
        own = sku if sku in profile_names() else self._hardware
        if own is None and self._profiles and sku not in self._profiles:
            _refuse([f"SKU `{sku}` has no profile; give profiles={{{sku!r}: ...}} or `hardware`"])
        return resolve_profile(self._profiles.get(sku, own), request.compute_device or "cuda")

    def _home_bytes(self, sku: str, request: ShardingPlanRequest) -> Bytes:
        """Return the memory of a rank of the SKU that a reservation's share is of."""
        home = request.planner_config.home_sku
        if home is None:
            profile, _ = self._profile(sku, request)
            return float(_completed(sku, request, profile).hbm_gb) * GIB
        if home not in self._profiles:
            _refuse([f"home_sku `{home}` has no profile; give profiles={{{home!r}: ...}}"])
        return self._profile(home, request)[0].gpu.memory_bytes

    def _aware_of_sku(self, sku: str, request: ShardingPlanRequest) -> StorageReservation | None:
        """Return the reservation of the policy ``sku_aware``; None: our memory model is it.

        A share of memory is of the home SKU's, and stands for its runtime, too. The runtime takes
        the tenth that this planner keeps: of the memory that the SKU has beyond the home's, and
        where the model's base is given instead of a share, of all.
        """
        config = request.planner_config
        share = config.storage_reservation_percentage
        numbers = (share, config.model_base_bytes, config.dense_tensor_estimate)
        if (*numbers, config.parameter_multiplier) == (None,) * 4:
            return None
        profile, _ = self._profile(sku, request)
        rank_bytes = float(_completed(sku, request, profile).hbm_gb) * GIB
        home_bytes, multiplier = self._home_bytes(sku, request), config.parameter_multiplier
        covered = home_bytes if config.model_base_bytes is None else 0.0
        return SKUAwareStorageReservation(
            margin_bytes=int((_SHARE if share is None else share) * home_bytes),
            runtime_overhead_bytes=int(RESERVE_SHARE * max(0.0, rank_bytes - covered)),
            parameter_multiplier=_DENSE_COPIES if multiplier is None else multiplier,
            model_base_bytes=config.model_base_bytes,
            dense_tensor_estimate=config.dense_tensor_estimate,
        )


def _any_profile(topology: TorchRecTopology) -> str:
    """Return a profile of the topology's device, for a planner that never plans."""
    return "cpu-gloo" if topology.compute_device == "cpu" else "h100-sxm"


def _override(sku: str, request: ShardingPlanRequest) -> Any:  # noqa: ANN401 - a SkuOverride
    """Return what a dry run's request says of one SKU; None: nothing."""
    return (getattr(request, "per_sku_overrides", None) or {}).get(sku)


def _completed(
    sku: str, request: ShardingPlanRequest, profile: HardwareProfile
) -> ShardingPlanRequest:
    """Return the request with a SKU's memory: its override's, the request's, or its profile's.

    Raises
    ------
    PlannerError
        Numbers of it are none that can be planned for; it names all.

    """
    override = _override(sku, request)
    memory = {
        "hbm_gb": profile.gpu.memory_bytes / GIB,
        "ddr_gb": profile.host.memory_bytes / profile.gpus_per_node / GIB,
    }
    for name in memory:
        for said in (override, request):
            value = getattr(said, name, None)
            if value is not None:
                memory[name] = value
                break
    _check(request, memory)
    return replace(request, **memory)


def _check(request: ShardingPlanRequest, memory: Mapping[str, Any]) -> None:
    """Raise PlannerError with all that is wrong with a request's numbers."""
    limits = {"world_size": MOST_RANKS, "local_world_size": MOST_RANKS, "batch_size": MOST_SAMPLES}
    wrong = [
        f"{name} must be a whole number from 1 to {most:,}, got {getattr(request, name)!r}"
        for name, most in limits.items()
        if not _is_whole(getattr(request, name), most)
    ]
    wrong += [
        f"{name} must be a number of GiB from 0 to {_MOST_GIB:,}, got {value!r}"
        for name, value in memory.items()
        if not _is_size(value)
    ]
    _refuse(wrong)


def _is_whole(value: Any, most: int) -> bool:  # noqa: ANN401 - whatever a request has
    if isinstance(value, bool) or not isinstance(value, Integral):
        return False
    return 1 <= int(value) <= most


def _is_size(value: Any) -> bool:  # noqa: ANN401 - whatever a request has
    return isinstance(value, Real) and isfinite(value) and 0 <= float(value) <= _MOST_GIB


def _refuse(wrong: Sequence[str]) -> None:
    if wrong:
        raise PlannerError("\n".join(wrong), INPUT_VALIDATION)


def _pipeline(name: str | None) -> Pipeline | None:
    """Return the pipeline of TorchRec's name; None: none is named."""
    if name is None:
        return None
    if name not in _PIPELINES:
        _refuse([f"unknown pipeline_type `{name}`; accepted are {', '.join(_PIPELINES)}"])
    return _PIPELINES[name]
