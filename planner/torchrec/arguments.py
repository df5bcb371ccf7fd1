"""The arguments of ``IterationTimePlanner``: their types, and names as scripts spell them.

One table lists the tests of arguments, another those of a constraint's fields. The cost model
checks ranges of numbers.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from numbers import Integral, Real
from pathlib import Path
from reprlib import repr as short_repr
from typing import Any, TypeAlias, TypeVar

from torch import nn
from torchrec.distributed.planner.types import ParameterConstraints, PlannerError, Topology
from torchrec.distributed.types import ShardingPlan

from costmodel.base.limits import MOST_BYTES, MOST_RANKS
from costmodel.domain.hardware import HardwareProfile
from costmodel.domain.workload import DenseModel, Pipeline
from planner.torchrec.error_types import INPUT_VALIDATION

Value = TypeVar("Value")
_Test: TypeAlias = Callable[[Any], bool]
_Wanted: TypeAlias = Mapping[str, tuple[_Test, str]]
"""By name, the test that a value must pass unless it is None, and a noun for what passes."""


def _type_test(*kinds: type) -> _Test:
    """Return a test for values of some types; a bool does not pass for a number."""
    return lambda given: isinstance(given, kinds) and isinstance(given, bool) == (bool in kinds)


def _method_test(*methods: str) -> _Test:
    """Return a test for objects, not classes, that have some methods."""
    return lambda given: (
        not isinstance(given, type)
        and all(callable(getattr(given, each, None)) for each in methods)
    )


def _list_test(test: _Test) -> _Test:
    """Return a test for lists whose items all pass another test."""
    return lambda given: isinstance(given, list | tuple) and all(map(test, given))


def _any_test(*tests: _Test) -> _Test:
    return lambda given: any(test(given) for test in tests)


_WHOLE = _type_test(Integral), "a whole number"
_TELLS = _method_test("log")
_ARGUMENTS: _Wanted = {
    "topology": (_type_test(Topology), "a Topology of TorchRec's"),
    "batch_size": _WHOLE,
    "enumerator": (_method_test("enumerate", "populate_estimates"), "an Enumerator that was made"),
    "storage_reservation": (_method_test("reserve"), "a StorageReservation that was made"),
    "stats": (_any_test(_TELLS, _list_test(_TELLS)), "Stats that were made, or a list of them"),
    "constraints": (_type_test(Mapping), "a dict of ParameterConstraints by table"),
    "callbacks": (_list_test(callable), "a list of functions"),
    "timeout_seconds": (
        lambda given: _type_test(Real)(given) and 0 <= given < inf,
        "a number of seconds, 0 or more",
    ),
    "plan_loader": (_method_test("load", "plan_context_hash"), "a PlanLoader that was made"),
    "fixed_plan": (_type_test(ShardingPlan), "a ShardingPlan of TorchRec's"),
    "hardware": (_type_test(HardwareProfile, str, Path), "a HardwareProfile, its name or its path"),
    "sharder": (_type_test(str), "the name of a sharder"),
    "seed": _WHOLE,
    "dense": (_type_test(DenseModel), "a planner.DenseModel"),
    "gradient_accumulation_steps": _WHOLE,
    "restore_site": _WHOLE,
    "headroom": (
        lambda given: _type_test(Real)(given) and 0 <= given < 1,
        "a share of 0 to below 1",
    ),
    "sharding_group_size": _WHOLE,
    "use_inter_host_allreduce": (_type_test(bool), "True or False"),
    "sync_interval": _WHOLE,
    "replicate": (_type_test(bool), "True, False or None"),
}
_NUMBERS = _list_test(_type_test(Real)), "a list of numbers"
_LIST = _type_test(list, tuple), "a list"
_CONSTRAINT: _Wanted = {
    "sharding_types": _LIST,
    "compute_kernels": _LIST,
    "min_partition": _WHOLE,
    "pooling_factors": _NUMBERS,
    "num_poolings": _NUMBERS,
    "batch_sizes": _NUMBERS,
}
_PIPELINES: Mapping[str, Pipeline] = {each.value: each for each in Pipeline} | {
    "TrainPipelineBase": Pipeline.NONE,
    "TrainPipelineSparseDist": Pipeline.SPARSE_DIST,
    "TrainPipelineSparseDistEmbStash": Pipeline.SPARSE_DIST,
    "PrefetchTrainPipelineSparseDist": Pipeline.PREFETCH,
    "TrainPipelineFusedSparseDist": Pipeline.FUSED_SPARSE_DIST,
    "TrainPipelineSemiSync": Pipeline.SEMI_SYNC,
}
"""Pipelines by our names and by those of TorchRec's classes."""


def check_arguments(given: Mapping[str, Any]) -> None:
    """Check the types of the planner's arguments, given by name; unknown names are ignored.

    Raises
    ------
    torchrec.distributed.planner.types.PlannerError
        Some are of other types; it names all of these.

    """
    wrong = list(_type_errors(given, _ARGUMENTS, "{}"))
    if isinstance(given.get("topology"), Topology):
        wrong += _topology_errors(given["topology"])
    constraints = given.get("constraints")
    for table, each in constraints.items() if isinstance(constraints, Mapping) else ():
        if each is None:
            continue
        if isinstance(each, ParameterConstraints):
            wrong += _type_errors(vars(each), _CONSTRAINT, f"{{}} of the constraints of `{table}`")
        else:
            wrong.append(
                f"constraints of `{table}` must be ParameterConstraints, got "
                f"{type(each).__name__}: ParameterConstraints(sharding_types=[...])"
            )
    if wrong:
        raise PlannerError("\n".join(wrong), INPUT_VALIDATION)


def _type_errors(given: Mapping[str, Any], wanted: _Wanted, called: str) -> Iterator[str]:
    """Yield a message for each value of a wrong type.

    ``called`` returns a value's name in messages.
    """
    for name, (test, text) in wanted.items():
        value = given.get(name)
        if value is not None and not test(value):
            got = f"the class {value.__name__}" if isinstance(value, type) else short_repr(value)
            yield f"{called.format(name)} must be {text}, got {got}"


def check_model(module: object, sharders: Sequence[object]) -> None:
    """Raise PlannerError, naming all that is wrong, unless there are a model and sharders."""
    wrong = []
    if not isinstance(module, nn.Module):
        wrong.append(f"the model must be a torch.nn.Module, got {short_repr(module)}")
    wrong += [
        f"sharders must be ModuleSharders that were made, got {short_repr(each)}"
        for each in sharders
        if isinstance(each, type) or not hasattr(each, "module_type")
    ]
    if wrong:
        raise PlannerError("\n".join(wrong), INPUT_VALIDATION)


def _topology_errors(topology: Topology) -> Iterator[str]:
    """Yield what is wrong with a topology's numbers."""
    ranks = topology.world_size
    if not (_type_test(Integral)(ranks) and 1 <= ranks <= MOST_RANKS):
        got = short_repr(ranks)
        yield f"world_size of the topology must be from 1 to {MOST_RANKS:,}, got {got}"
        return
    for name in ("hbm", "ddr"):
        sizes: dict[Any, int] = {}
        for rank, device in enumerate(topology.devices):
            sizes.setdefault(getattr(device.storage, name), rank)
        for size, rank in sizes.items():
            if not (_type_test(Real)(size) and 0 <= size <= MOST_BYTES):
                yield (
                    f"{name}_cap of the topology must be bytes from 0 to {MOST_BYTES:g}, got "
                    f"{short_repr(size)} on rank {rank}"
                )


def named(argument: str, given: object, names: Mapping[str, Value]) -> Value:
    """Return the value of a name, in whatever case, with or without ``torch.`` before it.

    A class goes by its own name, and so do members of an enumeration and torch's types.

    Raises
    ------
    torchrec.distributed.planner.types.PlannerError
        There is none of this name; it lists all there are.

    """
    told = given.__name__ if isinstance(given, type) else str(given)
    found = {_plain(name): value for name, value in names.items()}.get(_plain(told))
    if found is None:
        raise unknown(argument, told, names)
    return found


def _plain(name: str) -> str:
    return name.rpartition(".")[2].replace("_", "").casefold()


def unknown(argument: str, told: str, names: Iterable[str]) -> PlannerError:
    """Return the error of a name that is not among ``names``."""
    return PlannerError(
        f"unknown {argument} `{told}`; accepted are {', '.join(names)}", INPUT_VALIDATION
    )


def to_pipeline(pipeline: Pipeline | str | type) -> Pipeline:
    """Return the pipeline given by its name, or by TorchRec's class or that one's name."""
    return named("pipeline", pipeline, _PIPELINES)
